// SPDX-License-Identifier: Apache-2.0
/* Training on a device, row by row: norms, activations, embeddings. */
#include "op/device_train.h"

s24_status s24_device_train_dropout(s24_ctx *ctx, s24_device *device,
                                    const s24_device_train_dropout_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_dropout_args a;
    TRAIN_READ(a, args, "s24_device_train_dropout_args");
    return TRAIN_RUN(dropout, &a);
}

s24_status s24_device_train_sums(s24_ctx *ctx, s24_device *device,
                                 const s24_device_train_sums_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_sums_args a;
    TRAIN_READ(a, args, "s24_device_train_sums_args");
    return TRAIN_RUN(sums, &a);
}

s24_status s24_device_train_add_norm(s24_ctx *ctx, s24_device *device,
                                     const s24_device_train_add_norm_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_add_norm_args a;
    TRAIN_READ(a, args, "s24_device_train_add_norm_args");
    return TRAIN_RUN(add_norm, &a);
}

s24_status s24_device_train_norm_back(s24_ctx *ctx, s24_device *device,
                                      const s24_device_train_norm_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_norm_back_args a;
    TRAIN_READ(a, args, "s24_device_train_norm_back_args");
    return TRAIN_RUN(norm_back, &a);
}

s24_status s24_device_train_activate(s24_ctx *ctx, s24_device *device,
                                     const s24_device_train_activate_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_activate_args a;
    TRAIN_READ(a, args, "s24_device_train_activate_args");
    return TRAIN_RUN(activate, &a);
}

s24_status s24_device_train_activate_back(s24_ctx *ctx, s24_device *device,
                                          const s24_device_train_activate_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_activate_back_args a;
    TRAIN_READ(a, args, "s24_device_train_activate_back_args");
    return TRAIN_RUN(activate_back, &a);
}

s24_status s24_device_train_embed(s24_ctx *ctx, s24_device *device,
                                  const s24_device_train_embed_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_embed_args a;
    TRAIN_READ(a, args, "s24_device_train_embed_args");
    return TRAIN_RUN(embed, &a);
}

s24_status s24_device_train_embed_back(s24_ctx *ctx, s24_device *device,
                                       const s24_device_train_embed_back_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_embed_back_args a;
    TRAIN_READ(a, args, "s24_device_train_embed_back_args");
    return TRAIN_RUN(embed_back, &a);
}

s24_status s24_device_train_unfold(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_unfold_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_unfold_args a;
    TRAIN_READ(a, args, "s24_device_train_unfold_args");
    return TRAIN_RUN(unfold, &a);
}
