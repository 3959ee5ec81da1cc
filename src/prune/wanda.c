// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "wanda": |w_ij|·‖x_j‖, x_j being column j of the inputs. The mean that the paper
 * takes over inputs scales every score of a layer alike. The kept weights stay as they are.
 *
 * Reference: Sun, Liu, Bair, Kolter, "A simple and effective pruning approach for large language
 * models", ICLR 2024, section 3.
 */
#include <math.h>

#include "prune/prune.h"

s24_status s24i_score_wanda(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t r = 0, i = 0; r < in->rows; r++)
        for (int64_t c = 0; c < in->cols; c++, i++)
            scores[i] = fabs((double)in->w[i]) * in->norms[c];
    return S24_OK;
}
