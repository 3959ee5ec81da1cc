// SPDX-License-Identifier: Apache-2.0
/*
 * Vector operations on f32 rows: everything of passes, forward and backward, and of an optimiser
 * that is not a linear layer. vec.def lists the functions and the instruction sets, of which each
 * has one struct of them. The functions check nothing, allocate nothing and run on the calling
 * thread. Operands have natural alignment only and may have any length; sums run in an order that
 * depends on the set and on the length, never on alignment or threads.
 */
#ifndef S24_VEC_VEC_H
#define S24_VEC_VEC_H

#include <stdint.h>
#include <string.h>

#include "base/token_scale.h"
#include "base/try.h"

/* Columns of a packed right operand are padded to this many floats: the widest vector. */
#define S24I_VEC_PAD 16
/* Columns of tokens that meet integers of 4 bits, with the padding that any set may need. */
static inline int64_t s24i_vec_split_columns(int64_t cols)
{
    return (cols + 127) / 128 * 128;
}

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

/* y[m, rows] = x[m, cols] · the transpose of w's rows from `first` on; w is dense. */
typedef struct s24i_integer_product {
    float *y;
    int64_t ldy;
    const float *x; /* of 4 bits as integer_split leaves it */
    int64_t ldx;
    const s24_quantized *w;
    int64_t first, rows, m;
} s24i_integer_product;

/* Sums of a row of tokens in bytes and of integers, [n]: what the 128 of every byte adds, and the
   scales, are the integers' rows'. */
typedef struct s24i_byte_sums {
    const int32_t *sums, *offsets;
    const float *scales;
    float scale; /* the token's */
} s24i_byte_sums;

/* scale is over 0: exp(s·scale + mask − its row's maximum) in place for s[rows, n], and one over
   each row's sum. ld is a multiple of S24I_VEC_PAD and what stands in a row after n may be
   overwritten. */
typedef struct s24i_softmax {
    float *s;
    int64_t ld;
    int64_t rows, n;
    float scale;
    const float *mask; /* [n rounded up to S24I_VEC_PAD] added to each row, or NULL */
    int64_t mask_back; /* how many elements before a row's mask that of the next one begins */
    float *inverse;    /* [rows] */
} s24i_softmax;

/* Some queries and the keys or values of some tokens, which are bf16 in functions of pairs (d is
   even then), bytes in those of i8 and e4m3, whose queries are f32, and f32 in the others; or
   tokens and the rows of a weight. */
typedef struct s24i_attend {
    const void *rows; /* [tokens, d], ld apart */
    int64_t ld, tokens, d;
    const void *q; /* [queries, d] of the same dtype, or f32 */
    int64_t queries;
    float *s; /* [queries, tokens], s_ld apart: scores, then weights */
    int64_t s_ld;
    float *out;         /* [queries, d] */
    const float *scale; /* [queries] */
} s24i_attend;

/* beta NULL: rows are divided by their root mean square, and no mean is taken from them. */
typedef struct s24i_layer_norm {
    const float *gamma, *beta; /* [n] */
    float eps;
    int64_t n;
} s24i_layer_norm;

/* One row of a norm of training: y = gamma·(x − mean)·inverse + beta; rms: mean is 0, beta NULL. */
typedef struct s24i_norm_row {
    const float *gamma, *beta; /* [n]; beta may be NULL */
    float eps;
    int rms;
    int grown; /* 1: what multiplies is 1 + gamma */
    int64_t n;
} s24i_norm_row;

/* Gradients of a norm's parameters, summed over rows. */
typedef struct s24i_norm_sums {
    float *gamma, *beta; /* [n]; beta may be NULL */
} s24i_norm_sums;

/* Dropout that is known from its place: what a pass forward drops, the pass backward drops again,
   on any number of threads. */
typedef struct s24i_dropout {
    float rate;    /* of elements that become 0, in 1/65536; the others are divided by 1 − rate */
    uint64_t seed; /* of the step and the place in the model */
} s24i_dropout;

/* One step of AdamW over n neighbours; g is scaled by gscale first and left 0. */
typedef struct s24i_adamw {
    float *p, *g, *m, *v;
    const uint16_t *mask; /* bit i % 16 of word i / 16: may p[i] be other than 0? NULL: all may */
    /* NULL, or where what the mask leaves of p is written: p then learns on past the mask, its
       gradient there greater by pull·p. */
    float *masked;
    float pull;
    int64_t n;                             /* a multiple of 16 where there is a mask */
    float gscale, beta1, beta2, eps, keep; /* keep: 1 − lr·weight decay */
    float step;                            /* lr / (1 − beta1^t) */
    float inverse2;                        /* 1 / √(1 − beta2^t) */
} s24i_adamw;

typedef struct s24i_vec {
    const char *name;
    uint32_t cpu; /* S24_CPU_ bits it needs */
#define S24I_VEC(result, name, parameters)       result(*name) parameters;
#define S24I_VEC_PAIRS(result, name, parameters) result(*name) parameters;
#include "vec/vec.def"
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

/* to [rows, cols] with rows ld apart = from with rows from_ld apart; zeros fill up to ld. */
static inline void s24i_pad_rows(float *to, int64_t ld, const float *from, int64_t from_ld,
                                 int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * ld, from + r * from_ld, (size_t)cols * sizeof *to);
        for (int64_t c = cols; c < ld; c++)
            to[r * ld + c] = 0.0f;
    }
}

#endif
