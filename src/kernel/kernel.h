// SPDX-License-Identifier: Apache-2.0
/*
 * The border between "what to compute" (src/op) and "how" (ref/, cpu/): plain structs of
 * functions that a device fills, one struct a kernel, one row a struct in cpu/kernels.def.
 * Kernels check nothing (src/op has), allocate nothing, and see neither contexts nor statuses.
 *
 * Common contract: sizes are elements; nothing outside the stated extents is read or written;
 * operands have natural alignment only, except `w` and `work`, which are 64-byte aligned.
 */
#ifndef S24_KERNEL_KERNEL_H
#define S24_KERNEL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "sparse24/sparse24.h"

/* How a kernel spreads its work: run fn over [0, count) in contiguous ranges on `threads` threads
   and wait. `threads` is also the number that work_bytes was asked for. */
typedef struct s24i_parallel {
    int threads;
    void (*run)(void *pool, int64_t count,
                void (*fn)(void *arg, int64_t begin, int64_t end, int thread), void *arg);
    void *pool;
} s24i_parallel;

/* ---- 2:4 linear ------------------------------------------------------------------------------ */

/* A weight as a row's weight_pack takes it: canonical values [n, k/2] of `dtype`, indices
   [n, ceil(k/8)] bytes, and for integers f32 scales [n, ceil(k/group)] (group = k: one per row). A
   4-bit integer takes a byte here. */
typedef struct s24i_weight {
    int64_t n, k;
    s24_dtype dtype;
    const void *values;
    const uint8_t *indices;
    const float *scales;    /* NULL for float values; for integers too, then they are ones */
    int64_t group;          /* columns that share a scale: 64, 128 or k; k where there is none */
    s24i_parallel parallel; /* who packs it */
} s24i_weight;

/*
 * y[m,n] = activation(alpha·Σ_k x[m,k]·w[n,k] + bias[n])·gate[m,n] + beta·residual[m,n]
 * Element (m, k) of x is at x[m*x_stride_m + k*x_stride_k], and so on; one of x's two strides is 1
 * and one of y's two strides is 1 (row-major tokens for a layer, column-major for W·X).
 * x and y are f32 or bf16, each by itself, as the row's x_dtypes allows; gate and residual have y's
 * dtype. Either may be y itself; gate = NULL is ones; beta = 0 or residual = NULL reads nothing.
 */
typedef struct s24i_linear_job {
    int64_t m, n, k;
    int64_t group; /* the weight's */
    const void *x;
    s24_dtype x_dtype;
    int64_t x_stride_m, x_stride_k;
    const void *w; /* in the row's own layout */
    void *y;
    s24_dtype y_dtype;
    int64_t y_stride_m, y_stride_n;
    const float *bias; /* [n] or NULL */
    const void *gate;
    int64_t gate_stride_m, gate_stride_n;
    const void *residual;
    int64_t residual_stride_m, residual_stride_n;
    float alpha, beta;
    s24_activation activation;
    int rounds; /* 1: x may lose what 16 bits do not hold where that is faster */
    void *work;
    s24i_parallel parallel;
} s24i_linear_job;

/* A row with i8 activations takes one scale per row and k up to this: 127·128·k/2 < 2³¹. */
enum { S24I_MAX_INTEGER_K = 1 << 18 };

typedef struct s24i_linear_kernel {
    const char *name; /* op_dtype_isa[_design], unique */
    s24_dtype dtype;  /* of the values its layout holds */
    int bits;         /* of an integer: 8 or 4; 0 for floats */
    /* What it makes of x: S24_I8, or S24_DTYPE_NONE: it computes on floats. */
    s24_dtype activations;
    uint32_t cpu;  /* S24_CPU_ bits it needs */
    uint32_t core; /* and those of the cores that it is made for: by name it runs elsewhere too */
    int rank; /* of the rows that fit, the highest is taken; a narrow dtype's row yields to an f32
                 row that ranks higher (src/op/plan.c) */
    uint32_t x_dtypes; /* the dtypes that x and y may have: bits 1 << dtype */
    size_t (*weight_bytes)(const s24i_weight *from); /* looks at sizes only */
    /* From canonical values of `dtype` to the row's layout. */
    void (*weight_pack)(void *w, const s24i_weight *from);
    const s24i_layout *layout; /* that layout, where files may hold it; else NULL */
    size_t (*work_bytes)(int64_t m, int64_t n, int64_t k, int threads);
    void (*run)(const s24i_linear_job *job);
} s24i_linear_kernel;

/* ---- magnitude selection --------------------------------------------------------------------- */

/*
 * Runs of `count` elements of the row's dtype, a multiple of 4. Exactly two of each group of four
 * are kept: the two largest |w|, of equal magnitudes the higher column. NaN ranks above Inf, and
 * equal to NaN.
 */
typedef struct s24i_select_kernel {
    const char *name;
    s24_dtype dtype;
    uint32_t cpu;
    int rank;
    /* mask[count] = 1 kept, 0 dropped. */
    void (*mask)(uint8_t *mask, const void *w, int64_t count);
    /* Prune and pack in a pass: values [count/2], indices [ceil(count/8)] in the canonical form
       (codes as selected, even where a kept value is zero: see docs/format.md). A run is a row, or
       any number of rows where neither w nor the codes have anything between them. Returns 1 if
       all of w is finite, else 0 (and the output is still well defined). */
    int (*prune_pack)(void *values, uint8_t *indices, const void *w, int64_t count);
} s24i_select_kernel;

/* ---- the tables ------------------------------------------------------------------------------ */

/* All rows of the build, ended by NULL. */
extern const s24i_linear_kernel *const s24i_linear_kernels[];
extern const s24i_select_kernel *const s24i_select_kernels[];

/* The best row for a dtype (of that many bits, with those activations) under the CPU bits; NULL if
   there is none. */
const s24i_linear_kernel *s24i_linear_kernel_find(s24_dtype dtype, int bits, s24_dtype activations,
                                                  uint32_t cpu);
const s24i_select_kernel *s24i_select_kernel_find(s24_dtype dtype, uint32_t cpu);

#endif
