// SPDX-License-Identifier: Apache-2.0
/* A 2:4 weight on a device in 8 bits, with a scale per row, next to the one in 16 bits. */
#include "run/weight/weight_device.h"

#include <math.h>

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && model->narrow && source->matrix && !source->wide &&
           s24i_device_narrows(s24_matrix_cols(source->matrix));
}

static double largest_number(s24_dtype dtype)
{
    return dtype == S24_I8 ? 127 : 448;
}

float s24i_scale_row(float *row, int64_t count, s24_dtype dtype)
{
    float most = 0;
    for (int64_t c = 0; c < count; c++)
        most = fmaxf(most, fabsf(row[c]));
    const float factor = most > 0 ? (float)(largest_number(dtype) / (double)most) : 0;
    for (int64_t c = 0; c < count; c++)
        row[c] *= factor;
    return (float)((double)most / largest_number(dtype));
}

static void scale_rows(float *scales, float *lengths, const s24_dense *floats, s24_dtype dtype)
{
    for (int64_t r = 0; r < floats->rows; r++) {
        float *row = (float *)floats->data + r * floats->cols;
        double squares = 0;
        for (int64_t c = 0; c < floats->cols; c++)
            squares += (double)row[c] * (double)row[c];
        lengths[r] = (float)sqrt(squares);
        scales[r] = s24i_scale_row(row, floats->cols, dtype);
    }
}

static s24_status upload(s24i_device_weight *w, s24_ctx *ctx, const s24_dense *scaled,
                         const float *scales)
{
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = w->dtype};
    s24_matrix *matrix;
    TRY(s24_matrix_create(&matrix, ctx, scaled, &opts));
    const s24_status status = s24_device_weight_create(&w->packed, ctx, w->device, matrix, NULL);
    s24_matrix_destroy(matrix);
    TRY(status);
    return s24i_device_put_scales(w, ctx, scales);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    s24_dense floats = {.dtype = S24_F32};
    float *scales = NULL;
    s24_status status = S24_OK;
    w->device = model->device;
    w->dtype = model->narrow;
    w->n = floats.rows = s24_matrix_rows(source->matrix);
    w->k = floats.cols = s24_matrix_cols(source->matrix);
    TRY_DONE(s24i_alloc_elems(&floats.data, ctx, w->n * w->k, sizeof(float), "a weight"));
    TRY_DONE(s24i_alloc_elems(&scales, ctx, w->n, sizeof *scales, "scales"));
    TRY_DONE(s24i_alloc_elems(&w->lengths, weight->ctx, w->n, sizeof *w->lengths, "lengths"));
    TRY_DONE(s24_matrix_to_dense(ctx, &floats, source->matrix));
    scale_rows(scales, w->lengths, &floats, w->dtype);
    status = upload(w, ctx, &floats, scales);
done:
    s24_ctx_free(ctx, scales);
    s24_ctx_free(ctx, floats.data);
    return status;
}

const s24i_weight_kind s24i_weight_device_eight = {
    S24I_DEVICE_WEIGHT, .name = "2:4 in 8 bits on a device", .way = S24I_WAY_EIGHT, .takes = takes,
    .make = make,       .run = s24i_device_weight_run};
