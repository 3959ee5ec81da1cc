// SPDX-License-Identifier: Apache-2.0
/*
 * The criteria of a loss's gradient g on examples: what the loss gains or loses where a weight
 * becomes zero, by one term of its series or two.
 *
 *     movement       −w·E g               the weights that a step would move away from zero
 *     snip           |w·E g|              the first order of the mean loss
 *     taylor-first   |w|·E|g|             the first order of each example's
 *     taylor-second  |w²·E g²/2 − w·E g|  both orders, the second by Fisher's diagonal
 */
#include <math.h>

#include "prune/prune.h"

s24_status s24i_score_movement(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = -(double)in->w[i] * (double)in->gradients->mean[i];
    return S24_OK;
}

s24_status s24i_score_snip(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = fabs((double)in->w[i] * (double)in->gradients->mean[i]);
    return S24_OK;
}

s24_status s24i_score_taylor_first(void *user, s24_ctx *ctx, double *scores,
                                   const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = fabs((double)in->w[i]) * (double)in->gradients->size[i];
    return S24_OK;
}

s24_status s24i_score_taylor_second(void *user, s24_ctx *ctx, double *scores,
                                    const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const double w = (double)in->w[i];
        scores[i] = fabs(w * w * (double)in->gradients->square[i] / 2.0 -
                         w * (double)in->gradients->mean[i]);
    }
    return S24_OK;
}
