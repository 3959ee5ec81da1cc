// SPDX-License-Identifier: Apache-2.0
/* Contexts and data of the tests of src/prune/. */
#ifndef S24_TEST_PRUNE_SUPPORT_H
#define S24_TEST_PRUNE_SUPPORT_H

#include "support.h"

#include <math.h>

#include "prune/prune.h"

/* ---- contexts that count and fail ------------------------------------------------------------ */

typedef struct failing {
    int64_t live;
    int left; /* allocations that still succeed; negative: all */
    int once; /* 1: after the one that fails, all succeed again */
} failing;

static inline void *failing_alloc(void *user, size_t bytes, size_t alignment)
{
    failing *f = user;
    if (f->left == 0) {
        if (f->once) f->left = -1;
        return NULL;
    }
    if (f->left > 0) f->left--;
    f->live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static inline void failing_free(void *user, void *memory, size_t bytes)
{
    (void)bytes;
    ((failing *)user)->live--;
    free(memory);
}

static inline s24_ctx *make_ctx(const char *cpu, int threads)
{
    s24_ctx *ctx;
    s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = cpu ? s24_cpu_parse(cpu) : 0};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static const char *const levels[] = {"baseline", "avx2", "avx512"};
enum { LEVELS = sizeof levels / sizeof *levels };

/* ---- data ------------------------------------------------------------------------------------ */

static inline float *random_floats(int64_t count, uint64_t seed)
{
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = test_uniform(&seed);
    return values;
}

/* Inputs whose columns lean on each other and differ in size, as a network's do. */
static inline float *correlated_inputs(int64_t tokens, int64_t k, uint64_t seed)
{
    float *x = random_floats(tokens * k, seed);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 1; j < k; j++)
            x[t * k + j] =
                0.8f * x[t * k + j - 1] + 0.6f * x[t * k + j] * (1.0f + (float)(j * 7 % 5) * 0.5f);
    return x;
}

static inline s24_dense view(float *data, int64_t rows, int64_t cols)
{
    return (s24_dense){data, S24_F32, rows, cols, 0};
}

/* Made up gradients of a weight of at most 16384 elements, for the criteria that need some. */
static inline const s24_weight_gradients *made_gradients(void)
{
    enum { MOST = 16384 };
    static float mean[MOST], size[MOST], square[MOST];
    static const s24_weight_gradients all = {mean, size, square};
    uint64_t seed = 77;
    for (int i = 0; i < MOST; i++) {
        mean[i] = test_uniform(&seed);
        size[i] = 1.5f * fabsf(mean[i]);
        square[i] = 2.5f * mean[i] * mean[i];
    }
    return &all;
}

static inline s24_stats *stats_of(s24_ctx *ctx, float *x, int64_t tokens, int64_t k)
{
    s24_stats *stats;
    s24_dense inputs = view(x, tokens, k);
    assert_int_equal(s24_stats_create(&stats, ctx, k), S24_OK);
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_OK);
    return stats;
}

UNWATCHED static inline double *reference_gram(const float *x, int64_t tokens, int64_t k)
{
    double *h = calloc((size_t)(k * k), sizeof *h);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++)
                h[i * k + j] += (double)x[t * k + i] * (double)x[t * k + j];
    return h;
}

#endif
