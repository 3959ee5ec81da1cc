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

#include "recipe/halves.h"

typedef struct s24i_reconstruction s24i_reconstruction;

/* Of passes that are made to train, which it uses and must not outlive. Errors: MEMORY. */
s24_status s24i_reconstruction_create(s24i_reconstruction **out, s24_ctx *ctx, s24i_halves *halves,
                                      int64_t steps);
void s24i_reconstruction_destroy(s24i_reconstruction *reconstruction);

/*
 * Blocks come in order, each with both calls. Aim runs the dense model through the block, whose
 * weights must be in the passes as they were. Then halves->state is the pruned model's state before
 * the block; weights[slot] with data become the trained ones: zeros stay. A slot whose bit in
 * `pruned` is not set has its dense weights, which stay. halves->middle is overwritten. Pass stands
 * for the second call where the block is done already. Errors: NUMERIC (a loss that is not finite),
 * INTERRUPTED.
 */
s24_status s24i_reconstruct_aim(s24i_reconstruction *reconstruction, s24_ctx *ctx, int64_t block);
s24_status s24i_reconstruct_block(s24i_reconstruction *reconstruction, s24_ctx *ctx, int64_t block,
                                  const s24_dense *weights, unsigned pruned);
void s24i_reconstruct_pass(s24i_reconstruction *reconstruction);

#endif
