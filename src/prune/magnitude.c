// SPDX-License-Identifier: Apache-2.0
/* The criterion "magnitude": |w|. It needs no statistics. */
#include <math.h>

#include "prune/prune.h"

s24_status s24i_score_magnitude(void *user, s24_ctx *ctx, double *scores,
                                const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = fabs((double)in->w[i]);
    return S24_OK;
}
