// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of your own: every block that a context, and what is made with it, takes comes from the
 * two functions that it was given. This allocator counts, and says no above a limit; the library
 * then returns S24_ERROR_MEMORY and gives back what it had taken.
 *   cc memory.c $(pkg-config --cflags --libs sparse24) -o memory
 */
#include <sparse24/sparse24.h>
#include <stdio.h>
#include <stdlib.h>

// shown: begin
typedef struct budget {
    size_t limit, used, most;
} budget;

static void *take(void *user, size_t bytes, size_t alignment)
{
    budget *b = user;
    if (bytes > b->limit - b->used) return NULL;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory) b->used += bytes;
    if (b->used > b->most) b->most = b->used;
    return memory;
}

static void give_back(void *user, void *memory, size_t bytes)
{
    budget *b = user;
    b->used -= bytes;
    free(memory);
}
// shown: end

enum { M = 8, N = 1024, K = 1024 };
static float w[N * K], x[M * K], y[M * N];

static s24_status product(budget *b)
{
    s24_dense W = {w, S24_F32, N, K, 0}, X = {x, S24_F32, M, K, 0}, Y = {y, S24_F32, M, N, 0};
    s24_matrix_opts select = {.size = sizeof select, .select = S24_SELECT_MAGNITUDE};
    s24_matrix *sparse = NULL;
    s24_ctx *ctx = NULL;
    // shown: begin
    s24_ctx_opts opts = {.size = sizeof opts, .allocator = {take, give_back, b}};
    s24_status status = s24_ctx_create(&ctx, &opts);
    // shown: end
    if (status == S24_OK) status = s24_matrix_create(&sparse, ctx, &W, &select);
    if (status == S24_OK) status = s24_linear(ctx, &Y, &X, sparse, NULL);
    printf("limit %4zu KiB: %s; at most %zu KiB were in use\n", b->limit / 1024,
           status == S24_OK ? "done" : s24_status_text(status), b->most / 1024);
    if (ctx && status != S24_OK) printf("  %s\n", s24_ctx_error(ctx));
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return status;
}

int main(void)
{
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i % 7) - 3;
    budget enough = {.limit = 64 << 20}, little = {.limit = 1 << 20};
    int good = product(&enough) == S24_OK && product(&little) == S24_ERROR_MEMORY;
    printf("in use at the end: %zu and %zu bytes\n", enough.used, little.used);
    return good && enough.used == 0 && little.used == 0 ? 0 : 1;
}
