// SPDX-License-Identifier: Apache-2.0
/* Attention in f32 whose scores grow by queries' and keys' products with rows of distances
   (model/apart.h). */
#ifndef S24_RUN_CPU_ATTENTION_APART_H
#define S24_RUN_CPU_ATTENTION_APART_H

#include "model/apart.h"
#include "run/cpu/attention.h"

typedef struct s24i_attention_apart {
    const s24i_attention *job; /* scores' scale, queries, keys, values, texts, scratch */
    const s24i_apart *apart;
    const float *keys, *queries; /* of distances, by head [d][s24i_apart_ld]; NULL: none */
    const int32_t *rows; /* [−(longest − 1) … longest − 1] from the middle: of distances */
} s24i_attention_apart;

/* Floats of scratch a thread needs for texts of up to `longest` tokens. */
int64_t s24i_attention_apart_scratch(const s24i_apart *apart, int64_t longest, int64_t d);
void s24i_attention_apart_run(s24_ctx *ctx, const s24i_attention_apart *job);

#endif
