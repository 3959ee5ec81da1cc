// SPDX-License-Identifier: Apache-2.0
/*
 * Vector operations on f32 rows: everything of a forward pass that is not a linear layer. One
 * struct of functions an instruction set, one row a struct in vec.def; all of them are made from
 * vec_impl.h. The functions check nothing, allocate nothing and run on the calling thread.
 * Operands have natural alignment only and may have any length; sums run in an order that
 * depends on the row of the table and on the length, never on alignment or threads.
 */
#ifndef S24_VEC_VEC_H
#define S24_VEC_VEC_H

#include <stdint.h>

#include "base/try.h"
#include "vec/dropout.h"

/* Columns of a packed right operand are padded to this many floats: the widest vector. */
#define S24I_VEC_PAD 16

/* Two bf16, the one of the lower address first: a word that is only moved and multiplied. */
typedef int32_t __attribute__((may_alias)) s24i_pair;

/* c[m,n] = scale[m] · (a[m,k] · b[k,n]), a and b f32. b's rows and c's rows have room for n rounded
   up to S24I_VEC_PAD (written there too); scale = NULL is 1. In a product of pairs k, lda and ldb
   count pairs of bf16: a's are neighbours in a row, b's in a column. */
typedef struct s24i_product {
    float *c;
    int64_t ldc;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    const float *scale; /* [m] */
    int64_t m, n, k;
} s24i_product;

/* scale is over 0: exp(s·scale + mask − its row's maximum) in place for s[rows, n], and one over
   each row's sum. ld is a multiple of S24I_VEC_PAD and what stands in a row behind n may be
   overwritten. */
typedef struct s24i_softmax {
    float *s;
    int64_t ld;
    int64_t rows, n;
    float scale;
    const float *mask; /* [n rounded up to S24I_VEC_PAD] added to each row, or NULL */
    float *inverse;    /* [rows] */
} s24i_softmax;

/* beta NULL: rows are divided by their root mean square, and no mean is taken from them. */
typedef struct s24i_layer_norm {
    const float *gamma, *beta; /* [n] */
    float eps;
    int64_t n;
} s24i_layer_norm;

typedef struct s24i_vec {
    const char *name;
    uint32_t cpu; /* S24_CPU_ bits it needs */
    void (*product)(const s24i_product *job);
    void (*softmax)(const s24i_softmax *job);
    /* dst[c*ldd + r] = src[r*lds + c] for r < rows, c < cols; dst's rows are padded with zeros
       up to ldd. */
    void (*transpose)(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows,
                      int64_t cols);
    /* x[rows, n] contiguous becomes gamma·(x − mean)/√(variance + eps) + beta, row by row, or
       gamma·x/√(mean of squares + eps). */
    void (*layer_norm)(float *x, int64_t rows, const s24i_layer_norm *norm);
    /* y[n] = activation(x[n] + bias[n]), or y += that. bias may be NULL; x may be y when not
       accumulating. */
    void (*epilogue)(float *y, const float *x, const float *bias, s24_activation activation,
                     int accumulate, int64_t n);
    /* y[n] = activation(g)·u, squared: activation(g)²·u. y may be g or u. */
    void (*gate)(float *y, const float *g, const float *u, s24_activation activation, int squared,
                 int64_t n);
    float (*log_sum)(const float *x, int64_t n);                      /* ln Σ exp(x) */
    void (*add)(float *y, const float *a, const float *b, int64_t n); /* y = a + b */
    void (*axpy)(float *y, float alpha, const float *x, int64_t n);   /* y += alpha·x */
    void (*maximum)(float *y, const float *x, int64_t n);             /* y = max(y, x) */
    void (*scale)(float *y, float alpha, int64_t n);                  /* y = alpha·y */
    float (*dot)(const float *a, const float *b, int64_t n);          /* Σ a·b */
    /* Drops elements of row `row` (below 2^44) of n (below 2^23). The same on every row of the
       table. */
    void (*dropout)(float *x, int64_t n, const s24i_dropout *drop, int64_t row);

    /* Of rows that multiply bf16; NULL in the others. */
    void (*pair_product)(const s24i_product *job);
    /* As softmax, but the weights leave as bf16, packed at the front of each row, zeros behind n
       up to a multiple of two. */
    void (*pair_softmax)(const s24i_softmax *job);
    /* dst[r/2][c] = src[r][c], src[r+1][c], zeros for what src has not, c up to ldd. */
    void (*pair_rows)(s24i_pair *dst, int64_t ldd, const uint16_t *src, int64_t lds, int64_t rows,
                      int64_t cols);
    void (*narrow)(uint16_t *y, const float *x, int64_t n); /* y = bf16(x) */
} s24i_vec;

/* The widest row that runs under the CPU bits; there always is one. */
const s24i_vec *s24i_vec_find(uint32_t cpu);
/* The rows by index, widest first; NULL past the end. */
const s24i_vec *s24i_vec_row(int index);

/* to [cols, rows] = the transpose of from [rows, cols]. */
static inline void s24i_transpose(float *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

#endif
