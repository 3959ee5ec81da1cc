// SPDX-License-Identifier: Apache-2.0
/* Training on a device: losses and the optimiser. */
#include "op/device_train.h"

s24_status s24_device_train_cross_entropy(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_cross_entropy_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_cross_entropy_args a;
    TRAIN_READ(a, args, "s24_device_train_cross_entropy_args");
    return TRAIN_RUN(cross_entropy, &a);
}

s24_status s24_device_train_answer(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_answer_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_answer_args a;
    TRAIN_READ(a, args, "s24_device_train_answer_args");
    return TRAIN_RUN(answer, &a);
}

s24_status s24_device_train_squared(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_squared_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_squared_args a;
    TRAIN_READ(a, args, "s24_device_train_squared_args");
    return TRAIN_RUN(squared, &a);
}

s24_status s24_device_train_cosine(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_cosine_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_cosine_args a;
    TRAIN_READ(a, args, "s24_device_train_cosine_args");
    return TRAIN_RUN(cosine, &a);
}

s24_status s24_device_train_squares(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_squares_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_squares_args a;
    TRAIN_READ(a, args, "s24_device_train_squares_args");
    return TRAIN_RUN(squares, &a);
}

s24_status s24_device_train_adamw(s24_ctx *ctx, s24_device *device,
                                  const s24_device_train_adamw_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_adamw_args a;
    TRAIN_READ(a, args, "s24_device_train_adamw_args");
    return TRAIN_RUN(adamw, &a);
}
