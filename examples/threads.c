// SPDX-License-Identifier: Apache-2.0
/*
 * One matrix, many threads: matrices and plans never change once they are made and may be
 * shared, a context belongs to one thread at a time. Four threads of this program each answer
 * with a context of their own, and get the same bits.
 *   cc threads.c $(pkg-config --cflags --libs sparse24) -pthread -o threads
 */
#include <pthread.h>
#include <sparse24/sparse24.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 4, M = 16, N = 256, K = 256 };
static float w[N * K], x[M * K];

// shown: begin
typedef struct worker {
    const s24_matrix *shared;
    float y[M * N];
    s24_status status;
} worker;

static void *answer(void *arg)
{
    worker *me = arg;
    s24_dense X = {x, S24_F32, M, K, 0}, Y = {me->y, S24_F32, M, N, 0};
    s24_ctx_opts opts = {.size = sizeof opts, .threads = 1}; // four workers fill four cores
    s24_ctx *ctx = NULL;
    me->status = s24_ctx_create(&ctx, &opts);
    if (me->status == S24_OK) me->status = s24_linear(ctx, &Y, &X, me->shared, NULL);
    s24_ctx_destroy(ctx);
    return NULL;
}
// shown: end

int main(void)
{
    static worker workers[WORKERS];
    pthread_t ids[WORKERS];
    unsigned seed = 1;
    for (int i = 0; i < N * K; i++)
        w[i] = (float)((seed = seed * 69069u + 1u) >> 16) / 32768 - 1;
    for (int i = 0; i < M * K; i++)
        x[i] = (float)((seed = seed * 69069u + 1u) >> 16) / 32768 - 1;

    s24_dense W = {w, S24_F32, N, K, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_ctx *ctx = NULL;
    s24_matrix *sparse = NULL;
    if (s24_ctx_create(&ctx, NULL) != S24_OK) return 1;
    printf("threads of a context that was not told how many: %d\n", s24_ctx_threads(ctx));
    s24_ctx_set_threads(ctx, 2); // from now on
    if (s24_matrix_create(&sparse, ctx, &W, &opts) != S24_OK) {
        fprintf(stderr, "threads: %s\n", s24_ctx_error(ctx));
        return 1;
    }
    int started = 0, alike = 1;
    for (int i = 0; i < WORKERS; i++) {
        workers[i].shared = sparse;
        if (pthread_create(&ids[i], NULL, answer, &workers[i]) != 0) break;
        started++;
    }
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < started; i++)
        alike = alike && workers[i].status == S24_OK &&
                memcmp(workers[i].y, workers[0].y, sizeof workers[0].y) == 0;
    printf("%d threads on one matrix of %zu bytes: %s\n", started, s24_matrix_bytes(sparse),
           alike ? "the same bits" : "they differ");
    s24_matrix_destroy(sparse);
    s24_ctx_destroy(ctx);
    return started > 0 && alike ? 0 : 1;
}
