// SPDX-License-Identifier: Apache-2.0
/*
 * Low-rank factors next to a pruned weight: they never raise the dampened output error, a higher
 * rank has a lower error, what has that rank is found whole, and with all ranks nothing is left.
 */
#include "prune_support.h"

enum { TOKENS = 80 };

static void prune_to(float *w, const float *from, s24_ctx *ctx, const s24_stats *stats,
                     const int64_t sides[2])
{
    s24_dense weight = view(w, sides[0], sides[1]);
    const s24_prune_opts opts = {.size = sizeof opts,
                                 .criterion = stats ? "sparsegpt" : "magnitude"};
    memcpy(w, from, (size_t)(sides[0] * sides[1]) * sizeof *w);
    assert_int_equal(s24_prune(NULL, ctx, &weight, stats, &opts), S24_OK);
}

/* Σ over rows d of w − s − l·r of d·H·dᵀ, H dampened or, without statistics, I. */
static double objective(s24_ctx *ctx, const float *w, const float *s, const s24_factors *f,
                        const int64_t sides[2], const s24_stats *stats)
{
    const int64_t n = sides[0], k = sides[1];
    const float *left = f->left, *right = f->right;
    double *h = calloc((size_t)(k * k), sizeof *h), *d = malloc((size_t)k * sizeof *d), sum = 0.0;
    if (stats) s24i_gram_dampen(ctx, h, stats, 0.01);
    for (int64_t j = 0; j < k && !stats; j++)
        h[j * k + j] = 1.0;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < k; c++) {
            d[c] = (double)w[r * k + c] - (double)s[r * k + c];
            for (int64_t p = 0; p < f->rank; p++)
                d[c] -= (double)left[r * f->rank + p] * (double)right[p * k + c];
        }
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j <= i; j++)
                sum += (i == j ? 1.0 : 2.0) * d[i] * h[i * k + j] * d[j];
    }
    free(d);
    free(h);
    return sum;
}

static void hold_ranks(s24_ctx *ctx, const int64_t sides[2], const s24_stats *stats)
{
    const int64_t n = sides[0], k = sides[1], most = n < k ? n : k;
    float *w = random_floats(n * k, 5), *s = malloc((size_t)(n * k) * sizeof *s);
    float *left = malloc((size_t)(n * most) * sizeof *left);
    float *right = malloc((size_t)(k * most) * sizeof *right);
    const s24_dense weight = view(w, n, k), pruned = view(s, n, k);
    s24_low_rank_opts opts = {.size = sizeof opts, .stats = stats, .pruned = &pruned};
    prune_to(s, w, ctx, stats, sides);
    const s24_factors none = {0};
    const double at_first = objective(ctx, w, s, &none, sides, stats);
    double last = at_first;
    for (opts.rank = 1; opts.rank <= most; opts.rank += opts.rank < 4 ? 1 : most - 4) {
        assert_int_equal(s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_OK);
        const s24_factors f = {opts.rank, S24_F32, left, right};
        const double now = objective(ctx, w, s, &f, sides, stats);
        assert_true(now < last);
        last = now;
        if (opts.rank == most) break;
    }
    assert_true(last < 1e-9 * at_first);
    free(right);
    free(left);
    free(s);
    free(w);
}

static void the_error_falls_with_the_rank(void **state)
{
    static const int64_t sides[][2] = {{24, 24}, {12, 40}, {40, 12}, {33, 20}};
    s24_ctx *ctx = make_ctx(NULL, 2);
    (void)state;
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        float *x = correlated_inputs(TOKENS, sides[i][1], i + 3);
        s24_stats *stats = stats_of(ctx, x, TOKENS, sides[i][1]);
        hold_ranks(ctx, sides[i], NULL);
        hold_ranks(ctx, sides[i], stats);
        s24_stats_destroy(stats);
        free(x);
    }
    s24_ctx_destroy(ctx);
}

/* A weight that is a product of factors of rank 3, found again with more of them than it has. */
static void what_has_a_rank_is_found(void **state)
{
    enum { N = 30, K = 44, RANK = 3, ASKED = 5 };
    s24_ctx *ctx = make_ctx(NULL, 1);
    float *a = random_floats(N * RANK, 1), *b = random_floats(RANK * K, 2);
    float w[N * K] = {0}, sum[N * K] = {0}, left[N * ASKED], right[ASKED * K];
    const s24_dense weight = view(w, N, K), found = view(sum, N, K);
    const s24_factors made = {RANK, S24_F32, a, b}, factors = {ASKED, S24_F32, left, right};
    const s24_low_rank_opts opts = {.size = sizeof opts, .rank = ASKED};
    s24_prune_report report;
    (void)state;
    assert_int_equal(s24_factors_add(ctx, &weight, &made), S24_OK);
    assert_int_equal(s24_low_rank(&report, left, right, ctx, &weight, &opts), S24_OK);
    assert_int_equal(s24_factors_add(ctx, &found, &factors), S24_OK);
    for (int i = 0; i < N * K; i++)
        assert_true(fabsf(w[i] - sum[i]) < 1e-5f);
    assert_true(report.output_error == -1.0 && fabs(report.kept_l1 - 1.0) < 1e-5);
    free(b);
    free(a);
    s24_ctx_destroy(ctx);
}

/* A report is of the sum; columns of inputs that were always zero have no part in the factors. */
static void dead_inputs_cost_nothing(void **state)
{
    enum { N = 16, K = 24, RANK = 2, DEAD = 7 };
    s24_ctx *ctx = make_ctx(NULL, 1);
    float *w = random_floats(N * K, 8), *x = correlated_inputs(TOKENS, K, 4);
    float s[N * K], left[N * RANK], right[RANK * K];
    for (int t = 0; t < TOKENS; t++)
        x[t * K + DEAD] = 0.0f;
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    const s24_dense weight = view(w, N, K), pruned = view(s, N, K);
    const s24_prune_opts how = {.size = sizeof how, .criterion = "sparsegpt"};
    const s24_low_rank_opts opts = {
        .size = sizeof opts, .rank = RANK, .stats = stats, .pruned = &pruned};
    s24_prune_report before, after;
    (void)state;
    memcpy(s, w, sizeof s);
    assert_int_equal(s24_prune(&before, ctx, &pruned, stats, &how), S24_OK);
    assert_int_equal(s24_low_rank(&after, left, right, ctx, &weight, &opts), S24_OK);
    assert_true(after.output_error > 0.0 && after.output_error < 0.9 * before.output_error);
    for (int p = 0; p < RANK; p++)
        assert_true(right[p * K + DEAD] == 0.0f);
    s24_stats_destroy(stats);
    free(x);
    free(w);
    s24_ctx_destroy(ctx);
}

static void expect(s24_ctx *ctx, s24_status status, s24_status expected, const char *sentence)
{
    assert_int_equal(status, expected);
    assert_non_null(strstr(s24_ctx_error(ctx), sentence));
}

static void what_cannot_be_is_said(void **state)
{
    s24_ctx *ctx = make_ctx(NULL, 1);
    float *w = random_floats(6 * 8, 3), left[6 * 8], right[8 * 8];
    const s24_dense weight = view(w, 6, 8), other = view(w, 6, 4);
    s24_stats *stats;
    s24_low_rank_opts opts = {.size = sizeof opts};
    (void)state;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_ARGUMENT,
           "the rank is 0; expected 1 to 6");
    opts.rank = 7;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_ARGUMENT,
           "the rank is 7; expected 1 to 6");
    opts.rank = 2;
    opts.dampening = -1.0;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_ARGUMENT,
           "dampening");
    opts.dampening = 0.0;
    opts.pruned = &other;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_SHAPE, "pruned");
    opts.pruned = NULL;
    assert_int_equal(s24_stats_create(&stats, ctx, 4), S24_OK);
    opts.stats = stats;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_SHAPE, "width 4");
    opts.stats = NULL;
    w[9] = NAN;
    expect(ctx, s24_low_rank(NULL, left, right, ctx, &weight, &opts), S24_ERROR_NOT_FINITE,
           "NaN at row 1, column 1");
    const s24_factors bytes = {2, S24_I8, left, right};
    expect(ctx, s24_factors_add(ctx, &weight, &bytes), S24_ERROR_DTYPE, "the factors are i8");
    s24_stats_destroy(stats);
    free(w);
    s24_ctx_destroy(ctx);
}

static void every_allocation_may_fail(void **state)
{
    failing f = {.left = -1};
    s24_ctx *ctx;
    const s24_ctx_opts how = {
        .size = sizeof how, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
    float *w = random_floats(6 * 8, 3), *x = correlated_inputs(TOKENS, 8, 4);
    float left[6 * 2], right[2 * 8];
    const s24_dense weight = view(w, 6, 8);
    s24_prune_report report;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &how), S24_OK);
    s24_stats *stats = stats_of(ctx, x, TOKENS, 8);
    const s24_low_rank_opts opts = {.size = sizeof opts, .rank = 2, .stats = stats};
    s24_status status = S24_ERROR_MEMORY;
    int allowed = 0;
    for (const int64_t base = f.live; status != S24_OK; allowed++) {
        f.left = allowed;
        status = s24_low_rank(&report, left, right, ctx, &weight, &opts);
        assert_int_equal(f.live, base);
        if (status == S24_OK) break;
        expect(ctx, status, S24_ERROR_MEMORY, "out of memory");
    }
    assert_true(allowed >= 10);
    f.left = -1;
    s24_stats_destroy(stats);
    s24_ctx_destroy(ctx);
    assert_int_equal(f.live, 0);
    free(x);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_falls_with_the_rank), cmocka_unit_test(what_has_a_rank_is_found),
        cmocka_unit_test(dead_inputs_cost_nothing),      cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
