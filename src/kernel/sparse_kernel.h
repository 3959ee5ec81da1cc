// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels of sparse weights that are not 2:4, in rows or in rows of square blocks: a row of
 * cpu/sparse_kernels.def each. What they do is the job of the 2:4 rows (kernel.h), with `w` as
 * below, so that plans and epilogues are the same.
 */
#ifndef S24_KERNEL_SPARSE_KERNEL_H
#define S24_KERNEL_SPARSE_KERNEL_H

#include "kernel/kernel.h"

/*
 * A weight as the rows read it, at the beginning of its memory: lines of n / block rows, whose
 * entries are those from starts[line] on. The entry at i has the columns from index[i] on, `block`
 * of them, and block·block values, column by column, a column's `block` rows together. CSR is
 * blocks of one.
 */
typedef struct s24i_sparse_weight {
    int64_t block, lines;
    const int64_t *starts; /* [lines + 1] */
    const int32_t *index;
    const float *values;
    const uint32_t *pairs; /* of bf16 rows in place of values: a block's columns two by two */
} s24i_sparse_weight;

typedef struct s24i_sparse_kernel {
    s24i_linear_kernel linear; /* its weight_bytes, weight_pack and layout are not there */
    s24_format format; /* CSR or BSR; of BSR blocks of a multiple of 8 rows, square ones, or with
                          i8 activations 4x1 */
} s24i_sparse_kernel;

/* Bytes of such a weight for a row, and its making: parts are CSR, or BSR of square blocks. */
size_t s24i_sparse_weight_bytes(const s24_sparse_parts *parts, const s24i_sparse_kernel *kernel);
void s24i_sparse_weight_pack(void *w, const s24_sparse_parts *parts,
                             const s24i_sparse_kernel *kernel);

/* The best row for a format and values of that dtype, which rows of f32 widen; the best with
   integers throughout (kernel/sparse_i8.h); by its index, NULL past the end of the table. */
const s24i_sparse_kernel *s24i_sparse_kernel_find(s24_format format, s24_dtype dtype, uint32_t cpu);
const s24i_sparse_kernel *s24i_sparse_i8_find(uint32_t cpu);
const s24i_sparse_kernel *s24i_sparse_kernel_at(int index);

#endif
