// SPDX-License-Identifier: Apache-2.0
/*
 * JSON files of a Hugging Face folder (config.json, modules.json …) with typed reads whose errors
 * name file, key, what stands there and what was expected.
 *
 *     s24i_config config;
 *     int64_t width, types = 2;
 *     TRY(s24i_config_load(&config, ctx, folder, "config.json", S24I_REQUIRED));
 *     TRY_DONE(s24i_config_int(&width, &config, "hidden_size", S24I_REQUIRED, 1, 65536));
 *     TRY_DONE(s24i_config_int(&types, &config, "type_vocab_size", S24I_OPTIONAL, 0, 1024));
 *  done:
 *     s24i_config_free(&config);
 */
#ifndef S24_IO_CHECKPOINT_CONFIG_H
#define S24_IO_CHECKPOINT_CONFIG_H

#include "io/file/io.h"
#include "io/json/json.h"

typedef struct s24i_config {
    s24_ctx *ctx;
    s24i_json *json; /* an object or an array; NULL when the optional file or key is not there */
    char *file;      /* its path, for sentences */
    const s24i_json *usual; /* an object whose values stand for those that are not there; or NULL */
} s24i_config;

/* OPTIONAL: what is not there (or null) is no error and leaves *out, the default, as it was. What
   is there but of another type or out of range is an error in any case. */
typedef enum s24i_need { S24I_REQUIRED, S24I_OPTIONAL } s24i_need;

/* Reads folder/name. On error, and when an optional file is absent, out->json is NULL; freeing is
   harmless then. IO (absent or unreadable), FORMAT (not JSON, neither object nor array), MEMORY. */
s24_status s24i_config_load(s24i_config *out, s24_ctx *ctx, const char *folder, const char *name,
                            s24i_need need);
/* The same from memory; name is for sentences. */
s24_status s24i_config_parse(s24i_config *out, s24_ctx *ctx, const char *name, const void *data,
                             size_t bytes);
void s24i_config_free(s24i_config *config);

/* Reads of an object. All fail with FORMAT. A string is borrowed from the config. A key may be
   several spellings with | between them, of which the first that is there counts. */
s24_status s24i_config_int(int64_t *out, const s24i_config *config, const char *key, s24i_need need,
                           int64_t min, int64_t max);
s24_status s24i_config_double(double *out, const s24i_config *config, const char *key,
                              s24i_need need, double min, double max);
s24_status s24i_config_string(const char **out, const s24i_config *config, const char *key,
                              s24i_need need);
s24_status s24i_config_bool(int *out, const s24i_config *config, const char *key, s24i_need need);
/* The object or array at a key, as a config of its own that borrows from this one: not to be
   freed. */
s24_status s24i_config_child(s24i_config *out, const s24i_config *config, const char *key,
                             s24i_need need);
/* A value in an array, likewise; 0 when it is neither object nor array. */
int s24i_config_item(s24i_config *out, const s24i_config *array, s24i_json *value);

#endif
