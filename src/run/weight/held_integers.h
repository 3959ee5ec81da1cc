// SPDX-License-Identifier: Apache-2.0
/* A dense matrix of integers that a model holds: in the pages of its checkpoint's file, or in
   memory of its own. */
#ifndef S24_RUN_WEIGHT_HELD_INTEGERS_H
#define S24_RUN_WEIGHT_HELD_INTEGERS_H

#include "io/file/io.h"
#include "sparse24/nn.h"

typedef struct s24i_integers {
    s24_quantized matrix; /* values NULL: there is none */
    s24i_map map[2];      /* of values and scales; empty where they are here */
    void *own_values, *own_scales;
} s24i_integers;

/* Bytes of values and of scales. */
size_t s24i_integers_value_bytes(const s24_quantized *matrix);
size_t s24i_integers_scale_bytes(const s24_quantized *matrix);

/* Of floats by a scheme, in memory of owner's; errors are in ctx, and so with the next. What it has
   after an error, clear frees. */
s24_status s24i_integers_make(s24i_integers *out, s24_ctx *owner, s24_ctx *ctx,
                              const s24_dense *floats, const char *scheme);
/* Of a checkpoint that may be closed afterwards. */
s24_status s24i_integers_open(s24i_integers *out, s24_ctx *owner, s24_ctx *ctx,
                              const s24_checkpoint *checkpoint, const s24_quantized *from);
void s24i_integers_clear(s24i_integers *integers, s24_ctx *owner);
/* One row as floats, to[cols]. */
void s24i_integers_row(float *to, const s24i_integers *integers, int64_t row);

#endif
