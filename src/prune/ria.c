// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "ria": a weight's share of its row and of its column, times the square root of its
 * input's norm, so that no row or column loses all of what it has.
 *
 * Reference: Zhang and others, "Plug-and-play: an efficient post-training pruning method for large
 * language models", ICLR 2024: relative importance and activations, a = 0.5.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

static double share(double w, double sum)
{
    return sum > 0.0 ? w / sum : 0.0;
}

s24_status s24i_score_ria(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    const int64_t k = in->cols;
    double *columns = s24_ctx_alloc(ctx, (size_t)k * sizeof *columns);
    (void)user;
    REQUIRE(ctx, columns, S24_ERROR_MEMORY, "out of memory for %lld column sums", (long long)k);
    memset(columns, 0, (size_t)k * sizeof *columns);
    for (int64_t i = 0; i < in->rows * k; i++)
        columns[i % k] += fabs((double)in->w[i]);
    for (int64_t r = 0; r < in->rows; r++) {
        double sum = 0.0;
        for (int64_t c = 0; c < k; c++)
            sum += fabs((double)in->w[r * k + c]);
        for (int64_t c = 0; c < k; c++) {
            const double w = fabs((double)in->w[r * k + c]);
            scores[r * k + c] = (share(w, sum) + share(w, columns[c])) * sqrt(in->norms[c]);
        }
    }
    s24_ctx_free(ctx, columns);
    return S24_OK;
}
