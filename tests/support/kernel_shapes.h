// SPDX-License-Identifier: Apache-2.0
/*
 * Every number of tokens and outputs that ends a kernel's tile or begins one, with k from one group
 * to many. The including file defines sample, random_sample(row, &seed) and check_sample(row, &s,
 * seed).
 */
#ifndef KERNEL_SHAPES_H
#define KERNEL_SHAPES_H

static void check_shape(const s24i_linear_kernel *row, uint64_t *seed, int64_t m, int64_t n,
                        int64_t k)
{
    sample s = random_sample(row, seed);
    s.m = m, s.n = n, s.k = k;
    check_sample(row, &s, *seed);
}

/* The edges of tiles, then `count` large shapes of m, n and k. */
static void check_shapes(const s24i_linear_kernel *row, uint64_t seed, const int64_t (*large)[3],
                         size_t count)
{
    static const int64_t ks[] = {4, 8, 12, 28, 32, 36, 60, 64, 68, 124, 128, 132, 252, 260};
    int64_t turn = 0;
    for (int64_t m = 1; m <= 65; m = m == 17 ? 63 : m + 1)
        for (int64_t n = 1; n <= 33; n += WATCHED ? 7 : 1)
            check_shape(row, &seed, m, n, ks[turn++ % (int64_t)(sizeof ks / sizeof *ks)]);
    for (size_t i = 0; i < count; i += WATCHED ? 4 : 1)
        check_shape(row, &seed, large[i][0], large[i][1], large[i][2]);
}

#endif
