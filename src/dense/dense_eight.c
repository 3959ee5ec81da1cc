// SPDX-License-Identifier: Apache-2.0
/* Weights in 8 bits from floats: integers with a scale for each row, for engines that multiply them
   by tokens in bytes. */
#include "dense/dense.h"
#include "io/file/io.h"

int s24i_dense_takes_eight(s24_ctx *ctx, int64_t cols)
{
    enum { GROUP = 4 /* columns of which what quantises a weight takes a multiple */ };
    return cols % GROUP == 0 && s24i_dense_engine.takes_eight &&
           s24i_dense_engine.takes_eight(ctx, cols);
}

s24_status s24i_dense_eight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w)
{
    int8_t *values = NULL;
    float *scales = NULL;
    s24_status status;
    *out = NULL;
    TRY_DONE(s24i_alloc_elems(&values, ctx, w->rows * w->cols, 1, "a weight's integers"));
    TRY_DONE(s24i_alloc_elems(&scales, ctx, w->rows, sizeof *scales, "a weight's scales"));
    TRY_DONE(s24_dense_quantize(values, scales, ctx, w, "int8"));
    const s24_quantized integers = {.rows = w->rows,
                                    .cols = w->cols,
                                    .bits = 8,
                                    .group = w->cols,
                                    .values = values,
                                    .scales = scales};
    status = s24i_dense_engine.eight_create(out, ctx, &integers);
done:
    s24_ctx_free(ctx, scales);
    s24_ctx_free(ctx, values);
    return status;
}
