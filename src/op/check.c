// SPDX-License-Identifier: Apache-2.0
/* Questions about raw dense memory: is it 2:4, and which two of four are the largest. */
#include "op/op.h"

s24_status s24_check(int *two_four, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *src)
{
    s24i_find find;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, two_four, S24_ERROR_ARGUMENT, "two_four is NULL");
    *two_four = 0;
    TRY(s24i_dense_check_groups(ctx, "src", src));
    *two_four = !s24i_find_first(&find, ctx, src, s24i_find_bad_group);
    if (!*two_four && bad) *bad = (s24_bad_group){find.row, find.col, find.nonzeros};
    return S24_OK;
}

typedef struct mask_job {
    uint8_t *mask;
    const s24_dense *src;
    const s24i_select_kernel *kernel;
} mask_job;

static void mask_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const mask_job *j = arg;
    int64_t cols = j->src->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        j->kernel->mask(j->mask + r * cols, s24i_dense_at(j->src, r, 0), cols);
}

s24_status s24_magnitude_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src,
                              int allow_nonfinite)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, mask, S24_ERROR_ARGUMENT, "mask is NULL");
    TRY(s24i_dense_check_groups(ctx, "src", src));
    if (!allow_nonfinite) TRY(s24i_require_finite(ctx, "src", src));
    mask_job j = {mask, src, s24i_select_kernel_find(src->dtype, ctx->cpu)};
    s24_ctx_parallel_for(ctx, src->rows, mask_rows, &j);
    return S24_OK;
}
