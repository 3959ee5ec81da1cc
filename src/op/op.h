// SPDX-License-Identifier: Apache-2.0
/*
 * What the operations share: the inside of matrices and plans, argument checks that end in a
 * sentence, and the bridge to the kernels.
 */
#ifndef S24_OP_OP_H
#define S24_OP_OP_H

#include <inttypes.h>
#include <stdatomic.h>

#include "base/base.h"
#include "format/format.h"
#include "kernel/kernel.h"

/*
 * The canonical bytes of a matrix, shared by its transposed views; one block of memory, freed by
 * the last reference. Values and indices never change once the matrix is made. plans is a list that
 * only grows: the plans that the simple products made, one per kernel row (contexts that share the
 * matrix may see different CPUs).
 */
typedef struct s24i_storage {
    s24_allocator allocator;
    atomic_int_fast64_t references;
    s24_dtype dtype;
    int64_t rows, cols;
    int bits;      /* of an integer, 8 or 4 (then in a byte); 0 for floats */
    int64_t group; /* columns that share a scale; 0: there are no scales */
    size_t value_bytes, index_bytes, scale_bytes;
    void *values;
    uint8_t *indices;
    float *scales; /* [rows, ceil(cols/group)] or NULL */
    _Atomic(s24_plan *) plans;
} s24i_storage;

struct s24_matrix {
    s24i_storage *storage;
    int transposed;
};

/* Where the stored elements of (row, col) and on begin; col is a multiple of 4. */
static inline void *s24i_values_at(const s24i_storage *s, int64_t row, int64_t col)
{
    return (char *)s->values + (size_t)(row * (s->cols / 2) + col / 2) * s24_dtype_bytes(s->dtype);
}
/* The same for codes; col is a multiple of 8. */
static inline uint8_t *s24i_indices_at(const s24i_storage *s, int64_t row, int64_t col)
{
    return s->indices + row * s24i_index_stride(s->cols) + col / 8;
}

/* A matrix with storage for [rows, cols] of dtype, its bytes not yet set. */
s24_status s24i_matrix_new(s24_matrix **out, s24_ctx *ctx, s24_dtype dtype, int64_t rows,
                           int64_t cols);
/* The same with integers of `bits` bits and a scale every `group` columns (0: none). */
s24_status s24i_matrix_new_scaled(s24_matrix **out, s24_ctx *ctx, int bits, int64_t group,
                                  int64_t rows, int64_t cols);
static inline int64_t s24i_scales_stride(const s24i_storage *s)
{
    return s->group ? (s->cols + s->group - 1) / s->group : 0;
}
/* The stored values of (row, col) and the `cols` columns from there as f32, times their scales;
   col and cols are multiples of 4. */
void s24i_storage_widen(float *wide, const s24i_storage *s, int64_t row, int64_t col, int64_t cols);
/* 1 and its logical place if a stored value is NaN or Inf, the first in row order. */
int s24i_storage_nonfinite(s24_ctx *ctx, const s24i_storage *s, int64_t *row, int64_t *col);

struct s24_plan {
    s24_allocator allocator;
    const s24i_linear_kernel *kernel;
    int64_t n, k, group;
    size_t bytes;
    void *own;      /* the weight's memory, NULL: the caller's */
    const void *w;  /* where it lies */
    s24_plan *next; /* in a storage's list */
    int lift;       /* of tokens, which have fewer columns than k; 0: none */
    int rounds;     /* 1: tokens may lose what 16 bits do not hold */
};

/* The layout of that name, or NULL. */
const s24i_layout *s24i_layout_find(const char *name);

/* The plan that the products use with this context, made on first use; the storage owns it. */
s24_status s24i_storage_plan(const s24_plan **out, s24_ctx *ctx, s24i_storage *storage);
s24i_parallel s24i_parallel_of(s24_ctx *ctx);
s24i_parallel s24i_alone(void);
/* Who shares a product of m tokens with so many bytes of work: nobody, where this thread has done
   it before another one has woken. */
s24i_parallel s24i_sharers_of(s24_ctx *ctx, const s24_plan *plan, int64_t m, size_t room);
/* to [rows, lifted columns] = x's columns, repeated as a lifted matrix wants them. */
void s24i_lift_tokens(void *to, s24_ctx *ctx, const s24_dense *x, int lift);

/* Refuses, naming the argument, what is not a dense matrix with elements: NULL, sizes under one, a
   leading dimension under the columns, more bytes than memory can have. */
s24_status s24i_dense_check(s24_ctx *ctx, const char *name, const s24_dense *dense);
/* The same, and a dtype of 2:4 and columns that 4 divides. */
s24_status s24i_dense_check_groups(s24_ctx *ctx, const char *name, const s24_dense *dense);
/* The same as the first, with this shape, one of these dtypes (bits 1 << dtype) and aligned to its
   elements: what kernels compute on. */
s24_status s24i_dense_check_operand(s24_ctx *ctx, const char *name, const s24_dense *dense,
                                    int64_t rows, int64_t cols, uint32_t dtypes);
/* 1 if two checked matrices share a byte; columns of one buffer side by side do not. */
int s24i_dense_overlap(const s24_dense *a, const s24_dense *b);
static inline int64_t s24i_dense_ld(const s24_dense *dense)
{
    return dense->ld ? dense->ld : dense->cols;
}
static inline void *s24i_dense_at(const s24_dense *dense, int64_t row, int64_t col)
{
    return (char *)dense->data +
           (size_t)(row * s24i_dense_ld(dense) + col) * s24_dtype_bytes(dense->dtype);
}

/* Is an element zero? −0 is. */
static inline int s24i_is_zero(const void *value, s24_dtype dtype)
{
    const unsigned char *bytes = value;
    const size_t size = s24_dtype_bytes(dtype);
    unsigned any = bytes[size - 1] & (dtype == S24_I8 ? 0xffu : 0x7fu);
    for (size_t i = 0; i + 1 < size; i++)
        any |= bytes[i];
    return !any;
}

/* s24i_find_bad_group or s24i_find_nonfinite over all rows on the context's threads. */
int s24i_find_first(s24i_find *find, s24_ctx *ctx, const s24_dense *src,
                    int (*in_rows)(s24i_find *find, const s24_dense *src));
/* NOT_FINITE with its sentence if src has a NaN or an Inf. */
s24_status s24i_require_finite(s24_ctx *ctx, const char *name, const s24_dense *src);

/* mask [rows, cols] of a rule of tiles, arguments checked. */
void s24i_tile_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src, s24_select select);

/* y = alpha·Σ_n x·W + bias + beta·y: the products that sum along W's rows; see along_n.c. */
typedef struct s24i_along_n_job {
    const s24i_storage *w;
    int64_t lanes; /* rows of X·W, columns of Wᵀ·X */
    const float *x;
    int64_t x_stride_lane, x_stride_n;
    float *y;
    int64_t y_stride_lane, y_stride_k;
    const float *bias; /* [k] or NULL */
    float alpha, beta;
} s24i_along_n_job;
void s24i_along_n(s24_ctx *ctx, const s24i_along_n_job *job);

#endif
