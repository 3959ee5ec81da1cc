// SPDX-License-Identifier: Apache-2.0
/*
 * The part of a device's table that training needs. Jobs are the public structs of
 * device_train.h, whose fields src/device has checked; their stream is the function's argument.
 */
#ifndef S24_DEVICE_DEVICE_TRAIN_TABLE_H
#define S24_DEVICE_DEVICE_TRAIN_TABLE_H

#include "device/device_table.h"
#include "device/device_train.h"

/* A member for each row of device_train_ops.def. */
struct s24i_device_train_table {
#define CALL(result, name, parameters) result(*name) parameters;
#define JOB(name, type)                                                                            \
    s24_status (*name)(s24i_device * device, const type *job, void *stream,                        \
                       s24i_device_error *error);
#include "device/device_train_ops.def"
};

#endif
