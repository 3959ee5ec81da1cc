// SPDX-License-Identifier: Apache-2.0
/* The next token of a text, by its logits: the largest, or one that is drawn. */
#ifndef S24_RUN_SAMPLE_H
#define S24_RUN_SAMPLE_H

#include "sparse24/language.h"

typedef struct s24i_candidate {
    float logit;
    int32_t id;
    uint64_t weight; /* 2^40 of the likeliest */
} s24i_candidate;

typedef struct s24i_sample {
    const float *logits; /* [words], as the model gives them */
    int64_t words;
    const int32_t *prompt, *text; /* what the penalty is for */
    int64_t prompt_tokens, text_tokens;
    double draw;                /* 0 to below 1 */
    s24i_candidate *candidates; /* [words], scratch */
} s24i_sample;

/* A number of 0 to below 1 for a token of a text. */
double s24i_sample_draw(uint64_t seed, int64_t number, int64_t index);

/* The token's id, by options whose defaults are filled in; of equally likely ones the lowest is
   the largest. −1: a logit is NaN, or the largest is infinite. */
int32_t s24i_sample_next(const s24i_sample *sample, const s24_generate_opts *opts);

/* The `count` largest logits in their order, in `likely`, by ids; candidates [words] is scratch. */
void s24i_sample_likeliest(s24_likely_token *likely, int64_t count, const float *logits,
                           int64_t words, s24i_candidate *candidates);

#endif
