// SPDX-License-Identifier: Apache-2.0
/*
 * A weight in rows of square blocks on a device in 8 bits, with a scale per row, next to the one in
 * 16 bits. Integers that a file has come as floats of 16 bits, which moves some of them by one.
 */
#include "run/weight/weight_device.h"

#include <string.h>

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && model->narrow && source->sparse && !source->wide &&
           s24i_device_narrows(s24_sparse_get(source->sparse).cols);
}

/* What a thread makes lines of blocks of. */
typedef struct narrowing {
    const s24_sparse_parts *from;
    s24_dtype dtype;
    uint8_t *to;
    float *scales; /* [rows] */
    float *rows;   /* [threads, across]: a row's elements, as floats */
    int64_t across;
} narrowing;

/* A row's piece in each of a line's blocks. */
static void narrow_row(const narrowing *j, int64_t line, int64_t r, float *row)
{
    const s24_sparse_parts *p = j->from;
    const int64_t side = p->block_cols, first = p->starts[line], end = p->starts[line + 1];
    const size_t each = s24_dtype_bytes(p->dtype);
    /* Dtypes that there are: nothing can fail. */
    for (int64_t i = first; i < end; i++)
        (void)s24_convert(row + (i - first) * side, S24_F32,
                          (const char *)p->values + (size_t)((i * side + r) * side) * each,
                          p->dtype, side);
    j->scales[line * side + r] = s24i_scale_row(row, (end - first) * side, j->dtype);
    for (int64_t i = first; i < end; i++)
        (void)s24_convert(j->to + (i * side + r) * side, j->dtype, row + (i - first) * side,
                          S24_F32, side);
}

static void narrow_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const narrowing *j = arg;
    for (int64_t line = begin; line < end; line++)
        for (int64_t r = 0; r < j->from->block_rows; r++)
            narrow_row(j, line, r, j->rows + thread * j->across);
}

/* The same blocks in 8 bits, and the scales of their rows. */
static s24_status narrow(uint8_t *to, float *scales, s24_ctx *ctx, const s24_sparse_parts *from,
                         s24_dtype dtype)
{
    narrowing job = {from, dtype, to, scales, NULL, from->cols};
    TRY(s24i_alloc_elems(&job.rows, ctx, s24_ctx_threads(ctx) * from->cols, sizeof(float),
                         "rows of a weight"));
    s24_ctx_parallel_for(ctx, from->rows / from->block_rows, narrow_lines, &job);
    s24_ctx_free(ctx, job.rows);
    return S24_OK;
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    s24_sparse_parts parts = s24_sparse_get(source->sparse);
    uint8_t *values = NULL;
    float *scales = NULL;
    s24_status status = S24_OK;
    w->device = model->device;
    w->dtype = model->narrow;
    w->n = parts.rows;
    w->k = parts.cols;
    TRY_DONE(s24i_alloc_elems(&values, ctx, parts.stored + 1,
                              (size_t)(parts.block_rows * parts.block_cols), "a weight"));
    TRY_DONE(s24i_alloc_elems(&scales, ctx, w->n, sizeof *scales, "scales"));
    TRY_DONE(narrow(values, scales, ctx, &parts, w->dtype));
    parts.dtype = w->dtype;
    parts.values = values;
    TRY_DONE(s24_device_blocks_create(&w->blocks, ctx, w->device, &parts, NULL));
    status = s24i_device_put_scales(w, ctx, scales);
done:
    s24_ctx_free(ctx, scales);
    s24_ctx_free(ctx, values);
    return status;
}

const s24i_weight_kind s24i_weight_device_blocks_eight = {
    S24I_DEVICE_WEIGHT,    .name = "blocks in 8 bits on a device",
    .way = S24I_WAY_EIGHT, .takes = takes,
    .make = make,          .run = s24i_device_blocks_run};
