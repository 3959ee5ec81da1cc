// SPDX-License-Identifier: Apache-2.0
/* Pruning's statistics, and what pruning refuses: every sentence, and every allocation failing. */
#include "prune_support.h"

/* ---- statistics ------------------------------------------------------------------------------ */

static void calls_add_up(void **state)
{
    enum { K = 37, TOKENS = 900, LD = 41 };
    static const int64_t cuts[] = {0, 1, 1, 300, 812, TOKENS};
    (void)state;
    float *x = random_floats(TOKENS * LD, 41), *packed = malloc(TOKENS * K * sizeof *x);
    for (int t = 0; t < TOKENS; t++)
        memcpy(packed + t * K, x + t * LD, K * sizeof *x);
    double *h = reference_gram(packed, TOKENS, K);
    for (int l = 0; l < LEVELS; l++) {
        s24_ctx *ctx = make_ctx(levels[l], 3);
        s24_stats *stats;
        assert_int_equal(s24_stats_create(&stats, ctx, K), S24_OK);
        for (size_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
            s24_dense part = {x + cuts[c] * LD, S24_F32, cuts[c + 1] - cuts[c], K, LD};
            assert_int_equal(s24_stats_add(stats, ctx, &part), S24_OK);
        }
        assert_int_equal(stats->tokens, TOKENS);
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++) {
                double scale = sqrt(h[i * K + i] * h[j * K + j]);
                double expected = j <= i ? h[i * K + j] : 0.0;
                assert_true(fabs(stats->gram[i * K + j] - expected) <= 2e-6 * scale);
            }
        s24_stats_destroy(stats);
        s24_ctx_destroy(ctx);
    }
    free(h);
    free(packed);
    free(x);
}

static void statistics_outlive_their_context(void **state)
{
    (void)state;
    failing f = {.left = -1};
    s24_ctx *ctx;
    s24_stats *stats;
    s24_ctx_opts opts = {.size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    assert_int_equal(s24_stats_create(&stats, ctx, 5), S24_OK);
    s24_ctx_destroy(ctx);
    assert_true(f.live > 0);
    s24_stats_destroy(stats);
    s24_stats_destroy(NULL);
    assert_int_equal(f.live, 0);
}

static void bad_inputs_are_refused(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    s24_stats *stats = (s24_stats *)ctx;
    float x[24] = {0};
    s24_dense inputs = view(x, 3, 8);
    assert_int_equal(s24_stats_create(&stats, ctx, 0), S24_ERROR_SHAPE);
    assert_null(stats);
    assert_int_equal(s24_stats_create(NULL, ctx, 4), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_stats_create(&stats, ctx, INT64_MAX), S24_ERROR_MEMORY);
    assert_null(stats);
    assert_int_equal(s24_stats_create(&stats, ctx, 8), S24_OK);
    assert_int_equal(s24_stats_add(NULL, ctx, &inputs), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_stats_add(stats, ctx, NULL), S24_ERROR_ARGUMENT);
    inputs.cols = 4;
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_ERROR_SHAPE);
    assert_non_null(strstr(s24_ctx_error(ctx), "expected 8 columns"));
    inputs = (s24_dense){x, S24_F32, 3, 8, 7};
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_ERROR_SHAPE);
    inputs = (s24_dense){x, S24_BF16, 3, 8, 0};
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_ERROR_DTYPE);
    assert_non_null(strstr(s24_ctx_error(ctx), "bf16"));
    inputs = view(x, 3, 8);
    x[17] = NAN;
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_ERROR_NOT_FINITE);
    assert_string_equal(s24_ctx_error(ctx),
                        "the layer's input 2 has NaN in column 1; expected finite numbers");
    x[9] = -INFINITY;
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_ERROR_NOT_FINITE);
    assert_non_null(strstr(s24_ctx_error(ctx), "input 1 has Inf in column 1"));
    assert_int_equal(stats->tokens, 0);
    inputs = view(NULL, 0, 8);
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_OK);
    assert_int_equal(stats->tokens, 0);
    s24_stats_destroy(stats);
    s24_ctx_destroy(ctx);
}

/* ---- refusals of s24_prune ------------------------------------------------------------------- */

static void expect_refusal(s24_ctx *ctx, const s24_dense *w, const s24_stats *stats,
                           const s24_prune_opts *opts, s24_status status, const char *words)
{
    float before[64];
    memcpy(before, w->data, sizeof before);
    s24_prune_report report = {7.0, 7.0};
    assert_int_equal(s24_prune(&report, ctx, w, stats, opts), status);
    if (!strstr(s24_ctx_error(ctx), words)) fail_msg("\"%s\" lacks %s", s24_ctx_error(ctx), words);
    assert_memory_equal(before, w->data, sizeof before);
    assert_true(report.kept_l1 == 7.0 && report.output_error == 7.0);
}

static void bad_weights_and_options_are_refused(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    float *w = random_floats(64, 51), *x = random_floats(80, 52);
    s24_stats *stats = stats_of(ctx, x, 10, 8), *empty;
    assert_int_equal(s24_stats_create(&empty, ctx, 16), S24_OK);
    s24_dense weight = view(w, 4, 16);
    s24_prune_opts opts = {.size = sizeof opts};
    assert_int_equal(s24_prune(NULL, ctx, NULL, NULL, NULL), S24_ERROR_ARGUMENT);

    opts.criterion = "obs";
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "\"obs\"");
    opts.criterion = "wanda";
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "needs statistics");
    expect_refusal(ctx, &weight, stats, &opts, S24_ERROR_SHAPE, "width 8");
    expect_refusal(ctx, &weight, empty, &opts, S24_ERROR_ARGUMENT, "no inputs");
    opts = (s24_prune_opts){.size = sizeof opts, .block = 6};
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "6 columns; expected a multiple");
    opts.block = -4;
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "-4 columns");
    opts = (s24_prune_opts){.size = sizeof opts, .dampening = -0.01};
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "dampening is -0.01");
    opts.dampening = (double)INFINITY;
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "dampening is inf");
    opts = (s24_prune_opts){.size = 1};
    expect_refusal(ctx, &weight, NULL, &opts, S24_ERROR_ARGUMENT, "size");

    weight = view(w, 4, 14);
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_SHAPE, "[4, 14]");
    weight = view(w, 0, 16);
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_SHAPE, "[0, 16]");
    weight = view(w, 4, 0);
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_SHAPE, "[4, 0]");
    weight = (s24_dense){w, S24_F32, 4, 16, 12};
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_SHAPE, "ld is 12");
    weight = (s24_dense){w, S24_F16, 4, 16, 0};
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_DTYPE, "f16");
    weight = view(w, 4, 16);
    w[2 * 16 + 5] = NAN;
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_NOT_FINITE, "NaN at row 2, column 5");
    w[1 * 16 + 15] = INFINITY;
    expect_refusal(ctx, &weight, NULL, NULL, S24_ERROR_NOT_FINITE, "Inf at row 1, column 15");
    s24_stats_destroy(empty);
    s24_stats_destroy(stats);
    free(x);
    free(w);
    s24_ctx_destroy(ctx);
}

/* Squares of such inputs do not fit f32; every criterion that would read them says so. */
static void inputs_whose_squares_overflow_are_refused(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    float x[16] = {1, 1, 1, 1, 1, 1e30f, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, *w = random_floats(64, 61);
    s24_stats *stats = stats_of(ctx, x, 2, 8);
    s24_dense weight = view(w, 8, 8);
    s24_prune_opts opts = {.size = sizeof opts, .criterion = "sparsegpt"};
    expect_refusal(ctx, &weight, stats, &opts, S24_ERROR_NUMERIC, "column 5");
    opts.criterion = "wanda";
    expect_refusal(ctx, &weight, stats, &opts, S24_ERROR_NUMERIC, "column 5");
    s24_stats_destroy(stats);
    free(w);
    s24_ctx_destroy(ctx);
}

static void nothing(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

/* Column 4 goes, and columns 5 and 6, whose inputs are the same, take it over: beyond f32. */
static void updated_weights_beyond_f32_are_refused(void **state)
{
    enum { N = 2, K = 8, TOKENS = 32 };
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    float *x = random_floats(TOKENS * K, 73), w[N * K] = {0};
    for (int t = 0; t < TOKENS; t++)
        x[t * K + 5] = x[t * K + 6] = x[t * K + 4];
    w[K + 4] = 2e38f, w[K + 5] = w[K + 6] = 3e38f;
    s24_dense inputs = view(x, TOKENS, K), weight = view(w, N, K);
    s24_prune_opts prune = {.size = sizeof prune, .criterion = "sparsegpt"};
    s24_prune_report report;
    s24_stats *stats = NULL;
    assert_int_equal(s24_stats_create(&stats, ctx, K), S24_OK);
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_OK);
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &prune), S24_ERROR_NUMERIC);
    assert_non_null(strstr(s24_ctx_error(ctx), "weight at row 1, column 5 is beyond f32"));
    s24_stats_destroy(stats);
    s24_ctx_destroy(ctx);
    free(x);
}

/* One allocation after another fails, alone or with all that follow; each time the call says so,
   and nothing changes or leaks. */
static void every_allocation_may_fail(void **state)
{
    enum { N = 5, K = 132, TOKENS = 40 };
    (void)state;
    float *x = correlated_inputs(TOKENS, K, 71), *before = random_floats(N * K, 72);
    const s24_weight_gradients gradients = {before, before, before};
    failing f = {.left = -1};
    s24_ctx *ctx;
    s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 2};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    s24_dense inputs = view(x, TOKENS, K);
    s24_ctx_parallel_for(ctx, 2, nothing, NULL); /* the context's threads are made */
    int64_t base = f.live;
    for (int c = 0, once = 0; s24_criterion_name(c); c += once, once = !once) {
        s24_status status = S24_ERROR_MEMORY;
        int allowed = 0;
        for (; status != S24_OK; allowed++) {
            float *w = random_floats(N * K, 72);
            s24_dense weight = view(w, N, K);
            s24_prune_opts prune = {.size = sizeof prune, .criterion = s24_criterion_name(c)};
            s24_prune_report report;
            s24_stats *stats = NULL;
            prune.gradients = s24_criterion_needs_gradients(prune.criterion) ? &gradients : NULL;
            f.left = allowed, f.once = once;
            status = s24_stats_create(&stats, ctx, K);
            if (status == S24_OK) {
                status = s24_stats_add(stats, ctx, &inputs);
                assert_int_equal(stats->tokens, status == S24_OK ? TOKENS : 0);
            }
            if (status == S24_OK) status = s24_prune(&report, ctx, &weight, stats, &prune);
            if (status != S24_OK) {
                assert_int_equal(status, S24_ERROR_MEMORY);
                assert_non_null(strstr(s24_ctx_error(ctx), "out of memory"));
                assert_memory_equal(w, before, N * K * sizeof *w);
            }
            s24_stats_destroy(stats);
            assert_int_equal(f.live, base);
            free(w);
        }
        assert_true(allowed > (c == 2 ? 14 : 5));
    }
    f.left = -1;
    s24_ctx_destroy(ctx);
    assert_int_equal(f.live, 0);
    free(before);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_add_up),
        cmocka_unit_test(statistics_outlive_their_context),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(bad_weights_and_options_are_refused),
        cmocka_unit_test(inputs_whose_squares_overflow_are_refused),
        cmocka_unit_test(updated_weights_beyond_f32_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
