// SPDX-License-Identifier: Apache-2.0
/* Training on a device: checks of what methods of sparse training need. */
#include <math.h>

#include "device/device_train_room.h"

static s24_status check_matrix(s24_ctx *ctx, int64_t rows, int64_t cols)
{
    REQUIRE(ctx, rows >= 1 && rows < INT32_MAX / 2 && cols >= 4 && cols % 4 == 0, S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] elements; expected 1 to %d rows and columns that 4 divides",
            rows, cols, INT32_MAX / 2);
    return S24_OK;
}

static s24_status check_chance(s24_ctx *ctx, const s24_device_train_chance *chance)
{
    REQUIRE(ctx,
            isfinite(chance->scale) && isfinite(chance->temperature) && isfinite(chance->norm) &&
                chance->temperature >= 0,
            S24_ERROR_ARGUMENT,
            "scale %g, temperature %g, norm %g; expected finite ones, temperature 0 or more",
            chance->scale, chance->temperature, chance->norm);
    return S24_OK;
}

static s24_status check_mask(s24_ctx *ctx, const s24_device_train_mask_args *a)
{
    TRY(s24i_train_dtype(ctx, a->dtype));
    TRY(check_matrix(ctx, a->rows, a->cols));
    TRY(check_chance(ctx, &a->chance));
    REQUIRE(ctx, a->first >= 0 && a->first % 4 == 0, S24_ERROR_SHAPE,
            "first is %" PRId64 "; expected a multiple of 4", a->first);
    REQUIRE(ctx, a->stays >= S24_DEVICE_TRAIN_ALL && a->stays <= S24_DEVICE_TRAIN_DRAWN,
            S24_ERROR_ARGUMENT, "stays is %d; expected 0 to %d", (int)a->stays,
            (int)S24_DEVICE_TRAIN_DRAWN);
    const s24i_train_pointer pointers[] = {
        {"from", a->from, 0}, {"to", a->to, 1}, {"bits", a->bits, 0}, {"sums", a->sums, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, (uintptr_t)a->narrow % 8 == 0, S24_ERROR_ARGUMENT,
            "narrow is %p; expected a multiple of 8 bytes", a->narrow);
    REQUIRE(ctx, a->logits || a->stays != S24_DEVICE_TRAIN_DRAWN, S24_ERROR_ARGUMENT, "%s",
            "logits is NULL");
    return S24_OK;
}

s24_status s24_device_train_mask(s24_ctx *ctx, s24_device *device,
                                 const s24_device_train_mask_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_mask_args a;
    READ_ARGS(a, args, "s24_device_train_mask_args");
    TRY(check_mask(ctx, &a));
    for (const s24_device_train_mask_args *other = a.next; other; other = other->next) {
        TRY(check_mask(ctx, other));
        REQUIRE(ctx,
                other->dtype == a.dtype && other->stays == a.stays && other->notes == a.notes &&
                    other->all_run == a.all_run && other->bits == a.bits && other->sums == a.sums,
                S24_ERROR_ARGUMENT, "%s",
                "next differs in dtype, stays, notes, all_run, bits or sums");
    }
    return TRAIN_RUN(mask, &a);
}

s24_status s24_device_train_extra(s24_ctx *ctx, s24_device *device,
                                  const s24_device_train_extra_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_extra_args a;
    READ_ARGS(a, args, "s24_device_train_extra_args");
    TRY(check_matrix(ctx, a.rows, a.cols));
    TRY(check_chance(ctx, &a.chance));
    const s24i_train_pointer pointers[] = {{"g", a.g, 0}, {"w", a.w, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.gradients && a.extra, S24_ERROR_ARGUMENT, "%s is NULL",
            a.extra ? "gradients" : "extra");
    REQUIRE(ctx, !a.patterns || a.chance.temperature > 0, S24_ERROR_ARGUMENT, "%s",
            "temperature is 0; expected more");
    return TRAIN_RUN(extra, &a);
}

s24_status s24_device_train_mvue(s24_ctx *ctx, s24_device *device,
                                 const s24_device_train_mvue_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_mvue_args a;
    READ_ARGS(a, args, "s24_device_train_mvue_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.rows >= 1 && a.cols >= 2 && a.cols % 2 == 0 && a.ld >= a.cols && a.ld % 2 == 0,
            S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] elements, %" PRId64
            " apart; expected 1 and more rows, columns and distances that 2 divides",
            a.rows, a.cols, a.ld);
    const s24i_train_pointer pointers[] = {{"to", a.to, 0}, {"from", a.from, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(mvue, &a);
}

s24_status s24_device_train_fp8(s24_ctx *ctx, s24_device *device,
                                const s24_device_train_fp8_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_fp8_args a;
    READ_ARGS(a, args, "s24_device_train_fp8_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    REQUIRE(ctx, a.to_dtype == S24_E4M3 || a.to_dtype == S24_E5M2, S24_ERROR_DTYPE,
            "to_dtype is %s; expected e4m3 or e5m2", s24_dtype_name(a.to_dtype));
    REQUIRE(ctx,
            a.rows >= 1 && a.rows < INT32_MAX / 2 && a.cols >= 16 && a.cols % 16 == 0 &&
                a.cols < INT32_MAX / 2 && a.ld >= a.cols && a.ld % 8 == 0,
            S24_ERROR_SHAPE,
            "[%" PRId64 ", %" PRId64 "] elements, %" PRId64
            " apart; expected 1 row and more, columns that 16 divides, a distance that 8 divides",
            a.rows, a.cols, a.ld);
    const s24i_train_pointer pointers[] = {{"from", a.from, 0},
                                           {"to", a.to, 1},
                                           {"turned", a.turned, 1},
                                           {"scale", a.scale, 0},
                                           {"each", a.each, 1}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(fp8, &a);
}

s24_status s24_device_train_tokens(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_tokens_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_tokens_args a;
    READ_ARGS(a, args, "s24_device_train_tokens_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(check_matrix(ctx, a.rows, a.cols));
    REQUIRE(ctx, a.first >= 0 && a.step >= 1 && a.first < a.rows && a.step <= a.rows,
            S24_ERROR_ARGUMENT,
            "an order of %" PRId64 " rows from %" PRId64 " by %" PRId64
            "; expected one of them, by 1 to all of them",
            a.rows, a.first, a.step);
    REQUIRE(ctx, a.whole >= 0 && a.whole <= a.cols, S24_ERROR_ARGUMENT,
            "whole is %" PRId64 "; expected 0 to %" PRId64, a.whole, a.cols);
    const s24i_train_pointer pointers[] = {{"x", a.x, 0}, {"counts", a.counts, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    return TRAIN_RUN(tokens, &a);
}

s24_status s24_device_train_variance(s24_ctx *ctx, s24_device *device,
                                     const s24_device_train_variance_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_variance_args a;
    READ_ARGS(a, args, "s24_device_train_variance_args");
    REQUIRE(ctx, a.count >= 16 && a.count % 16 == 0, S24_ERROR_SHAPE,
            "count is %" PRId64 "; expected a multiple of 16", a.count);
    REQUIRE(ctx, a.gradient_scale > 0 && a.clip >= 0 && a.beta2 >= 0 && a.beta2 < 1,
            S24_ERROR_ARGUMENT,
            "gradient_scale %g, clip %g, beta2 %g; expected over 0, 0 or more, 0 to less than 1",
            a.gradient_scale, a.clip, a.beta2);
    const s24i_train_pointer pointers[] = {
        {"g", a.g, 0}, {"v", a.v, 0}, {"bits", a.bits, 0}, {"changes", a.changes, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.squares && (uintptr_t)a.squares % 8 == 0, S24_ERROR_ARGUMENT,
            "squares is at %p; expected a multiple of 8 bytes", (const void *)a.squares);
    return TRAIN_RUN(variance, &a);
}

s24_status s24_device_train_mark_create(void **out, s24_ctx *ctx, s24_device *device)
{
    s24i_device_error error = {""};
    REQUIRE(ctx, out && device, S24_ERROR_ARGUMENT, "%s is NULL", out ? "device" : "out");
    return s24i_device_status(ctx, device->table->train->mark_create(device->gpu, out, &error),
                              &error);
}

void s24_device_train_mark_destroy(s24_device *device, void *mark)
{
    if (device && mark) device->table->train->mark_destroy(device->gpu, mark);
}

s24_status s24_device_train_mark(s24_ctx *ctx, s24_device *device, void *mark, void *stream)
{
    s24i_device_error error = {""};
    REQUIRE(ctx, device && mark, S24_ERROR_ARGUMENT, "%s is NULL", device ? "mark" : "device");
    return s24i_device_status(ctx, device->table->train->mark(device->gpu, mark, stream, &error),
                              &error);
}

s24_status s24_device_train_mark_seconds(double *seconds, s24_ctx *ctx, s24_device *device,
                                         void *from, void *to)
{
    s24i_device_error error = {""};
    REQUIRE(ctx, seconds && device && from && to, S24_ERROR_ARGUMENT, "%s is NULL",
            !seconds  ? "seconds"
            : !device ? "device"
            : !from   ? "from"
                      : "to");
    return s24i_device_status(
        ctx, device->table->train->mark_seconds(device->gpu, seconds, from, to, &error), &error);
}
