// SPDX-License-Identifier: Apache-2.0
/* The product of low-rank factors, added to a dense matrix. */
#include <string.h>

#include "op/op.h"

typedef struct adding {
    const s24_dense *dst;
    const float *left, *right; /* [n, rank], [rank, k] */
    int64_t rank;
} adding;

static void add_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const adding *a = arg;
    const int64_t k = a->dst->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *to = (float *)a->dst->data + r * s24i_dense_ld(a->dst);
        for (int64_t p = 0; p < a->rank; p++) {
            const float by = a->left[r * a->rank + p], *from = a->right + p * k;
            for (int64_t c = 0; c < k; c++)
                to[c] += by * from[c];
        }
    }
}

s24_status s24_factors_add(s24_ctx *ctx, const s24_dense *dst, const s24_factors *factors)
{
    const uint32_t floats = 1u << S24_F32 | 1u << S24_F16 | 1u << S24_BF16;
    TRY(s24i_dense_check(ctx, "dst", dst));
    REQUIRE(ctx, dst->dtype == S24_F32, S24_ERROR_DTYPE, "dst is %s; expected f32",
            s24_dtype_name(dst->dtype));
    REQUIRE(ctx, factors && factors->left && factors->right && factors->rank >= 1,
            S24_ERROR_ARGUMENT, "s24_factors_add: factors of a rank of 1 or more are required");
    REQUIRE(ctx, (unsigned)factors->dtype < 32 && floats >> (int)factors->dtype & 1,
            S24_ERROR_DTYPE, "the factors are %s; expected f32, f16 or bf16",
            s24_dtype_name(factors->dtype));
    size_t count, bytes;
    float *wide = NULL;
    const int64_t left = dst->rows * factors->rank, right = dst->cols * factors->rank;
    if (!s24i_mul_overflow((size_t)dst->rows + (size_t)dst->cols, (size_t)factors->rank, &count) &&
        !s24i_mul_overflow(count, sizeof *wide, &bytes))
        wide = s24_ctx_alloc(ctx, bytes);
    REQUIRE(ctx, wide, S24_ERROR_MEMORY, "out of memory for factors of rank %" PRId64,
            factors->rank);
    s24_status status = s24_convert(wide, S24_F32, factors->left, factors->dtype, left);
    if (status == S24_OK)
        status = s24_convert(wide + left, S24_F32, factors->right, factors->dtype, right);
    adding job = {dst, wide, wide + left, factors->rank};
    if (status == S24_OK) s24_ctx_parallel_for(ctx, dst->rows, add_rows, &job);
    s24_ctx_free(ctx, wide);
    return status;
}
