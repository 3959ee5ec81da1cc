// SPDX-License-Identifier: Apache-2.0
/* Declares the weights that products are measured with, in their format. */
#ifndef SPARSE24_CLI_BENCH_BENCH_WEIGHT_H
#define SPARSE24_CLI_BENCH_BENCH_WEIGHT_H

#include "bench/bench.h"

typedef struct bench_weight_kind {
    int64_t n, k;
    s24_dtype dtype;
    const char *scheme; /* of integers with x in f32, or NULL */
    bench_format format;
} bench_weight_kind;

typedef struct bench_weight {
    bench_weight_kind kind;
    float *dense;       /* [n, k] with its zeros */
    s24_matrix *matrix; /* 2:4, or */
    s24_sparse *sparse; /* in a format, and of integers */
    float *scales;      /* of its rows */
} bench_weight;

/* Makes a random weight of that kind; it is to be freed in any case. */
s24_status bench_weight_make(bench_weight *weight, s24_ctx *ctx, const bench_weight_kind *kind);
void bench_weight_free(bench_weight *weight, s24_ctx *ctx);
/* Asks whether it is of that kind. */
int bench_weight_is(const bench_weight *weight, const bench_weight_kind *kind);
/* Makes a plan of it on the context's CPU; i8 takes tokens as integers, but for schemes. */
s24_status bench_weight_plan(s24_plan **plan, s24_ctx *ctx, const bench_weight *weight);
/* Counts the bytes that a product reads of it, and what of its elements it multiplies. */
double bench_weight_bytes(const bench_weight *weight, const s24_plan *plan);
double bench_weight_kept(const bench_weight *weight);
/* Draws uniformly from [-1, 1), the same every time. */
void bench_fill(float *to, int64_t count, uint64_t state);

#endif
