// SPDX-License-Identifier: Apache-2.0
/* How far what a device gives may be from what the CPU gives. Include after support.h. */
#ifndef S24_TEST_NN_CLOSE_H
#define S24_TEST_NN_CLOSE_H

#include <math.h>

#include "sparse24/sparse24.h"

static inline double length(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* ‖got − want‖ against bound·‖want‖, or where that is next to nothing, the length that others
   have. */
static double worst;
static inline void close_to(const float *want, const float *got, int64_t count, double bound,
                            double least, const char *what)
{
    float *apart = malloc((size_t)count * sizeof *apart);
    for (int64_t i = 0; i < count; i++)
        apart[i] = got[i] - want[i];
    const double scale = fmax(length(want, count), least), off = length(apart, count) / scale;
    free(apart);
    if (!(off <= worst)) worst = off;
    if (!(off <= bound)) fail_msg("%s is %.2e off, at most %.0e is expected", what, off, bound);
}

static inline double bound_of(s24_dtype dtype)
{
    return dtype == S24_BF16 ? 1.0 : 0.125; /* of bf16's bound */
}

#endif
