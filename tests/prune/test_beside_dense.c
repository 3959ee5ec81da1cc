// SPDX-License-Identifier: Apache-2.0
/*
 * Weights whose first columns stay dense next to 2:4 ones: what is dense is at its optimum for what
 * became of the others, the more of it the less is lost, rows that lie apart give the same bits,
 * and so do threads; what scores alone choose leaves it as it was; refusals, and every allocation
 * failing.
 */
#include "prune_support.h"

enum { N = 9, K = 32, TOKENS = 120, LD = K + 4 };

typedef struct fixture {
    s24_ctx *ctx;
    float *x, *before, w[N * K];
    s24_stats *stats;
} fixture;

static fixture make(int threads)
{
    fixture f = {.ctx = make_ctx(NULL, threads)};
    f.x = correlated_inputs(TOKENS, K, 4);
    f.before = random_floats(N * K, 5);
    f.stats = stats_of(f.ctx, f.x, TOKENS, K);
    return f;
}

static void destroy(fixture *f)
{
    s24_stats_destroy(f->stats);
    free(f->x);
    free(f->before);
    s24_ctx_destroy(f->ctx);
}

static s24_prune_opts options(const char *criterion, const char *pattern, const char *refine)
{
    return (s24_prune_opts){.size = sizeof(s24_prune_opts),
                            .criterion = criterion,
                            .pattern = pattern,
                            .refine = refine,
                            .dampening = 1e-6};
}

static double prune(fixture *f, const s24_prune_opts *opts)
{
    const s24_dense weight = view(f->w, N, K);
    s24_prune_report report;
    memcpy(f->w, f->before, sizeof f->w);
    assert_int_equal(s24_prune(&report, f->ctx, &weight, f->stats, opts), S24_OK);
    return report.output_error;
}

/* What of the error's gradient is left in a dense column: 0 at the optimum. */
static double slope(const fixture *f, int row, int col)
{
    double sum = 0.0, size = 0.0;
    for (int t = 0; t < TOKENS; t++) {
        double off = 0.0;
        for (int c = 0; c < K; c++)
            off += ((double)f->w[row * K + c] - (double)f->before[row * K + c]) *
                   (double)f->x[t * K + c];
        sum += off * (double)f->x[t * K + col];
        size += fabs(off * (double)f->x[t * K + col]);
    }
    return fabs(sum) / (size + 1e-30);
}

static void dense_columns_are_at_their_optimum(void **state)
{
    static const struct {
        const char *criterion, *refine;
    } ways[] = {{"sparsegpt", NULL}, {"alps", NULL}, {"wanda", "swaps"}, {"sparsegpt", "all"}};
    static const char *const patterns[] = {"2:4", "dense:4", "dense:16", "dense:28"};
    fixture f = make(2);
    (void)state;
    for (int i = 0; i < 4; i++) {
        double last = 1.0;
        for (int p = 0; p < 4; p++) {
            const s24_prune_opts opts = options(ways[i].criterion, patterns[p], ways[i].refine);
            const double error = prune(&f, &opts);
            const int dense = -s24_pattern_lift(patterns[p]);
            for (int at = 0; at < N * K; at += 4)
                if (at % K >= dense)
                    assert_int_equal((f.w[at] != 0.0f) + (f.w[at + 1] != 0.0f) +
                                         (f.w[at + 2] != 0.0f) + (f.w[at + 3] != 0.0f),
                                     2);
            for (int row = 0; row < N; row++)
                for (int col = 0; col < dense; col++)
                    if (!(slope(&f, row, col) < 1e-3))
                        fail_msg("%s, %s: row %d, column %d: %g is left", ways[i].criterion,
                                 patterns[p], row, col, slope(&f, row, col));
            if (!(error < last)) fail_msg("%s: %g after %g", patterns[p], error, last);
            last = error;
        }
    }
    destroy(&f);
}

static void rows_apart_and_threads_give_the_same_bits(void **state)
{
    const s24_prune_opts opts = options("sparsegpt", "dense:12", "all");
    fixture one = make(1), two = make(2);
    float apart[N * LD];
    (void)state;
    prune(&one, &opts);
    prune(&two, &opts);
    assert_memory_equal(one.w, two.w, sizeof one.w);
    for (int i = 0; i < N * LD; i++)
        apart[i] = i % LD < K ? one.before[i / LD * K + i % LD] : 7.0f;
    const s24_dense weight = {apart, S24_F32, N, K, LD};
    assert_int_equal(s24_prune(NULL, one.ctx, &weight, one.stats, &opts), S24_OK);
    for (int i = 0; i < N * LD; i++)
        assert_true(apart[i] == (i % LD < K ? one.w[i / LD * K + i % LD] : 7.0f));
    destroy(&two);
    destroy(&one);
}

static void scores_leave_what_is_dense(void **state)
{
    const s24_prune_opts opts = options("wanda", "dense:12", NULL);
    fixture f = make(1);
    (void)state;
    prune(&f, &opts);
    for (int i = 0; i < N * K; i++)
        assert_true(i % K < 12 || f.w[i] == 0.0f || f.w[i] == f.before[i]);
    for (int i = 0; i < N * K; i++)
        assert_true(i % K >= 12 || f.w[i] == f.before[i]);
    destroy(&f);
}

static void what_does_not_fit_is_refused(void **state)
{
    fixture f = make(1);
    const s24_dense weight = view(f.w, N, K);
    s24_prune_opts opts = options("sparsegpt", "dense:32", NULL);
    (void)state;
    assert_int_equal(s24_pattern_fits("dense:28", K), 1);
    assert_int_equal(s24_pattern_fits("dense:32", K), 0);
    assert_int_equal(s24_pattern_fits("dense:4", K + 2), 0);
    assert_int_equal(s24_pattern_fits("6:8", K), 1);
    assert_int_equal(s24_pattern_fits("row:0.5", 3), 1);
    assert_int_equal(s24_pattern_fits("dense:6", K), 0);
    memcpy(f.w, f.before, sizeof f.w);
    assert_int_equal(s24_prune(NULL, f.ctx, &weight, f.stats, &opts), S24_ERROR_SHAPE);
    assert_non_null(strstr(s24_ctx_error(f.ctx), "columns after the 32 that stay dense"));
    opts.pattern = "dense:8";
    opts.criterion = "tile-best";
    assert_int_equal(s24_prune(NULL, f.ctx, &weight, f.stats, &opts), S24_ERROR_UNSUPPORTED);
    opts.criterion = "alps";
    f.w[K + 3] = NAN;
    assert_int_equal(s24_prune(NULL, f.ctx, &weight, f.stats, &opts), S24_ERROR_NOT_FINITE);
    assert_non_null(strstr(s24_ctx_error(f.ctx), "row 1, column 3"));
    destroy(&f);
}

static void every_allocation_may_fail(void **state)
{
    failing fails = {.left = -1};
    const s24_ctx_opts how = {
        .size = sizeof how, .allocator = {failing_alloc, failing_free, &fails}, .threads = 1};
    const s24_prune_opts opts = options("sparsegpt", "dense:8", "all");
    fixture f = make(1);
    s24_ctx *ctx;
    s24_status status = S24_ERROR_MEMORY;
    int allowed = 0;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &how), S24_OK);
    const int64_t live = fails.live;
    for (; status != S24_OK; allowed++) {
        const s24_dense weight = view(f.w, N, K);
        s24_prune_report report;
        memcpy(f.w, f.before, sizeof f.w);
        fails.left = allowed;
        status = s24_prune(&report, ctx, &weight, f.stats, &opts);
        if (status != S24_OK) {
            assert_int_equal(status, S24_ERROR_MEMORY);
            assert_memory_equal(f.w, f.before, sizeof f.w);
        }
        assert_int_equal(fails.live, live);
    }
    assert_true(allowed > 9);
    fails.left = -1;
    s24_ctx_destroy(ctx);
    destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dense_columns_are_at_their_optimum),
                                       cmocka_unit_test(rows_apart_and_threads_give_the_same_bits),
                                       cmocka_unit_test(scores_leave_what_is_dense),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
