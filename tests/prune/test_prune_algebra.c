// SPDX-License-Identifier: Apache-2.0
/* The products and the factor that the pruning criteria are made of, against plain sums. */
#include "prune_support.h"

#include "prune/product_tiles.h"

typedef struct product_case {
    int64_t m, n, depth;
    int a_across, b_across, f32, lower;
} product_case;

static double element(const void *data, int f32, int64_t at)
{
    return f32 ? (double)((const float *)data)[at] : ((const double *)data)[at];
}

static void check_product(s24_ctx *ctx, const product_case *t, double sign)
{
    int64_t lda = (t->a_across ? t->m : t->depth) + 3, ldb = (t->b_across ? t->n : t->depth) + 1;
    int64_t ldc = t->n + 2, a_count = lda * (t->a_across ? t->depth : t->m);
    int64_t b_count = ldb * (t->b_across ? t->depth : t->n);
    size_t size = t->f32 ? sizeof(float) : sizeof(double);
    void *a = malloc((size_t)a_count * size), *b = malloc((size_t)b_count * size);
    double *c = malloc((size_t)(t->m * ldc) * sizeof *c);
    uint64_t seed = 5;
    for (int64_t i = 0; i < a_count + b_count; i++) {
        void *at = i < a_count ? a : b;
        int64_t index = i < a_count ? i : i - a_count;
        if (t->f32)
            ((float *)at)[index] = test_uniform(&seed);
        else
            ((double *)at)[index] = (double)test_uniform(&seed);
    }
    for (int64_t i = 0; i < t->m * ldc; i++)
        c[i] = (double)i;
    s24i_product p = {.m = t->m, .n = t->n, .depth = t->depth, .a = a, .b = b, .c = c, .ldc = ldc};
    p.a_row = t->a_across ? 1 : lda;
    p.a_depth = t->a_across ? lda : 1;
    p.b_row = t->b_across ? 1 : ldb;
    p.b_depth = t->b_across ? ldb : 1;
    p.sign = sign;
    p.f32 = t->f32;
    p.lower = t->lower;
    void *work = s24_ctx_alloc(ctx, s24i_product_work_bytes(t->m, t->n, t->depth));
    s24i_product_run(ctx, &p, work);
    s24_ctx_free(ctx, work);
    /* |error| ≤ run·ε·Σ|a||b| with ε of the operands' type, and one rounding of c in f64. */
    double epsilon = t->f32 ? S24I_PRODUCT_RUN * 0x1p-24 : (double)(t->depth + 2) * 0x1p-53;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = 0.0, size_of_sum = 0.0;
            for (int64_t q = 0; q < t->depth && j < t->n && (!t->lower || j <= i); q++) {
                double term = element(a, t->f32, i * p.a_row + q * p.a_depth) *
                              element(b, t->f32, j * p.b_row + q * p.b_depth);
                sum += term;
                size_of_sum += fabs(term);
            }
            double start = (double)(i * ldc + j), expected = start + sign * sum;
            double bound = epsilon * size_of_sum + (fabs(start) + size_of_sum) * 0x1p-50;
            if (!(fabs(c[i * ldc + j] - expected) <= (size_of_sum > 0.0 ? bound : 0.0)))
                fail_msg("[%lld, %lld, %lld] f32 %d lower %d: (%lld, %lld) is %.17g, not %.17g",
                         (long long)t->m, (long long)t->n, (long long)t->depth, t->f32, t->lower,
                         (long long)i, (long long)j, c[i * ldc + j], expected);
        }
    free(c);
    free(b);
    free(a);
}

static void products_equal_plain_sums(void **state)
{
    static const product_case cases[] = {
        {1, 1, 1, 0, 0, 0, 0},      {8, 48, 256, 1, 1, 1, 0},   {9, 49, 257, 1, 1, 1, 0},
        {64, 5, 64, 0, 0, 0, 0},    {65, 130, 300, 0, 1, 0, 0}, {70, 70, 90, 1, 1, 1, 1},
        {3, 200, 1000, 1, 0, 0, 0}, {97, 97, 64, 0, 0, 0, 1},   {250, 250, 700, 1, 1, 1, 1},
        {24, 24, 4, 0, 1, 0, 1},    {1, 500, 600, 0, 0, 1, 0},  {400, 1, 40, 1, 0, 0, 0},
    };
    (void)state;
    for (int l = 0; l < LEVELS; l++)
        for (int threads = 1; threads <= 3; threads++) {
            s24_ctx *ctx = make_ctx(levels[l], threads);
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                check_product(ctx, &cases[i], i % 2 ? -1.0 : 1.0);
            s24_ctx_destroy(ctx);
        }
}

/* The tiles' own limits, which the work memory is sized by. */
static void tiles_fit_their_limits(void **state)
{
    (void)state;
    for (int l = 0; l < LEVELS; l++)
        for (int f32 = 0; f32 < 2; f32++) {
            uint32_t cpu = s24_cpu_detect() & s24_cpu_parse(levels[l]);
            const s24i_product_tile *tile = s24i_product_tile_find(f32, cpu);
            size_t size = f32 ? sizeof(float) : sizeof(double);
            assert_true(S24I_TILE_ROWS_MAX % tile->rows == 0);
            assert_true(S24I_TILE_COLS_MAX % tile->cols == 0);
            assert_true((size_t)(tile->rows * tile->cols) * size <= S24I_TILE_BYTES);
        }
}

static void the_factor_inverts(void **state)
{
    static const int64_t widths[] = {1, 2, 63, 64, 65, 200, 333};
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int64_t k = widths[w];
        s24_ctx *ctx = make_ctx(levels[w % LEVELS], 2);
        float *x = correlated_inputs(2 * k + 8, k, 81);
        double *h = reference_gram(x, 2 * k + 8, k), *u = malloc((size_t)(k * k) * sizeof *u);
        memcpy(u, h, (size_t)(k * k) * sizeof *u);
        assert_int_equal(s24i_inverse_factor(ctx, u, k), S24_OK);
        for (int64_t i = 0; i < k; i++) {
            assert_true(u[i * k + i] > 0.0);
            for (int64_t j = 0; j < i; j++)
                assert_true(u[i * k + j] == 0.0);
        }
        /* H⁻¹ = UᵀU means U·H·Uᵀ = I. */
        double *uh = calloc((size_t)(k * k), sizeof *uh);
        for (int64_t i = 0; i < k; i++)
            for (int64_t p = i; p < k; p++)
                for (int64_t j = 0; j < k; j++)
                    uh[i * k + j] += u[i * k + p] * h[p * k + j];
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++) {
                double sum = 0.0;
                for (int64_t p = j; p < k; p++)
                    sum += uh[i * k + p] * u[j * k + p];
                assert_true(fabs(sum - (double)(i == j)) <= 1e-9);
            }
        free(uh);
        free(u);
        free(h);
        free(x);
        s24_ctx_destroy(ctx);
    }
}

static void a_factor_that_fails_names_its_column(void **state)
{
    enum { K = 100 };
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    double *h = malloc(K * K * sizeof *h);
    for (int bad = 0; bad < K; bad += 33) {
        for (int i = 0; i < K * K; i++)
            h[i] = i % (K + 1) ? 0.0 : 2.0;
        h[bad * K + bad] = -1.0;
        char words[64];
        snprintf(words, sizeof words, "(column %d of %d)", bad, K);
        assert_int_equal(s24i_inverse_factor(ctx, h, K), S24_ERROR_NUMERIC);
        if (!strstr(s24_ctx_error(ctx), words))
            fail_msg("\"%s\" lacks %s", s24_ctx_error(ctx), words);
    }
    free(h);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_equal_plain_sums),
        cmocka_unit_test(tiles_fit_their_limits),
        cmocka_unit_test(the_factor_inverts),
        cmocka_unit_test(a_factor_that_fails_names_its_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
