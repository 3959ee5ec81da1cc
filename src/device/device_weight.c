// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 weights on a device. A product may read a weight before the kernels ahead of it in its stream
 * are done, so every way to make one waits until it is complete.
 */
#include "device/device_room.h"

/* A weight's handle, without memory for it. */
static s24_status handle_new(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                             s24_dtype dtype, int64_t n, int64_t k)
{
    REQUIRE(ctx, s24_dtype_can_be_two_four(dtype) && s24_dtype_bytes(dtype) <= 2, S24_ERROR_DTYPE,
            "a weight of %s on a device; expected f16, bf16, i8, e4m3 or e5m2",
            s24_dtype_name(dtype));
    /* The hardware's coordinates are 32 bits wide. */
    REQUIRE(ctx, n < INT32_MAX / 2 && k < INT32_MAX / 64 / 72 && s24_hopper_bytes(dtype, n, k),
            S24_ERROR_SHAPE, "a weight of [%" PRId64 ", %" PRId64 "] is too large for a device", n,
            k);
    s24_device_weight *w = s24i_alloc(&ctx->allocator, sizeof *w);
    REQUIRE(ctx, w, S24_ERROR_MEMORY, "out of memory for a weight's handle");
    *w = (s24_device_weight){.allocator = ctx->allocator,
                             .device = device,
                             .dtype = dtype,
                             .n = n,
                             .k = k,
                             .bytes = s24_hopper_bytes(dtype, n, k)};
    *out = w;
    return S24_OK;
}

/* The report lies after the weight, which is a multiple of 512 bytes. */
static void place_in(s24_device_weight *w, void *memory)
{
    w->packed = memory;
    w->report = (s24i_device_report *)((char *)memory + w->bytes);
}

static s24_status weight_new(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                             s24_dtype dtype, int64_t n, int64_t k, void *stream)
{
    s24_device_weight *w = NULL;
    TRY(handle_new(&w, ctx, device, dtype, n, k));
    w->stream = stream;
    s24_status status = s24i_device_alloc(&w->packed, ctx, device, w->bytes + sizeof *w->report,
                                          stream, "a weight");
    /* The rows that pad the last slab are loaded and copied like any other. */
    if (status == S24_OK) status = s24_device_clear(ctx, device, w->packed, w->bytes, stream);
    if (status != S24_OK) {
        s24i_device_release(device, w->packed, stream);
        s24i_free(&ctx->allocator, w);
        return status;
    }
    place_in(w, w->packed);
    *out = w;
    return S24_OK;
}

s24_status s24_device_weight_create_in_place(s24_device_weight **out, s24_ctx *ctx,
                                             s24_device *device, const s24_dense *place)
{
    _Static_assert(sizeof(s24i_device_report) <= S24_DEVICE_REPORT_BYTES, "the report has room");
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device && place, S24_ERROR_ARGUMENT, "%s is NULL", device ? "place" : "device");
    REQUIRE(ctx, place->data && (uintptr_t)place->data % 256 == 0, S24_ERROR_ARGUMENT,
            "place is at %p; expected device memory at a multiple of 256 bytes", place->data);
    TRY(handle_new(out, ctx, device, place->dtype, place->rows, place->cols));
    (*out)->in_place = 1;
    place_in(*out, place->data);
    return S24_OK;
}

void s24_device_weight_destroy(s24_device_weight *weight)
{
    s24i_device_error error;
    if (!weight) return;
    if (!weight->in_place || weight->vendor)
        (void)weight->device->table->wait(weight->device->gpu, weight->stream, &error);
    weight->device->table->linear_release(weight->device->gpu, weight->vendor);
    if (!weight->in_place) s24i_device_release(weight->device, weight->packed, weight->stream);
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
    GIVE(out, w, s24_device_weight_destroy, status);
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

/* ---- packing --------------------------------------------------------------------------------- */

s24_status s24i_device_judge(s24_ctx *ctx, const s24i_device_report *found, int64_t k,
                             s24_dtype dtype, int allow_nonfinite)
{
    int64_t bad = found->bad_group, nonfinite = found->nonfinite, beyond = found->beyond;
    REQUIRE(ctx, nonfinite < 0 || allow_nonfinite, S24_ERROR_NOT_FINITE,
            "src has a NaN or an Inf at row %" PRId64 ", column %" PRId64 " (group %" PRId64 ")",
            nonfinite / k, nonfinite % k, nonfinite % k / 4);
    REQUIRE(ctx, bad < 0, S24_ERROR_NOT_TWO_FOUR,
            "src or its mask is not 2:4: row %" PRId64 ", columns %" PRId64 " to %" PRId64
            " (group %" PRId64 ") have more than two non-zeros",
            bad / k, bad % k, bad % k + 3, bad % k / 4);
    bad = found->bad_along_n;
    REQUIRE(ctx, bad < 0, S24_ERROR_NOT_TWO_FOUR,
            "src or its mask is not 2:4 along n: column %" PRId64 ", rows %" PRId64 " to %" PRId64
            " have more than two non-zeros",
            bad % k, bad / k, bad / k + 3);
    REQUIRE(ctx, beyond < 0, S24_ERROR_NOT_FINITE,
            "the value for row %" PRId64 ", column %" PRId64 " (group %" PRId64
            ") is beyond the range of %s",
            beyond / k, beyond % k, beyond % k / 4, s24_dtype_name(dtype));
    return S24_OK;
}

static s24_status check_opts(s24_matrix_opts *known, s24_ctx *ctx, const s24_dense *src,
                             const s24_matrix_opts *opts, int pair)
{
    TRY(s24i_opts_read(ctx, known, sizeof *known, opts, "s24_matrix_opts"));
    TRY(s24i_dense_check_groups(ctx, "src", src));
    const s24_select select = known->select;
    REQUIRE(ctx,
            select == S24_SELECT_STRICT || select == S24_SELECT_MAGNITUDE ||
                select == S24_SELECT_MASK || select == S24_SELECT_MVUE24 ||
                s24i_select_is_tile(select),
            S24_ERROR_ARGUMENT, "s24_matrix_opts.select is %d; expected 0 to %d", (int)select,
            (int)S24_SELECT_TILE_CAUSAL1122);
    REQUIRE(ctx,
            select == S24_SELECT_STRICT || (select == S24_SELECT_MAGNITUDE && !pair) ||
                s24_dtype_bytes(src->dtype) == 2,
            S24_ERROR_UNSUPPORTED,
            "s24_matrix_opts.select is %d for %s; a device packs 8 bits strictly or by magnitude",
            (int)select, s24_dtype_name(src->dtype));
    REQUIRE(ctx, !pair || (select != S24_SELECT_MAGNITUDE && select != S24_SELECT_MVUE24),
            S24_ERROR_ARGUMENT,
            "s24_matrix_opts.select is %d; a pair is made by S24_SELECT_TILE_*, by a mask or "
            "strictly",
            (int)select);
    REQUIRE(ctx, !pair || (src->rows % 4 == 0 && s24_dtype_bytes(src->dtype) == 2),
            src->rows % 4 ? S24_ERROR_SHAPE : S24_ERROR_UNSUPPORTED,
            "src is [%" PRId64 ", %" PRId64
            "] of %s; a pair needs a multiple of 4 rows, and f16 or bf16",
            src->rows, src->cols, s24_dtype_name(src->dtype));
    REQUIRE(ctx, select != S24_SELECT_MASK || known->mask, S24_ERROR_ARGUMENT,
            "s24_matrix_opts.mask is NULL; S24_SELECT_MASK needs one");
    REQUIRE(ctx, !known->transpose, S24_ERROR_UNSUPPORTED,
            "s24_matrix_opts.transpose is %d; a device packs a transpose in a pair only",
            known->transpose);
    REQUIRE(ctx, known->dtype == S24_DTYPE_NONE || known->dtype == src->dtype,
            S24_ERROR_UNSUPPORTED,
            "src is %s and s24_matrix_opts.dtype %s; a device packs without converting",
            s24_dtype_name(src->dtype), s24_dtype_name(known->dtype));
    if (select == S24_SELECT_MVUE24) known->allow_nonfinite = 0;
    return S24_OK;
}

/* What another backend made of the weight that was. */
static void forget_vendor(s24_device_weight *w)
{
    w->device->table->linear_release(w->device->gpu, w->vendor);
    w->vendor = NULL;
}

static s24_status enqueue(s24_device_weight *w, s24_device_weight *wt, s24_ctx *ctx,
                          const s24_dense *src, const s24_matrix_opts *known, void *stream)
{
    s24i_device_error error = {""};
    s24i_device_weight job = job_of(w, src);
    job.packed_t = wt ? wt->packed : NULL;
    forget_vendor(w);
    if (wt) forget_vendor(wt);
    job.select = known->select;
    job.mask = known->mask;
    job.seed = known->seed;
    job.report = w->report;
    w->allow_nonfinite = known->allow_nonfinite;
    return s24i_device_status(
        ctx, w->device->table->weight_pack(w->device->gpu, &job, stream, &error), &error);
}

static s24_status check_shape(s24_ctx *ctx, const char *name, const s24_device_weight *w,
                              const s24_dense *src, int64_t n, int64_t k)
{
    REQUIRE(ctx, w->n == n && w->k == k && w->dtype == src->dtype, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "] of %s; expected [%" PRId64 ", %" PRId64 "] of %s",
            name, w->n, w->k, s24_dtype_name(w->dtype), n, k, s24_dtype_name(src->dtype));
    return S24_OK;
}

s24_status s24_device_weight_update(s24_ctx *ctx, s24_device_weight *weight,
                                    s24_device_weight *transposed, const s24_dense *src,
                                    const s24_matrix_opts *opts, void *stream)
{
    s24_matrix_opts known;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, weight, S24_ERROR_ARGUMENT, "weight is NULL");
    TRY(check_opts(&known, ctx, src, opts, transposed != NULL));
    TRY(check_shape(ctx, "weight", weight, src, src->rows, src->cols));
    if (transposed) TRY(check_shape(ctx, "transposed", transposed, src, src->cols, src->rows));
    return enqueue(weight, transposed, ctx, src, &known, stream);
}

s24_status s24_device_weight_verify(s24_ctx *ctx, const s24_device_weight *weight, void *stream)
{
    s24i_device_report found;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, weight, S24_ERROR_ARGUMENT, "weight is NULL");
    TRY(s24_device_copy(ctx, weight->device, &found, weight->report, sizeof found, stream));
    TRY(s24_device_wait(ctx, weight->device, stream));
    return s24i_device_judge(ctx, &found, weight->k, weight->dtype, weight->allow_nonfinite);
}

s24_status s24_device_weight_pair_from_dense(s24_device_weight **out,
                                             s24_device_weight **out_transposed, s24_ctx *ctx,
                                             s24_device *device, const s24_dense *src,
                                             const s24_matrix_opts *opts, void *stream)
{
    s24_matrix_opts known;
    s24_device_weight *w = NULL, *wt = NULL;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    if (out_transposed) *out_transposed = NULL;
    REQUIRE(ctx, device, S24_ERROR_ARGUMENT, "device is NULL");
    TRY(check_opts(&known, ctx, src, opts, out_transposed != NULL));
    s24_status status = weight_new(&w, ctx, device, src->dtype, src->rows, src->cols, stream);
    if (status == S24_OK && out_transposed)
        status = weight_new(&wt, ctx, device, src->dtype, src->cols, src->rows, stream);
    if (status == S24_OK) status = enqueue(w, wt, ctx, src, &known, stream);
    if (status == S24_OK) status = s24_device_weight_verify(ctx, w, stream);
    if (status != S24_OK) {
        s24_device_weight_destroy(w);
        s24_device_weight_destroy(wt);
        return status;
    }
    *out = w;
    if (out_transposed) *out_transposed = wt;
    return S24_OK;
}

s24_status s24_device_weight_from_dense(s24_device_weight **out, s24_ctx *ctx, s24_device *device,
                                        const s24_dense *src, const s24_matrix_opts *opts,
                                        void *stream)
{
    return s24_device_weight_pair_from_dense(out, NULL, ctx, device, src, opts, stream);
}
