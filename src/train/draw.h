// SPDX-License-Identifier: Apache-2.0
/* Weights that no checkpoint has: a head's, or all of them. */
#ifndef S24_TRAIN_DRAW_H
#define S24_TRAIN_DRAW_H

#include "model/walk.h"
#include "train/transformer.h"

/* Of a model whose weights are all drawn. */
typedef struct s24i_drawing {
    double deviation;
    int untied; /* a language model's head has a weight of its own */
} s24i_drawing;

/* What config.json says of it, and of the head that it has. FORMAT. */
s24_status s24i_drawing_read(s24i_drawing *d, s24_head *head, s24_transformer *t, s24_ctx *ctx,
                             const s24_checkpoint *config);
/* Fills a tensor that begins at element `at` of the weights. */
void s24i_draw(float *x, s24_ctx *ctx, const s24_transformer *t, const s24i_drawing *d,
               const s24i_wanted *w, int64_t at);

#endif
