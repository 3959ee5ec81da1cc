// SPDX-License-Identifier: Apache-2.0
/*
 * Low-rank factors: a matrix left·right next to a 2:4 one, whose error it makes smaller, or in
 * place of a weight. Part of sparse24.h, whose rules hold here and which includes this file.
 */
#ifndef SPARSE24_LOW_RANK_H
#define SPARSE24_LOW_RANK_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* left [n, rank] and right [rank, k], contiguous, of one dtype: f32, f16 or bf16. */
typedef struct s24_factors {
    int64_t rank; /* 0: there are none */
    s24_dtype dtype;
    const void *left, *right;
} s24_factors;

typedef struct s24_low_rank_opts {
    size_t size;             /* sizeof(s24_low_rank_opts) */
    int64_t rank;            /* 1 to the smaller of n and k */
    const s24_stats *stats;  /* of the layer's inputs; NULL: all inputs count alike */
    const s24_dense *pruned; /* [n, k] f32: what the factors are added to; NULL: nothing */
    double dampening;        /* × mean diagonal of the inputs' Gram matrix; default 0.01 */
    uint64_t seed;           /* of the subspace that the search begins with */
} s24_low_rank_opts;

/*
 * left [n, rank] and right [rank, k], f32: factors whose product brings `pruned` near w [n, k] f32.
 * The columns of left are orthonormal (or zero, where w − pruned has a smaller rank) and span the
 * directions of outputs in which the error X·(w − pruned)ᵀ is largest, found by subspace iteration;
 * right is the best there is for them. So they make the dampened output error no larger, whatever
 * the rank. Inputs that were always zero cost nothing. report, which may be NULL, is of pruned +
 * left·right. Errors: ARGUMENT (the rank, empty stats), SHAPE, DTYPE, NOT_FINITE, MEMORY.
 */
S24_API s24_status s24_low_rank(s24_prune_report *report, float *left, float *right, s24_ctx *ctx,
                                const s24_dense *w, const s24_low_rank_opts *opts);
/* dst [n, k] f32 += left·right. Errors: ARGUMENT, DTYPE (of dst or the factors), MEMORY. */
S24_API s24_status s24_factors_add(s24_ctx *ctx, const s24_dense *dst, const s24_factors *factors);

#ifdef __cplusplus
}
#endif
#endif
