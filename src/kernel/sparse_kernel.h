// SPDX-License-Identifier: Apache-2.0
/*
 * Kernels of sparse weights that are not 2:4, in rows or in rows of blocks: a row of
 * cpu/sparse_kernels.def each. What they do is the job of the 2:4 rows (kernel.h), with `w` as
 * below, so that plans and epilogues are the same.
 */
#ifndef S24_KERNEL_SPARSE_KERNEL_H
#define S24_KERNEL_SPARSE_KERNEL_H

#include "kernel/kernel.h"

/* What stands together in a weight: single entries of a row (CSR), four rows' entries of a column
   (BSR of 4x1), square blocks of a multiple of eight rows (BSR). */
typedef enum s24i_sparse_shape {
    S24I_SPARSE_ENTRIES,
    S24I_SPARSE_STRIPS,
    S24I_SPARSE_SQUARES
} s24i_sparse_shape;

/*
 * A weight as the rows read it, at the beginning of its memory: lines of n / rows rows, whose
 * entries are those from starts[line] on. The entry at i has the columns from index[i] on, `cols`
 * of them, and rows·cols values, column by column, a column's `rows` rows together.
 *
 * Pairs of strips are two entries' values next to each other, row by row. A line then has an even
 * number of entries; one that is filled up has column k, whose x is zero.
 */
typedef struct s24i_sparse_weight {
    int64_t rows, cols, lines; /* of a block */
    const int64_t *starts;     /* [lines + 1] */
    const uint16_t *near;      /* of entries and strips below column 65536, in place of index */
    const int32_t *index;
    const float *values;
    const uint32_t *pairs; /* of bf16 rows in place of values: of squares two columns each */
} s24i_sparse_weight;

enum { S24I_STRIP = 4 };

static inline int64_t s24i_sparse_column(const s24i_sparse_weight *w, int64_t i)
{
    return w->near ? w->near[i] : w->index[i];
}

typedef struct s24i_sparse_kernel {
    s24i_linear_kernel linear; /* its weight_bytes, weight_pack and layout are not there */
    s24i_sparse_shape shape;
} s24i_sparse_kernel;

/* Bytes of such a weight for a row, and its making: parts are of the row's shape. */
size_t s24i_sparse_weight_bytes(const s24_sparse_parts *parts, const s24i_sparse_kernel *kernel);
void s24i_sparse_weight_pack(void *w, const s24_sparse_parts *parts,
                             const s24i_sparse_kernel *kernel);

/* The best row for a shape and values of that dtype, which rows of f32 widen; the best with
   integers throughout (kernel/sparse_i8.h); by its index, NULL past the end of the table. */
const s24i_sparse_kernel *s24i_sparse_kernel_find(s24i_sparse_shape shape, s24_dtype dtype,
                                                  uint32_t cpu);
const s24i_sparse_kernel *s24i_sparse_i8_find(uint32_t cpu);
const s24i_sparse_kernel *s24i_sparse_kernel_at(int index);

#endif
