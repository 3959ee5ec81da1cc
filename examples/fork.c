// SPDX-License-Identifier: Apache-2.0
/*
 * A process that forks: the parent makes a product on several threads, then a child makes one.
 * The child has none of the parent's threads and starts its own; matrices and contexts are its
 * own copies.
 *   cc fork.c $(pkg-config --cflags --libs sparse24) -o fork
 */
#define _POSIX_C_SOURCE 200809L /* fork, waitpid */
#include <sparse24/sparse24.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { M = 64, N = 512, K = 512 };
static float w[N * K], x[M * K], parents[M * N], childs[M * N];

int main(void)
{
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i % 13) - 6;
    for (int i = 0; i < M * K; i++)
        x[i] = (float)(i % 5) - 2;
    s24_dense W = {w, S24_F32, N, K, 0}, X = {x, S24_F32, M, K, 0};
    s24_dense first = {parents, S24_F32, M, N, 0}, second = {childs, S24_F32, M, N, 0};
    s24_matrix_opts select = {.size = sizeof select, .select = S24_SELECT_MAGNITUDE};
    s24_ctx_opts opts = {.size = sizeof opts, .threads = 2};
    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL;
    if (s24_ctx_create(&ctx, &opts) != S24_OK) return 1;
    s24_status status = s24_matrix_create(&sparse, ctx, &W, &select);
    if (status == S24_OK) status = s24_linear(ctx, &first, &X, sparse, NULL);
    if (status != S24_OK) {
        fprintf(stderr, "fork: %s\n", s24_ctx_error(ctx));
        return 1;
    }
    // shown: begin
    pid_t child = fork(); // no call of the library may be running in another thread now
    if (child == 0) {
        status = s24_linear(ctx, &second, &X, sparse, NULL);
        _exit(status == S24_OK && memcmp(parents, childs, sizeof childs) == 0 ? 0 : 1);
    }
    // shown: end
    int ended = 1;
    if (child < 0 || waitpid(child, &ended, 0) != child) return 1;
    int alike = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    printf("the child's product: %s\n", alike ? "the parent's bits" : "it failed");
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return alike ? 0 : 1;
}
