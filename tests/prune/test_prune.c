// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning against a plain float64 reference written from the definitions: no blocks, no threads,
 * the inverse by Gauss-Jordan. Every CPU level and several thread counts, odd shapes, dead columns,
 * inputs of low rank.
 */
#include "kernel/tile.h"
#include "prune_support.h"

/* ---- the reference --------------------------------------------------------------------------- */

/* Keeps the two that sort first by score, then by higher index. */
UNWATCHED static void reference_keep(int keep[4], const double score[4])
{
    int order[4] = {3, 2, 1, 0};
    for (int i = 1; i < 4; i++)
        for (int j = i; j > 0 && score[order[j]] > score[order[j - 1]]; j--) {
            int swap = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
    for (int i = 0; i < 4; i++)
        keep[order[i]] = i < 2;
}

UNWATCHED static void reference_by_score(float *w, int64_t n, int64_t k, const double *h)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t g = 0; g < k; g += 4) {
            double score[4];
            int keep[4];
            for (int i = 0; i < 4; i++)
                score[i] =
                    fabs((double)w[r * k + g + i]) * (h ? sqrt(h[(g + i) * k + g + i]) : 1.0);
            reference_keep(keep, score);
            for (int i = 0; i < 4; i++)
                if (!keep[i]) w[r * k + g + i] = 0.0f;
        }
}

UNWATCHED static void gauss_jordan(double *out, double *a, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++)
            out[i * k + j] = i == j;
    for (int64_t p = 0; p < k; p++) {
        double pivot = a[p * k + p];
        for (int64_t j = 0; j < k; j++) {
            a[p * k + j] /= pivot;
            out[p * k + j] /= pivot;
        }
        for (int64_t i = 0; i < k; i++) {
            double factor = a[i * k + p];
            if (i == p) continue;
            for (int64_t j = 0; j < k; j++) {
                a[i * k + j] -= factor * a[p * k + j];
                out[i * k + j] -= factor * out[p * k + j];
            }
        }
    }
}

/* u upper triangular with uᵀu = a. */
UNWATCHED static void upper_cholesky(double *u, const double *a, int64_t k)
{
    memset(u, 0, (size_t)(k * k) * sizeof *u);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = i; j < k; j++) {
            double sum = a[i * k + j];
            for (int64_t p = 0; p < i; p++)
                sum -= u[p * k + i] * u[p * k + j];
            u[i * k + j] = i == j ? sqrt(sum) : sum / u[i * k + i];
        }
}

/* Eight rounds of every weight that stays to its optimum for the others, from the definition. */
UNWATCHED static void reference_refit(double *w, const float *before, const double *h, int64_t k)
{
    for (int sweep = 0; sweep < 8; sweep++)
        for (int64_t j = 0; j < k; j++) {
            double gradient = 0.0;
            for (int64_t c = 0; c < k && w[j] != 0.0; c++)
                gradient += (w[c] - (double)before[c]) * h[c * k + j];
            if (w[j] != 0.0) w[j] -= gradient / h[j * k + j];
        }
}

UNWATCHED static void reference_sparsegpt(float *w32, int64_t n, int64_t k, const double *gram,
                                          double dampening)
{
    size_t square = (size_t)(k * k) * sizeof(double);
    double *h = malloc(square), *inverse = malloc(square), *u = malloc(square);
    double *dampened = malloc(square), *w = malloc((size_t)(n * k) * sizeof *w), mean = 0.0;
    int64_t alive = 0;
    memcpy(h, gram, square);
    for (int64_t i = 0; i < n * k; i++)
        w[i] = (double)w32[i];
    for (int64_t j = 0; j < k; j++) {
        mean += h[j * k + j];
        alive += h[j * k + j] > 0.0;
    }
    mean = alive ? mean / (double)alive : 1.0;
    for (int64_t j = 0; j < k; j++) {
        int dead = h[j * k + j] == 0.0;
        for (int64_t r = 0; r < n && dead; r++)
            w[r * k + j] = 0.0;
        h[j * k + j] += (dead ? mean : 0.0) + dampening * mean;
    }
    memcpy(dampened, h, square);
    gauss_jordan(inverse, h, k);
    upper_cholesky(u, inverse, k);
    for (int64_t r = 0; r < n; r++) {
        int keep[4] = {0};
        for (int64_t j = 0; j < k; j++) {
            double score[4];
            for (int64_t i = 0; i < 4 && j % 4 == 0; i++)
                score[i] = pow(w[r * k + j + i] / u[(j + i) * k + j + i], 2.0);
            if (j % 4 == 0) reference_keep(keep, score);
            if (keep[j % 4]) continue;
            double error = w[r * k + j] / u[j * k + j];
            for (int64_t c = j; c < k; c++)
                w[r * k + c] -= error * u[j * k + c];
            w[r * k + j] = 0.0;
        }
        reference_refit(w + r * k, w32 + r * k, dampened, k);
    }
    for (int64_t i = 0; i < n * k; i++)
        w32[i] = (float)w[i];
    free(dampened);
    free(w);
    free(u);
    free(inverse);
    free(h);
}

UNWATCHED static double reference_energy(const float *d, int64_t n, int64_t k, const double *h)
{
    double sum = 0.0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++)
                sum += (double)d[r * k + i] * h[i * k + j] * (double)d[r * k + j];
    return sum;
}

/* Tile by tile; the rules themselves are test_tile's. */
static void reference_tiles(float *w, int64_t n, int64_t k, const char *criterion)
{
    static const char *const names[] = {"tile-best", "tile-greedy", "tile-signed",
                                        "tile-causal1122"};
    int rule = 0;
    while (strcmp(names[rule], criterion))
        rule++;
    for (int64_t r = 0; r < n; r += 4)
        for (int64_t c = 0; c < k; c += 4) {
            float tile[16] = {0};
            int rows = n - r < 4 ? (int)(n - r) : 4;
            for (int i = 0; i < 4 * rows; i++)
                tile[i] = w[(r + i / 4) * k + c + i % 4];
            const s24_select select = (s24_select)(S24_SELECT_TILE_BEST + rule);
            unsigned keep = s24i_tile_rule_find(select)->mask(tile, rows);
            for (int i = 0; i < 4 * rows; i++)
                if (!(keep >> i & 1)) w[(r + i / 4) * k + c + i % 4] = 0.0f;
        }
}

/* 0: there is no reference, the properties are all that is held against the criterion. */
static int reference_prune(float *w, int64_t n, int64_t k, const double *h, const char *criterion)
{
    if (!strncmp(criterion, "tile-", 5))
        reference_tiles(w, n, k, criterion);
    else if (!strcmp(criterion, "sparsegpt"))
        reference_sparsegpt(w, n, k, h, 0.01);
    else if (!strcmp(criterion, "magnitude") || !strcmp(criterion, "wanda"))
        reference_by_score(w, n, k, strcmp(criterion, "wanda") ? NULL : h);
    else
        return 0;
    return 1;
}

static void assert_two_four(const float *w, int64_t n, int64_t k)
{
    for (int64_t g = 0; g < n * k; g += 4) {
        int nonzeros = 0;
        for (int i = 0; i < 4; i++)
            nonzeros += w[g + i] != 0.0f;
        if (nonzeros > 2) fail_msg("group %lld has %d non-zeros", (long long)g / 4, nonzeros);
    }
}

/* Same places, and values within `tolerance` of the largest weight. */
static void assert_close(const float *w, const float *expected, int64_t count, double tolerance)
{
    double largest = 0.0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)w[i] - (double)expected[i]);
        if ((w[i] != 0.0f) != (expected[i] != 0.0f) || !(error <= tolerance * largest))
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, (double)w[i],
                     (double)expected[i]);
    }
}

/* ---- the criteria ---------------------------------------------------------------------------- */

static void check_shape(s24_ctx *ctx, const char *criterion, int64_t n, int64_t k, int64_t tokens)
{
    float *x = correlated_inputs(tokens, k, (uint64_t)(k * 31 + n));
    float *before = random_floats(n * k, (uint64_t)(n * 17 + k));
    float *w = malloc((size_t)(n * k) * sizeof *w), *expected = malloc((size_t)(n * k) * sizeof *w);
    double *h = reference_gram(x, tokens, k);
    s24_stats *stats = stats_of(ctx, x, tokens, k);
    memcpy(w, before, (size_t)(n * k) * sizeof *w);
    memcpy(expected, before, (size_t)(n * k) * sizeof *w);
    s24_dense weight = view(w, n, k);
    s24_prune_opts opts = {
        .size = sizeof opts, .criterion = criterion, .gradients = made_gradients()};
    s24_prune_report report;
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_OK);
    assert_two_four(w, n, k);
    if (reference_prune(expected, n, k, h, criterion))
        assert_close(w, expected, n * k, strcmp(criterion, "sparsegpt") ? 0.0 : 2e-5);

    double kept = 0.0, whole = 0.0;
    for (int64_t i = 0; i < n * k; i++) {
        whole += fabs((double)before[i]);
        kept += fabs((double)w[i]);
    }
    assert_true(fabs(report.kept_l1 - kept / whole) <= 1e-12);
    double energy = reference_energy(before, n, k, h);
    for (int64_t i = 0; i < n * k; i++)
        before[i] -= w[i];
    double error = reference_energy(before, n, k, h) / energy;
    assert_true(fabs(report.output_error - error) <= 1e-5 * error + 1e-7);
    s24_stats_destroy(stats);
    free(h);
    free(expected);
    free(w);
    free(before);
    free(x);
}

static void every_criterion_equals_its_reference(void **state)
{
    static const int64_t shapes[][3] = {/* n, k, tokens */
                                        {1, 4, 1},    {1, 4, 9},     {5, 12, 40},   {3, 132, 300},
                                        {1, 260, 70}, {33, 64, 257}, {7, 128, 513}, {16, 196, 150}};
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        s24_ctx *ctx = make_ctx(levels[l], 2);
        for (int c = 0; s24_criterion_name(c); c++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                check_shape(ctx, s24_criterion_name(c), shapes[s][0], shapes[s][1], shapes[s][2]);
        s24_ctx_destroy(ctx);
    }
}

static void the_table_names_its_criteria(void **state)
{
    (void)state;
    assert_string_equal(s24_criterion_name(0), "magnitude");
    assert_string_equal(s24_criterion_name(1), "wanda");
    assert_string_equal(s24_criterion_name(2), "sparsegpt");
    int count = 0;
    for (const char *name; (name = s24_criterion_name(count)); count++)
        for (int other = 0; other < count; other++)
            assert_string_not_equal(name, s24_criterion_name(other));
    assert_int_equal(s24_criterion_needs_stats(s24_criterion_name(count - 1)), 0);
    assert_null(s24_criterion_name(-1));
    assert_int_equal(s24_criterion_needs_stats("magnitude"), 0);
    assert_int_equal(s24_criterion_needs_stats("wanda"), 1);
    assert_int_equal(s24_criterion_needs_stats("sparsegpt"), 1);
    assert_int_equal(s24_criterion_needs_stats("obs"), -1);
    assert_int_equal(s24_criterion_needs_stats(NULL), -1);
    assert_int_equal(s24_criterion_needs_stats("snip"), 0);
    assert_int_equal(s24_criterion_needs_gradients("snip"), 1);
    assert_int_equal(s24_criterion_needs_gradients("wanda"), 0);
    assert_int_equal(s24_criterion_needs_gradients("obs"), -1);
}

static void ties_keep_the_higher_columns(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    float w[] = {1, -1, 1, -1, 2, 1, 1, 1, -0.0f, 0, 0.0f, 3, 1, 5, -5, 1, -0.0f, -0.0f, 7, 8};
    const float expected[] = {0, 0, 1, -1, 2, 0, 0, 1, 0, 0, 0, 3, 0, 5, -5, 0, 0, 0, 7, 8};
    s24_dense weight = view(w, 1, 20);
    s24_prune_report report;
    assert_int_equal(s24_prune(&report, ctx, &weight, NULL, NULL), S24_OK);
    for (int i = 0; i < 20; i++)
        assert_true(w[i] == expected[i]);
    assert_true(report.output_error == -1.0);
    assert_true(fabs(report.kept_l1 - 33.0 / 39.0) < 1e-12);
    s24_ctx_destroy(ctx);
}

static void a_zero_weight_stays_zero(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    float *x = correlated_inputs(20, 8, 3);
    s24_stats *stats = stats_of(ctx, x, 20, 8);
    for (int c = 0; s24_criterion_name(c); c++) {
        float w[16] = {0};
        s24_dense weight = view(w, 2, 8);
        s24_prune_opts opts = {
            .size = sizeof opts, .criterion = s24_criterion_name(c), .gradients = made_gradients()};
        s24_prune_report report;
        assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_OK);
        for (int i = 0; i < 16; i++)
            assert_true(w[i] == 0.0f);
        assert_true(report.kept_l1 == 1.0 && report.output_error == 0.0);
    }
    s24_stats_destroy(stats);
    free(x);
    s24_ctx_destroy(ctx);
}

static void dead_columns_are_dropped_first(void **state)
{
    enum { N = 6, K = 16, TOKENS = 50 };
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    float *x = correlated_inputs(TOKENS, K, 5);
    for (int t = 0; t < TOKENS; t++) {
        x[t * K + 3] = x[t * K + 8] = x[t * K + 9] = x[t * K + 10] = 0.0f;
        for (int j = 12; j < 16; j++)
            x[t * K + j] = 0.0f;
    }
    double *h = reference_gram(x, TOKENS, K);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    for (int c = 1; c <= 2; c++) { /* wanda, sparsegpt */
        float *w = random_floats(N * K, 8), *expected = random_floats(N * K, 8);
        s24_dense weight = view(w, N, K);
        s24_prune_opts opts = {.size = sizeof opts, .criterion = s24_criterion_name(c)};
        assert_int_equal(s24_prune(NULL, ctx, &weight, stats, &opts), S24_OK);
        reference_prune(expected, N, K, h, opts.criterion);
        assert_close(w, expected, N * K, 2e-5);
        for (int r = 0; r < N; r++) {
            assert_true(w[r * K + 3] == 0.0f);
            assert_true(w[r * K + 11] != 0.0f); /* the only living one of its group */
            assert_true(c == 1 || w[r * K + 15] == 0.0f);
        }
        free(w);
        free(expected);
    }
    s24_stats_destroy(stats);
    free(h);
    free(x);
    s24_ctx_destroy(ctx);
}

/* Fewer inputs than columns: only the dampening makes the Gram matrix definite. */
static void low_rank_inputs_need_their_dampening(void **state)
{
    enum { N = 4, K = 132, TOKENS = 11 };
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    float *x = random_floats(TOKENS * K, 12), *w = random_floats(N * K, 13);
    float *before = random_floats(N * K, 13), *expected = random_floats(N * K, 13);
    double *h = reference_gram(x, TOKENS, K);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    s24_dense weight = view(w, N, K);
    s24_prune_opts opts = {.size = sizeof opts, .criterion = "sparsegpt", .dampening = 1e-300};
    s24_prune_report report = {7.0, 7.0};
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_ERROR_NUMERIC);
    assert_non_null(strstr(s24_ctx_error(ctx), "no Cholesky factor"));
    assert_non_null(strstr(s24_ctx_error(ctx), "of 132"));
    assert_memory_equal(w, before, N * K * sizeof *w);
    assert_true(report.kept_l1 == 7.0 && report.output_error == 7.0);
    opts.dampening = 0.0;
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_OK);
    reference_sparsegpt(expected, N, K, h, 0.01);
    assert_close(w, expected, N * K, 2e-5);
    s24_stats_destroy(stats);
    free(h);
    free(expected);
    free(before);
    free(w);
    free(x);
    s24_ctx_destroy(ctx);
}

static void blocks_change_the_order_not_the_result(void **state)
{
    enum { N = 9, K = 300, TOKENS = 600 };
    static const int blocks[] = {4, 8, 60, 128, 300, 4096};
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    float *x = correlated_inputs(TOKENS, K, 21), *expected = random_floats(N * K, 22);
    double *h = reference_gram(x, TOKENS, K);
    s24_stats *stats = stats_of(ctx, x, TOKENS, K);
    reference_sparsegpt(expected, N, K, h, 0.05);
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        float *w = random_floats(N * K, 22);
        s24_dense weight = view(w, N, K);
        s24_prune_opts opts = {
            .size = sizeof opts, .criterion = "sparsegpt", .dampening = 0.05, .block = blocks[b]};
        assert_int_equal(s24_prune(NULL, ctx, &weight, stats, &opts), S24_OK);
        assert_close(w, expected, N * K, 2e-5);
        free(w);
    }
    s24_stats_destroy(stats);
    free(h);
    free(expected);
    free(x);
    s24_ctx_destroy(ctx);
}

static void thread_counts_give_the_same_bits_of(const char *criterion)
{
    enum { N = 40, K = 320, TOKENS = 400 };
    float *x = correlated_inputs(TOKENS, K, 31), *first = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
        s24_ctx *ctx = make_ctx(NULL, threads);
        s24_stats *stats = stats_of(ctx, x, TOKENS, K);
        float *w = random_floats(N * K, 32);
        s24_dense weight = view(w, N, K);
        s24_prune_opts opts = {
            .size = sizeof opts, .criterion = criterion, .gradients = made_gradients()};
        assert_int_equal(s24_prune(NULL, ctx, &weight, stats, &opts), S24_OK);
        if (first) assert_memory_equal(w, first, N * K * sizeof *w);
        if (first)
            free(w);
        else
            first = w;
        s24_stats_destroy(stats);
        s24_ctx_destroy(ctx);
    }
    free(first);
    free(x);
}

static void thread_counts_give_the_same_bits(void **state)
{
    (void)state;
    for (int c = 0; s24_criterion_name(c); c++)
        thread_counts_give_the_same_bits_of(s24_criterion_name(c));
}

static void only_the_view_is_written(void **state)
{
    enum { N = 3, K = 8, LD = 11 };
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    float w[N * LD];
    for (int i = 0; i < N * LD; i++)
        w[i] = (float)(i + 1);
    s24_dense weight = {w, S24_F32, N, K, LD};
    assert_int_equal(s24_prune(NULL, ctx, &weight, NULL, NULL), S24_OK);
    for (int i = 0; i < N * LD; i++) {
        int dropped = i % LD < K && i % LD % 4 < 2;
        assert_true(w[i] == (dropped ? 0.0f : (float)(i + 1)));
    }
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_criterion_equals_its_reference),
        cmocka_unit_test(the_table_names_its_criteria),
        cmocka_unit_test(ties_keep_the_higher_columns),
        cmocka_unit_test(a_zero_weight_stays_zero),
        cmocka_unit_test(dead_columns_are_dropped_first),
        cmocka_unit_test(low_rank_inputs_need_their_dampening),
        cmocka_unit_test(blocks_change_the_order_not_the_result),
        cmocka_unit_test(thread_counts_give_the_same_bits),
        cmocka_unit_test(only_the_view_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
