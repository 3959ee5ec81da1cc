// SPDX-License-Identifier: Apache-2.0
/* Products on a device: the checks before one kernel. */
#include <string.h>

#include "op/device.h"

/* The copy engine moves 16 bytes at least. */
static s24_status check_operand(s24_ctx *ctx, const char *name, const s24_dense *d, s24_dtype dtype,
                                int64_t rows, int64_t cols)
{
    TRY(s24i_dense_check(ctx, name, d));
    REQUIRE(ctx, d->dtype == dtype, S24_ERROR_DTYPE, "%s is %s; expected the weight's %s", name,
            s24_dtype_name(d->dtype), s24_dtype_name(dtype));
    REQUIRE(ctx, d->rows == rows && d->cols == cols, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", name, d->rows,
            d->cols, rows, cols);
    REQUIRE(ctx, rows < INT32_MAX / 2, S24_ERROR_SHAPE,
            "%s has %" PRId64 " rows, too many for one product on a device", name, rows);
    REQUIRE(ctx, (uintptr_t)d->data % 16 == 0 && s24i_dense_ld(d) % 8 == 0, S24_ERROR_ARGUMENT,
            "%s is at %p with a leading dimension of %" PRId64
            "; expected a multiple of 16 bytes and one of 8 elements",
            name, d->data, s24i_dense_ld(d));
    return S24_OK;
}

static s24_status tile_index(int *out, s24_ctx *ctx, const s24_device *device, const char *name)
{
    const char *row;
    *out = -1;
    for (int i = 0; name && (row = device->table->tile_name(i)) != NULL; i++)
        if (!strcmp(row, name)) *out = i;
    REQUIRE(ctx, !name || *out >= 0, S24_ERROR_ARGUMENT,
            "there is no tile named \"%s\"; s24_device_tile_name lists them", name);
    return S24_OK;
}

static s24_status check_args(s24i_device_linear *job, s24_ctx *ctx, const s24_device *device,
                             const s24_device_weight *w, const s24_device_linear_args *a)
{
    REQUIRE(ctx, a->x && a->y, S24_ERROR_ARGUMENT, "%s is NULL", a->x ? "y" : "x");
    const int64_t m = a->x->rows;
    TRY(check_operand(ctx, "x", a->x, w->dtype, m, w->k));
    TRY(check_operand(ctx, "y", a->y, w->dtype, m, w->n));
    if (a->residual) TRY(check_operand(ctx, "residual", a->residual, w->dtype, m, w->n));
    REQUIRE(ctx, (int)a->activation >= 0 && a->activation <= S24_ACTIVATION_SILU,
            S24_ERROR_ARGUMENT, "activation is %d; expected 0 to %d", (int)a->activation,
            (int)S24_ACTIVATION_SILU);
    REQUIRE(ctx, (uintptr_t)a->bias % 2 == 0, S24_ERROR_ARGUMENT,
            "bias is at %p; expected a multiple of 2 bytes", a->bias);
    size_t need = device->table->linear_work_bytes(device->gpu, w->dtype);
    REQUIRE(ctx, !a->work || (a->work_bytes >= need && (uintptr_t)a->work % 256 == 0),
            S24_ERROR_ARGUMENT,
            "work is %zu bytes at %p; expected %zu bytes at a multiple of 256, or NULL",
            a->work_bytes, a->work, need);
    *job = (s24i_device_linear){.dtype = w->dtype,
                                .m = m,
                                .n = w->n,
                                .k = w->k,
                                .w = w->packed,
                                .x = a->x->data,
                                .ldx = s24i_dense_ld(a->x),
                                .y = a->y->data,
                                .ldy = s24i_dense_ld(a->y),
                                .bias = a->bias,
                                .residual = a->residual ? a->residual->data : NULL,
                                .ld_residual = a->residual ? s24i_dense_ld(a->residual) : 0,
                                .activation = a->activation,
                                .work = a->work,
                                .work_bytes = a->work_bytes,
                                .cut = -1};
    return tile_index(&job->tile, ctx, device, a->tile);
}

s24_status s24_device_linear(s24_ctx *ctx, s24_device *device, const s24_device_weight *weight,
                             const s24_device_linear_args *args)
{
    s24i_device_error error = {""};
    s24_device_linear_args known;
    s24i_device_linear job;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && weight && args, S24_ERROR_ARGUMENT, "%s is NULL",
            !device   ? "device"
            : !weight ? "weight"
                      : "args");
    TRY(s24i_opts_read(ctx, &known, sizeof known, args, "s24_device_linear_args"));
    TRY(check_args(&job, ctx, device, weight, &known));
    return s24i_device_status(ctx, device->table->linear(device->gpu, &job, known.stream, &error),
                              &error);
}

size_t s24_device_linear_work_bytes(const s24_device *device, const s24_device_weight *weight)
{
    return device && weight ? device->table->linear_work_bytes(device->gpu, weight->dtype) : 0;
}

const char *s24_device_tile_name(const s24_device *device, int index)
{
    return device ? device->table->tile_name(index) : NULL;
}

const char *s24_device_linear_tile(const s24_device *device, const s24_device_weight *weight,
                                   int64_t m)
{
    int tile, cut;
    if (!device || !weight || m < 1) return NULL;
    s24i_device_linear job = {.dtype = weight->dtype,
                              .m = m,
                              .n = weight->n,
                              .k = weight->k,
                              .work = device->gpu, /* any: as if there was work memory */
                              .tile = -1,
                              .cut = -1};
    device->table->linear_choose(device->gpu, &job, &tile, &cut);
    return device->table->tile_name(tile);
}
