// SPDX-License-Identifier: Apache-2.0
/*
 * Patterns, row by row of their table, after every criterion that makes them: what is said stays
 * and no more goes, weights that a score keeps are as they were. And criteria of the caller's.
 */
#include "prune_support.h"

enum { N = 12, K = 48, TOKENS = 90 };

/* One text for each row of the table, in its order; zeros of N x K. */
static const struct {
    const char *text;
    int zeros;
} samples[] = {{"3:8", N *K * 5 / 8},
               {"dense:16", N *(K - 16) / 2},
               {"unstructured:0.8", 461},
               {"row:0.25", 3 * K},
               {"column:0.5", 24 * N},
               {"block:5x32:0.5", 0}, /* blocks at the edges are cut: any number */
               {"weight-norm:0.5:2x4:6", 36 * 6},
               {"diagonal:5", N *K - (12 * 5 - 3)},
               {"positive", 0}}; /* as a score says */

typedef struct fixture {
    s24_ctx *ctx;
    float *x, *before, *w;
    s24_stats *stats;
} fixture;

static fixture make(void)
{
    fixture f = {.ctx = make_ctx(NULL, 2)};
    f.x = correlated_inputs(TOKENS, K, 4);
    f.before = random_floats(N * K, 5);
    f.w = malloc(N * K * sizeof *f.w);
    f.stats = stats_of(f.ctx, f.x, TOKENS, K);
    return f;
}

static void destroy(fixture *f)
{
    s24_stats_destroy(f->stats);
    free(f->x);
    free(f->before);
    free(f->w);
    s24_ctx_destroy(f->ctx);
}

static s24_status prune(const fixture *f, const s24_prune_opts *opts)
{
    const s24_dense weight = view(f->w, N, K);
    memcpy(f->w, f->before, N * K * sizeof *f->w);
    return s24_prune(NULL, f->ctx, &weight, f->stats, opts);
}

static int zeros_of(const float *w)
{
    int zeros = 0;
    for (int i = 0; i < N * K; i++)
        zeros += w[i] == 0.0f;
    return zeros;
}

static void every_criterion_makes_the_patterns_it_can(void **state)
{
    (void)state;
    fixture f = make();
    int made = 0;
    for (size_t p = 0; p < sizeof samples / sizeof *samples; p++) {
        assert_non_null(s24_pattern_syntax((int)p));
        for (int c = 0; s24_criterion_name(c); c++) {
            const s24_prune_opts opts = {.size = sizeof opts,
                                         .criterion = s24_criterion_name(c),
                                         .pattern = samples[p].text,
                                         .gradients = made_gradients(),
                                         .seed = 3};
            const s24_status status = prune(&f, &opts);
            if (status == S24_ERROR_UNSUPPORTED) {
                assert_non_null(strstr(s24_ctx_error(f.ctx), samples[p].text));
                continue;
            }
            assert_int_equal(status, S24_OK);
            if (samples[p].zeros) assert_int_equal(zeros_of(f.w), samples[p].zeros);
            made++;
        }
    }
    assert_null(s24_pattern_syntax(sizeof samples / sizeof *samples));
    assert_null(s24_pattern_syntax(-1));
    assert_true(made >= 14 * 9); /* all but those of 4x4 tiles */
    destroy(&f);
}

static void every_group_of_n_to_m_holds(void **state)
{
    static const char *const texts[] = {"1:2", "1:4", "4:8", "6:8", "5:16", "1:3", "7:12", "31:24"};
    (void)state;
    fixture f = make();
    for (int c = 0; c < 4; c++)
        for (int t = 0; t < 7; t++) {
            int keep, group;
            const s24_prune_opts opts = {
                .size = sizeof opts, .criterion = s24_criterion_name(c), .pattern = texts[t]};
            assert_int_equal(prune(&f, &opts), S24_OK);
            assert_int_equal(sscanf(texts[t], "%d:%d", &keep, &group), 2);
            assert_int_equal(s24_pattern_group(texts[t]), group);
            for (int g = 0; g < N * K; g += group) {
                int stays = 0;
                for (int i = g; i < g + group; i++)
                    stays += f.w[i] != 0.0f;
                assert_int_equal(stays, keep);
            }
        }
    assert_int_equal(s24_pattern_group(texts[7]), 0);
    assert_int_equal(s24_pattern_group(NULL), 4);
    assert_int_equal(s24_pattern_group("row:0.5"), 1);
    destroy(&f);
}

static void least_squares_refine_any_pattern(void **state)
{
    (void)state;
    fixture f = make();
    for (size_t p = 0; p < sizeof samples / sizeof *samples; p++) {
        s24_prune_report report[2];
        for (int refined = 0; refined < 2; refined++) {
            const s24_dense weight = view(f.w, N, K);
            const s24_prune_opts opts = {.size = sizeof opts,
                                         .criterion = "wanda",
                                         .pattern = samples[p].text,
                                         .refine = refined ? "least-squares" : NULL};
            memcpy(f.w, f.before, N * K * sizeof *f.w);
            assert_int_equal(s24_prune(&report[refined], f.ctx, &weight, f.stats, &opts), S24_OK);
            if (samples[p].zeros) assert_int_equal(zeros_of(f.w), samples[p].zeros);
        }
        assert_true(report[1].output_error <= report[0].output_error * 1.000001);
    }
    destroy(&f);
}

/* Pattern by pattern: SparseGPT's weights are nearer to the dense layer than Wanda's, and those of
   ALPS, which goes back on its choice, than Wanda's choice at its optimum. */
static void choosing_and_moving_beats_a_score(void **state)
{
    static const struct {
        const char *criterion, *refine;
    } ways[] = {{"wanda", NULL}, {"sparsegpt", NULL}, {"wanda", "least-squares"}, {"alps", NULL}};
    (void)state;
    fixture f = make();
    for (size_t p = 0; p < sizeof samples / sizeof *samples; p++) {
        double error[4];
        for (int i = 0; i < 4; i++) {
            s24_prune_report report;
            const s24_dense weight = view(f.w, N, K);
            const s24_prune_opts opts = {.size = sizeof opts,
                                         .criterion = ways[i].criterion,
                                         .pattern = samples[p].text,
                                         .refine = ways[i].refine};
            memcpy(f.w, f.before, N * K * sizeof *f.w);
            assert_int_equal(s24_prune(&report, f.ctx, &weight, f.stats, &opts), S24_OK);
            error[i] = report.output_error;
        }
        /* A diagonal leaves no choice: what is refitted is all but the optimum. */
        if (!(error[1] <= error[0] * 1.000001) || !(error[3] <= error[2] * 1.001))
            fail_msg("%s: wanda leaves %g, sparsegpt %g, wanda at its optimum %g, alps %g",
                     samples[p].text, error[0], error[1], error[2], error[3]);
    }
    destroy(&f);
}

/* A share of single weights is exact, whatever the blocks of columns that it is taken in. */
static void shares_hold_in_any_blocks(void **state)
{
    static const int blocks[] = {4, 12, 20, 48};
    (void)state;
    fixture f = make();
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        const s24_prune_opts opts = {.size = sizeof opts,
                                     .criterion = "sparsegpt",
                                     .pattern = "unstructured:0.7",
                                     .block = blocks[b]};
        assert_int_equal(prune(&f, &opts), S24_OK);
        assert_int_equal(zeros_of(f.w), 403);
    }
    destroy(&f);
}

static void seeds_change_what_is_random(void **state)
{
    (void)state;
    fixture f = make();
    float first[N * K];
    s24_prune_opts opts = {.size = sizeof opts, .criterion = "random", .seed = 1};
    assert_int_equal(prune(&f, &opts), S24_OK);
    memcpy(first, f.w, sizeof first);
    assert_int_equal(prune(&f, &opts), S24_OK);
    assert_memory_equal(first, f.w, sizeof first);
    opts.seed = 2;
    assert_int_equal(prune(&f, &opts), S24_OK);
    assert_memory_not_equal(first, f.w, sizeof first);
    destroy(&f);
}

/* ---- the caller's ---------------------------------------------------------------------------- */

/* Wanda's, from what every row is given. */
static s24_status by_wanda(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)ctx;
    ++*(int *)user;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const int64_t j = i % in->cols;
        assert_true(fabs(in->norms[j] * in->norms[j] - in->gram[j * (in->cols + 1)]) <=
                    1e-9 * in->gram[j * (in->cols + 1)]);
        scores[i] = fabs((double)in->w[i]) * in->norms[j];
    }
    return S24_OK;
}

static s24_status fails(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++)
        scores[i] = i == K + 2 ? NAN : 1.0;
    return user ? S24_ERROR_INTERRUPTED : S24_OK;
}

static void a_score_of_the_callers_takes_a_rows_place(void **state)
{
    (void)state;
    fixture f = make();
    float theirs[N * K];
    int calls = 0;
    s24_prune_opts opts = {.size = sizeof opts, .criterion = "wanda", .pattern = "3:8"};
    assert_int_equal(prune(&f, &opts), S24_OK);
    memcpy(theirs, f.w, sizeof theirs);
    opts.criterion = NULL;
    opts.score = by_wanda;
    opts.score_user = &calls;
    assert_int_equal(prune(&f, &opts), S24_OK);
    assert_memory_equal(theirs, f.w, sizeof theirs);
    assert_int_equal(calls, 1);
    opts.score = fails;
    assert_int_equal(prune(&f, &opts), S24_ERROR_INTERRUPTED);
    opts.score_user = NULL;
    assert_int_equal(prune(&f, &opts), S24_ERROR_NUMERIC);
    assert_non_null(strstr(s24_ctx_error(f.ctx), "the score at row 1, column 2 is"));
    assert_memory_equal(f.before, f.w, sizeof theirs);
    opts.criterion = "ria";
    assert_int_equal(prune(&f, &opts), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(f.ctx), "\"ria\" and a score of the caller's"));
    destroy(&f);
}

/* What a matrix of rank 1 does not make stays, however small it is next to what that makes. */
static void the_residual_of_a_low_rank_stays(void **state)
{
    (void)state;
    fixture f = make();
    const s24_dense weight = view(f.w, N, K);
    const s24_prune_opts opts = {
        .size = sizeof opts, .criterion = "low-rank-residual", .pattern = "1:4"};
    for (int i = 0; i < N * K; i++) {
        const float common = (float)(1 + i / K) * (i % 2 ? 0.5f : -0.75f);
        f.w[i] = f.before[i] = common + (i % 4 == i / 4 % 4 ? 1e-2f : 0.0f);
    }
    assert_int_equal(s24_prune(NULL, f.ctx, &weight, NULL, &opts), S24_OK);
    for (int i = 0; i < N * K; i++)
        assert_true(f.w[i] == (i % 4 == i / 4 % 4 ? f.before[i] : 0.0f));
    destroy(&f);
}

/* What the rows of gradients say, each by its place in `names`. */
static s24_status by_gradients(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    const int rule = *(int *)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const double w = in->w[i], first = w * in->gradients->mean[i];
        const double rules[] = {-first, fabs(first), fabs(w) * in->gradients->size[i],
                                fabs(w * w / 2 * in->gradients->square[i] - first)};
        scores[i] = rules[rule];
    }
    return S24_OK;
}

static void scores_of_gradients_are_what_they_say(void **state)
{
    static const char *const names[] = {"movement", "snip", "taylor-first", "taylor-second"};
    (void)state;
    fixture f = make();
    float theirs[N * K];
    for (int i = 0; i < 4; i++) {
        s24_prune_opts opts = {
            .size = sizeof opts, .criterion = names[i], .pattern = "unstructured:0.6"};
        assert_int_equal(prune(&f, &opts), S24_ERROR_ARGUMENT);
        assert_non_null(strstr(s24_ctx_error(f.ctx), "needs gradients of the weight"));
        opts.gradients = made_gradients();
        const s24_dense weight = view(f.before, N, K);
        const s24_score_inputs inputs = {
            .rows = N, .cols = K, .w = f.before, .gradients = opts.gradients};
        double scores[N * K], expected[N * K];
        assert_int_equal(s24_prune_scores(scores, f.ctx, &weight, NULL, &opts), S24_OK);
        by_gradients(&i, f.ctx, expected, &inputs);
        for (int e = 0; e < N * K; e++)
            assert_true(scores[e] == expected[e]);
        assert_int_equal(prune(&f, &opts), S24_OK);
        memcpy(theirs, f.w, sizeof theirs);
        opts.criterion = NULL;
        opts.score = by_gradients;
        opts.score_user = &i;
        assert_int_equal(prune(&f, &opts), S24_OK);
        assert_memory_equal(theirs, f.w, sizeof theirs);
    }
    const s24_prune_opts whole = {.size = sizeof whole, .criterion = "tile-best"};
    const s24_dense weight = view(f.w, N, K);
    double scores[N * K];
    assert_int_equal(s24_prune_scores(scores, f.ctx, &weight, f.stats, &whole),
                     S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(f.ctx), "chooses weights together and scores none"));
    destroy(&f);
}

static void what_is_no_pattern_is_refused(void **state)
{
    static const struct {
        const char *text, *refine;
        s24_status status;
        const char *sentence;
    } cases[] = {
        {"2:4x", NULL, S24_ERROR_ARGUMENT, "\"2:4x\" is no pattern"},
        {"4:4", NULL, S24_ERROR_ARGUMENT, "0 < N < M <= 32"},
        {"0:4", NULL, S24_ERROR_ARGUMENT, "\"0:4\""},
        {"2:64", NULL, S24_ERROR_ARGUMENT, "\"2:64\""},
        {"row:1.5", NULL, S24_ERROR_ARGUMENT, "shares of 0 to 1"},
        {"row", NULL, S24_ERROR_ARGUMENT, "\"row\""},
        {"rows:0.5", NULL, S24_ERROR_ARGUMENT, "\"rows:0.5\""},
        {"block:0x4:0.5", NULL, S24_ERROR_ARGUMENT, "\"block:0x4:0.5\""},
        {"diagonal:4", NULL, S24_ERROR_ARGUMENT, "\"diagonal:4\""},
        {"weight-norm:1:1x4:5", NULL, S24_ERROR_ARGUMENT, "\"weight-norm:1:1x4:5\""},
        {"5:7", NULL, S24_ERROR_SHAPE, "columns in groups of 7"},
        {"weight-norm:1:1x7:3", NULL, S24_ERROR_SHAPE, "whole blocks of 1x7"},
        {"diagonal:25", NULL, S24_ERROR_SHAPE, "a diagonal of width 25 is all of it"},
        {"row:0.5", "swaps", S24_ERROR_UNSUPPORTED, "\"swaps\" is of N:M and unstructured"}};
    (void)state;
    fixture f = make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_prune_opts opts = {
            .size = sizeof opts, .pattern = cases[i].text, .refine = cases[i].refine};
        assert_int_equal(prune(&f, &opts), cases[i].status);
        if (!strstr(s24_ctx_error(f.ctx), cases[i].sentence))
            fail_msg("%s: %s", cases[i].text, s24_ctx_error(f.ctx));
        assert_memory_equal(f.before, f.w, N * K * sizeof *f.w);
    }
    destroy(&f);
}

static void test_blocks_of_patterns(void **state)
{
    static const struct {
        const char *pattern;
        int64_t sides[2];
    } known[] = {{"unstructured:0.5", {1, 1}},
                 {"row:0.3", {1, 20}},
                 {"column:0.3", {12, 1}},
                 {"block:4x5:0.1", {4, 5}}};
    static const char *const others[] = {"2:4", "diagonal:3", "weight-norm:0.5:1x4:2", "row", ""};
    int64_t sides[2];
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(s24_pattern_block(sides, known[i].pattern, 12, 20), 1);
        assert_memory_equal(sides, known[i].sides, sizeof sides);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(s24_pattern_block(sides, others[i], 12, 20), 0);
    assert_int_equal(s24_pattern_block(sides, NULL, 12, 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_of_patterns),
        cmocka_unit_test(every_criterion_makes_the_patterns_it_can),
        cmocka_unit_test(every_group_of_n_to_m_holds),
        cmocka_unit_test(least_squares_refine_any_pattern),
        cmocka_unit_test(choosing_and_moving_beats_a_score),
        cmocka_unit_test(shares_hold_in_any_blocks),
        cmocka_unit_test(seeds_change_what_is_random),
        cmocka_unit_test(a_score_of_the_callers_takes_a_rows_place),
        cmocka_unit_test(the_residual_of_a_low_rank_stays),
        cmocka_unit_test(scores_of_gradients_are_what_they_say),
        cmocka_unit_test(what_is_no_pattern_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
