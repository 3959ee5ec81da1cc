// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning against a plain float64 reference written from the definitions: no blocks, no threads,
 * the inverse by Gauss-Jordan. Every CPU level and several thread counts, odd shapes, dead columns,
 * inputs of low rank, and every way to be refused.
 */
#include "support.h"

#include <math.h>

#include "prune/product_tiles.h"
#include "prune/prune.h"

/* ---- contexts that count and fail ------------------------------------------------------------ */

typedef struct failing {
    int64_t live;
    int left; /* allocations that still succeed; negative: all */
} failing;

static void *failing_alloc(void *user, size_t bytes, size_t alignment)
{
    failing *f = user;
    if (f->left == 0) return NULL;
    if (f->left > 0) f->left--;
    f->live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void failing_free(void *user, void *memory, size_t bytes)
{
    (void)bytes;
    ((failing *)user)->live--;
    free(memory);
}

static s24_ctx *make_ctx(const char *cpu, int threads)
{
    s24_ctx *ctx;
    s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = cpu ? s24_cpu_parse(cpu) : 0};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static const char *const levels[] = {"baseline", "avx2", "avx512"};
enum { LEVELS = sizeof levels / sizeof *levels };

/* ---- data ------------------------------------------------------------------------------------ */

static float *random_floats(int64_t count, uint64_t seed)
{
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = test_uniform(&seed);
    return values;
}

/* Inputs whose columns lean on each other and differ in size, as a network's do. */
static float *correlated_inputs(int64_t tokens, int64_t k, uint64_t seed)
{
    float *x = random_floats(tokens * k, seed);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 1; j < k; j++)
            x[t * k + j] =
                0.8f * x[t * k + j - 1] + 0.6f * x[t * k + j] * (1.0f + (float)(j * 7 % 5) * 0.5f);
    return x;
}

static s24_dense view(float *data, int64_t rows, int64_t cols)
{
    return (s24_dense){data, S24_F32, rows, cols, 0};
}

static s24_stats *stats_of(s24_ctx *ctx, float *x, int64_t tokens, int64_t k)
{
    s24_stats *stats;
    s24_dense inputs = view(x, tokens, k);
    assert_int_equal(s24_stats_create(&stats, ctx, k), S24_OK);
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_OK);
    return stats;
}

/* ---- the reference --------------------------------------------------------------------------- */

static double *reference_gram(const float *x, int64_t tokens, int64_t k)
{
    double *h = calloc((size_t)(k * k), sizeof *h);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++)
                h[i * k + j] += (double)x[t * k + i] * (double)x[t * k + j];
    return h;
}

/* Keeps the two that sort first by score, then by higher index. */
static void reference_keep(int keep[4], const double score[4])
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

static void reference_by_score(float *w, int64_t n, int64_t k, const double *h)
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

static void gauss_jordan(double *out, double *a, int64_t k)
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
static void upper_cholesky(double *u, const double *a, int64_t k)
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
static void reference_refit(double *w, const float *before, const double *h, int64_t k)
{
    for (int sweep = 0; sweep < 8; sweep++)
        for (int64_t j = 0; j < k; j++) {
            double gradient = 0.0;
            for (int64_t c = 0; c < k && w[j] != 0.0; c++)
                gradient += (w[c] - (double)before[c]) * h[c * k + j];
            if (w[j] != 0.0) w[j] -= gradient / h[j * k + j];
        }
}

static void reference_sparsegpt(float *w32, int64_t n, int64_t k, const double *gram,
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

static double reference_energy(const float *d, int64_t n, int64_t k, const double *h)
{
    double sum = 0.0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < k; j++)
                sum += (double)d[r * k + i] * h[i * k + j] * (double)d[r * k + j];
    return sum;
}

static void reference_prune(float *w, int64_t n, int64_t k, const double *h, const char *criterion)
{
    if (!strcmp(criterion, "sparsegpt"))
        reference_sparsegpt(w, n, k, h, 0.01);
    else
        reference_by_score(w, n, k, strcmp(criterion, "wanda") ? NULL : h);
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
    s24_prune_opts opts = {.size = sizeof opts, .criterion = criterion};
    s24_prune_report report;
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_OK);
    reference_prune(expected, n, k, h, criterion);
    assert_two_four(w, n, k);
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
    assert_null(s24_criterion_name(3));
    assert_null(s24_criterion_name(-1));
    assert_int_equal(s24_criterion_needs_stats("magnitude"), 0);
    assert_int_equal(s24_criterion_needs_stats("wanda"), 1);
    assert_int_equal(s24_criterion_needs_stats("sparsegpt"), 1);
    assert_int_equal(s24_criterion_needs_stats("obs"), -1);
    assert_int_equal(s24_criterion_needs_stats(NULL), -1);
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
        s24_prune_opts opts = {.size = sizeof opts, .criterion = s24_criterion_name(c)};
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
    for (int c = 1; s24_criterion_name(c); c++) {
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

static void thread_counts_give_the_same_bits(void **state)
{
    enum { N = 40, K = 640, TOKENS = 700 };
    (void)state;
    float *x = correlated_inputs(TOKENS, K, 31), *first = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
        s24_ctx *ctx = make_ctx(NULL, threads);
        s24_stats *stats = stats_of(ctx, x, TOKENS, K);
        float *w = random_floats(N * K, 32);
        s24_dense weight = view(w, N, K);
        s24_prune_opts opts = {.size = sizeof opts, .criterion = "sparsegpt"};
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

/* One allocation after another fails; each time the call says so, and nothing changes or leaks. */
static void every_allocation_may_fail(void **state)
{
    enum { N = 5, K = 132, TOKENS = 40 };
    (void)state;
    float *x = correlated_inputs(TOKENS, K, 71), *before = random_floats(N * K, 72);
    failing f = {.left = -1};
    s24_ctx *ctx;
    s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 2};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    s24_dense inputs = view(x, TOKENS, K);
    int64_t base = f.live;
    for (int c = 0; s24_criterion_name(c); c++) {
        s24_status status = S24_ERROR_MEMORY;
        int allowed = 0;
        for (; status != S24_OK; allowed++) {
            float *w = random_floats(N * K, 72);
            s24_dense weight = view(w, N, K);
            s24_prune_opts prune = {.size = sizeof prune, .criterion = s24_criterion_name(c)};
            s24_prune_report report;
            s24_stats *stats = NULL;
            f.left = allowed;
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

/* ---- the linear algebra ---------------------------------------------------------------------- */

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
        cmocka_unit_test(every_criterion_equals_its_reference),
        cmocka_unit_test(the_table_names_its_criteria),
        cmocka_unit_test(ties_keep_the_higher_columns),
        cmocka_unit_test(a_zero_weight_stays_zero),
        cmocka_unit_test(dead_columns_are_dropped_first),
        cmocka_unit_test(low_rank_inputs_need_their_dampening),
        cmocka_unit_test(blocks_change_the_order_not_the_result),
        cmocka_unit_test(thread_counts_give_the_same_bits),
        cmocka_unit_test(only_the_view_is_written),
        cmocka_unit_test(calls_add_up),
        cmocka_unit_test(statistics_outlive_their_context),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(bad_weights_and_options_are_refused),
        cmocka_unit_test(inputs_whose_squares_overflow_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(products_equal_plain_sums),
        cmocka_unit_test(tiles_fit_their_limits),
        cmocka_unit_test(the_factor_inverts),
        cmocka_unit_test(a_factor_that_fails_names_its_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
