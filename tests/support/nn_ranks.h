// SPDX-License-Identifier: Apache-2.0
/* Ranks as threads of a test: each gets its communicator over the transport between threads
   (fake_comm.c) and does the same; what a rank found is judged by the thread that started them.
   Include after support.h. */
#ifndef S24_TEST_NN_RANKS_H
#define S24_TEST_NN_RANKS_H

#include <dlfcn.h>
#include <pthread.h>

#include "free_port.h"
#include "sparse24/comm.h"
#include "sparse24/device.h"

enum { MOST_RANKS = 4 };

typedef struct rank_work {
    int rank, world, threads;
    const char *kind, *library, *plugin; /* plugin: of a device, which each rank opens, or NULL */
    int port;
    double patience;
    void (*work)(struct rank_work *w);
    const void *job; /* of all */
    s24_ctx *ctx;
    int apart; /* 1: rank r opens device 1 + r, else all open device 1 */
    s24_device *device;
    s24_comm *comm;
    s24_status status;
    char error[300];
    void *result; /* the work's, freed by the judge */
    int64_t count;
} rank_work;

static inline void *rank_thread(void *opaque)
{
    rank_work *w = opaque;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = w->threads};
    char name[32];
    snprintf(name, sizeof name, "cuda:%d", 1 + (w->apart ? w->rank : 0));
    const s24_device_opts device = {.size = sizeof device, .name = name, .library = w->plugin};
    w->status = s24_ctx_create(&w->ctx, &opts);
    if (w->status == S24_OK && w->plugin)
        w->status = s24_device_create(&w->device, w->ctx, &device);
    const s24_comm_opts comm = {.size = sizeof comm,
                                .kind = w->kind,
                                .library = w->library,
                                .rank = w->rank,
                                .world = w->world,
                                .port = w->port,
                                .device = w->device,
                                .patience = w->patience};
    if (w->status == S24_OK) w->status = s24_comm_create(&w->comm, w->ctx, &comm);
    if (w->status == S24_OK) w->work(w);
    snprintf(w->error, sizeof w->error, "%s", w->ctx ? s24_ctx_error(w->ctx) : "");
    if (w->status != S24_OK) s24_comm_abort(w->comm, 1);
    return NULL;
}

/* All ranks of a world to their ends, each with what `common` says. */
static inline void run_ranks_as(rank_work *all, int world, const rank_work *common)
{
    pthread_t thread[MOST_RANKS];
    int held;
    const int port = free_port(&held);
    close(held);
    for (int r = 0; r < world; r++) {
        all[r] = *common;
        all[r].port = port;
        all[r].rank = r;
        all[r].world = world;
        all[r].threads = 1;
        all[r].patience = 60;
        assert_int_equal(pthread_create(&thread[r], NULL, rank_thread, &all[r]), 0);
    }
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    for (int r = 0; r < world; r++) {
        s24_comm_destroy(all[r].comm);
        s24_device_destroy(all[r].device);
        s24_ctx_destroy(all[r].ctx);
    }
    if (is_taken(all[0].error)) run_ranks_as(all, world, common);
}

static inline void run_ranks(rank_work *all, int world, void (*work)(rank_work *w), const void *job)
{
    const rank_work common = {.kind = "mpi", .library = S24_FAKE_COMM, .work = work, .job = job};
    run_ranks_as(all, world, &common);
}

/* Cuts a rank's wire in the world that comes next. */
static inline void cut_wire(int rank, int64_t after)
{
    void (*cut)(int rank, int64_t after);
    void *library = dlopen(S24_FAKE_COMM, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, "fake_comm_fail");
    memcpy(&cut, &symbol, sizeof cut);
    cut(rank, after);
    dlclose(library);
}

#endif
