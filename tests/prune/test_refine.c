// SPDX-License-Identifier: Apache-2.0
/*
 * Refinements after every criterion, row by row of both tables: the weight stays 2:4, the dampened
 * output error never grows, and what each promises holds: after swaps no group is better chosen
 * otherwise, after least squares the weights that stay are at their optimum.
 */
#include "prune_support.h"

typedef struct layer {
    int64_t n, k;
    float *before, *w;
    double *h; /* dampened, whole */
    s24_stats *stats;
    float *x;
} layer;

static layer make_layer(s24_ctx *ctx, int64_t n, int64_t k, int64_t tokens)
{
    layer l = {.n = n, .k = k};
    l.x = correlated_inputs(tokens, k, (uint64_t)(k * 3 + n));
    for (int64_t t = 0; t < tokens && k > 4; t++)
        l.x[t * k + 5] = 0.0f; /* a dead column */
    l.before = random_floats(n * k, (uint64_t)(n * 7 + k));
    l.w = malloc((size_t)(n * k) * sizeof *l.w);
    l.stats = stats_of(ctx, l.x, tokens, k);
    l.h = malloc((size_t)(k * k) * sizeof *l.h);
    s24i_gram_dampen(ctx, l.h, l.stats, 0.01);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < i; j++)
            l.h[j * k + i] = l.h[i * k + j];
    for (int64_t r = 0; r < n && k > 4; r++)
        l.before[r * k + 5] = 0.0f;
    return l;
}

static void free_layer(layer *l)
{
    s24_stats_destroy(l->stats);
    free(l->x);
    free(l->h);
    free(l->w);
    free(l->before);
}

static void prune_to(const layer *l, s24_ctx *ctx, const char *criterion, const char *refine,
                     const char *pattern)
{
    s24_dense weight = view(l->w, l->n, l->k);
    const s24_prune_opts opts = {.size = sizeof opts,
                                 .criterion = criterion,
                                 .refine = refine,
                                 .pattern = pattern,
                                 .gradients = made_gradients()};
    memcpy(l->w, l->before, (size_t)(l->n * l->k) * sizeof *l->w);
    assert_int_equal(s24_prune(NULL, ctx, &weight, l->stats, &opts), S24_OK);
}

static void prune(const layer *l, s24_ctx *ctx, const char *criterion, const char *refine)
{
    prune_to(l, ctx, criterion, refine, NULL);
}

/* (w − before)·H of a row, column j */
static double gradient(const layer *l, const float *w, int64_t row, int64_t j)
{
    double sum = 0.0;
    for (int64_t i = 0; i < l->k; i++)
        sum += ((double)w[row * l->k + i] - (double)l->before[row * l->k + i]) * l->h[i * l->k + j];
    return sum;
}

static double loss(const layer *l)
{
    double sum = 0.0;
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t j = 0; j < l->k; j++)
            sum += gradient(l, l->w, r, j) *
                   ((double)l->w[r * l->k + j] - (double)l->before[r * l->k + j]);
    return sum;
}

static void assert_two_four(const layer *l)
{
    for (int64_t g = 0; g < l->n * l->k; g += 4) {
        int nonzeros = 0;
        for (int i = 0; i < 4; i++)
            nonzeros += l->w[g + i] != 0.0f;
        assert_true(nonzeros <= 2);
    }
}

static void no_refinement_raises_its_objective(void **state)
{
    static const int64_t shapes[][3] = {
        {1, 4, 9}, {5, 12, 40}, {3, 132, 300}, {33, 64, 257}, {4, 260, 90}};
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        s24_ctx *ctx = make_ctx(levels[level], 2);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            layer l = make_layer(ctx, shapes[s][0], shapes[s][1], shapes[s][2]);
            for (int c = 0; s24_criterion_name(c); c++) {
                prune(&l, ctx, s24_criterion_name(c), NULL);
                const double start = loss(&l);
                for (int i = 0; s24_refinement_name(i); i++) {
                    prune(&l, ctx, s24_criterion_name(c), s24_refinement_name(i));
                    assert_two_four(&l);
                    if (!(loss(&l) <= start * (1.0 + 1e-6)))
                        fail_msg("%s after %s raises the loss of [%lld, %lld] from %g to %g",
                                 s24_refinement_name(i), s24_criterion_name(c), (long long)l.n,
                                 (long long)l.k, start, loss(&l));
                }
            }
            free_layer(&l);
        }
        s24_ctx_destroy(ctx);
    }
}

/* With everything else of the row as it is: what group g loses at most with a and b alone. */
static double pair_gain(const layer *l, int64_t row, int64_t g, int a, int b)
{
    float rest[4];
    float *w = l->w + row * l->k + g;
    memcpy(rest, w, sizeof rest);
    memset(w, 0, sizeof rest);
    const double ca = gradient(l, l->w, row, g + a), cb = gradient(l, l->w, row, g + b);
    memcpy(w, rest, sizeof rest);
    const double *ha = l->h + (g + a) * l->k + g, *hb = l->h + (g + b) * l->k + g;
    const double det = ha[a] * hb[b] - ha[b] * ha[b];
    return (ca * ca * hb[b] - 2 * ca * cb * ha[b] + cb * cb * ha[a]) / det;
}

static void after_swaps_no_group_is_better_chosen_otherwise(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    layer l = make_layer(ctx, 9, 64, 300);
    prune(&l, ctx, "magnitude", "swaps");
    for (int64_t r = 0; r < l.n; r++)
        for (int64_t g = 0; g < l.k; g += 4) {
            double best = 0.0, now = 0.0;
            for (int a = 0; a < 3; a++)
                for (int b = a + 1; b < 4; b++) {
                    const double gain = pair_gain(&l, r, g, a, b);
                    int holds = 1;
                    for (int i = 0; i < 4; i++)
                        holds &= i == a || i == b || l.w[r * l.k + g + i] == 0.0f;
                    best = fmax(best, gain);
                    now = holds ? fmax(now, gain) : now;
                }
            assert_true(now >= best * (1.0 - 1e-4));
        }
    free_layer(&l);
    s24_ctx_destroy(ctx);
}

/* ---- swaps of other patterns ----------------------------------------------------------------- */

static const char *const singles[] = {
    "1:2", "1:4", "3:8", "4:8", "6:8", "5:16", "unstructured:0.5", "unstructured:0.8"};
enum { SINGLES = sizeof singles / sizeof *singles };

/* Columns that are chosen together. */
static int64_t chosen_together(const layer *l, const char *pattern)
{
    const int64_t group = s24_pattern_group(pattern);
    return group > 1 ? group : l->k;
}

static int kept_of(const float *w, int64_t count)
{
    int kept = 0;
    for (int64_t i = 0; i < count; i++)
        kept += w[i] != 0.0f;
    return kept;
}

/* N:M keeps N of each M, and a row of a share as many as it had; no error grows. */
static void pairs_keep_the_number_of_weights(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    layer l = make_layer(ctx, 9, 64, 300);
    int counts[9 * 32];
    for (int p = 0; p < SINGLES; p++)
        for (int c = 0; c < 5; c++) {
            const int64_t group = chosen_together(&l, singles[p]);
            prune_to(&l, ctx, s24_criterion_name(c), NULL, singles[p]);
            const double start = loss(&l);
            for (int64_t g = 0; g < l.n * l.k; g += group)
                counts[g / group] = kept_of(l.w + g, group);
            prune_to(&l, ctx, s24_criterion_name(c), "swaps", singles[p]);
            for (int64_t g = 0; g < l.n * l.k; g += group)
                if (s24_pattern_group(singles[p]) > 1)
                    assert_true(kept_of(l.w + g, group) <= atoi(singles[p]));
                else
                    assert_int_equal(kept_of(l.w + g, group), counts[g / group]);
            if (!(loss(&l) <= start * (1.0 + 1e-6)))
                fail_msg("swaps to %s after %s raise the loss from %g to %g", singles[p],
                         s24_criterion_name(c), start, loss(&l));
            if (c < 2) assert_true(loss(&l) < 0.9 * start); /* one that moves no weights */
        }
    free_layer(&l);
    s24_ctx_destroy(ctx);
}

/* Of the row, with p at zero and q at its best. */
static double change_of_pair(const layer *l, int64_t row, int64_t p, int64_t q)
{
    const float w = l->w[row * l->k + p];
    const double own = l->h[q * l->k + q];
    const double toward = gradient(l, l->w, row, q) - (double)w * l->h[q * l->k + p];
    return (double)w * ((double)w * l->h[p * l->k + p] - 2.0 * gradient(l, l->w, row, p)) -
           toward * toward / own;
}

static void after_swaps_no_pair_is_better_exchanged(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 2);
    layer l = make_layer(ctx, 3, 64, 300);
    for (int i = 0; i < SINGLES; i++) {
        const int64_t group = chosen_together(&l, singles[i]);
        prune_to(&l, ctx, "wanda", "swaps", singles[i]);
        const double margin = 1e-5 * loss(&l) / (double)l.n;
        for (int64_t at = 0; at < l.n * l.k; at++)
            for (int64_t q = at / group * group; q < at / group * group + group; q++)
                if (l.w[at] != 0.0f && l.w[q] == 0.0f)
                    assert_true(change_of_pair(&l, at / l.k, at % l.k, q % l.k) >= -margin);
    }
    free_layer(&l);
    s24_ctx_destroy(ctx);
}

static void least_squares_are_at_their_optimum(void **state)
{
    (void)state;
    for (int level = 0; level < LEVELS; level++) {
        s24_ctx *ctx = make_ctx(levels[level], 3);
        layer l = make_layer(ctx, 7, 260, 400);
        prune(&l, ctx, "wanda", NULL);
        float *masked = malloc((size_t)(l.n * l.k) * sizeof *masked);
        memcpy(masked, l.w, (size_t)(l.n * l.k) * sizeof *masked);
        prune(&l, ctx, "wanda", "least-squares");
        for (int64_t r = 0; r < l.n; r++)
            for (int64_t j = 0; j < l.k; j++) {
                assert_true((l.w[r * l.k + j] != 0.0f) == (masked[r * l.k + j] != 0.0f));
                if (l.w[r * l.k + j] == 0.0f) continue;
                const double scale = sqrt(l.h[j * l.k + j] * l.h[j * l.k + j]);
                assert_true(fabs(gradient(&l, l.w, r, j)) <= 1e-5 * scale);
            }
        free(masked);
        free_layer(&l);
        s24_ctx_destroy(ctx);
    }
}

static void names_are_read_in_any_order(void **state)
{
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    layer l = make_layer(ctx, 5, 16, 40);
    float all[80];
    assert_string_equal(s24_refinement_name(0), "swaps");
    assert_string_equal(s24_refinement_name(1), "least-squares");
    assert_string_equal(s24_refinement_name(2), "all");
    assert_null(s24_refinement_name(3));
    assert_null(s24_refinement_name(-1));
    prune(&l, ctx, "magnitude", "all");
    memcpy(all, l.w, sizeof all);
    prune(&l, ctx, "magnitude", "least-squares,swaps");
    assert_memory_equal(all, l.w, sizeof all);
    prune(&l, ctx, "magnitude", "");
    assert_memory_not_equal(all, l.w, sizeof all);
    free_layer(&l);
    s24_ctx_destroy(ctx);
}

static void thread_counts_give_the_same_bits(void **state)
{
    float *first = NULL;
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2) {
        s24_ctx *ctx = make_ctx(NULL, threads);
        layer l = make_layer(ctx, 11, 132, 300);
        prune(&l, ctx, "sparsegpt", "all");
        if (first) assert_memory_equal(l.w, first, (size_t)(l.n * l.k) * sizeof *first);
        free(first);
        first = l.w;
        l.w = NULL;
        free_layer(&l);
        s24_ctx_destroy(ctx);
    }
    free(first);
}

static void what_cannot_be_refined_is_said(void **state)
{
    static const struct {
        const char *refine;
        int with_stats;
        const char *sentence;
    } cases[] = {{"swaps", 0, "to refine a weight needs statistics of the layer's inputs"},
                 {"swap", 1, "no refinement is named \"swap\""},
                 {"swaps,more", 1, "no refinement is named \"more\""},
                 {",", 1, "no refinement is named \"\""}};
    (void)state;
    s24_ctx *ctx = make_ctx(NULL, 1);
    layer l = make_layer(ctx, 5, 16, 40);
    s24_dense weight = view(l.before, 5, 16);
    memcpy(l.w, l.before, 80 * sizeof *l.w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_prune_opts opts = {.size = sizeof opts, .refine = cases[i].refine};
        assert_int_equal(s24_prune(NULL, ctx, &weight, cases[i].with_stats ? l.stats : NULL, &opts),
                         S24_ERROR_ARGUMENT);
        assert_non_null(strstr(s24_ctx_error(ctx), cases[i].sentence));
        assert_memory_equal(l.w, l.before, 80 * sizeof *l.w);
    }
    free_layer(&l);
    s24_ctx_destroy(ctx);
}

static void every_allocation_may_fail(void **state)
{
    failing f = {.left = -1};
    s24_ctx *ctx;
    const s24_ctx_opts opts = {
        .size = sizeof opts, .allocator = {failing_alloc, failing_free, &f}, .threads = 1};
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    layer l = make_layer(ctx, 3, 16, 40);
    s24_dense weight = view(l.w, 3, 16);
    const s24_prune_opts how = {.size = sizeof how, .criterion = "magnitude", .refine = "all"};
    s24_status status = S24_ERROR_MEMORY;
    int allowed = 0;
    for (const int64_t base = f.live; status != S24_OK; allowed++) {
        memcpy(l.w, l.before, 48 * sizeof *l.w);
        f.left = allowed;
        status = s24_prune(NULL, ctx, &weight, l.stats, &how);
        assert_int_equal(f.live, base);
        if (status == S24_OK) break;
        assert_int_equal(status, S24_ERROR_MEMORY);
        assert_non_null(strstr(s24_ctx_error(ctx), "out of memory"));
        assert_memory_equal(l.w, l.before, 48 * sizeof *l.w);
    }
    assert_true(allowed >= 8);
    f.left = -1;
    free_layer(&l);
    s24_ctx_destroy(ctx);
    assert_int_equal(f.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_refinement_raises_its_objective),
        cmocka_unit_test(after_swaps_no_group_is_better_chosen_otherwise),
        cmocka_unit_test(pairs_keep_the_number_of_weights),
        cmocka_unit_test(after_swaps_no_pair_is_better_exchanged),
        cmocka_unit_test(least_squares_are_at_their_optimum),
        cmocka_unit_test(names_are_read_in_any_order),
        cmocka_unit_test(thread_counts_give_the_same_bits),
        cmocka_unit_test(what_cannot_be_refined_is_said),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
