// SPDX-License-Identifier: Apache-2.0
/*
 * Rounding by the inputs: outputs come nearer than by rounding to nearest, in every scheme and also
 * to the weights before they were pruned; the same bytes on any number of threads; no step that
 * could still be taken; every refusal.
 */
#include "core_support.h"
#include "prune_support.h"

enum { N = 24, K = 164, TOKENS = 600 };

/* Inputs that lie near a few directions, as a model's do, and one that is never there. */
static float *inputs(void)
{
    enum { DIRECTIONS = 12 };
    float *x = malloc(sizeof *x * TOKENS * K), *d = random_floats(DIRECTIONS * K, 5);
    uint64_t seed = 9;
    for (int t = 0; t < TOKENS; t++) {
        float mix[DIRECTIONS];
        for (int i = 0; i < DIRECTIONS; i++)
            mix[i] = test_uniform(&seed);
        for (int c = 0; c < K; c++) {
            float sum = 0.1f * test_uniform(&seed);
            for (int i = 0; i < DIRECTIONS; i++)
                sum += mix[i] * d[i * K + c];
            x[t * K + c] = c == 7 ? 0 : sum;
        }
    }
    free(d);
    return x;
}

/* ‖X(W − Q)ᵀ‖² / ‖XWᵀ‖² */
static double error_of(s24_ctx *ctx, const float *x, const float *w, const s24_matrix *q)
{
    double lost = 0, all = 0;
    float *wide = dense_of(ctx, q);
    for (int t = 0; t < TOKENS; t++)
        for (int r = 0; r < N; r++) {
            double a = 0, b = 0;
            for (int c = 0; c < K; c++) {
                a += (double)x[t * K + c] * (double)(w[r * K + c] - wide[r * K + c]);
                b += (double)x[t * K + c] * (double)w[r * K + c];
            }
            lost += a * a;
            all += b * b;
        }
    free(wide);
    return lost / all;
}

/* The weights, and the 2:4 matrix that a criterion makes of them. */
static s24_matrix *pruned(s24_ctx *ctx, const float *w, const s24_stats *stats, const char *by)
{
    float *copy = malloc(sizeof *copy * N * K);
    memcpy(copy, w, sizeof *copy * N * K);
    const s24_dense dense = {copy, S24_F32, N, K, 0};
    const s24_prune_opts opts = {.size = sizeof opts, .criterion = by};
    assert_ok(ctx, s24_prune(NULL, ctx, &dense, stats, &opts));
    s24_matrix *matrix = make(ctx, &dense, NULL);
    free(copy);
    return matrix;
}

static void comes_nearer(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    float *x = inputs(), *w = random_floats(N * K, 3);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    const s24_dense before = {w, S24_F32, N, K, 0};
    s24_matrix *src = pruned(ctx, w, stats, "sparsegpt");
    const char *name;
    for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++)
        for (int joint = 0; joint < 2; joint++) {
            s24_round_opts opts = {.size = sizeof opts, .scheme = name, .stats = stats};
            s24_matrix *nearest, *moved;
            s24_prune_report report;
            float *own = dense_of(ctx, src);
            const float *target = joint ? w : own;
            if (joint) opts.target = &before;
            assert_ok(ctx, s24_matrix_quantize(&nearest, ctx, src, name));
            assert_ok(ctx, s24_matrix_round(&moved, &report, ctx, src, &opts));
            assert_int_equal(s24_matrix_bits(moved), s24_matrix_bits(nearest));
            assert_memory_equal(s24_matrix_indices(moved), s24_matrix_indices(nearest),
                                N * ((K + 7) / 8));
            const double plain = error_of(ctx, x, target, nearest);
            const double better = error_of(ctx, x, target, moved);
            assert_true(fabs(report.output_error - better) < 1e-4 * better + 1e-9);
            /* What is lost to pruning stays lost; what rounding adds shrinks well. */
            const double floor = joint ? error_of(ctx, x, target, src) : 0;
            assert_true(better - floor < 0.6 * (plain - floor));
            /* Integers alone, by the scales of rounding to nearest, come to 0.064. */
            if (!joint && strcmp(name, "int4-g64") == 0) assert_true(better < 0.056 * plain);
            s24_matrix_destroy(nearest);
            s24_matrix_destroy(moved);
            free(own);
        }
    s24_matrix_destroy(src);
    s24_stats_destroy(stats);
    free(x);
    free(w);
    ctx_off(&h, ctx);
}

static void any_number_of_threads(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float *x = inputs(), *w = random_floats(N * K, 4);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    s24_matrix *src = pruned(ctx, w, stats, "magnitude"), *one, *four;
    const s24_round_opts opts = {.size = sizeof opts, .scheme = "int4-g64", .stats = stats};
    assert_ok(ctx, s24_matrix_round(&one, NULL, ctx, src, &opts));
    s24_ctx_set_threads(ctx, 4);
    assert_ok(ctx, s24_matrix_round(&four, NULL, ctx, src, &opts));
    assert_memory_equal(s24_matrix_values(one), s24_matrix_values(four), N * K / 2);
    assert_memory_equal(s24_matrix_scales(one), s24_matrix_scales(four), N * 3 * sizeof(float));
    s24_matrix_destroy(one);
    s24_matrix_destroy(four);
    s24_matrix_destroy(src);
    s24_stats_destroy(stats);
    free(x);
    free(w);
    ctx_off(&h, ctx);
}

static void refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float *x = inputs(), *w = random_floats(N * K, 4);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K), *empty, *narrow;
    s24_matrix *src = pruned(ctx, w, stats, "magnitude"), *out;
    const s24_dense other = {w, S24_F32, N, K - 4, 0}, halves = {w, S24_BF16, N, K, 0};
    assert_ok(ctx, s24_stats_create(&empty, ctx, K));
    assert_ok(ctx, s24_stats_create(&narrow, ctx, 8));
    s24_round_opts opts = {.size = sizeof opts};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_round_opts.stats is NULL",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    opts.stats = narrow;
    assert_refused(ctx, S24_ERROR_SHAPE, "of inputs of width 8; expected the weight's 164",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    opts.stats = empty;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "the statistics hold no inputs",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    opts.stats = stats;
    opts.target = &other;
    assert_refused(ctx, S24_ERROR_SHAPE, "target is [24, 160]; expected [24, 164]",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    opts.target = &halves;
    assert_refused(ctx, S24_ERROR_DTYPE, "target is bf16; expected f32",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    opts.target = NULL;
    opts.scheme = "int5";
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no quantisation scheme named \"int5\"",
                   s24_matrix_round(&out, NULL, ctx, src, &opts));
    assert_null(out);
    opts.scheme = NULL;
    for (h.fail_at = 1;; h.fail_at++) {
        h.calls = 0;
        const s24_status status = s24_matrix_round(&out, NULL, ctx, src, &opts);
        if (status == S24_OK) break;
        assert_int_equal(status, S24_ERROR_MEMORY);
        assert_null(out);
    }
    assert_true(h.fail_at > 8);
    h.fail_at = 0;
    s24_matrix_destroy(out);
    s24_matrix_destroy(src);
    s24_stats_destroy(stats);
    s24_stats_destroy(empty);
    s24_stats_destroy(narrow);
    free(x);
    free(w);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(comes_nearer),
                                       cmocka_unit_test(any_number_of_threads),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
