// SPDX-License-Identifier: Apache-2.0
/*
 * The criterion "low-rank-residual": how far a weight is from what a low-rank matrix makes of it,
 * times its input's norm where that is known. What rows and columns have in common may go, since
 * factors next to the pruned weight bring it back; what stands out stays. The rank is a sixteenth
 * of the smaller side.
 */
#include <math.h>

#include "prune/prune.h"

enum { SHARE = 16 };

static void score(double *scores, const s24_score_inputs *in, const float *left, const float *right,
                  int64_t rank)
{
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        const int64_t r = i / in->cols, c = i % in->cols;
        double common = 0.0;
        for (int64_t p = 0; p < rank; p++)
            common += (double)left[r * rank + p] * (double)right[p * in->cols + c];
        scores[i] = fabs((double)in->w[i] - common) * (in->norms ? in->norms[c] : 1.0);
    }
}

s24_status s24i_score_low_rank_residual(void *user, s24_ctx *ctx, double *scores,
                                        const s24_score_inputs *in)
{
    const int64_t side = in->rows < in->cols ? in->rows : in->cols;
    const int64_t rank = side < SHARE ? 1 : side / SHARE;
    /* They are read. */
    const s24_stats stats = {.k = in->cols, .tokens = 1, .gram = (double *)(uintptr_t)in->gram};
    const s24_dense w = {(void *)(uintptr_t)in->w, S24_F32, in->rows, in->cols, 0};
    const s24_low_rank_opts opts = {
        .size = sizeof opts, .rank = rank, .stats = in->gram ? &stats : NULL};
    (void)user;
    float *left = s24_ctx_alloc(ctx, (size_t)(rank * (in->rows + in->cols)) * sizeof *left);
    REQUIRE(ctx, left, S24_ERROR_MEMORY, "out of memory for factors of rank %lld", (long long)rank);
    float *right = left + rank * in->rows;
    const s24_status status = s24_low_rank(NULL, left, right, ctx, &w, &opts);
    if (status == S24_OK) score(scores, in, left, right, rank);
    s24_ctx_free(ctx, left);
    return status;
}
