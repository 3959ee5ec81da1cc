// SPDX-License-Identifier: Apache-2.0
/* What rows are multiplied by and what scores of attention grow by, on a device. */
#include "device/device_train_room.h"

#include <math.h>

/* Runs an entry of the device's table on a job. */
#define RUN(entry, job)                                                                            \
    s24i_device_status(ctx, device->table->entry(device->gpu, job, (job)->stream, &error), &error)

s24_status s24_device_scale(s24_ctx *ctx, s24_device *device, const s24_device_scale_args *args)
{
    s24i_device_error error = {""};
    s24_device_scale_args a;
    READ_ARGS(a, args, "s24_device_scale_args");
    const s24i_train_pointer pointers[] = {
        {"x", a.x, 0}, {"columns", a.columns, 1}, {"factors", a.factors, 1}};
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.width));
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, isfinite(a.factor), S24_ERROR_ARGUMENT, "factor is %g; expected a number",
            (double)a.factor);
    return RUN(scale, &a);
}

s24_status s24_device_apart(s24_ctx *ctx, s24_device *device, const s24_device_apart_args *args)
{
    enum { MOST_D = 128, MOST_BLOCKS = 65535, TILE = S24_DEVICE_APART_ROWS };
    s24i_device_error error = {""};
    s24_device_apart_args a;
    READ_ARGS(a, args, "s24_device_apart_args");
    const s24i_train_pointer pointers[] = {
        {"vectors", a.vectors, 0}, {"table", a.table, 0}, {"y", a.y, 0}};
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.d >= 8 && a.d <= MOST_D && a.d % 8 == 0, S24_ERROR_UNSUPPORTED,
            "heads have %" PRId64 " elements; expected 8 to %d, which 8 divides", a.d, MOST_D);
    REQUIRE(ctx,
            a.tokens >= 1 && a.tokens < INT32_MAX / 2 && a.heads >= 1 && a.heads <= MOST_BLOCKS &&
                a.rows >= 1 && a.rows <= (int64_t)TILE * MOST_BLOCKS,
            S24_ERROR_SHAPE,
            "%" PRId64 " tokens, %" PRId64 " heads and %" PRId64
            " distances; expected 1 and more, and at most %d heads",
            a.tokens, a.heads, a.rows, MOST_BLOCKS);
    REQUIRE(ctx,
            a.ld >= a.heads * a.d && a.ld % 8 == 0 && a.table_ld >= a.heads * a.d &&
                a.table_ld % 8 == 0 && a.y_ld % TILE == 0 && a.y_ld >= a.rows,
            S24_ERROR_SHAPE,
            "rows %" PRId64 ", %" PRId64 " and %" PRId64
            " elements apart; expected room for all heads, and a multiple of %d for %" PRId64
            " distances",
            a.ld, a.table_ld, a.y_ld, TILE, a.rows);
    return RUN(apart, &a);
}
