// SPDX-License-Identifier: Apache-2.0
/*
 * The layer that makes keys and values of latents is never run over tokens: its rows that make keys
 * multiply queries, and those that make values what attention gives. Both are in f32, dense: next
 * to the other layers of a block they are few, and a head's part of them is small.
 */
#include "run/load/latent_weight.h"

#include <string.h>

#include "io/file/io.h"

typedef struct arranging {
    s24i_block *block;
    const s24i_shape *shape;
    const s24_dense *weight;
} arranging;

/* Keys' rows as they are, values' columns as rows. */
static void arrange(void *arg, int64_t begin, int64_t end, int thread)
{
    const arranging *j = arg;
    const s24i_latent *l = &j->shape->latent;
    const int64_t rank_ld = s24i_round_up(l->rank, S24I_VEC_PAD),
                  value_ld = s24i_round_up(l->value, S24I_VEC_PAD), ld = s24i_ld(j->weight);
    (void)thread;
    for (int64_t h = begin; h < end; h++) {
        const float *from = (const float *)j->weight->data + h * (l->plain + l->value) * ld;
        float *keys = j->block->latent_keys + h * l->plain * rank_ld,
              *values = j->block->latent_values + h * l->rank * value_ld;
        for (int64_t r = 0; r < l->plain; r++) {
            memcpy(keys + r * rank_ld, from + r * ld, (size_t)l->rank * sizeof *keys);
            memset(keys + r * rank_ld + l->rank, 0, (size_t)(rank_ld - l->rank) * sizeof *keys);
        }
        from += l->plain * ld;
        for (int64_t c = 0; c < l->rank; c++)
            for (int64_t r = 0; r < value_ld; r++)
                values[c * value_ld + r] = r < l->value ? from[r * ld + c] : 0.0f;
    }
}

s24_status s24i_latent_build(s24i_block *block, s24_ctx *ctx, const s24i_shape *shape,
                             const s24_dense *weight)
{
    const s24i_latent *l = &shape->latent;
    arranging job = {block, shape, weight};
    block->latent_ctx = ctx;
    TRY(s24i_alloc_elems(&block->latent_keys, ctx,
                         shape->heads * l->plain * s24i_round_up(l->rank, S24I_VEC_PAD),
                         sizeof(float), "a weight"));
    TRY(s24i_alloc_elems(&block->latent_values, ctx,
                         shape->heads * l->rank * s24i_round_up(l->value, S24I_VEC_PAD),
                         sizeof(float), "a weight"));
    s24_ctx_parallel_for(ctx, shape->heads, arrange, &job);
    return S24_OK;
}

void s24i_latent_clear(s24i_block *block)
{
    if (block->latent_keys) s24_ctx_free(block->latent_ctx, block->latent_keys);
    if (block->latent_values) s24_ctx_free(block->latent_ctx, block->latent_values);
    block->latent_keys = block->latent_values = NULL;
}
