// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning with products on a device, one that is none but multiplies (fake_device.c), and a GPU
 * where there is one: every criterion, pattern and refinement keeps what it keeps on the CPU, and
 * weights differ by rounding alone. Where the device fails, the weight is as it was.
 */
#include "prune_support.h"

#include <math.h>

#include "device_here.h"

enum { N = 24, K = 208, INPUTS = 300 };

typedef struct bench {
    s24_ctx *ctx;
    s24_device *device;
    s24_stats *stats;
    float *before, *here, *there;
} bench;

static s24_device *open_fake(s24_ctx *ctx)
{
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_device *device;
    assert_int_equal(s24_device_create(&device, ctx, &opts), S24_OK);
    return device;
}

static bench begin(void)
{
    static const s24_ctx_opts two = {.size = sizeof two, .threads = 2};
    bench b;
    assert_int_equal(s24_ctx_create(&b.ctx, &two), S24_OK);
    float *x = correlated_inputs(INPUTS, K, 11);
    for (int64_t t = 0; t < INPUTS; t++)
        x[t * K + 70] = 0.0f; /* a dead column */
    b.stats = stats_of(b.ctx, x, INPUTS, K);
    b.before = random_floats(N * K, 12);
    b.here = malloc(N * K * sizeof(float));
    b.there = malloc(N * K * sizeof(float));
    free(x);
    return b;
}

static void end(const bench *b)
{
    free(b->there);
    free(b->here);
    free(b->before);
    s24_stats_destroy(b->stats);
    s24_ctx_destroy(b->ctx);
}

static s24_status prune(const bench *b, float *w, s24_prune_opts opts, s24_prune_report *report)
{
    const s24_dense weight = view(w, N, K);
    opts.size = sizeof opts;
    opts.gradients = made_gradients();
    memcpy(w, b->before, N * K * sizeof *w);
    return s24_prune(report, b->ctx, &weight, b->stats, &opts);
}

static void compare(const bench *b, const s24_prune_opts *opts)
{
    s24_prune_report reports[2];
    s24_prune_opts there = *opts;
    there.device = b->device;
    const s24_status status = prune(b, b->here, *opts, &reports[0]);
    assert_int_equal(prune(b, b->there, there, &reports[1]), status);
    if (status != S24_OK) return; /* not of this pattern */
    for (int i = 0; i < N * K; i++)
        if ((b->here[i] == 0.0f) != (b->there[i] == 0.0f) ||
            fabsf(b->here[i] - b->there[i]) > 1e-5f * (1.0f + fabsf(b->here[i])))
            fail_msg("%s %s %s: weight %d is %g here, %g there", opts->criterion,
                     opts->pattern ? opts->pattern : "2:4", opts->refine ? opts->refine : "", i,
                     (double)b->here[i], (double)b->there[i]);
    assert_true(fabs(reports[0].output_error - reports[1].output_error) <
                1e-9 + 1e-6 * reports[0].output_error);
}

/* Is the choice itself made there? A device that is none makes none. */
static int selects(const char *criterion, const char *pattern)
{
    return !pattern && (!strcmp(criterion, "magnitude") || !strncmp(criterion, "tile-", 5));
}

static void compare_rows(bench *b, int chooses)
{
    static const char *const patterns[] = {NULL,          "6:8",     "1:4", "unstructured:0.6",
                                           "column:0.25", "row:0.25"};
    const char *name;
    for (int c = 0; (name = s24_criterion_name(c)); c++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
            for (int refined = 0; refined < 2; refined++)
                if ((chooses || !selects(name, patterns[p])) && (!WATCHED || (c + p) % 6 == 0))
                    compare(b, &(s24_prune_opts){.criterion = name,
                                                 .pattern = patterns[p],
                                                 .seed = 3,
                                                 .refine = refined ? "all" : NULL});
}

static void rows_keep_the_same(void **state)
{
    bench b = begin();
    (void)state;
    b.device = open_fake(b.ctx);
    compare_rows(&b, 0);
    s24_device_destroy(b.device);
    b.device = device_here(b.ctx);
    if (b.device) compare_rows(&b, 1);
    s24_device_destroy(b.device);
    end(&b);
}

static void other_blocks(void **state)
{
    bench b = begin();
    (void)state;
    b.device = open_fake(b.ctx);
    for (int block = 4; block <= 256; block *= 4)
        compare(&b, &(s24_prune_opts){.criterion = "sparsegpt", .block = block, .refine = "swaps"});
    s24_device_destroy(b.device);
    end(&b);
}

/* Fails by what the environment says, after every number of bytes or waits, until it does not. */
static void fail_until(bench *b, const char *variable, long long step, s24_status expected)
{
    s24_status status = expected;
    for (long long left = 0; status != S24_OK; left += WATCHED ? 10 * step : step) {
        char text[32];
        snprintf(text, sizeof text, "%lld", left);
        setenv(variable, text, 1);
        b->device = open_fake(b->ctx);
        const s24_prune_opts opts = {
            .criterion = "sparsegpt", .refine = "swaps", .device = b->device};
        status = prune(b, b->there, opts, NULL);
        s24_device_destroy(b->device);
        if (status == S24_OK) break;
        assert_int_equal(status, expected);
        assert_memory_equal(b->there, b->before, N * K * sizeof *b->there);
    }
    unsetenv(variable);
}

static void failures_change_nothing(void **state)
{
    bench b = begin();
    (void)state;
    fail_until(&b, "S24_FAKE_MEMORY", 50000, S24_ERROR_MEMORY);
    fail_until(&b, "S24_FAKE_WAITS", 7, S24_ERROR_UNSUPPORTED);
    end(&b);
}

static void without_statistics_there_is_nothing_to_do(void **state)
{
    bench b = begin();
    const s24_dense weight = view(b.there, N, K);
    (void)state;
    b.device = open_fake(b.ctx);
    memcpy(b.there, b.before, N * K * sizeof *b.there);
    const s24_prune_opts opts = {.size = sizeof opts, .criterion = "random", .device = b.device};
    assert_int_equal(s24_prune(NULL, b.ctx, &weight, NULL, &opts), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(b.ctx), "runs on the CPU only without statistics"));
    s24_device_destroy(b.device);
    end(&b);
}

static void a_gram_matrix_made_elsewhere(void **state)
{
    bench b = begin();
    float gram[K * K];
    s24_stats *stats;
    (void)state;
    for (int i = 0; i < K * K; i++)
        gram[i] = (float)b.stats->gram[i];
    const s24_dense whole = view(gram, K, K);
    assert_int_equal(s24_stats_create(&stats, b.ctx, K), S24_OK);
    assert_int_equal(s24_stats_add_gram(stats, b.ctx, &whole, INPUTS), S24_OK);
    assert_int_equal(s24_stats_add_gram(stats, b.ctx, &whole, INPUTS), S24_OK);
    assert_int_equal(stats->tokens, 2 * INPUTS);
    for (int i = 0; i < K; i++)
        for (int j = 0; j <= i; j++)
            assert_true(stats->gram[i * K + j] == 2.0 * (double)gram[i * K + j]);
    gram[5 * K + 2] = NAN;
    assert_int_equal(s24_stats_add_gram(stats, b.ctx, &whole, INPUTS), S24_ERROR_NOT_FINITE);
    assert_non_null(strstr(s24_ctx_error(b.ctx), "has NaN at row 5, column 2"));
    assert_int_equal(stats->tokens, 2 * INPUTS);
    const s24_dense narrow = view(gram, K, K - 1);
    assert_int_equal(s24_stats_add_gram(stats, b.ctx, &narrow, INPUTS), S24_ERROR_SHAPE);
    s24_stats_destroy(stats);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_keep_the_same),
                                       cmocka_unit_test(other_blocks),
                                       cmocka_unit_test(failures_change_nothing),
                                       cmocka_unit_test(without_statistics_there_is_nothing_to_do),
                                       cmocka_unit_test(a_gram_matrix_made_elsewhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
