// SPDX-License-Identifier: Apache-2.0
/* Weights that aim at other outputs than their own: against elimination by hand in double, on all
   threads to the same bits, never worse on tokens that are held back, what is refused, and every
   allocation failing. */
#include "prune_support.h"

enum { N = 5, K = 12, TOKENS = 70, LD = K + 3 };
static const double DAMPENING = 0.02;

/* Inputs x, other inputs d, what is wanted beyond them r, and their sums. */
typedef struct task {
    int64_t tokens;
    float *x, *d, *r, *w; /* [TOKENS, K], [TOKENS, K], [TOKENS, N], [N, LD] */
    float cross[K * K], rest[N * K];
    double h[K * K];
    s24_stats *stats;
} task;

static void sum_up(float *to, const float *a, int64_t rows, const float *x, int64_t tokens)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < K; j++) {
            double sum = 0.0;
            for (int64_t t = 0; t < tokens; t++)
                sum += (double)a[t * rows + i] * (double)x[t * K + j];
            to[i * K + j] = (float)sum;
        }
}

/* w is the same for every seed; common: the share of what is wanted that inputs explain. */
static void make_tokens(task *t, s24_ctx *ctx, int64_t tokens, unsigned seed, float common)
{
    float *by = random_floats(N * K, 5);
    t->tokens = tokens;
    t->x = random_floats(tokens * K, seed);
    t->d = random_floats(tokens * K, seed + 1);
    t->r = random_floats(tokens * N, seed + 2);
    t->w = random_floats(N * LD, 4);
    for (int64_t i = 0; i < tokens * K; i++)
        t->d[i] = t->x[i] + 0.3f * t->d[i];
    for (int64_t i = 0; i < tokens * N; i++) {
        t->r[i] *= 1.0f - common;
        for (int64_t c = 0; c < K; c++)
            t->r[i] += common * by[i % N * K + c] * t->x[i / N * K + c];
    }
    free(by);
    sum_up(t->cross, t->d, K, t->x, tokens);
    sum_up(t->rest, t->r, N, t->x, tokens);
    const s24_dense x = {t->x, S24_F32, tokens, K, 0};
    assert_int_equal(s24_stats_create(&t->stats, ctx, K), S24_OK);
    assert_int_equal(s24_stats_add(t->stats, ctx, &x), S24_OK);
    for (int64_t i = 0; i < K * K; i++)
        t->h[i] = t->stats->gram[i % K > i / K ? i % K * K + i / K : i];
}

static void make_task(task *t, s24_ctx *ctx)
{
    make_tokens(t, ctx, TOKENS, 1, 0.0f);
}

static void free_task(task *t)
{
    s24_stats_destroy(t->stats);
    free(t->w);
    free(t->r);
    free(t->d);
    free(t->x);
}

/* x of x·a = b, a [K, K] symmetric and definite, by elimination; a and b are lost. */
static void solve(double *b, double *a)
{
    for (int64_t p = 0; p < K; p++)
        for (int64_t i = 0; i < K; i++) {
            const double factor = a[i * K + p] / a[p * K + p];
            for (int64_t j = p; j < K && i != p; j++)
                a[i * K + j] -= factor * a[p * K + j];
            b[i] -= i != p ? factor * b[p] : 0.0;
        }
    for (int64_t i = 0; i < K; i++)
        b[i] /= a[i * K + i];
}

static void by_hand(double *w, const task *t, const float *cross, const float *rest)
{
    double mean = 0.0;
    for (int64_t i = 0; i < K; i++)
        mean += t->h[i * K + i] / K;
    for (int64_t row = 0; row < N; row++) {
        double a[K * K], b[K];
        memcpy(a, t->h, sizeof a);
        for (int64_t i = 0; i < K; i++)
            a[i * K + i] += DAMPENING * mean;
        for (int64_t j = 0; j < K; j++) {
            b[j] = rest ? (double)rest[row * K + j] : 0.0;
            for (int64_t i = 0; cross && i < K; i++)
                b[j] += (double)t->w[row * LD + i] * ((double)cross[i * K + j] - t->h[i * K + j]);
        }
        solve(b, a);
        for (int64_t j = 0; j < K; j++)
            w[row * K + j] = (double)t->w[row * LD + j] + b[j];
    }
}

/* Σ (w·x − before·d − r)² */
static double distance(const task *t, const float *w)
{
    double sum = 0.0;
    for (int64_t token = 0; token < t->tokens; token++)
        for (int64_t row = 0; row < N; row++) {
            double off = -(double)t->r[token * N + row];
            for (int64_t i = 0; i < K; i++)
                off += (double)w[row * LD + i] * (double)t->x[token * K + i] -
                       (double)t->w[row * LD + i] * (double)t->d[token * K + i];
            sum += off * off;
        }
    return sum;
}

static void aim(float *w, s24_ctx *ctx, const task *t, int with_cross, int with_rest)
{
    float *cross = (float *)(uintptr_t)t->cross, *rest = (float *)(uintptr_t)t->rest;
    const s24_dense weight = {w, S24_F32, N, K, LD}, c = {cross, S24_F32, K, K, 0},
                    r = {rest, S24_F32, N, K, K};
    memcpy(w, t->w, N * LD * sizeof *w);
    const s24_aim by = {t->stats, with_cross ? &c : NULL, with_rest ? &r : NULL};
    double share = -1.0;
    const s24_status status = s24_prune_aim(&share, ctx, &weight, &by, NULL, DAMPENING);
    assert_true(share == 1.0);
    if (status != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
}

static void weights_are_those_by_hand(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        s24_ctx *one = make_ctx(levels[level], 1), *two = make_ctx(levels[level], 2);
        task t;
        make_task(&t, one);
        for (int way = 0; way < 4; way++) {
            const int with_cross = way & 1, with_rest = way >> 1;
            float w[N * LD], again[N * LD];
            double expected[N * K];
            aim(w, one, &t, with_cross, with_rest);
            aim(again, two, &t, with_cross, with_rest);
            assert_memory_equal(w, again, sizeof w);
            by_hand(expected, &t, with_cross ? t.cross : NULL, with_rest ? t.rest : NULL);
            for (int64_t i = 0; i < N * LD; i++) {
                const int64_t row = i / LD, col = i % LD;
                const double by = col < K ? expected[row * K + col] : (double)t.w[i];
                if (!(fabs((double)w[i] - by) <= 1e-6))
                    fail_msg("way %d: element %lld is %g, by hand %g", way, (long long)i,
                             (double)w[i], by);
            }
            if (!way) assert_memory_equal(w, t.w, sizeof w);
            if (way == 3) assert_true(distance(&t, w) < 0.9 * distance(&t, t.w));
        }
        free_task(&t);
        s24_ctx_destroy(two);
        s24_ctx_destroy(one);
    }
}

/* The share that is taken of the aim by t, with other tokens held back; w becomes what it gives. */
static double aim_held(float *w, s24_ctx *ctx, task *t, task *other, double sign)
{
    double share = -1.0;
    float rest[N * K], cross[K * K];
    for (int64_t i = 0; i < N * K; i++)
        rest[i] = (float)sign * other->rest[i];
    for (int64_t i = 0; i < K * K; i++)
        cross[i] = (float)(other->h[i] + sign * ((double)other->cross[i] - other->h[i]));
    const s24_dense weight = {w, S24_F32, N, K, LD}, sums[] = {{t->cross, S24_F32, K, K, 0},
                                                               {t->rest, S24_F32, N, K, 0},
                                                               {cross, S24_F32, K, K, 0},
                                                               {rest, S24_F32, N, K, 0}};
    const s24_aim by = {t->stats, &sums[0], &sums[1]}, held = {other->stats, &sums[2], &sums[3]};
    memcpy(w, t->w, N * LD * sizeof *w);
    const s24_status status = s24_prune_aim(&share, ctx, &weight, &by, &held, DAMPENING);
    if (status != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    return share;
}

/* The tokens themselves want all of it, those that want the opposite nothing. */
static void what_is_held_back_says_how_far(void **state)
{
    s24_ctx *ctx = make_ctx(NULL, 1);
    float w[N * LD], whole[N * LD];
    task t;
    (void)state;
    make_task(&t, ctx);
    aim(whole, ctx, &t, 1, 1);
    assert_true(aim_held(w, ctx, &t, &t, 1.0) == 1.0);
    assert_memory_equal(w, whole, sizeof w);
    assert_true(aim_held(w, ctx, &t, &t, -1.0) == 0.0);
    assert_memory_equal(w, t.w, sizeof w);
    free_task(&t);
    s24_ctx_destroy(ctx);
}

/* From as many tokens as columns or fewer, of noise or of something to learn. */
static void no_aim_does_worse_on_what_is_held_back(void **state)
{
    static const float common[] = {0.0f, 0.2f, 0.9f};
    s24_ctx *ctx = make_ctx(NULL, 1);
    int moved = 0, worse = 0;
    (void)state;
    for (unsigned seed = 100; seed < 160; seed += 6)
        for (int64_t tokens = 3; tokens < 4 * K; tokens *= 2)
            for (int i = 0; i < 3; i++) {
                float w[N * LD], whole[N * LD];
                task t, other;
                make_tokens(&t, ctx, tokens, seed, common[i]);
                make_tokens(&other, ctx, 4 * K, seed + 3, common[i]);
                const double share = aim_held(w, ctx, &t, &other, 1.0);
                assert_true(share >= 0.0 && share <= 1.0);
                const double before = distance(&other, t.w);
                if (!(distance(&other, w) <= before * (1.0 + 1e-6)))
                    fail_msg("%lld tokens, seed %u, common %g: %g of %g", (long long)tokens, seed,
                             (double)common[i], distance(&other, w), before);
                moved += share > 0.0;
                aim(whole, ctx, &t, 1, 1);
                worse += distance(&other, whole) > before;
                free_task(&other);
                free_task(&t);
            }
    assert_true(moved > 20 && worse > 20); /* what is held back is of use */
    s24_ctx_destroy(ctx);
}

static void expect(s24_ctx *ctx, s24_status got, s24_status status, const char *part)
{
    assert_int_equal(got, status);
    if (!strstr(s24_ctx_error(ctx), part)) fail_msg("\"%s\" lacks %s", s24_ctx_error(ctx), part);
}

static void what_does_not_fit_is_refused(void **state)
{
    s24_ctx *ctx = make_ctx(NULL, 1);
    s24_stats *none;
    task t;
    (void)state;
    make_task(&t, ctx);
    float *before = malloc(N * LD * sizeof *before);
    memcpy(before, t.w, N * LD * sizeof *before);
    s24_dense w = {t.w, S24_F32, N, K, LD}, cross = {t.cross, S24_F32, K, K, 0},
              rest = {t.rest, S24_F32, N, K, 0};
    const s24_aim by = {t.stats, &cross, &rest}, blind = {NULL, &cross, &rest};
    assert_int_equal(s24_prune_aim(NULL, ctx, NULL, &by, NULL, 0), S24_ERROR_ARGUMENT);
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, -1), S24_ERROR_ARGUMENT, "dampening is -1");
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, &blind, 0), S24_ERROR_ARGUMENT, "stats are NULL");
    assert_int_equal(s24_stats_create(&none, ctx, K), S24_OK);
    const s24_aim unseen = {none, &cross, &rest};
    assert_int_not_equal(s24_prune_aim(NULL, ctx, &w, &unseen, NULL, 0), S24_OK);
    assert_int_not_equal(s24_prune_aim(NULL, ctx, &w, &by, &unseen, 0), S24_OK);
    s24_stats_destroy(none);
    cross.rows = K - 1;
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, 0), S24_ERROR_SHAPE,
           "[11, 12]; expected [12, 12]");
    cross.rows = K;
    rest.rows = N + 1;
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, 0), S24_ERROR_SHAPE,
           "[6, 12]; expected [5, 12]");
    rest.rows = N;
    rest.dtype = S24_F16;
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, 0), S24_ERROR_DTYPE, "f16");
    rest.dtype = S24_F32;
    w.dtype = S24_BF16;
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, 0), S24_ERROR_DTYPE, "bf16");
    w.dtype = S24_F32;
    t.rest[2 * K + 7] = NAN;
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by, NULL, 0), S24_ERROR_NOT_FINITE,
           "row 2, column 7");
    t.rest[2 * K + 7] = 0.0f;
    for (int64_t i = 0; i < K; i++)
        t.rest[K + i] = 3e38f;
    for (int64_t i = 0; i < K * K; i++)
        t.stats->gram[i] *= 1e-6;
    const s24_aim by_rest = {t.stats, NULL, &rest};
    expect(ctx, s24_prune_aim(NULL, ctx, &w, &by_rest, NULL, 0), S24_ERROR_NUMERIC, "beyond f32");
    assert_memory_equal(t.w, before, N * LD * sizeof *before);
    free(before);
    free_task(&t);
    s24_ctx_destroy(ctx);
}

static void every_allocation_may_fail(void **state)
{
    failing f = {.left = -1};
    const s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
    s24_ctx *ctx;
    task t;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    make_task(&t, ctx);
    const s24_dense cross = {t.cross, S24_F32, K, K, 0}, rest = {t.rest, S24_F32, N, K, 0};
    const s24_aim by = {t.stats, &cross, &rest};
    const int64_t live = f.live;
    s24_status status = S24_ERROR_MEMORY;
    int allowed = 0;
    for (; status != S24_OK; allowed++) {
        float w[N * LD];
        const s24_dense weight = {w, S24_F32, N, K, LD};
        memcpy(w, t.w, sizeof w);
        f.left = allowed;
        status = s24_prune_aim(NULL, ctx, &weight, &by, &by, 0);
        if (status != S24_OK) {
            expect(ctx, status, S24_ERROR_MEMORY, "out of memory");
            assert_memory_equal(w, t.w, sizeof w);
        }
        assert_int_equal(f.live, live);
    }
    assert_true(allowed > 9);
    f.left = -1;
    free_task(&t);
    s24_ctx_destroy(ctx);
    assert_int_equal(f.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_those_by_hand),
                                       cmocka_unit_test(what_is_held_back_says_how_far),
                                       cmocka_unit_test(no_aim_does_worse_on_what_is_held_back),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
