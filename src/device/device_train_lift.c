// SPDX-License-Identifier: Apache-2.0
/* Lifted matrices on a device: checks of what repeats their tokens' columns. */
#include "device/device_train_room.h"

s24_status s24_device_train_lift(s24_ctx *ctx, s24_device *device,
                                 const s24_device_train_lift_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_lift_args a;
    READ_ARGS(a, args, "s24_device_train_lift_args");
    TRY(s24i_train_dtype(ctx, a.dtype));
    TRY(s24i_train_rows(ctx, a.rows, a.cols));
    const int64_t lifted = s24_lifted_cols(a.cols, a.lift);
    REQUIRE(ctx, lifted && lifted % 8 == 0, S24_ERROR_SHAPE,
            "%" PRId64 " columns and a lift of %d; expected columns that it divides, and of both "
            "numbers of columns that 8 divides them",
            a.cols, a.lift);
    const s24i_train_pointer pointers[] = {{"to", a.to, 0}, {"from", a.from, 0}};
    TRY(s24i_train_pointers(ctx, pointers, COUNT(pointers)));
    REQUIRE(ctx, a.to != a.from, S24_ERROR_ARGUMENT, "to is from; expected memory of its own");
    return TRAIN_RUN(lift, &a);
}
