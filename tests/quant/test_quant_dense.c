// SPDX-License-Identifier: Apache-2.0
/* Dense matrices as integers with scales: against the 2:4 matrix that keeps the same numbers, group
   by group, and every refusal. */
#include "support.h"

#include <math.h>

#include "core_support.h"

enum { N = 9, K = 332, LD = K + 5 };

static float floats[N * LD], back[N * LD];
static uint8_t values[N * K];
static float scales[N * 6];

/* Numbers with outliers, a row of zeros, and a small one. */
static void fill(void)
{
    uint64_t seed = 5;
    for (int r = 0; r < N; r++)
        for (int c = 0; c < K; c++) {
            const float x = test_uniform(&seed) * (test_random(&seed) % 50 ? 0.1f : 1);
            floats[r * LD + c] = r == 3 ? 0 : r == 4 ? x * 1e-30f : x;
        }
}

/* back = the columns from `col` on, rounded by a scheme. */
static void round_columns(s24_ctx *ctx, float *to, int64_t col, int64_t cols, const char *scheme)
{
    const s24_dense src = {floats + col, S24_F32, N, cols, LD}, dst = {to, S24_F32, N, cols, LD};
    s24_quantized q = {.rows = N, .cols = cols, .values = values, .scales = scales};
    for (int i = 0; strcmp(s24_scheme_name(i, &q.bits, &q.group), scheme) != 0;)
        i++;
    if (!q.group) q.group = cols;
    assert_ok(ctx, s24_dense_quantize(values, scales, ctx, &src, scheme));
    assert_ok(ctx, s24_dense_from_quantized(ctx, &dst, &q));
}

/* Every group is a matrix of its own, the last one of fewer columns too. */
static void test_groups(void **state)
{
    static float alone[N * LD];
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 3);
    int bits;
    int64_t group;
    const char *name;
    fill();
    for (int i = 0; (name = s24_scheme_name(i, &bits, &group)); i++) {
        round_columns(ctx, back, 0, K, name);
        for (int64_t c = 0; group && c < K; c += group) {
            const int64_t cols = K - c < group ? K - c : group;
            round_columns(ctx, alone, c, cols, bits == 8 ? "int8" : "int4");
            for (int r = 0; r < N; r++)
                assert_memory_equal(alone + r * LD, back + r * LD + c, (size_t)cols * sizeof *back);
        }
    }
    ctx_off(&h, ctx);
}

/* A 2:4 matrix of twice the columns that keeps the same numbers. */
static void test_kept(void **state)
{
    static float spread[N * 2 * K];
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    fill();
    for (int r = 0; r < N; r++)
        for (int c = 0; c < K; c++)
            spread[r * 2 * K + c / 2 * 4 + (c % 2 ? 3 : 1)] = floats[r * LD + c];
    const s24_dense wide = {spread, S24_F32, N, 2 * K, 0};
    s24_matrix *w = make(ctx, &wide, NULL);
    static const char *const pairs[][2] = {
        {"int8", "int8"}, {"int4", "int4"}, {"int8-g64", "int8-g128"}, {"int4-g64", "int4-g128"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        s24_matrix *q;
        assert_ok(ctx, s24_matrix_quantize(&q, ctx, w, pairs[i][1]));
        float *want = dense_of(ctx, q);
        round_columns(ctx, back, 0, K, pairs[i][0]);
        for (int r = 0; r < N; r++)
            for (int c = 0; c < K; c++)
                assert_true(want[r * 2 * K + c / 2 * 4 + (c % 2 ? 3 : 1)] == back[r * LD + c]);
        free(want);
        s24_matrix_destroy(q);
    }
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

static void test_refused(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float w[8] = {0, 1, 2, 3, 4, 5, 6, 7}, to[8];
    const s24_dense src = {w, S24_F32, 2, 4, 0}, odd = {w, S24_F32, 1, 6, 0};
    const s24_dense bytes = {values, S24_I8, 2, 4, 0}, dst = {to, S24_F32, 1, 8, 0};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no quantisation scheme named \"int4-g32\"",
                   s24_dense_quantize(values, scales, ctx, &src, "int4-g32"));
    assert_refused(ctx, S24_ERROR_SHAPE, "src has 6 columns",
                   s24_dense_quantize(values, scales, ctx, &odd, "int4"));
    assert_refused(ctx, S24_ERROR_DTYPE, "src holds integers already",
                   s24_dense_quantize(values, scales, ctx, &bytes, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "scales is NULL",
                   s24_dense_quantize(values, NULL, ctx, &src, NULL));
    s24_quantized q = {2, 4, 8, 4, values, NULL, scales};
    assert_ok(ctx, s24_dense_quantize(values, scales, ctx, &src, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "dst is [1, 8]; expected [2, 4]",
                   s24_dense_from_quantized(ctx, &dst, &q));
    q.indices = values;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "from has indices",
                   s24_dense_from_quantized(ctx, &src, &q));
    q = (s24_quantized){2, 4, 5, 4, values, NULL, scales};
    assert_refused(ctx, S24_ERROR_DTYPE, "integers of 5 bits",
                   s24_dense_from_quantized(ctx, &src, &q));
    w[5] = INFINITY;
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "row 1, column 1",
                   s24_dense_quantize(values, scales, ctx, &src, NULL));
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
