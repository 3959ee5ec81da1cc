// SPDX-License-Identifier: Apache-2.0
/* The search for channels' order: assignments against all there are, and what groups keep. */
#include "support.h"

#include <math.h>

#include "recipe/channel_search.h"

enum { MOST = 6 };

/* The largest sum of gains, with rows from `row` on and columns that are not in `used`. */
static double best_of(const float *gains, int count, int row, unsigned used)
{
    double best = row == count ? 0.0 : -HUGE_VAL;
    for (int j = 0; row < count && j < count; j++)
        if (!(used >> j & 1u))
            best = fmax(best, (double)gains[row * count + j] +
                                  best_of(gains, count, row + 1, used | 1u << j));
    return best;
}

static s24_ctx *one_ctx(int threads)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static void assignments_are_the_best(void **state)
{
    (void)state;
    s24_ctx *ctx = one_ctx(1);
    uint64_t seed = 3;
    for (int round = 0; round < 200; round++) {
        const int count = 1 + round % MOST;
        float gains[MOST * MOST];
        int32_t chosen[MOST];
        unsigned used = 0;
        double sum = 0.0;
        for (int i = 0; i < count * count; i++)
            gains[i] = round % 3 ? test_uniform(&seed) : (float)(test_random(&seed) % 4);
        assert_int_equal(s24i_assign(ctx, chosen, gains, count), S24_OK);
        for (int i = 0; i < count; i++) {
            used |= 1u << chosen[i];
            sum += (double)gains[i * count + chosen[i]];
        }
        assert_int_equal(used, (1u << count) - 1);
        assert_true(fabs(sum - best_of(gains, count, 0, 0)) <= 1e-6);
    }
    s24_ctx_destroy(ctx);
}

/* The two largest of each group and row, in that order of channels. */
static double kept(const float *scores, const int32_t *order, int64_t rows, int64_t count)
{
    double sum = 0.0;
    for (int64_t g = 0; g < count; g += 4)
        for (int64_t r = 0; r < rows; r++) {
            float first = -1.0f, second = -1.0f;
            for (int64_t i = g; i < g + 4; i++) {
                const float x = scores[(order ? order[i] : i) * rows + r];
                second = x > first ? first : x > second ? x : second;
                first = x > first ? x : first;
            }
            sum += (double)first + (double)second;
        }
    return sum;
}

static void the_order_keeps_no_less_on_any_number_of_threads(void **state)
{
    static const int64_t shapes[][2] = {{1, 4}, {3, 8}, {16, 32}, {7, 100}, {40, 128}};
    (void)state;
    uint64_t seed = 11;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t rows = shapes[s][0], count = shapes[s][1];
        float scores[40 * 128];
        int32_t order[2][128];
        int seen[128] = {0};
        for (int64_t i = 0; i < rows * count; i++) /* large channels stand together */
            scores[i] = fabsf(test_uniform(&seed)) * (i / rows % 8 < 4 ? 4.0f : 1.0f);
        for (int t = 0; t < 2; t++) {
            s24_ctx *ctx = one_ctx(1 + 2 * t);
            assert_int_equal(s24i_channels_search(ctx, order[t], scores, rows, count), S24_OK);
            s24_ctx_destroy(ctx);
        }
        assert_memory_equal(order[0], order[1], (size_t)count * sizeof **order);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(seen[order[0][i]]++, 0);
        const double before = kept(scores, NULL, rows, count),
                     after = kept(scores, order[0], rows, count);
        assert_true(after >= before * (1 - 1e-6));
        assert_true(count < 32 || after > before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignments_are_the_best),
        cmocka_unit_test(the_order_keeps_no_less_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
