// SPDX-License-Identifier: Apache-2.0
/* What the plugin's files of training share, and what its part of the table is made of. */
#ifndef S24_CUDA_PLUGIN_TRAIN_CUH
#define S24_CUDA_PLUGIN_TRAIN_CUH

#include "cuda/plugin/device.cuh"
#include "device/device_train_table.h"

/* The head of an operation's function, to declare it and to define it. */
#define TRAIN_ENQUEUE(name, args)                                                                  \
    s24_status train_##name##_enqueue(s24i_device *device, const args *job, void *stream,          \
                                      s24i_device_error *error)

/* The functions of the table, which its rows name. */
#define CALL(result, name, parameters) result train_##name parameters;
#define JOB(name, type)                TRAIN_ENQUEUE(name, type);
#include "device/device_train_ops.def"

extern const s24i_device_train_table train_table;

#endif
