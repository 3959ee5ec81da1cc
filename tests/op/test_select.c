// SPDX-License-Identifier: Apache-2.0
/*
 * Which two of four: magnitudes against a brute-force choice, given masks, checks, and the mean and
 * variance of the random choice against the closed form.
 */
#include "support.h"

#include <math.h>

#include "base/base.h"
#include "core_support.h"

/* Keeps exactly the two largest, of equals the higher column: by sorting, unlike the kernels. */
static void brute_mask(uint8_t *mask, const float *group)
{
    for (int i = 0; i < 4; i++) {
        int larger = 0;
        for (int j = 0; j < 4; j++) {
            float a = isnan(group[i]) ? INFINITY : fabsf(group[i]);
            float b = isnan(group[j]) ? INFINITY : fabsf(group[j]);
            int nan = isnan(group[j]) - isnan(group[i]);
            if (b > a || (b == a && (nan > 0 || (nan == 0 && j > i)))) larger++;
        }
        mask[i] = larger < 2;
    }
}

static void test_magnitude(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 17;
    enum { N = 11, K = 532, LD = 540 };
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        s24_dtype dtype = two_four_dtypes[d];
        char *data = random_dense(dtype, N, K, LD, 0, &seed);
        for (int i = 0; i < 60; i++) { /* ties and zeros */
            int64_t at = (int64_t)(test_random(&seed) % N) * LD + (int64_t)(test_random(&seed) % K);
            s24i_store_f32(data, dtype, at, i % 3 ? (float)(i % 2) : -1);
        }
        s24_dense src = {data, dtype, N, K, LD};
        uint8_t *mask = malloc(N * K);
        assert_ok(ctx, s24_magnitude_mask(mask, ctx, &src, 0));
        s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
        s24_matrix *w = make(ctx, &src, &opts);
        float *back = dense_of(ctx, w);
        for (int64_t r = 0; r < N; r++) {
            for (int64_t c = 0; c < K; c += 4) {
                float group[4];
                uint8_t expected[4];
                for (int i = 0; i < 4; i++)
                    group[i] = s24i_load_f32(data, dtype, r * LD + c + i);
                brute_mask(expected, group);
                assert_memory_equal(mask + r * K + c, expected, 4);
                for (int i = 0; i < 4; i++)
                    assert_true(back[r * K + c + i] == (expected[i] ? group[i] : 0));
            }
        }
        s24_matrix_destroy(w);
        /* The mask of magnitudes selects the same. */
        opts = (s24_matrix_opts){.size = sizeof opts, .select = S24_SELECT_MASK, .mask = mask};
        w = make(ctx, &src, &opts);
        float *masked = dense_of(ctx, w);
        assert_memory_equal(masked, back, sizeof *back * N * K);
        s24_matrix_destroy(w);
        free(masked);
        free(back);
        free(mask);
        free(data);
    }
    ctx_off(&h, ctx);
}

static void test_magnitude_of_nonfinite(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[8] = {INFINITY, NAN, 1, -NAN, 3, -INFINITY, INFINITY, 2};
    const uint8_t expected[8] = {0, 1, 0, 1, 0, 1, 1, 0};
    uint8_t mask[8];
    s24_dense src = {data, S24_F32, 1, 8, 0};
    s24_matrix *w;
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "Inf at row 0, column 0",
                   s24_magnitude_mask(mask, ctx, &src, 0));
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "Inf at row 0, column 0",
                   s24_matrix_create(&w, ctx, &src, &opts));
    assert_ok(ctx, s24_magnitude_mask(mask, ctx, &src, 1));
    assert_memory_equal(mask, expected, 8);
    opts.allow_nonfinite = 1;
    w = make(ctx, &src, &opts);
    assert_int_equal(s24_matrix_indices(w)[0], 0x9d);
    s24_matrix_destroy(w);
    opts.allow_nonfinite = 0;
    opts.dtype = S24_BF16; /* not fused: the same refusal */
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "Inf at row 0, column 0",
                   s24_matrix_create(&w, ctx, &src, &opts));
    ctx_off(&h, ctx);
}

static void test_mask(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint8_t mask[8] = {0, 0, 7, 0, 1, 0, 0, 255};
    s24_dense src = {data, S24_F32, 1, 8, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MASK, .mask = mask};
    s24_matrix *w = make(ctx, &src, &opts);
    float *back = dense_of(ctx, w);
    const float expected[8] = {0, 0, 3, 0, 5, 0, 0, 8};
    assert_memory_equal(back, expected, sizeof expected);
    free(back);
    s24_matrix_destroy(w);
    mask[5] = 1;
    assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR,
                   "mask is not 2:4: row 0, columns 4 to 7 (group 1) have 3",
                   s24_matrix_create(&w, ctx, &src, &opts));
    ctx_off(&h, ctx);
}

static void test_check(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 4);
    enum { N = 33, K = 16 };
    static float data[N * K];
    s24_dense src = {data, S24_F32, N, K, 0};
    s24_bad_group bad = {-1, -1, -1};
    int two_four = 0;
    for (int i = 0; i < N * K; i++)
        data[i] = i % 4 < 2 ? -0.0f : 1;
    assert_ok(ctx, s24_check(&two_four, &bad, ctx, &src));
    assert_true(two_four);
    assert_int_equal(bad.row, -1);
    data[30 * K + 4] = 1; /* the first bad group is reported, whichever thread is faster */
    data[7 * K + 8] = data[7 * K + 9] = NAN;
    data[7 * K + 12] = 1;
    assert_ok(ctx, s24_check(&two_four, &bad, ctx, &src));
    assert_false(two_four);
    assert_int_equal(bad.row, 7);
    assert_int_equal(bad.col, 8);
    assert_int_equal(bad.nonzeros, 4);
    assert_ok(ctx, s24_check(&two_four, NULL, ctx, &src));
    assert_false(two_four);
    ctx_off(&h, ctx);
}

/* ---- MVUE24 ---------------------------------------------------------------------------------- */

/*
 * Mean and variance of many draws of one group against the closed form: an element kept with
 * probability p has the value x/p, so its mean is x and its variance x²(1/p − 1). The p are those
 * of the estimator, worked out by hand for |x| = (4, 3, 2, 1).
 */
static void test_mvue24_moments(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    enum { GROUPS = 60000 };
    static const double p[4] = {451.0 / 630, 73.0 / 120, 139.0 / 315, 197.0 / 840};
    static const float x[4] = {4, -3, 2, -1};
    float *data = malloc(sizeof *data * 4 * GROUPS);
    for (int i = 0; i < 4 * GROUPS; i++)
        data[i] = x[i % 4];
    s24_dense src = {data, S24_F32, GROUPS / 100, 400, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MVUE24, .seed = 42};
    s24_matrix *w = make(ctx, &src, &opts);
    float *back = dense_of(ctx, w);
    for (int i = 0; i < 4; i++) {
        double sum = 0, squares = 0;
        int kept = 0;
        for (int g = 0; g < GROUPS; g++) {
            double v = back[4 * g + i];
            if (v != 0) assert_true(fabs(v - x[i] / p[i]) < 1e-5);
            kept += v != 0;
            sum += v;
            squares += (v - x[i]) * (v - x[i]);
        }
        double variance = (double)x[i] * x[i] * (1 / p[i] - 1);
        /* Five standard deviations of what is measured. */
        assert_true(fabs(sum / GROUPS - x[i]) < 5 * sqrt(variance / GROUPS));
        assert_true(fabs((double)kept / GROUPS - p[i]) < 5 * sqrt(p[i] * (1 - p[i]) / GROUPS));
        double fourth = pow(x[i], 4) * (pow(1 / p[i] - 1, 4) * p[i] + 1 - p[i]);
        assert_true(fabs(squares / GROUPS - variance) <
                    5 * sqrt((fourth - variance * variance) / GROUPS));
    }
    free(back);
    free(data);
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

/* The larger is kept for certain and the smaller drawn second, so that neither is scaled. */
static void test_mvue24_beside_a_far_larger_weight(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[256];
    for (int i = 0; i < 256; i++)
        data[i] = i % 4 == 2 ? 1e30f : i % 4 == 1 ? -3 : 0;
    s24_dense src = {data, S24_F32, 4, 64, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MVUE24, .seed = 5};
    s24_matrix *w = make(ctx, &src, &opts);
    float *back = dense_of(ctx, w);
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(back[i] - data[i]) <= 1e-6f * fabsf(data[i]));
    free(back);
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

static void test_mvue24_is_reproducible(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 9;
    enum { N = 13, K = 60 };
    float *data = malloc(sizeof *data * N * K);
    for (int i = 0; i < N * K; i++)
        data[i] = i % 7 ? test_uniform(&seed) : 0;
    s24_dense src = {data, S24_F32, N, K, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MVUE24, .seed = 3};
    s24_matrix *one = make(ctx, &src, &opts);
    s24_ctx_set_threads(ctx, 5);
    s24_matrix *five = make(ctx, &src, &opts);
    opts.seed = 4;
    s24_matrix *other = make(ctx, &src, &opts);
    size_t bytes = sizeof *data * N * K / 2;
    assert_memory_equal(s24_matrix_values(one), s24_matrix_values(five), bytes);
    assert_memory_equal(s24_matrix_indices(one), s24_matrix_indices(five), N * 8);
    assert_memory_not_equal(s24_matrix_values(one), s24_matrix_values(other), bytes);
    s24_matrix_destroy(one);
    s24_matrix_destroy(five);
    s24_matrix_destroy(other);
    /* A group of zeros stays zero; other dtypes round the scaled values. */
    memset(data, 0, sizeof *data * N * K);
    opts.dtype = S24_BF16;
    one = make(ctx, &src, &opts);
    float *back = dense_of(ctx, one);
    for (int i = 0; i < N * K; i++)
        assert_true(back[i] == 0);
    free(back);
    s24_matrix_destroy(one);
    opts.allow_nonfinite = 1; /* there is no expectation of infinity */
    data[5] = INFINITY;
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "column 5",
                   s24_matrix_create(&one, ctx, &src, &opts));
    free(data);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_magnitude),
        cmocka_unit_test(test_magnitude_of_nonfinite),
        cmocka_unit_test(test_mask),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_mvue24_moments),
        cmocka_unit_test(test_mvue24_is_reproducible),
        cmocka_unit_test(test_mvue24_beside_a_far_larger_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
