// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "block-norm": w², whose mean over a block is what PyTorch's WeightNormSparsifier
 * ranks blocks by. Of single weights it chooses as magnitude does; magnitude's mean is that of its
 * norm=1.
 */
#include "prune/prune.h"

s24_status s24i_score_block_norm(void *user, s24_ctx *ctx, double *scores,
                                 const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = (double)in->w[i] * (double)in->w[i];
    return S24_OK;
}
