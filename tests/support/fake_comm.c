// SPDX-License-Identifier: Apache-2.0
/* A transport between threads of one process, in place of the plugin that calls MPI: its ranks are
   told apart by the options. It keeps the ranks' sums in one order, and says where they differ; a
   rank can be made to fail, or to say nothing. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"
#include "fake_comm.h"

enum { RANKS = 8, OPEN_SUMS = 64 };

typedef struct sum {
    void *data[RANKS];
    int64_t count;
    int f64, came, left;
} sum;

typedef struct rank_state {
    int rank;
    int64_t begun, ended; /* sums */
} rank_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sum sums[OPEN_SUMS];
static int world, here, failing_rank = -1, gone = -1;
static int64_t failing_sum;

void fake_comm_fail(int rank, int64_t after)
{
    pthread_mutex_lock(&lock);
    failing_rank = rank;
    failing_sum = after;
    gone = -1;
    memset(sums, 0, sizeof sums);
    pthread_mutex_unlock(&lock);
}

static s24_status open_fake(void **state, s24_ctx *ctx, const s24_comm_opts *opts,
                            s24i_comm_error *error)
{
    rank_state *s = calloc(1, sizeof *s);
    (void)ctx;
    if (!s || opts->world > RANKS) {
        snprintf(error->text, sizeof error->text, "out of memory");
        free(s);
        return S24_ERROR_MEMORY;
    }
    s->rank = opts->rank;
    pthread_mutex_lock(&lock);
    world = opts->world ? opts->world : 1;
    here++;
    pthread_mutex_unlock(&lock);
    *state = s;
    return S24_OK;
}

static void place(const void *state, int *rank, int *of)
{
    const rank_state *s = state;
    pthread_mutex_lock(&lock);
    *rank = s->rank;
    *of = world;
    pthread_mutex_unlock(&lock);
}

static void add_up(sum *at)
{
    for (int64_t i = 0; i < at->count; i++) {
        double total = 0;
        float rounded = 0;
        for (int r = 0; r < world; r++) {
            if (at->f64) total += ((double *)at->data[r])[i];
            if (!at->f64) rounded += ((float *)at->data[r])[i];
        }
        for (int r = 0; r < world; r++) {
            if (at->f64) ((double *)at->data[r])[i] = total;
            if (!at->f64) ((float *)at->data[r])[i] = rounded;
        }
    }
}

static s24_status come(rank_state *s, sum *at, int64_t count, int f64, s24i_comm_error *error)
{
    if (s->rank == failing_rank && s->begun >= failing_sum) {
        if (gone < 0) gone = s->rank;
        snprintf(error->text, sizeof error->text, "the wire of rank %d is cut", s->rank);
        return S24_ERROR_IO;
    }
    if (gone >= 0) { /* who is told so may free what it gave */
        snprintf(error->text, sizeof error->text, "rank %d is gone", gone);
        return S24_ERROR_IO;
    }
    if (at->came && (at->count != count || at->f64 != f64)) {
        snprintf(error->text, sizeof error->text, "rank %d sums %lld numbers, others %lld", s->rank,
                 (long long)count, (long long)at->count);
        gone = s->rank;
        return S24_ERROR_IO;
    }
    at->count = count;
    at->f64 = f64;
    return S24_OK;
}

static s24_status reduce(void *state, void *data, int64_t count, int f64, s24i_comm_error *error)
{
    rank_state *s = state;
    pthread_mutex_lock(&lock);
    sum *at = &sums[s->begun % OPEN_SUMS];
    const s24_status status = come(s, at, count, f64, error);
    if (status == S24_OK) {
        s->begun++;
        at->data[s->rank] = data;
        if (++at->came == world) add_up(at);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static s24_status test(void *state, int *done, s24i_comm_error *error)
{
    rank_state *s = state;
    s24_status status = S24_OK;
    pthread_mutex_lock(&lock);
    while (s->ended < s->begun && sums[s->ended % OPEN_SUMS].came == world) {
        sum *at = &sums[s->ended++ % OPEN_SUMS];
        if (++at->left == world) *at = (sum){0};
    }
    *done = s->ended == s->begun;
    if (!*done && gone >= 0) {
        snprintf(error->text, sizeof error->text, "rank %d is gone", gone);
        status = S24_ERROR_IO;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static s24_status broadcast(void *state, void *data, size_t bytes, int root, s24i_comm_error *error)
{
    rank_state *s = state;
    int done = 0;
    double *all = calloc(bytes, sizeof *all);
    for (size_t i = 0; i < bytes && s->rank == root; i++)
        all[i] = ((unsigned char *)data)[i];
    s24_status status = reduce(state, all, (int64_t)bytes, 1, error);
    while (status == S24_OK && !done)
        status = test(state, &done, error);
    for (size_t i = 0; i < bytes && status == S24_OK; i++)
        ((unsigned char *)data)[i] = (unsigned char)all[i];
    free(all);
    return status;
}

static void end_all(void *state, int exit_code)
{
    rank_state *s = state;
    (void)exit_code;
    pthread_mutex_lock(&lock);
    if (gone < 0) gone = s->rank;
    pthread_mutex_unlock(&lock);
}

static void close_fake(void *state, int broken)
{
    (void)broken;
    pthread_mutex_lock(&lock);
    if (--here == 0) {
        memset(sums, 0, sizeof sums);
        failing_rank = gone = -1;
    }
    pthread_mutex_unlock(&lock);
    free(state);
}

const s24i_comm_table *s24i_comm_mpi(void);
const s24i_comm_table *s24i_comm_mpi(void)
{
    static const s24i_comm_table table = {.abi = S24I_COMM_ABI,
                                          .open = open_fake,
                                          .place = place,
                                          .reduce = reduce,
                                          .test = test,
                                          .broadcast = broadcast,
                                          .abort = end_all,
                                          .close = close_fake};
    return &table;
}
