// SPDX-License-Identifier: Apache-2.0
/* Another model of the same shape, as a teacher is. Include after support.h. */
#ifndef S24_TEST_NN_MOVED_H
#define S24_TEST_NN_MOVED_H

#include <math.h>

#include "nn_load.h"
#include "sparse24/train.h"

/* Each weight goes up or down by `far` at most. */
static inline void move_weights(s24_ctx *ctx, s24_transformer *t, float far)
{
    s24_parameter p;
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        float *w = malloc((size_t)p.count * sizeof *w);
        OK(ctx, s24_transformer_read(w, t, ctx, i, 0));
        for (int64_t k = 0; k < p.count; k++)
            w[k] += far * sinf((float)(k + 3 * i));
        OK(ctx, s24_transformer_write(t, ctx, i, w));
        free(w);
    }
}

#endif
