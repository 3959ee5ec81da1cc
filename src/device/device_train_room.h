// SPDX-License-Identifier: Apache-2.0
/* What the checks of a device's training operations share. */
#ifndef S24_DEVICE_DEVICE_TRAIN_ROOM_H
#define S24_DEVICE_DEVICE_TRAIN_ROOM_H

#include "device/device_room.h"
#include "device/device_train_table.h"

/* Runs an entry of the device's table on a job. */
#define TRAIN_RUN(entry, job)                                                                      \
    s24i_device_status(ctx, device->table->train->entry(device->gpu, job, (job)->stream, &error),  \
                       &error)

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* One pointer of a job: where it must lead. */
typedef struct s24i_train_pointer {
    const char *name;
    const void *at;
    int optional; /* may be NULL */
} s24i_train_pointer;

/* ARGUMENT where one is NULL that must not be, or not at a multiple of 16 bytes. */
s24_status s24i_train_pointers(s24_ctx *ctx, const s24i_train_pointer *pointers, int count);
/* f16 or bf16. */
s24_status s24i_train_dtype(s24_ctx *ctx, s24_dtype dtype);
/* rows, 1 and more; width, 8 and more, which 8 divides. */
s24_status s24i_train_rows(s24_ctx *ctx, int64_t rows, int64_t width);

#endif
