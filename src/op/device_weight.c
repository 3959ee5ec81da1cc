// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 weights on a device. A product may read a weight before the kernels ahead of it in its stream
 * are done, so every way to make one waits until it is complete.
 */
#include "op/device.h"

static s24_status weight_new(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                             s24_dtype dtype, int64_t n, int64_t k, void *stream)
{
    REQUIRE(ctx, dtype == S24_F16 || dtype == S24_BF16, S24_ERROR_DTYPE,
            "a weight of %s on a device; expected f16 or bf16", s24_dtype_name(dtype));
    /* The hardware's coordinates are 32 bits wide. */
    REQUIRE(ctx, n < INT32_MAX / 2 && k < INT32_MAX / 64 / 72 && s24_hopper_bytes(dtype, n, k),
            S24_ERROR_SHAPE, "a weight of [%" PRId64 ", %" PRId64 "] is too large for a device", n,
            k);
    s24_device_weight *w = s24i_alloc(&ctx->allocator, sizeof *w);
    REQUIRE(ctx, w, S24_ERROR_MEMORY, "out of memory for a weight's handle");
    *w = (s24_device_weight){.allocator = ctx->allocator,
                             .device = device,
                             .stream = stream,
                             .dtype = dtype,
                             .n = n,
                             .k = k,
                             .bytes = s24_hopper_bytes(dtype, n, k)};
    s24_status status = s24i_device_alloc(&w->packed, ctx, device, w->bytes, stream, "a weight");
    if (status != S24_OK) {
        s24i_free(&ctx->allocator, w);
        return status;
    }
    *out = w;
    return S24_OK;
}

void s24_device_weight_destroy(s24_device_weight *weight)
{
    s24i_device_error error;
    if (!weight) return;
    (void)weight->device->table->wait(weight->device->gpu, weight->stream, &error);
    s24i_device_release(weight->device, weight->packed, weight->stream);
    s24_allocator allocator = weight->allocator;
    s24i_free(&allocator, weight);
}

size_t s24_device_weight_bytes(const s24_device_weight *weight)
{
    return weight ? weight->bytes : 0;
}

/* Host memory for a packed weight, either way. */
static s24_status staging(void **out, s24_ctx *ctx, size_t bytes)
{
    *out = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, *out, S24_ERROR_MEMORY, "out of memory: %zu bytes for a packed weight", bytes);
    return S24_OK;
}

static s24_status upload(s24_device_weight *w, s24_ctx *ctx, const s24_matrix *src, void *host)
{
    TRY(s24_matrix_to_hopper(host, ctx, src));
    TRY(s24_device_copy(ctx, w->device, w->packed, host, w->bytes, w->stream));
    return s24_device_wait(ctx, w->device, w->stream);
}

s24_status s24_device_weight_create(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                                    const s24_matrix *src, void *stream)
{
    s24_device_weight *w;
    void *host = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && src, S24_ERROR_ARGUMENT, "%s is NULL", device ? "src" : "device");
    REQUIRE(ctx, !src->transposed, S24_ERROR_SHAPE,
            "src is a transposed view; expected the matrix itself");
    const s24i_storage *s = src->storage;
    TRY(weight_new(&w, ctx, device, s->dtype, s->rows, s->cols, stream));
    s24_status status = staging(&host, ctx, w->bytes);
    if (status == S24_OK) status = upload(w, ctx, src, host);
    s24_ctx_free(ctx, host);
    if (status != S24_OK) {
        s24_device_weight_destroy(w);
        return status;
    }
    *out = w;
    return S24_OK;
}

s24_status s24_device_weight_to_matrix(s24_matrix **out, s24_ctx *ctx, s24_device *device,
                                       const s24_device_weight *weight, void *stream)
{
    void *host;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && weight, S24_ERROR_ARGUMENT, "%s is NULL", device ? "weight" : "device");
    TRY(staging(&host, ctx, weight->bytes));
    s24_status status = s24_device_copy(ctx, device, host, weight->packed, weight->bytes, stream);
    if (status == S24_OK) status = s24_device_wait(ctx, device, stream);
    if (status == S24_OK)
        status = s24_matrix_from_hopper(out, ctx, host, weight->dtype, weight->n, weight->k);
    s24_ctx_free(ctx, host);
    return status;
}

/* ---- dense device memory --------------------------------------------------------------------- */

static s24i_device_weight job_of(const s24_device_weight *w, const s24_dense *dense)
{
    return (s24i_device_weight){.dtype = w->dtype,
                                .n = w->n,
                                .k = w->k,
                                .ld = s24i_dense_ld(dense),
                                .packed = w->packed,
                                .dense = dense->data};
}

s24_status s24_device_weight_to_dense(s24_ctx *ctx, s24_device *device, const s24_dense *dst,
                                      const s24_device_weight *weight, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && weight, S24_ERROR_ARGUMENT, "%s is NULL", device ? "weight" : "device");
    TRY(s24i_dense_check(ctx, "dst", dst));
    REQUIRE(ctx, dst->dtype == weight->dtype, S24_ERROR_DTYPE, "dst is %s; expected %s",
            s24_dtype_name(dst->dtype), s24_dtype_name(weight->dtype));
    REQUIRE(ctx, dst->rows == weight->n && dst->cols == weight->k, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, weight->n, weight->k);
    s24i_device_weight job = job_of(weight, dst);
    return s24i_device_status(ctx, device->table->weight_unpack(device->gpu, &job, stream, &error),
                              &error);
}

/* What the packing kernel found, as a status. */
static s24_status judge(s24_ctx *ctx, const s24_dense *src, const int64_t found[2],
                        int allow_nonfinite)
{
    int64_t bad = found[0], nonfinite = found[1], k = src->cols;
    REQUIRE(ctx, bad < 0, S24_ERROR_NOT_TWO_FOUR,
            "src is not 2:4: row %" PRId64 ", columns %" PRId64 " to %" PRId64 " (group %" PRId64
            ") have more than two non-zeros",
            bad / k, bad % k, bad % k + 3, bad % k / 4);
    REQUIRE(ctx, nonfinite < 0 || allow_nonfinite, S24_ERROR_NOT_FINITE,
            "src has a NaN or an Inf at row %" PRId64 ", column %" PRId64 " (group %" PRId64 ")",
            nonfinite / k, nonfinite % k, nonfinite % k / 4);
    return S24_OK;
}

static s24_status pack(s24_device_weight *w, s24_ctx *ctx, const s24_dense *src,
                       const s24_matrix_opts *opts)
{
    s24i_device_error error = {""};
    int64_t found[2] = {-1, -1};
    void *report;
    TRY(s24i_device_alloc(&report, ctx, w->device, sizeof found, w->stream, "a report"));
    s24i_device_weight job = job_of(w, src);
    job.magnitude = opts->select == S24_SELECT_MAGNITUDE;
    job.report = report;
    s24_status status = s24i_device_status(
        ctx, w->device->table->weight_pack(w->device->gpu, &job, w->stream, &error), &error);
    if (status == S24_OK)
        status = s24_device_copy(ctx, w->device, found, report, sizeof found, w->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, w->device, w->stream);
    s24i_device_release(w->device, report, w->stream);
    return status == S24_OK ? judge(ctx, src, found, opts->allow_nonfinite) : status;
}

s24_status s24_device_weight_from_dense(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                                        const s24_dense *src, const s24_matrix_opts *opts,
                                        void *stream)
{
    s24_matrix_opts known;
    s24_device_weight *w;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device, S24_ERROR_ARGUMENT, "device is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_matrix_opts"));
    TRY(s24i_dense_check_groups(ctx, "src", src));
    REQUIRE(ctx, known.select == S24_SELECT_STRICT || known.select == S24_SELECT_MAGNITUDE,
            S24_ERROR_UNSUPPORTED,
            "s24_matrix_opts.select is %d; a device packs strictly or by magnitude",
            (int)known.select);
    REQUIRE(ctx, known.dtype == S24_DTYPE_NONE || known.dtype == src->dtype, S24_ERROR_UNSUPPORTED,
            "src is %s and s24_matrix_opts.dtype %s; a device packs without converting",
            s24_dtype_name(src->dtype), s24_dtype_name(known.dtype));
    TRY(weight_new(&w, ctx, device, src->dtype, src->rows, src->cols, stream));
    s24_status status = pack(w, ctx, src, &known);
    if (status != S24_OK) {
        s24_device_weight_destroy(w);
        return status;
    }
    *out = w;
    return S24_OK;
}
