// SPDX-License-Identifier: Apache-2.0
/*
 * Pruning against what the authors' own programs made of the same weight and inputs: the same
 * masks, but for near-ties whose scores differ by less than the programs' rounding, and an output
 * error within 1.001 of theirs.
 */
#include "support.h"

#include <math.h>

#include "safetensors_mini.h"

/* Groups of the 8192 whose scores are so close that rounding may decide them otherwise. */
enum { N = 128, K = 256, TOKENS = 512, NEAR_TIES = 2 };

static double square_error(const float *x, const float *w, const float *pruned)
{
    double sum = 0.0;
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t r = 0; r < N; r++) {
            double y = 0.0;
            for (int64_t c = 0; c < K; c++)
                y += (double)x[t * K + c] * ((double)w[r * K + c] - (double)pruned[r * K + c]);
            sum += y * y;
        }
    return sum;
}

static void check_criterion(const char *criterion, int group)
{
    char path[4096], name[64], pattern[16];
    if (!golden_path(path, sizeof path, "prune/sparsegpt_wanda.safetensors")) SKIP_WITHOUT(path);
    mini_file file = mini_open(path);
    const mini_tensor w = mini_get(&file, "weight"), x = mini_get(&file, "inputs");
    snprintf(pattern, sizeof pattern, "%d:%d", group / 2, group);
    snprintf(name, sizeof name, "%s.p%dof%d", criterion, group / 2, group);
    const mini_tensor theirs = mini_get(&file, name);
    snprintf(name, sizeof name, "%s.p%dof%d.sq_error", criterion, group / 2, group);
    const mini_tensor their_error = mini_get(&file, name);
    assert_true(w.shape[0] == N && w.shape[1] == K && x.shape[0] == TOKENS && x.shape[1] == K);

    s24_ctx *ctx;
    s24_stats *stats;
    float *pruned = malloc(N * K * sizeof *pruned);
    memcpy(pruned, w.data, N * K * sizeof *pruned);
    s24_dense weight = {pruned, S24_F32, N, K, 0};
    s24_dense inputs = {(void *)(uintptr_t)x.data, S24_F32, TOKENS, K, 0};
    s24_prune_opts opts = {.size = sizeof opts, .criterion = criterion, .pattern = pattern};
    s24_prune_report report;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_int_equal(s24_stats_create(&stats, ctx, K), S24_OK);
    assert_int_equal(s24_stats_add(stats, ctx, &inputs), S24_OK);
    assert_int_equal(s24_prune(&report, ctx, &weight, stats, &opts), S24_OK);

    int differing = 0;
    for (int64_t g = 0; g < N * K; g += group) {
        int differs = 0;
        for (int64_t i = g; i < g + group; i++)
            differs |= (pruned[i] != 0.0f) != (((const float *)theirs.data)[i] != 0.0f);
        differing += differs;
    }
    double error = square_error(x.data, w.data, pruned), limit = *(const float *)their_error.data;
    print_message("%s: %d of %d groups chosen otherwise; squared error %.6f of theirs\n", criterion,
                  differing, N * K / group, error / limit);
    assert_true(differing <= NEAR_TIES);
    assert_true(error <= 1.001 * limit);
    /* Ours refits the weights that stay, theirs does not; the other two change no weight. */
    if (strcmp(criterion, "sparsegpt")) assert_true(error >= 0.999 * limit);
    s24_stats_destroy(stats);
    s24_ctx_destroy(ctx);
    free(pruned);
    mini_close(&file);
}

static void magnitude_equals_theirs(void **state)
{
    (void)state;
    check_criterion("magnitude", 4);
}

static void wanda_equals_theirs(void **state)
{
    (void)state;
    check_criterion("wanda", 4);
}

static void sparsegpt_equals_theirs(void **state)
{
    (void)state;
    check_criterion("sparsegpt", 4);
    check_criterion("sparsegpt", 8);
}

/* Of a level, "block RxC, zeros Z, norm N": the pattern weight-norm by w² or, of norm 1, |w|. */
static void check_mask(s24_ctx *ctx, const mini_tensor *w, const mini_tensor *mask)
{
    const char *name = mask->name;
    const int64_t rows = w->shape[0], cols = w->shape[1], count = rows * cols;
    double level;
    int r, c, zeros, width;
    char norm[8], pattern[64];
    s24_prune_opts opts = {.size = sizeof opts, .criterion = "block-norm", .pattern = pattern};
    if (sscanf(name, "mask.level=%lf,block=%dx%d,zeros=%d,norm=%7s", &level, &r, &c, &zeros,
               norm) == 5) {
        snprintf(pattern, sizeof pattern, "weight-norm:%g:%dx%d:%d", level, r, c, zeros);
        if (!strcmp(norm, "1")) opts.criterion = "magnitude";
    } else {
        assert_int_equal(sscanf(name, "mask.nearly_diagonal=%d", &width), 1);
        snprintf(pattern, sizeof pattern, "diagonal:%d", width);
    }
    float *pruned = malloc((size_t)count * sizeof *pruned);
    memcpy(pruned, w->data, (size_t)count * sizeof *pruned);
    const s24_dense weight = {pruned, S24_F32, rows, cols, 0};
    assert_int_equal(s24_prune(NULL, ctx, &weight, NULL, &opts), S24_OK);
    for (int64_t i = 0; i < count; i++) {
        const int stays = ((const uint8_t *)mask->data)[i] != 0;
        if (pruned[i] != (stays ? ((const float *)w->data)[i] : 0.0f))
            fail_msg("%s: element %lld is %g", name, (long long)i, (double)pruned[i]);
    }
    free(pruned);
}

static void sparsifiers_of_torch_equal_theirs(void **state)
{
    char path[4096];
    s24_ctx *ctx;
    int masks = 0;
    (void)state;
    if (!golden_path(path, sizeof path, "prune/torch_ao.safetensors")) SKIP_WITHOUT(path);
    mini_file file = mini_open(path);
    const mini_tensor w = mini_get(&file, "weight");
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (const char *at = file.header; (at = strstr(at, "\"mask.")); masks++) {
        char name[96];
        const size_t length = strcspn(++at, "\"");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        mini_tensor mask = mini_get(&file, name);
        mask.name = name;
        check_mask(ctx, &w, &mask);
    }
    assert_int_equal(masks, 12);
    s24_ctx_destroy(ctx);
    mini_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparsifiers_of_torch_equal_theirs),
        cmocka_unit_test(magnitude_equals_theirs),
        cmocka_unit_test(wanda_equals_theirs),
        cmocka_unit_test(sparsegpt_equals_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
