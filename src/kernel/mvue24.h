// SPDX-License-Identifier: Apache-2.0
/*
 * Unbiased 2:4 by chance: two of four elements are drawn one after the other without replacement,
 * each with probability in proportion to its magnitude, and a kept one is divided by the
 * probability that it is kept. This is the approximate minimum-variance estimator that training in
 * 2:4 uses ("Accelerating Transformer Pre-training with 2:4 Sparsity", Hu et al., 2024): its
 * expectation is exact, its variance a little above the least possible.
 *
 * The random words depend on the seed and the group's number alone, so results do not depend on
 * threads. A device computes the same bits where its compiler fuses no product with a sum.
 */
#ifndef S24_KERNEL_MVUE24_H
#define S24_KERNEL_MVUE24_H

#include <math.h>

#include "base/random.h"

/* The first index at which the running sum of a reaches u·total; the last that can be drawn if
   rounding keeps the sum below. */
S24I_CODE int s24i_mvue24_draw(const double a[4], double total, double u)
{
    double sum = 0;
    int last = 0;
    for (int i = 0; i < 4; i++) {
        if (a[i] == 0) continue;
        last = i;
        sum += a[i];
        if (u * total <= sum) break;
    }
    return last;
}

/* That i is drawn first, or second after any other. What others leave is summed, not taken from the
   total: next to a far larger one, nothing would be left of them. */
S24I_CODE double s24i_mvue24_inclusion(const double a[4], double total, int i)
{
    double sum = 1;
    for (int j = 0; j < 4; j++) {
        double left = 0;
        for (int other = 0; other < 4; other++)
            if (other != j) left += a[other];
        if (j != i) sum += a[j] / left;
    }
    return a[i] / total * sum;
}

/* One group: two ascending positions and their scaled values. */
S24I_CODE void s24i_mvue24_group(int kept[2], float values[2], const float group[4], uint64_t seed,
                                 uint64_t number)
{
    /* Keeps every element possible, so that zeros need no case of their own. */
    const double tiny = 1.1920928955078125e-7;
    double a[4], rest[4], total = 0;
    uint32_t words[4];
    s24i_philox(words, seed, number);
    for (int i = 0; i < 4; i++) {
        a[i] = rest[i] = fabs((double)group[i]) + tiny;
        total += a[i];
    }
    int i = s24i_mvue24_draw(a, total, (double)s24i_uniform(words[0]));
    rest[i] = 0;
    int j = s24i_mvue24_draw(rest, rest[0] + rest[1] + rest[2] + rest[3],
                             (double)s24i_uniform(words[1]));
    kept[0] = i < j ? i : j;
    kept[1] = i < j ? j : i;
    for (int v = 0; v < 2; v++)
        values[v] = (float)((double)group[kept[v]] / s24i_mvue24_inclusion(a, total, kept[v]));
}

#endif
