// SPDX-License-Identifier: Apache-2.0
/* Rerankers that answer by a token: a pair's score is the logit of one of a language model's tokens
   ("yes"), less that of another ("no"), where a pair's text ends. So its head is one row. */
#ifndef S24_RUN_LOAD_TOKEN_SCORE_H
#define S24_RUN_LOAD_TOKEN_SCORE_H

#include "model/model.h"

typedef struct s24i_token_score {
    int32_t for_it, against; /* −1: there is none */
} s24i_token_score;

/* The head's row and its bias from the language model's. UNSUPPORTED, FORMAT, MEMORY. */
s24_status s24i_token_score_fill(const s24_model *model, s24_ctx *ctx,
                                 const s24_checkpoint *checkpoint, const s24i_token_score *score);

/* s24_model_load, with that row as a head that classifies texts in place of the language model's.
   */
s24_status s24i_model_load_scoring(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                   const s24_model_opts *opts, const s24i_token_score *score);

#endif
