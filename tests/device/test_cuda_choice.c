// SPDX-License-Identifier: Apache-2.0
/* Which tile a product on Hopper gets, without that GPU: there is one for every shape, and no
   product is thought to take longer than one of its layer with more tokens. */
#include <math.h>

#include "product_choice.h"
#include "support.h"

static const choice_gpu h200 = {132, 4814, {132, 132, 117, 120}},
                        h100 = {132, 3352, {132, 132, 117, 120}};
static const s24_dtype dtypes[] = {S24_BF16, S24_F16, S24_I8, S24_E4M3, S24_E5M2};

static double random_unit(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 24);
}

/* Numbers of every size, and three of four of them such as layers have. */
static int64_t random_size(unsigned *state, int least, int most)
{
    const int64_t size = (int64_t)exp2(least + random_unit(state) * (most - least));
    return random_unit(state) < 0.75 ? (size + 63) / 64 * 64 : (size + 15) / 16 * 16;
}

/* From many tokens to few, next to the least time of more. */
static void check_layer(const choice_gpu *gpu, s24_dtype dtype, int64_t k, int64_t n,
                        unsigned *state)
{
    double least = INFINITY, ns;
    for (int64_t m = 16384; m >= 1;
         m = m > 80 ? m - 1 - (int64_t)(random_unit(state) * (double)m / 8) : m - 1) {
        const char *tile = choice_of(gpu, dtype, m, k, n, &ns);
        assert_non_null(tile);
        if (ns > least * 1.03 && ns > least + 300)
            fail_msg("%lld x %lld x %lld of dtype %d take %.0f ns in %s, more tokens %.0f",
                     (long long)m, (long long)k, (long long)n, (int)dtype, ns, tile, least);
        least = fmin(least, ns);
    }
}

static void more_tokens_are_not_faster(void **state)
{
    static const int64_t layers[][2] = {{768, 3072},   {1024, 1024},  {1024, 4096}, {3072, 768},
                                        {4096, 4096},  {4096, 14336}, {5120, 5120}, {8192, 1024},
                                        {1280, 704},   {64, 64},      {16, 8},      {33152, 64},
                                        {3584, 18944}, {20480, 7168}, {1000, 3000}};
    unsigned random = 1;
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            check_layer(&h200, dtypes[d], layers[i][0], layers[i][1], &random);
            check_layer(&h100, dtypes[d], layers[i][0], layers[i][1], &random);
        }
        for (int i = 0; i < 40; i++)
            check_layer(i % 2 ? &h100 : &h200, dtypes[d], random_size(&random, 4, 15),
                        random_size(&random, 3, 15), &random);
    }
}

/* More products than a GPU remembers, each twice, and between them one whose rows lie otherwise. */
static void what_is_remembered_is_what_was_chosen(void **state)
{
    unsigned random = 2;
    (void)state;
    for (int i = 0; i < 600; i++) {
        const s24_dtype dtype = dtypes[i % 5];
        const int64_t m = random_size(&random, 0, 13), k = random_size(&random, 4, 13),
                      n = random_size(&random, 4, 13);
        const char *chosen = choice_of(&h200, dtype, m, k, n, NULL);
        for (int again = 0; again < 2; again++) {
            (void)choice_remembered(&h200, dtype, m, k, n, n + 24);
            assert_string_equal(choice_remembered(&h200, dtype, m, k, n, 0), chosen);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_tokens_are_not_faster),
                                       cmocka_unit_test(what_is_remembered_is_what_was_chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
