// SPDX-License-Identifier: Apache-2.0
/* What the tests of products and of plans share: weights with their exact dense form, operands with
   gaps between their rows, and how far a kernel row may be off. Include after core_support.h. */
#ifndef S24_TEST_PRODUCT_SUPPORT_H
#define S24_TEST_PRODUCT_SUPPORT_H

#include "core_support.h"

/* A random 2:4 matrix of moderate values and its exact dense form [n, k] in double. */
typedef struct weight {
    s24_matrix *w;
    double *dense;
    int64_t n, k;
} weight;

static inline weight make_weight(s24_ctx *ctx, s24_dtype dtype, int64_t n, int64_t k,
                                 uint64_t *seed)
{
    weight t = {NULL, malloc(sizeof(double) * (size_t)(n * k)), n, k};
    float *data = malloc(sizeof *data * (size_t)(n * k));
    for (int64_t i = 0; i < n * k; i++)
        data[i] = test_random(seed) % 9 ? test_uniform(seed) * (dtype == S24_I8 ? 100 : 1) : 0;
    s24_dense src = {data, S24_F32, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = dtype};
    assert_ok(ctx, s24_matrix_create(&t.w, ctx, &src, &opts));
    assert_ok(ctx, s24_matrix_to_dense(ctx, &src, t.w));
    for (int64_t i = 0; i < n * k; i++)
        t.dense[i] = (double)data[i];
    free(data);
    return t;
}

static inline void drop_weight(weight *t)
{
    s24_matrix_destroy(t->w);
    free(t->dense);
}

/* A dense f32 matrix with a gap after each row, filled with `fill`, or at random if that is 0. */
static inline s24_dense make_dense(int64_t rows, int64_t cols, float fill, uint64_t *seed)
{
    int64_t ld = cols + 3;
    float *data = malloc(sizeof *data * (size_t)(rows * ld));
    for (int64_t i = 0; i < rows * ld; i++)
        data[i] = fill == 0 ? test_uniform(seed) : fill;
    return (s24_dense){data, S24_F32, rows, cols, ld};
}

static inline float *at(const s24_dense *d, int64_t row, int64_t col)
{
    return (float *)d->data + row * d->ld + col;
}

/* What a sum of `terms` products may be off by, as a share of Σ|x·w|: f32 rounding in any order; a
   row that computes on narrow weights may round x to their precision, too. */
static inline double tolerance(const char *kernel, int64_t terms)
{
    s24_dtype dtype = S24_F32;
    const char *name;
    for (int i = 0; (name = s24_kernel_name(i, NULL, &dtype)) && kernel; i++)
        if (!strcmp(name, kernel)) break;
    return kernel && dtype != S24_F32 ? 1.0 / 128 : (double)(terms + 8) / 16777216;
}

#endif
