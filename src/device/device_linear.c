// SPDX-License-Identifier: Apache-2.0
/* Products on a device: the checks before one kernel. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_room.h"

s24_status s24i_device_operand(s24_ctx *ctx, const char *name, const s24_dense *d, s24_dtype dtype,
                               int64_t rows, int64_t cols)
{
    TRY(s24i_dense_check(ctx, name, d));
    REQUIRE(ctx, d->dtype == dtype, S24_ERROR_DTYPE, "%s is %s; expected %s", name,
            s24_dtype_name(d->dtype), s24_dtype_name(dtype));
    REQUIRE(ctx, d->rows == rows && d->cols == cols, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", name, d->rows,
            d->cols, rows, cols);
    REQUIRE(ctx, rows < INT32_MAX / 2, S24_ERROR_SHAPE,
            "%s has %" PRId64 " rows, too many for one product on a device", name, rows);
    const int64_t piece = 16 / (int64_t)s24_dtype_bytes(dtype);
    REQUIRE(ctx, (uintptr_t)d->data % 16 == 0 && s24i_dense_ld(d) % piece == 0, S24_ERROR_ARGUMENT,
            "%s is at %p with a leading dimension of %" PRId64
            "; expected a multiple of 16 bytes and one of %" PRId64 " elements",
            name, d->data, s24i_dense_ld(d), piece);
    return S24_OK;
}

/* Y of a 16-bit weight has its dtype or f32, of an 8-bit one any floating point dtype, of i8
   also i8 and i32, of e4m3 also e4m3. */
static s24_status check_y_dtype(s24_ctx *ctx, s24_dtype w, s24_dtype y)
{
    const int narrow = s24_dtype_bytes(w) == 1;
    const int known = y == S24_F32 || (narrow ? y == S24_F16 || y == S24_BF16 : y == w) ||
                      (w == S24_I8 && (y == S24_I8 || y == S24_I32)) ||
                      (w == S24_E4M3 && y == S24_E4M3);
    REQUIRE(ctx, known, S24_ERROR_DTYPE, "y is %s of a weight of %s; expected %s",
            s24_dtype_name(y), s24_dtype_name(w),
            w == S24_I8     ? "f32, f16, bf16, i32 or i8"
            : w == S24_E4M3 ? "f32, f16, bf16 or e4m3"
            : narrow        ? "f32, f16 or bf16"
                            : "the weight's dtype or f32");
    return S24_OK;
}

/* The factors that are no vectors. */
static s24_status check_factors(s24_ctx *ctx, const s24_device_linear_args *a)
{
    const int small = a->y->dtype == S24_I8 || a->y->dtype == S24_E4M3;
    REQUIRE(ctx, a->alpha >= 0 && a->alpha <= FLT_MAX && (!(a->alpha > 0) || a->w_scale),
            S24_ERROR_ARGUMENT, "alpha is %g%s; expected a finite number from 0 on, with w_scale",
            (double)a->alpha, a->w_scale ? "" : " without w_scale");
    REQUIRE(ctx, a->y_scale >= 0 && a->y_scale <= FLT_MAX && (!(a->y_scale > 0) || small),
            S24_ERROR_ARGUMENT,
            "y_scale is %g of a y of %s; expected a finite number from 0 on, and i8 or e4m3",
            (double)a->y_scale, s24_dtype_name(a->y->dtype));
    REQUIRE(ctx, a->y->dtype != S24_E4M3 || !a->residual, S24_ERROR_ARGUMENT,
            "a residual of a y of e4m3; expected none, or a y of more bits");
    return S24_OK;
}

s24_status s24i_device_terms(s24_ctx *ctx, const s24_device_linear_args *a)
{
    REQUIRE(ctx, (int)a->activation >= 0 && a->activation <= S24_ACTIVATION_SILU,
            S24_ERROR_ARGUMENT, "activation is %d; expected 0 to %d", (int)a->activation,
            (int)S24_ACTIVATION_SILU);
    const size_t bytes = s24_dtype_bytes(a->y->dtype) == 2 ? 2 : 4;
    REQUIRE(ctx, (uintptr_t)a->bias % bytes == 0, S24_ERROR_ARGUMENT,
            "bias is at %p; expected a multiple of %zu bytes", a->bias, bytes);
    REQUIRE(ctx, (uintptr_t)a->x_scale % 4 == 0 && (uintptr_t)a->w_scale % 4 == 0,
            S24_ERROR_ARGUMENT, "x_scale is at %p and w_scale at %p; expected multiples of 4 bytes",
            (const void *)a->x_scale, (const void *)a->w_scale);
    return S24_OK;
}

/* ---- measured tiles -------------------------------------------------------------------------- */

static int by_shape(const void *a, const void *b)
{
    const s24i_device_choice *x = a, *y = b;
    for (int i = 0; i < 4; i++)
        if (x->shape[i] != y->shape[i]) return x->shape[i] < y->shape[i] ? -1 : 1;
    return 0;
}

/* −1: none was measured, or it needs work memory that is not there. */
static int measured_tile(const s24_device *device, const s24i_device_linear *job)
{
    const s24_device_weight *w = job->weight;
    const s24i_device_choice wanted = {{(int64_t)w->dtype, job->m, w->k, w->n}, -1};
    const s24i_device_choice *found =
        device->choices ? bsearch(&wanted, device->choices, (size_t)device->choice_count,
                                  sizeof wanted, by_shape)
                        : NULL;
    if (!found) return -1;
    s24i_device_linear trial = *job;
    trial.tile = found->tile;
    return device->table->linear_choose(device->gpu, &trial);
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

/* x [m, k], y and the residual [m, n]; of columns x [k, m], y and the residual [n, m]. */
static s24_status check_operands(s24_ctx *ctx, const s24_device_weight *w,
                                 const s24_device_linear_args *a, int columns)
{
    REQUIRE(ctx, a->x && a->y, S24_ERROR_ARGUMENT, "%s is NULL", a->x ? "y" : "x");
    REQUIRE(ctx, !columns || s24_dtype_bytes(w->dtype) == 2, S24_ERROR_UNSUPPORTED,
            "a weight of %s times columns of tokens; the tensor cores take 8 bits with a token's "
            "elements side by side only: s24_device_linear",
            s24_dtype_name(w->dtype));
    const int64_t m = columns ? a->x->cols : a->x->rows;
    const int64_t rows = columns ? w->n : m, cols = columns ? m : w->n;
    TRY(s24i_device_operand(ctx, "x", a->x, w->dtype, columns ? w->k : m, columns ? m : w->k));
    TRY(check_y_dtype(ctx, w->dtype, a->y->dtype));
    TRY(s24i_device_operand(ctx, "y", a->y, a->y->dtype, rows, cols));
    if (a->residual)
        TRY(s24i_device_operand(ctx, "residual", a->residual, a->y->dtype, rows, cols));
    return S24_OK;
}

/* Norms around the product, read into this version's struct. */
static s24_status check_norm(s24_device_linear_norm *norm, s24_ctx *ctx, const s24_device_weight *w,
                             const s24_device_linear_args *a, int columns)
{
    TRY(s24i_opts_read(ctx, norm, sizeof *norm, a->norm, "s24_device_linear_norm"));
    REQUIRE(ctx, !norm->x_moments != !norm->y_moments, S24_ERROR_ARGUMENT,
            "x_moments and y_moments of a norm: one of them was expected, not %s",
            norm->x_moments ? "both" : "neither");
    REQUIRE(ctx, s24_dtype_bytes(w->dtype) == 2 && a->y->dtype == w->dtype && !columns,
            S24_ERROR_DTYPE, "norms around a product of %s into %s%s; f16 or bf16 was expected",
            s24_dtype_name(w->dtype), s24_dtype_name(a->y->dtype), columns ? " by columns" : "");
    REQUIRE(ctx, w->n % 8 == 0, S24_ERROR_SHAPE,
            "norms around a product of %" PRId64 " outputs; expected a multiple of 8", w->n);
    const s24_activation most = norm->x_moments ? S24_ACTIVATION_GELU : S24_ACTIVATION_NONE;
    REQUIRE(ctx,
            !a->x_scale && !a->w_scale && (!a->activation || a->activation == most) &&
                (norm->x_moments ? norm->x_terms && !a->bias && !a->residual : a->residual != NULL),
            S24_ERROR_ARGUMENT, "%s: expected %s, no scales and no other activation",
            norm->x_moments ? "x_moments of a norm" : "y_moments of a norm",
            norm->x_moments ? "x_terms, no bias, no residual" : "a residual");
    REQUIRE(ctx, !norm->residual_moments || (norm->residual_gamma && norm->residual_beta),
            S24_ERROR_ARGUMENT, "residual_moments without residual_gamma and residual_beta");
    if (!norm->residual_moments) norm->residual_gamma = norm->residual_beta = NULL;
    return S24_OK;
}

static s24_status check_args(s24_ctx *ctx, const s24_device *device, const s24_device_weight *w,
                             const s24_device_linear_args *a, int columns)
{
    TRY(check_operands(ctx, w, a, columns));
    TRY(s24i_device_terms(ctx, a));
    TRY(check_factors(ctx, a));
    size_t need = device->table->linear_work_bytes(device->gpu, w->dtype);
    REQUIRE(ctx, !a->work || (a->work_bytes >= need && (uintptr_t)a->work % 256 == 0),
            S24_ERROR_ARGUMENT,
            "work is %zu bytes at %p; expected %zu bytes at a multiple of 256, or NULL",
            a->work_bytes, a->work, need);
    return S24_OK;
}

static s24_status run(s24_ctx *ctx, s24_device *device, const s24_device_weight *weight,
                      const s24_device_linear_args *args, int columns)
{
    s24i_device_error error = {""};
    s24_device_linear_args known;
    s24_device_linear_norm norm;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && weight && args, S24_ERROR_ARGUMENT, "%s is NULL",
            !device   ? "device"
            : !weight ? "weight"
                      : "args");
    TRY(s24i_opts_read(ctx, &known, sizeof known, args, "s24_device_linear_args"));
    TRY(check_args(ctx, device, weight, &known, columns));
    if (known.norm) {
        TRY(check_norm(&norm, ctx, weight, &known, columns));
        known.norm = &norm;
    }
    s24i_device_linear job = {.args = &known,
                              .weight = (s24_device_weight *)(uintptr_t)weight,
                              .m = columns ? known.x->cols : known.x->rows,
                              .columns = columns};
    TRY(tile_index(&job.tile, ctx, device, known.tile));
    if (job.tile < 0 && !columns && !known.norm) job.tile = measured_tile(device, &job);
    return s24i_device_status(ctx, device->table->linear(device->gpu, &job, known.stream, &error),
                              &error);
}

s24_status s24_device_linear(s24_ctx *ctx, s24_device *device, const s24_device_weight *weight,
                             const s24_device_linear_args *args)
{
    return run(ctx, device, weight, args, 0);
}

s24_status s24_device_mm_sparse_dense(s24_ctx *ctx, s24_device *device,
                                      const s24_device_weight *weight,
                                      const s24_device_linear_args *args)
{
    return run(ctx, device, weight, args, 1);
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
    if (!device || !weight || m < 1) return NULL;
    if (device->vendor) return "cusparselt";
    const s24_dtype y_dtype = s24_dtype_bytes(weight->dtype) == 2 ? weight->dtype : S24_BF16;
    const s24_dense x = {NULL, weight->dtype, m, weight->k, 0};
    const s24_dense y = {NULL, y_dtype, m, weight->n, 0};
    const s24_device_linear_args args = {
        .y = &y, .x = &x, .work = device->gpu /* any: as if there was work memory */};
    s24i_device_linear job = {
        .args = &args, .weight = (s24_device_weight *)(uintptr_t)weight, .m = m, .tile = -1};
    job.tile = measured_tile(device, &job);
    return device->table->tile_name(device->table->linear_choose(device->gpu, &job));
}

s24_status s24_device_tune(s24_ctx *ctx, s24_device *device, const s24_device_choice *choices,
                           int64_t count)
{
    size_t bytes;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && (choices || !count) && count >= 0, S24_ERROR_ARGUMENT, "%s",
            device ? "choices is NULL or their number negative" : "device is NULL");
    REQUIRE(ctx, !s24i_mul_overflow((size_t)count + 1, sizeof(s24i_device_choice), &bytes),
            S24_ERROR_MEMORY, "out of memory for %" PRId64 " tiles", count);
    s24i_device_choice *own = s24i_alloc(&device->allocator, bytes);
    REQUIRE(ctx, own, S24_ERROR_MEMORY, "out of memory for %" PRId64 " tiles", count);
    for (int64_t i = 0; i < count; i++) {
        const s24_device_choice *c = &choices[i];
        own[i] = (s24i_device_choice){{(int64_t)c->dtype, c->m, c->k, c->n}, -1};
        s24_status status = tile_index(&own[i].tile, ctx, device, c->tile ? c->tile : "");
        if (status == S24_OK) continue;
        s24i_free(&device->allocator, own);
        return status;
    }
    qsort(own, (size_t)count, sizeof *own, by_shape);
    s24i_free(&device->allocator, device->choices);
    device->choices = own;
    device->choice_count = count;
    return S24_OK;
}
