// SPDX-License-Identifier: Apache-2.0
/* The prompts of a folder's config_sentence_transformers.json: texts that stand before others,
   by name. */
#ifndef S24_RUN_PROMPTS_H
#define S24_RUN_PROMPTS_H

#include "io/checkpoint/config.h"

typedef struct s24i_prompts {
    s24i_config file;         /* owns all names and texts; json NULL: the folder has no such file */
    s24i_json *by_name;       /* an object of strings, or NULL */
    const char *usual;        /* the name of the default; NULL: none */
    const char *const *sides; /* names that are there in any case, without a text; ends with NULL */
} s24i_prompts;

/* FORMAT (a prompt that is no string, by its name), IO, MEMORY. To be freed after an error too. */
s24_status s24i_prompts_read(s24i_prompts *out, s24_ctx *ctx, const char *folder);
void s24i_prompts_free(s24i_prompts *prompts);

/* In the order of the file; NULL past the end. text may be NULL. */
const char *s24i_prompts_at(const s24i_prompts *prompts, int64_t index, const char **text);

/* The text of that name, NULL: there is none. */
const char *s24i_prompts_text(const s24i_prompts *prompts, const char *name);

/*
 * The prompt that is asked for, NULL: the folder's default, without one *name is NULL and *text "".
 * ARGUMENT, FORMAT where the default does not exist: the sentence lists the names that there are.
 */
s24_status s24i_prompts_find(const char **name, const char **text, const s24i_prompts *prompts,
                             s24_ctx *ctx, const char *asked);

#endif
