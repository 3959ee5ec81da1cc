// SPDX-License-Identifier: Apache-2.0
/* Memory that several processes' GPUs write into, and sums through it. */
#include "device/device_room.h"

static s24_status ready(s24_ctx *ctx, const s24_device *device, const void *other)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, device && other, S24_ERROR_ARGUMENT, "%s is NULL",
            device ? "an argument" : "device");
    return S24_OK;
}

s24_status s24_device_window_make(void **out, s24_ctx *ctx, s24_device *device, int ranks,
                                  char name[S24_DEVICE_WINDOW_NAME])
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, out && name ? (const void *)out : NULL));
    REQUIRE(ctx, ranks > 1 && ranks <= S24_DEVICE_WINDOW_RANKS, S24_ERROR_ARGUMENT,
            "a window for %d ranks; 2 to %d have one", ranks, S24_DEVICE_WINDOW_RANKS);
    return s24i_device_status(
        ctx, device->table->window_make(device->gpu, out, ranks, name, &error), &error);
}

void s24_device_window_free(s24_device *device, void *window)
{
    if (device && window) device->table->window_free(device->gpu, window);
}

s24_status s24_device_window_join(void **out, s24_ctx *ctx, s24_device *device,
                                  const char name[S24_DEVICE_WINDOW_NAME])
{
    s24i_device_error error = {""};
    TRY(ready(ctx, device, out && name ? (const void *)out : NULL));
    return s24i_device_status(ctx, device->table->window_join(device->gpu, out, name, &error),
                              &error);
}

void s24_device_window_leave(s24_device *device, void *window)
{
    if (device && window) device->table->window_leave(device->gpu, window);
}

static s24_status check_windows(s24_ctx *ctx, const s24_device_window_sum_args *a)
{
    REQUIRE(ctx,
            a->ranks > 1 && a->ranks <= S24_DEVICE_WINDOW_RANKS && a->rank >= 0 &&
                a->rank < a->ranks,
            S24_ERROR_ARGUMENT, "rank %d of %d; sums in windows have 2 to %d ranks", a->rank,
            a->ranks, S24_DEVICE_WINDOW_RANKS);
    for (int r = 0; r < a->ranks; r++)
        REQUIRE(ctx, a->windows[r], S24_ERROR_ARGUMENT, "windows[%d] is NULL", r);
    return S24_OK;
}

s24_status s24_device_window_sum(s24_ctx *ctx, s24_device *device,
                                 const s24_device_window_sum_args *args)
{
    s24i_device_error error = {""};
    s24_device_window_sum_args a = {0};
    READ_ARGS(a, args, "s24_device_window_sum_args");
    REQUIRE(ctx, a.data && a.halt, S24_ERROR_ARGUMENT, "%s is NULL", a.data ? "halt" : "data");
    TRY(check_windows(ctx, &a));
    REQUIRE(ctx, a.dtype == S24_F16 || a.dtype == S24_BF16, S24_ERROR_DTYPE,
            "sums in windows are of f16 or bf16, not %s", s24_dtype_name(a.dtype));
    REQUIRE(ctx, a.count > 0 && a.count % 4 == 0 && a.count <= S24_DEVICE_WINDOW_SUM / 2 / a.ranks,
            S24_ERROR_SHAPE, "a sum of %lld numbers; a window takes a multiple of 4 up to %d",
            (long long)a.count, S24_DEVICE_WINDOW_SUM / 2 / a.ranks);
    return s24i_device_status(ctx, device->table->window_sum(device->gpu, &a, a.stream, &error),
                              &error);
}
