// SPDX-License-Identifier: Apache-2.0
/*
 * Takes oneDNN as whoever has x in f32 must call it to get what our int8 product gives: tokens
 * quantised as they come to q + 128, its product of u8 by s8 with sums that begin at -128 times a
 * row's integers and the rows' scales at their end, then y times each token's scale (as an
 * operation after the product oneDNN does that in its reference code). In its best arrangement: on
 * as many threads, by blocks of tokens of whichever size was fastest when it was prepared. Without
 * VNNI its sums of two such products saturate, so it has no such product there.
 */
#include "bench/peer/peer_onednn.h"

#if defined(S24_DENSE_ONEDNN)

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct dynamic {
    bench_problem problem;
    onednn_product *product; /* of a block */
    int64_t block;           /* tokens */
    uint8_t *q;              /* [m, k] */
    float *scales;           /* of tokens */
    float *y;
    int64_t first; /* token of the block that runs */
} dynamic;

/* Loop so that compilers make vectors of what the target has: the rounding is that of an addition,
   and the lowest byte of 1.5·2^23 + q as bits is q's. */
static inline __attribute__((always_inline)) void quantise(uint8_t *restrict to, float *scale,
                                                           const float *restrict x, int64_t k)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < k; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    const float inverse = largest > 0 ? 127 / largest : 0;
    *scale = largest / 127;
    for (int64_t i = 0; i < k; i++) {
        const float shifted = x[i] * inverse + 0x1.8p23f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (uint8_t)(bits + 128);
    }
}

static inline __attribute__((always_inline)) void scale(float *y, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] *= by;
}

#define STEPS(TARGET, isa)                                                                         \
    TARGET static void quantise_##isa(void *arg, int64_t begin, int64_t end, int thread)           \
    {                                                                                              \
        const dynamic *d = arg;                                                                    \
        const int64_t k = d->problem.shape.k;                                                      \
        (void)thread;                                                                              \
        for (int64_t m = d->first + begin; m < d->first + end; m++)                                \
            quantise(d->q + m * k, d->scales + m, d->problem.x + m * k, k);                        \
    }                                                                                              \
    TARGET static void scale_##isa(void *arg, int64_t begin, int64_t end, int thread)              \
    {                                                                                              \
        const dynamic *d = arg;                                                                    \
        const int64_t n = d->problem.shape.n;                                                      \
        (void)thread;                                                                              \
        for (int64_t m = d->first + begin; m < d->first + end; m++)                                \
            scale(d->y + m * n, d->scales[m], n);                                                  \
    }

STEPS(, plain)
#if defined(__x86_64__)
STEPS(__attribute__((target("avx2,fma"))), avx2)
STEPS(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), avx512)
#else
#define quantise_avx2   quantise_plain
#define quantise_avx512 quantise_plain
#define scale_avx2      scale_plain
#define scale_avx512    scale_plain
#endif

typedef void step(void *arg, int64_t begin, int64_t end, int thread);

static int run(void *opaque, void *y)
{
    dynamic *d = opaque;
    const bench_shape *s = &d->problem.shape;
    const uint32_t cpu = s24_cpu_detect();
    step *const quantise_tokens = cpu & S24_CPU_AVX512 ? quantise_avx512
                                  : cpu & S24_CPU_AVX2 ? quantise_avx2
                                                       : quantise_plain;
    step *const scale_tokens = cpu & S24_CPU_AVX512 ? scale_avx512
                               : cpu & S24_CPU_AVX2 ? scale_avx2
                                                    : scale_plain;
    d->y = y;
    for (d->first = 0; d->first < s->m; d->first += d->block) {
        s24_ctx_parallel_for(d->problem.ctx, d->block, quantise_tokens, d);
        if (d->product->library->dnnl.memory_set_data_handle(
                d->product->x, d->q + d->first * s->k) != dnnl_success ||
            onednn_run(d->product, d->y + d->first * s->n))
            return 1;
        s24_ctx_parallel_for(d->problem.ctx, d->block, scale_tokens, d);
    }
    return 0;
}

static void release(void *opaque)
{
    dynamic *d = opaque;
    if (!d) return;
    onednn_release(d->product);
    s24_ctx_free(d->problem.ctx, d->q);
    free(d->scales);
    free(d);
}

/* Gives the least seconds of three runs, after one. */
static double least(dynamic *d, void *y)
{
    double best = INFINITY;
    for (int i = 0; i < 4; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        if (run(d, y)) return INFINITY;
        clock_gettime(CLOCK_MONOTONIC, &b);
        const double seconds =
            (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
        if (i && seconds < best) best = seconds;
    }
    return best;
}

/* Tries all tokens, half of them and so on: one product serves all blocks. */
static int choose_block(dynamic *d, onednn_library *library, void *y)
{
    enum { LEAST = 32 };
    onednn_product *best = NULL;
    int64_t best_block = 0;
    double best_seconds = INFINITY;
    for (int64_t block = d->problem.shape.m;; block /= 2) {
        d->block = block;
        d->product = onednn_prepare(library, &d->problem, block, 1);
        if (!d->product) break;
        const double seconds = least(d, y);
        const int better = !best || seconds < best_seconds;
        onednn_release(better ? best : d->product);
        if (better) best = d->product, best_block = block, best_seconds = seconds;
        if (block % 2 || block < 2 * LEAST) break;
    }
    d->product = best;
    d->block = best_block;
    return best != NULL;
}

static int has_vnni(const onednn *dnnl)
{
    const int wide = dnnl_cpu_isa_avx512_core_vnni & ~dnnl_cpu_isa_avx512_core;
    const int narrow = dnnl_cpu_isa_avx2_vnni & ~dnnl_cpu_isa_avx2;
    return ((int)dnnl->get_effective_cpu_isa() & (wide | narrow)) != 0;
}

static void *prepare(void *opaque, const bench_problem *problem)
{
    const bench_shape *s = &problem->shape;
    if (problem->dtype != S24_I8 || problem->quantized ||
        !has_vnni(&((const onednn_library *)opaque)->dnnl))
        return NULL;
    dynamic *d = calloc(1, sizeof *d);
    float *y = s24_ctx_alloc(problem->ctx, (size_t)(s->m * s->n) * sizeof *y);
    if (d) {
        d->problem = *problem;
        d->q = s24_ctx_alloc(problem->ctx, (size_t)(s->m * s->k));
        d->scales = malloc((size_t)s->m * sizeof *d->scales);
    }
    const int ok = d && y && d->q && d->scales && choose_block(d, opaque, y);
    s24_ctx_free(problem->ctx, y);
    if (ok) return d;
    release(d);
    return NULL;
}

#else

static void *prepare(void *library, const bench_problem *problem)
{
    (void)library;
    (void)problem;
    return NULL;
}

static int run(void *product, void *y)
{
    (void)product;
    (void)y;
    return 1;
}

static void release(void *product)
{
    (void)product;
}

#endif

const bench_peer peer_onednn_dynamic = {
    .name = "onednn-dynamic",
    .open = onednn_open,
    .close = onednn_close,
    .prepare = prepare,
    .run = run,
    .release = release,
};
