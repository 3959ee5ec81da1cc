// SPDX-License-Identifier: Apache-2.0
/* Small things every file of src/nn uses. */
#ifndef S24_NN_UTIL_H
#define S24_NN_UTIL_H

#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

static inline int64_t s24i_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t s24i_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* a rounded up to a multiple of b. */
static inline int64_t s24i_round_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b * b;
}
static inline int64_t s24i_ld(const s24_dense *x)
{
    return x->ld ? x->ld : x->cols;
}

/* Says which tensor the sentence of a failed call is about; S24_OK and INTERRUPTED pass. */
s24_status s24i_name_tensor(s24_ctx *ctx, s24_status status, const s24_tensor *tensor);

/* to [cols, rows] = the transpose of from [rows, cols]. */
void s24i_transpose(float *to, const float *from, int64_t rows, int64_t cols);

/* A clock that only runs forward. */
double s24i_seconds(void);

#endif
