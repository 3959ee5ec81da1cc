// SPDX-License-Identifier: Apache-2.0
/* What the plugin's files of training share, and what its part of the table is made of. */
#ifndef S24_CUDA_TRAIN_CUH
#define S24_CUDA_TRAIN_CUH

#include "device.cuh"
#include "kernel/device_train.h"

#define TRAIN_ENQUEUE(name, args)                                                                  \
    s24_status train_##name##_enqueue(s24i_device *device, const args *job, void *stream,          \
                                      s24i_device_error *error)

TRAIN_ENQUEUE(convert, s24_device_train_convert_args);
TRAIN_ENQUEUE(product, s24_device_train_product_args);
size_t train_attention_work_bytes(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t d);
TRAIN_ENQUEUE(attention, s24_device_train_attention_args);
TRAIN_ENQUEUE(attention_back, s24_device_train_attention_args);
TRAIN_ENQUEUE(rotate, s24_device_train_rotate_args);

extern const s24i_device_train_table train_table;

#endif
