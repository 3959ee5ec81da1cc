// SPDX-License-Identifier: Apache-2.0
/* Gradients against finite differences. Include after support.h. */
#ifndef S24_TEST_NN_TRAIN_SLOPES_H
#define S24_TEST_NN_TRAIN_SLOPES_H

#include <math.h>

#include "nn_load.h"
#include "sparse24/train.h"

enum { MOST_PARAMETERS = 64 };

static inline double loss_of(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                             const s24_objective *o)
{
    double loss;
    OK(ctx, s24_transformer_gradients(&loss, t, ctx, examples, o));
    return loss;
}

static inline double length_of(const float *x, int64_t count)
{
    double length = 0;
    for (int64_t k = 0; k < count; k++)
        length += (double)x[k] * (double)x[k];
    return sqrt(length);
}

/* Parameter i on its way along its gradient, h at most. */
typedef struct slope {
    s24_transformer *t;
    s24_ctx *ctx;
    const s24_examples *examples;
    const s24_objective *objective;
    int64_t i;
    float h;
} slope;

/* How much the loss rises from −h to h, over 2h. */
static inline double slope_along(const slope *s, const float *gradient)
{
    s24_parameter p;
    double side[2];
    assert_true(s24_transformer_parameter(&p, s->t, s->i));
    const float length = (float)length_of(gradient, p.count);
    float *w = malloc((size_t)p.count * sizeof *w), *shifted = malloc((size_t)p.count * sizeof *w);
    OK(s->ctx, s24_transformer_read(w, s->t, s->ctx, s->i, 0));
    for (int up = 0; up < 2; up++) {
        for (int64_t k = 0; k < p.count; k++)
            shifted[k] = w[k] + (up ? s->h : -s->h) * gradient[k] / length;
        OK(s->ctx, s24_transformer_write(s->t, s->ctx, s->i, shifted));
        side[up] = loss_of(s->t, s->ctx, s->examples, s->objective);
    }
    OK(s->ctx, s24_transformer_write(s->t, s->ctx, s->i, w));
    free(w);
    free(shifted);
    return (side[1] - side[0]) / (2 * (double)s->h);
}

/* Along each tensor's own gradient the loss must rise by the gradient's length. Returns how many
   tensors have one that is more than rounding. */
static inline int slopes_agree(s24_transformer *t, s24_ctx *ctx, const s24_examples *examples,
                               const s24_objective *o, float h)
{
    float *gradients[MOST_PARAMETERS] = {NULL};
    s24_parameter p;
    int moved = 0;
    loss_of(t, ctx, examples, o);
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        assert_true(i < MOST_PARAMETERS);
        gradients[i] = malloc((size_t)p.count * sizeof(float));
        OK(ctx, s24_transformer_read(gradients[i], t, ctx, i, 1));
    }
    for (int64_t i = 0; s24_transformer_parameter(&p, t, i); i++) {
        const double length = length_of(gradients[i], p.count);
        if (length > 1e-3) {
            const slope along = {t, ctx, examples, o, i, h};
            const double rises = slope_along(&along, gradients[i]);
            moved++;
            if (!(fabs(rises - length) <= 0.02 * length + 2e-3))
                fail_msg("%s: the gradient is %g long, the loss rises by %g", p.name, length,
                         rises);
        }
        free(gradients[i]);
    }
    return moved;
}

#endif
