// SPDX-License-Identifier: Apache-2.0
/*
 * The dense engine of this build: products with a weight that is packed once and then used at any
 * number of rows. cmake/dense_engine.cmake chooses one of dense_onednn.c, dense_cblas.c and
 * dense_plain.c, each of which fills s24i_dense_engine; nothing else knows which one it is.
 *
 * A weight is immutable and may be shared by threads; a runner holds the library, opened by its
 * first product, and what changes during a run (prepared primitives, work memory), and belongs to
 * one thread at a time. Products run on the
 * threads of the context that they are given, never on threads of a library's own.
 */
#ifndef S24_DENSE_DENSE_H
#define S24_DENSE_DENSE_H

#include "sparse24/nn.h"

typedef struct s24i_dense_weight s24i_dense_weight;
typedef struct s24i_dense_runner s24i_dense_runner;

typedef struct s24i_dense_job {
    const s24i_dense_weight *weight;
    const s24_dense *y; /* [m, n] f32, or bf16 where the weight takes it */
    const s24_dense *x; /* [m, k] likewise */
    const float *bias;  /* [n] or NULL */
    s24_activation activation;
    int accumulate; /* y = activation(x·wᵀ + bias) + y */
} s24i_dense_job;

/* c[m,n] = A·B + beta·c, all f32 row-major with rows ld apart: A [m,k] is a, or the transpose of a
   [k,m]; B [k,n] is b, or the transpose of b [n,k]. beta is 0 (c is not read) or 1. */
typedef struct s24i_gemm {
    float *c;
    const float *a, *b;
    int64_t ldc, lda, ldb;
    int64_t m, n, k;
    int transposed_a, transposed_b;
    float beta;
} s24i_gemm;

/* For engines whose library multiplies on one thread: the product in steps, and the part of it that
   is the steps [begin, end). */
int64_t s24i_gemm_steps(const s24i_gemm *whole);
s24i_gemm s24i_gemm_part(const s24i_gemm *whole, int64_t begin, int64_t end);

typedef struct s24i_dense_engine_table {
    const char *name;
    /* w [n, k] f32, copied; dtype f32 or bf16: what it is multiplied as. An engine without bf16 on
       this CPU keeps f32. ctx must outlive the weight. Errors: MEMORY, UNSUPPORTED. */
    s24_status (*weight_create)(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w,
                                s24_dtype dtype);
    void (*weight_destroy)(s24i_dense_weight *weight);
    size_t (*weight_bytes)(const s24i_dense_weight *weight);
    /* Does the engine multiply rows of integers, so many columns, by tokens in bytes here? NULL:
       never. And w [n, k] of 8 bits with a scale per row, copied: each token of x is quantised as
       it comes (base/token_scale.h). Errors: MEMORY. */
    int (*takes_eight)(s24_ctx *ctx, int64_t cols);
    s24_status (*eight_create)(s24i_dense_weight **out, s24_ctx *ctx, const s24_quantized *w);
    /* 1 if x and y may be bf16. NULL: never. */
    int (*takes_bf16)(const s24i_dense_weight *weight);
    /* most_x: the most elements m·k of an x. ctx must outlive the runner. */
    s24_status (*runner_create)(s24i_dense_runner **out, s24_ctx *ctx, int64_t most_x);
    void (*runner_destroy)(s24i_dense_runner *runner);
    s24_status (*run)(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_dense_job *job);
    /* A product of two matrices that both change, as training has them. The runner's work memory
       may grow. Errors: MEMORY, UNSUPPORTED. */
    s24_status (*gemm)(s24i_dense_runner *runner, s24_ctx *ctx, const s24i_gemm *job);
    /* The S24_CPU_ bits that products of this context use; 0: there is no library here. */
    uint32_t (*cpu)(s24_ctx *ctx);
} s24i_dense_engine_table;

extern const s24i_dense_engine_table s24i_dense_engine;

/* Is w [n, k], finite, multiplied in 8 bits here, once it is rounded? */
int s24i_dense_takes_eight(s24_ctx *ctx, int64_t cols);
/* So, from floats. */
s24_status s24i_dense_eight_create(s24i_dense_weight **out, s24_ctx *ctx, const s24_dense *w);

/* Has the log say so where the engine uses more of the CPU than the context may. */
void s24i_dense_warn(s24_ctx *ctx);

#endif
