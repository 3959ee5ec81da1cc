// SPDX-License-Identifier: Apache-2.0
/* What the tests of vector functions share: operands, and the sets that this CPU runs. */
#ifndef SPARSE24_TESTS_NN_VEC_H
#define SPARSE24_TESTS_NN_VEC_H

#include "support.h"

#include <math.h>

#include "vec/vec.h"

static inline float *floats(int64_t count, uint64_t seed, float scale)
{
    float *x = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * test_uniform(&seed);
    return x;
}

static inline void assert_close(double expected, double got, double bound, const char *what,
                                int64_t i)
{
    if (!(fabs(expected - got) <= bound))
        fail_msg("%s at %lld: expected %.9g, got %.9g, bound %.3g", what, (long long)i, expected,
                 got, bound);
}

/* Calls fn for each row of the table that this CPU runs. */
static inline void each_row(void (*fn)(const s24i_vec *vec))
{
    int count = 0;
    for (int i = 0; s24i_vec_row(i); i++) {
        if (s24i_vec_row(i)->cpu & ~s24_cpu_detect()) continue;
        fn(s24i_vec_row(i));
        count++;
    }
    if (!count) skip();
}

/* The set of the table that runs under the context's CPU bits; the last one if none does. */
static inline const s24i_vec *set_of(const s24_ctx *ctx)
{
    int i = 0;
    while (s24i_vec_row(i)->cpu & ~s24_ctx_cpu(ctx) && s24i_vec_row(i + 1))
        i++;
    return s24i_vec_row(i);
}

#endif
