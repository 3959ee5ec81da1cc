// SPDX-License-Identifier: Apache-2.0
/* Declares what a model is run on to learn what its layers see: the passages of --calibration, or
   images. */
#ifndef SPARSE24_CLI_PASSAGES_H
#define SPARSE24_CLI_PASSAGES_H

#include "ids.h"

typedef struct passages_options {
    const char *path;   /* NULL: none */
    const char *images; /* in place of passages, or next to them; NULL: none */
    int64_t samples, max_tokens;
    int ids, pairs;
} passages_options;

/* Holds what was read: texts or token ids, and images. */
typedef struct passages {
    s24_lines *lines;
    s24_text *texts; /* [count] */
    int64_t count;
    s24_id_lines *ids;
    int32_t *tokens; /* of pairs, and their types; NULL: no pairs */
    int64_t *ends;
    s24_batch batch;  /* of ids or pairs */
    float *pixels;    /* NULL: no images */
    int64_t values;   /* of all of them */
    s24_batch images; /* of pixels */
} passages;

/* Refuses an input that is no whole model. */
int passages_check(cli_app *cli, const s24_checkpoint *in, const passages_options *o);
/* Reads the first passages of the file, or images from all parts of the set, if there are any; what
   it has after an error, passages_free frees. */
int passages_read(cli_app *cli, passages *given, const passages_options *o,
                  const s24_checkpoint *in);
void passages_free(passages *given);
/* Has the line no character but blanks? Then it is no passage. */
int passages_is_blank(const s24_text *line);

/* Gives the rows of the options; the struct has them as `passages`. */
#define PASSAGES_OPTIONS(type, help)                                                               \
    {"calibration", 0, CLI_TEXT, offsetof(type, passages.path), "FILE", NULL, help, NULL},         \
        {"ids",                                                                                    \
         0,                                                                                        \
         CLI_FLAG,                                                                                 \
         offsetof(type, passages.ids),                                                             \
         NULL,                                                                                     \
         NULL,                                                                                     \
         "--calibration: lines" IDS_HELP,                                                          \
         NULL},                                                                                    \
        {"samples",                                                                                \
         0,                                                                                        \
         CLI_COUNT,                                                                                \
         offsetof(type, passages.samples),                                                         \
         "N",                                                                                      \
         "256",                                                                                    \
         "Use the first N passages that are not blank.",                                           \
         NULL},                                                                                    \
    {                                                                                              \
        "max-tokens", 0, CLI_COUNT, offsetof(type, passages.max_tokens), "N", NULL,                \
            "Cut passages to N tokens. By default to the model's own limit.", NULL                 \
    }

#endif
