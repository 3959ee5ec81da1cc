// SPDX-License-Identifier: Apache-2.0
/*
 * The part of a device's table that training needs. Jobs are the public structs of
 * sparse24/device_train.h, whose fields src/op has checked; their stream is the function's argument.
 */
#ifndef S24_DEVICE_DEVICE_TRAIN_TABLE_H
#define S24_DEVICE_DEVICE_TRAIN_TABLE_H

#include "device/device_table.h"
#include "sparse24/device_train.h"

#define S24I_DEVICE_TRAIN_ENTRY(name, args)                                                        \
    s24_status (*name)(s24i_device * device, const args *job, void *stream,                        \
                       s24i_device_error *error)

struct s24i_device_train_table {
    S24I_DEVICE_TRAIN_ENTRY(convert, s24_device_train_convert_args);
    S24I_DEVICE_TRAIN_ENTRY(product, s24_device_train_product_args);
    S24I_DEVICE_TRAIN_ENTRY(dropout, s24_device_train_dropout_args);
    S24I_DEVICE_TRAIN_ENTRY(sums, s24_device_train_sums_args);
    S24I_DEVICE_TRAIN_ENTRY(add_norm, s24_device_train_add_norm_args);
    S24I_DEVICE_TRAIN_ENTRY(norm_back, s24_device_train_norm_back_args);
    S24I_DEVICE_TRAIN_ENTRY(activate, s24_device_train_activate_args);
    S24I_DEVICE_TRAIN_ENTRY(activate_back, s24_device_train_activate_back_args);
    S24I_DEVICE_TRAIN_ENTRY(embed, s24_device_train_embed_args);
    S24I_DEVICE_TRAIN_ENTRY(embed_back, s24_device_train_embed_back_args);
    S24I_DEVICE_TRAIN_ENTRY(unfold, s24_device_train_unfold_args);
    size_t (*attention_work_bytes)(int64_t tokens, int64_t longest, int64_t heads);
    S24I_DEVICE_TRAIN_ENTRY(attention, s24_device_train_attention_args);
    S24I_DEVICE_TRAIN_ENTRY(attention_back, s24_device_train_attention_args);
    S24I_DEVICE_TRAIN_ENTRY(rotate, s24_device_train_rotate_args);
    S24I_DEVICE_TRAIN_ENTRY(cross_entropy, s24_device_train_cross_entropy_args);
    S24I_DEVICE_TRAIN_ENTRY(answer, s24_device_train_answer_args);
    S24I_DEVICE_TRAIN_ENTRY(squared, s24_device_train_squared_args);
    S24I_DEVICE_TRAIN_ENTRY(cosine, s24_device_train_cosine_args);
    S24I_DEVICE_TRAIN_ENTRY(squares, s24_device_train_squares_args);
    S24I_DEVICE_TRAIN_ENTRY(adamw, s24_device_train_adamw_args);
};

#endif
