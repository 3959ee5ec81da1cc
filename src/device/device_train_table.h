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
#include "kernel/row_rules.h"

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

/* A rule over the columns at hand of all rows: of w, gradient, d and u, all [n, rows.k] in f64, the
   pointers are to the first of them; so is `steps` [n, ld]. At most S24I_ROW_COLUMNS. */
typedef struct s24i_device_sweep {
    s24i_row_job rows; /* its h is there */
    int64_t n, ld;
    double *w;
    const double *gradient; /* NULL: of DROP */
    double *steps;          /* made */
    double *d, *u;          /* of PULL, or NULL */
    double *moved;          /* one number, which becomes 1 where a row chose otherwise: of SWAP */
} s24i_device_sweep;

/* A step of conjugate gradients of all rows: s24i_row_descent. */
typedef struct s24i_device_descent {
    int64_t n, k;
    double *w, *gradient, *way; /* [n, k] */
    const double *turn;         /* [n, k], or NULL: the first */
    double *left;               /* [n] */
    const double *diagonal;     /* [k] */
} s24i_device_descent;

/* A member for each row of device_train_ops.def. */
struct s24i_device_train_table {
#define CALL(result, name, parameters) result(*name) parameters;
#define JOB(name, type)                                                                            \
    s24_status (*name)(s24i_device * device, const type *job, void *stream,                        \
                       s24i_device_error *error);
#include "device/device_train_ops.def"
};

#endif
