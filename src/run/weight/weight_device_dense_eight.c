// SPDX-License-Identifier: Apache-2.0
/* A dense weight on a device in 8 bits, with a scale per row, next to the one in 16 bits: of layers
   that were asked for in i8 or e4m3 by name, through cuBLASLt. */
#include "run/weight/weight_device.h"

#include <string.h>

/* cuBLASLt wants multiples of 16, and no token may be longer than what quantises it takes; other
   layers run in 16 bits. */
static int takes(const s24_model *model, const s24i_source *source)
{
    const s24_dense *dense = &source->dense;
    return model->device && model->narrow_asked && !source->wide &&
           !s24i_source_is_sparse(source) && dense->rows % 16 == 0 &&
           s24i_device_narrows(dense->cols);
}

/* Rows divided by their scales, in 8 bits. */
static s24_status narrow_rows(uint8_t *to, float *scales, s24_ctx *ctx, const s24_dense *from,
                              s24_dtype dtype)
{
    const int64_t k = from->cols;
    float *row;
    s24_status status = S24_OK;
    TRY(s24i_alloc_elems(&row, ctx, k, sizeof *row, "a row"));
    for (int64_t r = 0; r < from->rows && status == S24_OK; r++) {
        memcpy(row, (const float *)from->data + r * s24i_ld(from), (size_t)k * sizeof *row);
        scales[r] = s24i_scale_row(row, k, dtype);
        status = s24_convert(to + r * k, dtype, row, S24_F32, k);
    }
    s24_ctx_free(ctx, row);
    return status;
}

static s24_status upload(void **to, s24_ctx *ctx, s24_device *device, const void *from,
                         size_t bytes)
{
    TRY(s24_device_alloc(to, ctx, device, bytes, NULL));
    TRY(s24_device_copy(ctx, device, *to, from, bytes, NULL));
    return s24_device_wait(ctx, device, NULL);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    const s24_dense *dense = &source->dense;
    const size_t count = (size_t)(dense->rows * dense->cols);
    uint8_t *bytes = NULL;
    float *scales = NULL;
    s24_status status;
    w->device = model->device;
    w->dtype = model->narrow;
    w->n = dense->rows;
    w->k = dense->cols;
    TRY_DONE(s24i_alloc_elems(&bytes, ctx, (int64_t)count, 1, "a weight"));
    TRY_DONE(s24i_alloc_elems(&scales, ctx, w->n, sizeof *scales, "scales"));
    TRY_DONE(narrow_rows(bytes, scales, ctx, dense, w->dtype));
    TRY_DONE(upload(&w->dense, ctx, w->device, bytes, count));
    status = s24i_device_put_scales(w, ctx, scales);
done:
    s24_ctx_free(ctx, scales);
    s24_ctx_free(ctx, bytes);
    return status;
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_dense dense = {w->dense, w->dtype, w->n, w->k, 0};
    const s24_device_dense_args args = {.size = sizeof args,
                                        .y = p->y,
                                        .x = p->x,
                                        .w = &dense,
                                        .bias = p->bias,
                                        .activation = p->activation,
                                        .work = p->work,
                                        .work_bytes = p->work_bytes,
                                        .stream = p->stream,
                                        .x_scale = p->x_scale,
                                        .w_scale = w->scale};
    if (p->search) return s24_device_dense_search(p->search, ctx, w->device, &args);
    return s24_device_dense(ctx, w->device, &args);
}

const s24i_weight_kind s24i_weight_device_dense_eight = {
    S24I_DEVICE_WEIGHT,    .name = "dense in 8 bits on a device",
    .way = S24I_WAY_EIGHT, .takes = takes,
    .make = make,          .run = run};
