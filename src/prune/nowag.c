// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "nowag": (w̄_ij·‖x_j‖)², where w̄ is the weight with its columns and then its rows
 * brought to norm 1.
 *
 * Reference: Liu and others, "NoWag: a unified framework for shape preserving compression of large
 * language models", 2025, the pruning form.
 */
#include <math.h>
#include <string.h>

#include "prune/prune.h"

static double inverse_root(double sum)
{
    return sum > 0.0 ? 1.0 / sqrt(sum) : 0.0;
}

s24_status s24i_score_nowag(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    const int64_t k = in->cols;
    double *columns = s24_ctx_alloc(ctx, (size_t)k * sizeof *columns);
    (void)user;
    REQUIRE(ctx, columns, S24_ERROR_MEMORY, "out of memory for %lld column norms", (long long)k);
    memset(columns, 0, (size_t)k * sizeof *columns);
    for (int64_t i = 0; i < in->rows * k; i++)
        columns[i % k] += (double)in->w[i] * (double)in->w[i];
    for (int64_t c = 0; c < k; c++)
        columns[c] = inverse_root(columns[c]);
    for (int64_t r = 0; r < in->rows; r++) {
        double *row = scores + r * k, sum = 0.0;
        for (int64_t c = 0; c < k; c++) {
            row[c] = (double)in->w[r * k + c] * columns[c];
            sum += row[c] * row[c];
        }
        const double scale = inverse_root(sum);
        for (int64_t c = 0; c < k; c++)
            row[c] = row[c] * scale * in->norms[c] * (row[c] * scale * in->norms[c]);
    }
    s24_ctx_free(ctx, columns);
    return S24_OK;
}
