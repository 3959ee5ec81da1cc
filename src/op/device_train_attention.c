// SPDX-License-Identifier: Apache-2.0
/* Training on a device: attention forward and backward, rotary positions. */
#include "op/device_train.h"

size_t s24_device_train_attention_work_bytes(const s24_device *device, int64_t tokens,
                                             int64_t heads, int64_t kv_heads, int64_t d)
{
    if (!device) return 0;
    return device->table->train->attention_work_bytes(tokens, heads, kv_heads, d);
}

s24_status s24_device_train_attention(s24_ctx *ctx, s24_device *device,
                                      const s24_device_train_attention_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_attention_args a;
    TRAIN_READ(a, args, "s24_device_train_attention_args");
    return TRAIN_RUN(attention, &a);
}

s24_status s24_device_train_attention_back(s24_ctx *ctx, s24_device *device,
                                           const s24_device_train_attention_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_attention_args a;
    TRAIN_READ(a, args, "s24_device_train_attention_args");
    return TRAIN_RUN(attention_back, &a);
}

s24_status s24_device_train_rotate(s24_ctx *ctx, s24_device *device,
                                   const s24_device_train_rotate_args *args)
{
    s24i_device_error error = {""};
    s24_device_train_rotate_args a;
    TRAIN_READ(a, args, "s24_device_train_rotate_args");
    return TRAIN_RUN(rotate, &a);
}
