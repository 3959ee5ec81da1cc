// SPDX-License-Identifier: Apache-2.0
/* The head of a masked language model, of which SPLADE makes weights of words: read from a
   checkpoint, and run over the states of texts' tokens some at a time. */
#ifndef S24_RUN_WORDS_H
#define S24_RUN_WORDS_H

#include "model/model.h"

typedef struct s24i_words s24i_words;

/* UNSUPPORTED: the model's row knows no such head; FORMAT (a tensor of it), MEMORY. */
s24_status s24i_words_create(s24i_words **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                             const s24_model *model);
void s24i_words_destroy(s24i_words *words, s24_ctx *ctx);

/* Texts whose tokens lie end to end, and where the weights of each belong. */
typedef struct s24i_words_job {
    const float *states;    /* [offsets[texts], width] */
    const int64_t *offsets; /* [texts + 1] */
    const int64_t *places;  /* [texts] rows of `out` */
    int64_t texts;
    const s24_word_weights *out;
    const s24i_vec *vec;
} s24i_words_job;

s24_status s24i_words_run(s24i_words *words, s24_ctx *ctx, const s24i_words_job *job);

#endif
