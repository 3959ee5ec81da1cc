// SPDX-License-Identifier: Apache-2.0
/*
 * Reconstruction: after a block's layers are pruned, the weights that stay are trained so that the
 * block gives, from the pruned model's states, what the dense model gives from its own. Attention
 * and the feed-forward layers are trained one after the other, each against the dense model's state
 * after it: the errors of all blocks before are made good where they can be, and none is handed on
 * twice.
 */
#ifndef S24_RECIPE_RECONSTRUCT_H
#define S24_RECIPE_RECONSTRUCT_H

#include "model/model.h"

typedef struct s24i_reconstruction s24i_reconstruction;

typedef struct s24i_reconstruct_opts {
    const s24_checkpoint *dense;
    int64_t steps; /* for each half of a block */
    int64_t texts;
    const int64_t *ends; /* [texts + 1]: text t is ids[ends[t]] … ids[ends[t + 1]] */
    const int32_t *ids;
    const float *pixels;     /* in place of ids, of a model of images, one a text */
    const float *embeddings; /* [tokens, width], of all texts; copied */
    s24_device *device;      /* that runs it, in bf16; NULL: the CPU, in f32 */
} s24i_reconstruct_opts;

/* ends, ids and pixels must outlive it. Errors: those of s24_transformer_load, MEMORY. */
s24_status s24i_reconstruction_create(s24i_reconstruction **out, s24_ctx *ctx,
                                      const s24i_reconstruct_opts *opts);
void s24i_reconstruction_destroy(s24i_reconstruction *reconstruction);

/*
 * Blocks come in order. hidden [tokens, width] is the pruned model's state before the block;
 * weights[slot] with data become the trained ones: zeros stay. A slot whose bit in `pruned` is not
 * set has its dense weights, which stay. Errors: NUMERIC (a loss that is not finite), INTERRUPTED.
 */
s24_status s24i_reconstruct_block(s24i_reconstruction *reconstruction, s24_ctx *ctx, int64_t block,
                                  const float *hidden, const s24_dense *weights, unsigned pruned);

#endif
