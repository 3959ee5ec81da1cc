// SPDX-License-Identifier: Apache-2.0
/* What the plugin's files of training share, and what its part of the table is made of. */
#ifndef S24_CUDA_PLUGIN_TRAIN_CUH
#define S24_CUDA_PLUGIN_TRAIN_CUH

#include "cuda/plugin/device.cuh"
#include "device/device_train_table.h"

#define TRAIN_ENQUEUE(name, args)                                                                  \
    s24_status train_##name##_enqueue(s24i_device *device, const args *job, void *stream,          \
                                      s24i_device_error *error)

TRAIN_ENQUEUE(convert, s24_device_train_convert_args);
TRAIN_ENQUEUE(product, s24_device_train_product_args);
size_t train_attention_work_bytes(int64_t tokens, int64_t longest, int64_t heads);
TRAIN_ENQUEUE(attention, s24_device_train_attention_args);
TRAIN_ENQUEUE(attention_back, s24_device_train_attention_args);
TRAIN_ENQUEUE(rotate, s24_device_train_rotate_args);
TRAIN_ENQUEUE(dropout, s24_device_train_dropout_args);
TRAIN_ENQUEUE(sums, s24_device_train_sums_args);
TRAIN_ENQUEUE(add_norm, s24_device_train_add_norm_args);
TRAIN_ENQUEUE(norm_back, s24_device_train_norm_back_args);
TRAIN_ENQUEUE(activate, s24_device_train_activate_args);
TRAIN_ENQUEUE(activate_back, s24_device_train_activate_back_args);
TRAIN_ENQUEUE(embed, s24_device_train_embed_args);
TRAIN_ENQUEUE(embed_back, s24_device_train_embed_back_args);
TRAIN_ENQUEUE(unfold, s24_device_train_unfold_args);
TRAIN_ENQUEUE(cross_entropy, s24_device_train_cross_entropy_args);
TRAIN_ENQUEUE(answer, s24_device_train_answer_args);
TRAIN_ENQUEUE(squared, s24_device_train_squared_args);
TRAIN_ENQUEUE(cosine, s24_device_train_cosine_args);
TRAIN_ENQUEUE(squares, s24_device_train_squares_args);
TRAIN_ENQUEUE(adamw, s24_device_train_adamw_args);

extern const s24i_device_train_table train_table;

#endif
