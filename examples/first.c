// SPDX-License-Identifier: Apache-2.0
/*
 * A first program: a layer of random weights becomes 2:4 by magnitude, runs, and is compared with
 * the dense product of the same pruned weights.
 *   cc first.c $(pkg-config --cflags --libs sparse24) -lm -o first
 */
#include <math.h>
#include <sparse24/sparse24.h>
#include <stdio.h>

enum { M = 16, N = 256, K = 512 };
static float w[N * K], pruned[N * K], x[M * K], y[M * N];

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < N * K; i++)
        w[i] = (float)((seed = seed * 69069u + 1u) >> 16) / 32768 - 1;
    for (int i = 0; i < M * K; i++)
        x[i] = (float)((seed = seed * 69069u + 1u) >> 16) / 32768 - 1;

    // shown: begin
    s24_dense W = {w, S24_F32, N, K, 0}, X = {x, S24_F32, M, K, 0}, Y = {y, S24_F32, M, N, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL;
    s24_status status = s24_ctx_create(&ctx, NULL);
    if (status == S24_OK) status = s24_matrix_create(&sparse, ctx, &W, &opts); // two of every four
    if (status == S24_OK) status = s24_linear(ctx, &Y, &X, sparse, NULL);      // Y = X · Wᵀ
    if (status != S24_OK) fprintf(stderr, "first: %s\n", ctx ? s24_ctx_error(ctx) : "no memory");
    // shown: end
    if (status != S24_OK) return 1;

    s24_dense P = {pruned, S24_F32, N, K, 0};
    if (s24_matrix_to_dense(ctx, &P, sparse) != S24_OK) return 1;
    double worst = 0;
    for (int i = 0; i < M * N; i++) {
        double sum = 0;
        for (int k = 0; k < K; k++)
            sum += (double)x[i / N * K + k] * pruned[i % N * K + k];
        worst = fmax(worst, fabs(sum - y[i]));
    }
    printf("%d x %d weights: %zu bytes dense, %zu packed; largest difference %.1e\n", N, K,
           sizeof w, s24_matrix_bytes(sparse), worst);
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return worst < 1e-3 ? 0 : 1;
}
