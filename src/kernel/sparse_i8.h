// SPDX-License-Identifier: Apache-2.0
/*
 * Weights of 8-bit integers in blocks of 4x1 (four outputs, one column), for the rows of
 * sparse_kernels.def that multiply them by tokens quantised as they come (base/token_scale.h).
 *
 *   y = activation(alpha·(float(Σ)·w_scale[n])·x_scale[m] + bias)·gate + beta·residual
 */
#ifndef S24_KERNEL_SPARSE_I8_H
#define S24_KERNEL_SPARSE_I8_H

#include "kernel/sparse_kernel.h"

enum { S24I_SPARSE_OUTS = 4 };

/*
 * At the beginning of a weight's memory: lines of four outputs. Their columns come four at a time,
 * the last four filled up with zeros of column 0: those of a line are the groups from starts[line]
 * on, index [4] and values [output][4] of each.
 */
typedef struct s24i_sparse_i8 {
    int64_t lines;
    const int64_t *starts; /* [lines + 1] */
    const int32_t *index;
    const int8_t *values;
    const int32_t *totals; /* [4·lines]: the sum of an output's values */
    const float *scales;   /* [4·lines] */
} s24i_sparse_i8;

/* Bytes of such a weight, and its making: parts are BSR of 4x1, of i8; scales NULL: ones. */
size_t s24i_sparse_i8_bytes(const s24_sparse_parts *parts);
void s24i_sparse_i8_pack(void *w, const s24_sparse_parts *parts, const float *scales);

#endif
