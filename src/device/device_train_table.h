// SPDX-License-Identifier: Apache-2.0
/*
 * The part of a device's table that training and pruning need. Jobs of training are the public
 * structs of device_train.h, whose fields src/device has checked; their stream is the function's
 * argument.
 */
#ifndef S24_DEVICE_DEVICE_TRAIN_TABLE_H
#define S24_DEVICE_DEVICE_TRAIN_TABLE_H

#include "device/device_table.h"
#include "device/device_train.h"

/*
 * c[i, j] = [c[i, j] +] sign · Σ_p a[i, p]·b[j, p]   for i < m, j < n, p < depth, in f64
 *
 * Element (i, p) of a is at a[i*a_row + p*a_depth], and so for b; one of each pair of strides is 1.
 */
typedef struct s24i_device_wide {
    int64_t m, n, depth;
    const double *a;
    int64_t a_row, a_depth;
    const double *b;
    int64_t b_row, b_depth;
    double *c;
    int64_t ldc;
    double sign;
    int add; /* to what is there */
} s24i_device_wide;

/* Rows of `bytes` from one place to another, so many bytes apart in each; either may be the
   host's. */
typedef struct s24i_device_rows {
    void *to;
    const void *from;
    size_t to_apart, from_apart, bytes;
    int64_t rows;
} s24i_device_rows;

/* A member for each row of device_train_ops.def. */
struct s24i_device_train_table {
#define CALL(result, name, parameters) result(*name) parameters;
#define JOB(name, type)                                                                            \
    s24_status (*name)(s24i_device * device, const type *job, void *stream,                        \
                       s24i_device_error *error);
#include "device/device_train_ops.def"
};

#endif
