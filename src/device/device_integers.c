// SPDX-License-Identifier: Apache-2.0
/* Integers on a device, and their products with 16-bit tokens: the checks before one kernel. */
#include <string.h>

#include "device/device_room.h"

/* ---- the weight ------------------------------------------------------------------------------ */

static s24_status check_shape(s24_ctx *ctx, const s24_quantized *src)
{
    REQUIRE(ctx, src->values && src->scales, S24_ERROR_ARGUMENT, "src's %s are NULL",
            src->values ? "scales" : "values");
    REQUIRE(ctx, src->bits == 8 || src->bits == 4, S24_ERROR_DTYPE,
            "src has integers of %d bits; expected 8 or 4", src->bits);
    REQUIRE(ctx,
            src->rows > 0 && src->cols > 0 && src->cols % 4 == 0 && src->rows < INT32_MAX / 2 &&
                src->cols < INT32_MAX / 2,
            S24_ERROR_SHAPE,
            "src is [%" PRId64 ", %" PRId64
            "]; expected at least one row and a multiple of 4 columns, less than 2^30 of both",
            src->rows, src->cols);
    REQUIRE(ctx, src->group == 64 || src->group == 128 || src->group == src->cols, S24_ERROR_SHAPE,
            "src has a scale for %" PRId64 " columns; expected 64, 128 or the whole row, %" PRId64,
            src->group, src->cols);
    return S24_OK;
}

static s24_status weight_new(s24_device_integers **out, s24_ctx *ctx, s24_device *device,
                             const s24_quantized *src, void *stream)
{
    const s24i_strips order = s24i_strips_of(src);
    s24_device_integers *w = s24i_alloc(&ctx->allocator, sizeof *w);
    REQUIRE(ctx, w, S24_ERROR_MEMORY, "out of memory for a weight's handle");
    *w = (s24_device_integers){.allocator = ctx->allocator,
                               .device = device,
                               .stream = stream,
                               .bits = src->bits,
                               .sparse = src->indices != NULL,
                               .group = order.group,
                               .n = src->rows,
                               .k = src->cols,
                               .slab_bytes = order.slab_bytes,
                               .bytes = order.bytes};
    const s24_status status =
        s24i_device_alloc(&w->packed, ctx, device, w->bytes, stream, "a weight of integers");
    if (status == S24_OK)
        *out = w;
    else
        s24i_free(&ctx->allocator, w);
    return status;
}

typedef struct pack_job {
    const s24_quantized *src;
    void *packed;
} pack_job;

static void pack_slabs(void *arg, int64_t begin, int64_t end, int thread)
{
    const pack_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        s24i_strips_pack_slab(j->packed, j->src, i);
}

static s24_status upload(s24_device_integers *w, s24_ctx *ctx, const s24_quantized *src)
{
    void *host = s24_ctx_alloc(ctx, w->bytes);
    REQUIRE(ctx, host, S24_ERROR_MEMORY, "out of memory: %zu bytes for packed integers", w->bytes);
    pack_job job = {src, host};
    s24_ctx_parallel_for(ctx, s24i_strips_of(src).slabs, pack_slabs, &job);
    s24_status status = s24_device_copy(ctx, w->device, w->packed, host, w->bytes, w->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, w->device, w->stream);
    s24_ctx_free(ctx, host);
    return status;
}

s24_status s24_device_integers_create(s24_device_integers **out, s24_ctx *ctx, s24_device *device,
                                      const s24_quantized *src, void *stream)
{
    s24_device_integers *w = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && src, S24_ERROR_ARGUMENT, "%s is NULL", device ? "src" : "device");
    TRY(check_shape(ctx, src));
    TRY(s24i_check_integers(ctx, src));
    TRY(weight_new(&w, ctx, device, src, stream));
    GIVE(out, w, s24_device_integers_destroy, upload(w, ctx, src));
}

void s24_device_integers_destroy(s24_device_integers *weight)
{
    s24i_device_error error;
    if (!weight) return;
    (void)weight->device->table->wait(weight->device->gpu, weight->stream, &error);
    s24i_device_release(weight->device, weight->packed, weight->stream);
    s24_allocator allocator = weight->allocator;
    s24i_free(&allocator, weight);
}

size_t s24_device_integers_bytes(const s24_device_integers *weight)
{
    return weight ? weight->bytes : 0;
}

/* ---- the product ----------------------------------------------------------------------------- */

static s24_status check_args(s24_ctx *ctx, const s24_device_integers *w,
                             const s24_device_linear_args *a)
{
    REQUIRE(ctx, a->x && a->y, S24_ERROR_ARGUMENT, "%s is NULL", a->x ? "y" : "x");
    REQUIRE(ctx, !a->work && !a->x_scale && !a->w_scale && !a->norm, S24_ERROR_UNSUPPORTED,
            "%s of a product with integers; expected NULL",
            a->work      ? "work"
            : a->x_scale ? "x_scale"
            : a->w_scale ? "w_scale"
                         : "norm");
    REQUIRE(ctx, a->alpha == 0 && a->y_scale == 0, S24_ERROR_UNSUPPORTED,
            "%s of a product with integers; expected 0", a->alpha == 0 ? "y_scale" : "alpha");
    REQUIRE(ctx, !a->tile || !strcmp(a->tile, "mma"), S24_ERROR_ARGUMENT,
            "there is no tile named \"%s\" of products with integers; expected NULL or \"mma\"",
            a->tile);
    const s24_dtype dtype = a->x->dtype;
    REQUIRE(ctx, dtype == S24_F16 || dtype == S24_BF16, S24_ERROR_DTYPE,
            "x is %s of a weight of integers; expected f16 or bf16", s24_dtype_name(dtype));
    REQUIRE(ctx, a->y->dtype == dtype || a->y->dtype == S24_F32, S24_ERROR_DTYPE,
            "y is %s of x in %s; expected x's dtype or f32", s24_dtype_name(a->y->dtype),
            s24_dtype_name(dtype));
    const int64_t m = a->x->rows;
    TRY(s24i_device_operand(ctx, "x", a->x, dtype, m, w->k));
    TRY(s24i_device_operand(ctx, "y", a->y, a->y->dtype, m, w->n));
    if (a->residual) TRY(s24i_device_operand(ctx, "residual", a->residual, a->y->dtype, m, w->n));
    return s24i_device_terms(ctx, a);
}

s24_status s24_device_integers_linear(s24_ctx *ctx, s24_device *device,
                                      const s24_device_integers *weight,
                                      const s24_device_linear_args *args)
{
    s24i_device_error error = {""};
    s24_device_linear_args known;
    READ_ARGS(known, args, "s24_device_linear_args");
    REQUIRE(ctx, weight, S24_ERROR_ARGUMENT, "weight is NULL");
    TRY(check_args(ctx, weight, &known));
    const s24i_device_integers job = {&known, weight};
    return s24i_device_status(ctx, device->table->integers(device->gpu, &job, known.stream, &error),
                              &error);
}

s24_status s24_device_integers_to_dense(s24_ctx *ctx, s24_device *device, const s24_dense *dst,
                                        const s24_device_integers *weight, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && weight, S24_ERROR_ARGUMENT, "%s is NULL", device ? "weight" : "device");
    TRY(s24i_dense_check(ctx, "dst", dst));
    REQUIRE(ctx, dst->dtype == S24_F16 || dst->dtype == S24_BF16, S24_ERROR_DTYPE,
            "dst is %s; expected f16 or bf16", s24_dtype_name(dst->dtype));
    REQUIRE(ctx, dst->rows == weight->n && dst->cols == weight->k, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, weight->n, weight->k);
    REQUIRE(ctx, (uintptr_t)dst->data % 8 == 0 && s24i_dense_ld(dst) % 4 == 0, S24_ERROR_ARGUMENT,
            "dst is at %p with a leading dimension of %" PRId64 "; expected multiples of 8 bytes",
            dst->data, s24i_dense_ld(dst));
    const s24i_device_integers_widen job = {dst, weight};
    return s24i_device_status(ctx, device->table->integers_widen(device->gpu, &job, stream, &error),
                              &error);
}
