// SPDX-License-Identifier: Apache-2.0
/*
 * A product with nothing left to decide: the weight is laid out for one kernel once (a plan),
 * the work memory is the caller's, and running it allocates nothing. Bias and activation are
 * part of the product.
 *   cc multiply.c $(pkg-config --cflags --libs sparse24) -o multiply
 */
#include <sparse24/sparse24.h>
#include <stdio.h>
#include <stdlib.h>

enum { M = 32, N = 256, K = 512 };
static float w[N * K], x[M * K], y[M * N], bias[N];

static float random_float(unsigned *seed)
{
    *seed = *seed * 69069u + 1u;
    return (float)(*seed >> 16) / 32768 - 1;
}

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < N * K; i++)
        w[i] = random_float(&seed);
    for (int i = 0; i < M * K; i++)
        x[i] = random_float(&seed);

    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL;
    s24_plan *plan = NULL;
    void *work = NULL;
    if (s24_ctx_create(&ctx, NULL) != S24_OK) return 1;
    // shown: begin
    s24_dense W = {w, S24_F32, N, K, 0}, X = {x, S24_F32, M, K, 0}, Y = {y, S24_F32, M, N, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_status status = s24_matrix_create(&sparse, ctx, &W, &opts);
    if (status == S24_OK) status = s24_plan_create(&plan, ctx, sparse, NULL);
    s24_matrix_destroy(sparse); // the plan has its own copy
    size_t bytes = status == S24_OK ? s24_plan_work_bytes(plan, ctx, M) : 0;
    work = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    s24_linear_args args = {.y = &Y, .x = &X, .bias = bias, .activation = S24_ACTIVATION_GELU};
    args.work = work;
    args.work_bytes = bytes;
    for (int step = 0; step < 3 && status == S24_OK && work; step++)
        status = s24_plan_run(ctx, plan, &args); // y = gelu(x · wᵀ + bias)
    // shown: end
    if (status != S24_OK || !work)
        fprintf(stderr, "multiply: %s\n", work ? s24_ctx_error(ctx) : "no memory");
    else
        printf("%d tokens by kernel %s: %zu bytes of weights, %zu of work\n", M,
               s24_plan_kernel(plan, M), s24_plan_bytes(plan), bytes);
    free(work);
    s24_plan_destroy(plan);
    s24_ctx_destroy(ctx);
    return status == S24_OK && work ? 0 : 1;
}
