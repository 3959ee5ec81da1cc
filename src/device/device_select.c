// SPDX-License-Identifier: Apache-2.0
/*
 * Masks, canonical matrices and checks on a device: memory is staged there where it is the host's,
 * the answer is what the CPU's functions give, bit for bit.
 */
#include "device/device_room.h"

/* What a call has on the device, one block of memory: the report, src, a mask, the outputs. */
typedef struct staged {
    s24_device *device;
    void *stream;
    char *memory;
    size_t report, src, mask, values, indices; /* offsets */
    size_t src_bytes, mask_bytes, value_bytes, index_bytes;
} staged;

/* src has passed s24i_dense_check, so its bytes and theirs can be counted. */
static s24_status stage(staged *s, s24_ctx *ctx, const s24_dense *src, const s24_matrix_opts *opts)
{
    const size_t element = s24_dtype_bytes(src->dtype), rows = (size_t)src->rows;
    const int64_t span = (src->rows - 1) * s24i_dense_ld(src) + src->cols;
    size_t sizes[5] = {sizeof(s24i_device_report), (size_t)span * element, 0,
                       rows * (size_t)(src->cols / 2) * element,
                       rows * (size_t)s24i_index_stride(src->cols)};
    size_t *const offsets[5] = {&s->report, &s->src, &s->mask, &s->values, &s->indices};
    size_t total = 0;
    void *memory;
    if (opts->select == S24_SELECT_MASK || s24i_select_is_tile(opts->select))
        sizes[2] = rows * (size_t)src->cols;
    for (int i = 0; i < 5; i++) {
        *offsets[i] = total;
        total += (sizes[i] + 255) / 256 * 256;
    }
    s->src_bytes = sizes[1];
    s->mask_bytes = sizes[2];
    s->value_bytes = sizes[3];
    s->index_bytes = sizes[4];
    TRY(s24i_device_alloc(&memory, ctx, s->device, total, s->stream, "a matrix"));
    s->memory = memory;
    s24_status status =
        s24_device_copy(ctx, s->device, s->memory + s->src, src->data, s->src_bytes, s->stream);
    if (status == S24_OK && opts->select == S24_SELECT_MASK)
        status = s24_device_copy(ctx, s->device, s->memory + s->mask, opts->mask, s->mask_bytes,
                                 s->stream);
    return status;
}

static s24_status run(s24i_device_report *found, const staged *s, s24_ctx *ctx,
                      const s24i_device_select *job)
{
    s24i_device_error error = {""};
    TRY(s24i_device_status(ctx, s->device->table->select(s->device->gpu, job, s->stream, &error),
                           &error));
    TRY(s24_device_copy(ctx, s->device, found, job->report, sizeof *found, s->stream));
    return s24_device_wait(ctx, s->device, s->stream);
}

/* Selects and packs what is staged: by tiles in two steps, a mask and then by it. */
static s24_status pack(s24i_device_report *found, const staged *s, s24_ctx *ctx,
                       const s24_dense *src, const s24_matrix_opts *opts)
{
    s24i_device_select job = {.dtype = src->dtype,
                              .n = src->rows,
                              .k = src->cols,
                              .ld = s24i_dense_ld(src),
                              .dense = s->memory + s->src,
                              .select = opts->select,
                              .seed = opts->seed,
                              .report = (s24i_device_report *)(s->memory + s->report)};
    if (s24i_select_is_tile(opts->select)) {
        job.chosen = (uint8_t *)(s->memory + s->mask);
        TRY(run(found, s, ctx, &job));
        job.chosen = NULL;
        job.select = S24_SELECT_MASK;
    }
    job.mask = (const uint8_t *)(s->memory + s->mask);
    job.values = s->memory + s->values;
    job.indices = (uint8_t *)(s->memory + s->indices);
    return run(found, s, ctx, &job);
}

static s24_status fetch(s24_matrix **out, const staged *s, s24_ctx *ctx, const s24_dense *src)
{
    s24_matrix *matrix;
    TRY(s24i_matrix_new(&matrix, ctx, src->dtype, src->rows, src->cols));
    s24_status status = s24_device_copy(ctx, s->device, matrix->storage->values,
                                        s->memory + s->values, s->value_bytes, s->stream);
    if (status == S24_OK)
        status = s24_device_copy(ctx, s->device, matrix->storage->indices, s->memory + s->indices,
                                 s->index_bytes, s->stream);
    if (status == S24_OK) status = s24_device_wait(ctx, s->device, s->stream);
    GIVE(out, matrix, s24_matrix_destroy, status);
}

static s24_status check_opts(s24_matrix_opts *known, s24_ctx *ctx, const s24_dense *src,
                             const s24_matrix_opts *opts)
{
    TRY(s24i_opts_read(ctx, known, sizeof *known, opts, "s24_matrix_opts"));
    TRY(s24i_dense_check_groups(ctx, "src", src));
    REQUIRE(ctx,
            (known->select >= S24_SELECT_STRICT && known->select <= S24_SELECT_MVUE24) ||
                s24i_select_is_tile(known->select),
            S24_ERROR_ARGUMENT, "s24_matrix_opts.select is %d; expected 0 to %d",
            (int)known->select, (int)S24_SELECT_TILE_CAUSAL1122);
    REQUIRE(ctx, known->select != S24_SELECT_MASK || known->mask, S24_ERROR_ARGUMENT,
            "s24_matrix_opts.mask is NULL; S24_SELECT_MASK needs one");
    REQUIRE(ctx,
            known->select != S24_SELECT_MVUE24 || src->dtype == S24_F32 ||
                s24_dtype_bytes(src->dtype) == 2,
            S24_ERROR_UNSUPPORTED, "S24_SELECT_MVUE24 of %s on a device; expected f32, f16 or bf16",
            s24_dtype_name(src->dtype));
    REQUIRE(ctx, !known->transpose && (!known->dtype || known->dtype == src->dtype),
            S24_ERROR_UNSUPPORTED,
            "s24_matrix_opts has transpose %d and dtype %s for src of %s; a device neither turns "
            "nor converts",
            known->transpose, s24_dtype_name(known->dtype), s24_dtype_name(src->dtype));
    if (known->select == S24_SELECT_MVUE24) known->allow_nonfinite = 0;
    return S24_OK;
}

s24_status s24_device_matrix_create(s24_matrix **out, s24_ctx *ctx, s24_device *device,
                                    const s24_dense *src, const s24_matrix_opts *opts, void *stream)
{
    s24_matrix_opts known;
    s24i_device_report found;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, device, S24_ERROR_ARGUMENT, "device is NULL");
    TRY(check_opts(&known, ctx, src, opts));
    staged s = {.device = device, .stream = stream};
    s24_status status = stage(&s, ctx, src, &known);
    if (status == S24_OK) status = pack(&found, &s, ctx, src, &known);
    if (status == S24_OK)
        status = s24i_device_judge(ctx, &found, src->cols, src->dtype, known.allow_nonfinite);
    if (status == S24_OK) status = fetch(out, &s, ctx, src);
    s24i_device_release(device, s.memory, stream);
    return status;
}

/* How many of the group at row·k + col are not zero. */
static s24_status count_nonzeros(s24_bad_group *bad, s24_ctx *ctx, s24_device *device,
                                 const s24_dense *src, int64_t at, void *stream)
{
    uint32_t group[4] = {0};
    s24i_find find = {0};
    *bad = (s24_bad_group){at / src->cols, at % src->cols, 0};
    TRY(s24_device_copy(ctx, device, group, s24i_dense_at(src, bad->row, bad->col),
                        4 * s24_dtype_bytes(src->dtype), stream));
    TRY(s24_device_wait(ctx, device, stream));
    const s24_dense one = {group, src->dtype, 1, 4, 0};
    if (s24i_find_bad_group(&find, &one)) bad->nonzeros = find.nonzeros;
    return S24_OK;
}

s24_status s24_device_check(int *two_four, s24_bad_group *bad, s24_ctx *ctx, s24_device *device,
                            const s24_dense *src, void *stream)
{
    const s24_matrix_opts strict = {.size = sizeof strict};
    s24i_device_report found;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, two_four && device, S24_ERROR_ARGUMENT, "%s is NULL",
            two_four ? "device" : "two_four");
    *two_four = 0;
    TRY(s24i_dense_check_groups(ctx, "src", src));
    staged s = {.device = device, .stream = stream};
    s24_status status = stage(&s, ctx, src, &strict);
    if (status == S24_OK) status = pack(&found, &s, ctx, src, &strict);
    s24i_device_release(device, s.memory, stream);
    if (status != S24_OK) return status;
    *two_four = found.bad_group < 0;
    if (*two_four || !bad) return S24_OK;
    return count_nonzeros(bad, ctx, device, src, found.bad_group, stream);
}

/* ---- masks in device memory ------------------------------------------------------------------ */

s24_status s24_device_mask(uint8_t *mask, s24_ctx *ctx, s24_device *device, const s24_dense *src,
                           s24_select select, void *work, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, mask && device && work, S24_ERROR_ARGUMENT, "%s is NULL",
            !mask     ? "mask"
            : !device ? "device"
                      : "work");
    TRY(s24i_dense_check_groups(ctx, "src", src));
    REQUIRE(ctx, select == S24_SELECT_MAGNITUDE || s24i_select_is_tile(select), S24_ERROR_ARGUMENT,
            "select is %d; expected S24_SELECT_MAGNITUDE or one of S24_SELECT_TILE_*", (int)select);
    const s24i_device_select job = {.dtype = src->dtype,
                                    .n = src->rows,
                                    .k = src->cols,
                                    .ld = s24i_dense_ld(src),
                                    .dense = src->data,
                                    .select = select,
                                    .chosen = mask,
                                    .report = work};
    return s24i_device_status(ctx, device->table->select(device->gpu, &job, stream, &error),
                              &error);
}

s24_status s24_device_mask_apply(s24_ctx *ctx, s24_device *device, const s24_dense *dst,
                                 const s24_dense *src, const uint8_t *mask, void *stream)
{
    s24i_device_error error = {""};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && mask, S24_ERROR_ARGUMENT, "%s is NULL", device ? "mask" : "device");
    TRY(s24i_dense_check(ctx, "dst", dst));
    TRY(s24i_dense_check(ctx, "src", src));
    REQUIRE(ctx, dst->rows == src->rows && dst->cols == src->cols, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, src->rows, src->cols);
    REQUIRE(ctx, s24_dtype_can_be_two_four(src->dtype) && dst->dtype == src->dtype, S24_ERROR_DTYPE,
            "dst is %s and src %s; expected one of f32, f16, bf16, i8, e4m3 and e5m2 for both",
            s24_dtype_name(dst->dtype), s24_dtype_name(src->dtype));
    const s24i_device_masking job = {.bytes = s24_dtype_bytes(src->dtype),
                                     .rows = src->rows,
                                     .cols = src->cols,
                                     .ld_dst = s24i_dense_ld(dst),
                                     .ld_src = s24i_dense_ld(src),
                                     .dst = dst->data,
                                     .src = src->data,
                                     .mask = mask};
    return s24i_device_status(ctx, device->table->mask_apply(device->gpu, &job, stream, &error),
                              &error);
}
