// SPDX-License-Identifier: Apache-2.0
/* A dense weight on a device, in the model's dtype. */
#include "run/weight/weight_device.h"

#include <math.h>
#include <string.h>

#include "device/device_train.h"
#include "run/gpu/gpu_model.h"

static int takes(const s24_model *model, const s24i_source *source)
{
    return model->device && !s24i_source_is_sparse(source) &&
           !s24i_device_takes_integers(model, source);
}

static s24_status reserve(s24i_device_weight *w, s24_ctx *ctx)
{
    return s24_device_alloc(&w->dense, ctx, w->device, (size_t)(S24I_GPU_ELEMENT * w->n * w->k),
                            w->stream);
}

typedef struct range_check {
    const s24_dense *dense;
    float limit;
    _Atomic int beyond;
} range_check;

static void check_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    range_check *c = arg;
    const float *x = (const float *)c->dense->data;
    int beyond = 0;
    (void)thread;
    for (int64_t i = begin * c->dense->cols; i < end * c->dense->cols; i++)
        beyond |= !(fabsf(x[i]) <= c->limit);
    if (beyond) c->beyond = 1;
}

static s24_status check_range(s24_ctx *ctx, const s24_dense *dense, s24_dtype dtype)
{
    const float limit = dtype == S24_F16 ? 65504.0f : 3.38953139e38f;
    range_check check = {.dense = dense, .limit = limit};
    s24_ctx_parallel_for(ctx, dense->rows, check_rows, &check);
    for (int64_t i = 0; check.beyond && i < dense->rows * dense->cols; i++)
        REQUIRE(ctx, fabsf(((const float *)dense->data)[i]) <= limit, S24_ERROR_NOT_FINITE,
                "a weight at row %lld, column %lld is %g, which %s cannot hold",
                (long long)(i / dense->cols), (long long)(i % dense->cols),
                (double)((const float *)dense->data)[i], s24_dtype_name(dtype));
    return S24_OK;
}

/* Rows without what stands between them: a rank's columns of a weight. */
static s24_status gather(s24_dense *to, s24_ctx *ctx, const s24_dense *from)
{
    *to = (s24_dense){NULL, S24_F32, from->rows, from->cols, 0};
    TRY(s24i_alloc_elems(&to->data, ctx, to->rows * to->cols, sizeof(float), "a weight's columns"));
    for (int64_t r = 0; r < to->rows; r++)
        memcpy((float *)to->data + r * to->cols, (const float *)from->data + r * s24i_ld(from),
               (size_t)to->cols * sizeof(float));
    return S24_OK;
}

static s24_status upload(s24i_device_weight *w, s24_ctx *ctx, const s24_dense *dense)
{
    TRY(check_range(ctx, dense, w->dtype));
    TRY(reserve(w, ctx));
    return s24i_device_upload(w->dense, ctx, w->device, w->dtype, dense->data, w->n * w->k);
}

static s24_status make(s24i_weight *weight, const s24_model *model, s24_ctx *ctx,
                       const s24i_source *source)
{
    s24i_device_weight *w = (s24i_device_weight *)weight;
    const s24_dense *dense = &source->dense;
    w->device = model->device;
    w->dtype = model->dtype;
    w->n = dense->rows;
    w->k = dense->cols;
    w->few = model->architecture->lm_head != NULL;
    if (s24i_ld(dense) == dense->cols) return upload(w, ctx, dense);
    s24_dense whole;
    TRY(gather(&whole, ctx, dense));
    const s24_status status = upload(w, ctx, &whole);
    s24_ctx_free(ctx, whole.data);
    return status;
}

/* What a lifted weight was lifted from, by way of its lifted form. */
static s24_status widen_lifted(s24_ctx *ctx, const s24_dense *to, const s24i_device_weight *from,
                               void *stream)
{
    s24_dense lifted = {NULL, to->dtype, to->rows, s24_lifted_cols(to->cols, from->lift), 0};
    const size_t bytes = (size_t)(S24I_GPU_ELEMENT * lifted.rows * lifted.cols);
    TRY(s24_device_alloc(&lifted.data, ctx, from->device, bytes, stream));
    const s24_device_train_lift_args args = {.size = sizeof args,
                                             .dtype = to->dtype,
                                             .rows = to->rows,
                                             .cols = to->cols,
                                             .lift = from->lift,
                                             .back = 1,
                                             .to = to->data,
                                             .from = lifted.data,
                                             .stream = stream};
    s24_status status =
        s24_device_weight_to_dense(ctx, from->device, &lifted, from->packed, stream);
    if (status == S24_OK) status = s24_device_train_lift(ctx, from->device, &args);
    const s24_status released = s24_device_free(ctx, from->device, lifted.data, stream);
    return status == S24_OK ? released : status;
}

s24_status s24i_device_widen(s24i_weight **out, s24_ctx *ctx, const s24i_weight *sparse,
                             void *stream)
{
    const s24i_device_weight *from = s24i_weight_on_device(sparse);
    TRY(s24i_weight_new(out, ctx, ctx, &s24i_weight_device_dense));
    s24i_device_weight *w = (s24i_device_weight *)*out;
    w->device = from->device;
    w->stream = stream;
    w->dtype = from->dtype;
    w->n = from->n;
    w->k = from->k;
    w->few = from->few;
    s24_status status = reserve(w, ctx);
    const s24_dense to = {w->dense, w->dtype, w->n, w->k, 0};
    if (status == S24_OK)
        status = from->lift ? widen_lifted(ctx, &to, from, stream)
                 : from->blocks
                     ? s24_device_blocks_to_dense(ctx, w->device, &to, from->blocks, stream)
                     : s24_device_weight_to_dense(ctx, w->device, &to, from->packed, stream);
    if (status == S24_OK) return S24_OK;
    s24i_weight_destroy(*out, ctx);
    *out = NULL;
    return status;
}

s24_status s24i_device_dense_run(const s24i_device_weight *w, s24_ctx *ctx, const s24_dense *dense,
                                 const s24i_product_job *p)
{
    const s24_device_dense_args args = {.size = sizeof args,
                                        .y = p->y,
                                        .x = p->x,
                                        .w = dense,
                                        .bias = p->bias,
                                        .activation = p->activation,
                                        .residual = p->residual,
                                        .work = p->work,
                                        .work_bytes = p->work_bytes,
                                        .stream = p->stream,
                                        .few = w->few,
                                        .gamma = p->gamma,
                                        .eps = p->eps,
                                        .gated = p->gated,
                                        .squared = p->squared};
    if (p->search) return s24_device_dense_search(p->search, ctx, w->device, &args);
    return s24_device_dense(ctx, w->device, &args);
}

static s24_status run(const s24i_weight *weight, s24_ctx *ctx, const s24i_product_job *p)
{
    const s24i_device_weight *w = s24i_weight_on_device(weight);
    const s24_dense dense = {w->dense, w->dtype, w->n, w->k, 0};
    return s24i_device_dense_run(w, ctx, &dense, p);
}

const s24i_weight_kind s24i_weight_device_dense = {
    S24I_DEVICE_WEIGHT,    .name = "dense on a device",
    .way = S24I_WAY_DENSE, .takes = takes,
    .make = make,          .run = run};
