// SPDX-License-Identifier: Apache-2.0
/*
 * Windows: memory of each rank's GPU that the others write into, so that a small sum in a stream is
 * one kernel of our own instead of NCCL's. Processes of one machine can have them, if the driver
 * lets one open the other's memory; either all ranks have them or none.
 */
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "comm/transport.h"
#include "sparse24/device.h"

enum { MACHINE = 64 /* bytes of its name */ };

/* What a rank tells the others of its own. */
typedef struct card {
    char window[S24_DEVICE_WINDOW_NAME], machine[MACHINE];
} card;

/* A window's name says nothing of its machine. 0: it has no name. */
static int name_machine(char name[MACHINE])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const size_t got = file ? fread(name, 1, MACHINE - 1, file) : 0;
    if (file) fclose(file);
    return got > 0;
}

/* *all: can every rank, as this one says of itself? */
static s24_status agree(int *all, s24_ctx *ctx, s24_comm *c, int can)
{
    double ranks = can;
    TRY(s24_comm_sum(ctx, c, &ranks, 1, S24_F64));
    *all = ranks == c->world;
    return S24_OK;
}

/* Can this rank have a window? Whatever keeps it from one is no error: NCCL sums as well. */
static int make_own(s24_ctx *ctx, s24_comm *c, card *own)
{
    s24i_windows *w = &c->windows;
    return name_machine(own->machine) &&
           s24_device_pinned_alloc((void **)&w->halt, ctx, c->device, sizeof *w->halt) == S24_OK &&
           s24_device_window_make(&w->own, ctx, c->device, c->world, own->window) == S24_OK;
}

static int join_others(s24_ctx *ctx, s24_comm *c, const card *cards)
{
    s24i_windows *w = &c->windows;
    for (int r = 0; r < c->world; r++) {
        if (r == c->rank) continue;
        if (memcmp(cards[r].machine, cards[c->rank].machine, MACHINE) != 0) return 0;
        if (s24_device_window_join(&w->by_rank[r], ctx, c->device, cards[r].window) != S24_OK)
            return 0;
    }
    w->by_rank[c->rank] = w->own;
    return 1;
}

static void leave(s24_comm *c)
{
    s24i_windows *w = &c->windows;
    for (int r = 0; r < c->world && r < S24_DEVICE_WINDOW_RANKS; r++)
        if (w->by_rank[r] && r != c->rank) s24_device_window_leave(c->device, w->by_rank[r]);
}

static void drop(s24_comm *c)
{
    s24_device_window_free(c->device, c->windows.own);
    s24_device_pinned_free(c->device, c->windows.halt);
    c->windows = (s24i_windows){0};
}

s24_status s24i_windows_open(s24_ctx *ctx, s24_comm *comm)
{
    card cards[S24_DEVICE_WINDOW_RANKS] = {{{0}, {0}}};
    int all;
    if (!comm->table->halts || !comm->device || comm->world < 2 ||
        comm->world > S24_DEVICE_WINDOW_RANKS)
        return S24_OK;
    const int made = make_own(ctx, comm, &cards[comm->rank]);
    s24_status status = agree(&all, ctx, comm, made);
    if (status != S24_OK || !all) {
        drop(comm);
        return status;
    }
    for (int r = 0; r < comm->world && status == S24_OK; r++)
        status = s24_comm_broadcast(ctx, comm, &cards[r], sizeof cards[r], r);
    if (status == S24_OK) status = agree(&all, ctx, comm, join_others(ctx, comm, cards));
    if (status == S24_OK && all) {
        *comm->windows.halt = 0;
        comm->table->halts(comm->state, comm->windows.halt);
        return S24_OK;
    }
    leave(comm);
    if (status == S24_OK) status = s24_comm_barrier(ctx, comm);
    drop(comm);
    return status;
}

int s24i_windows_take(const s24_comm *comm, int64_t count)
{
    return comm->windows.own && count % 4 == 0 && count <= S24_DEVICE_WINDOW_SUM / 2 / comm->world;
}

s24_status s24i_windows_sum(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                            s24_dtype dtype, void *stream)
{
    s24_device_window_sum_args args = {.size = sizeof args,
                                       .dtype = dtype,
                                       .count = count,
                                       .data = data,
                                       .rank = comm->rank,
                                       .ranks = comm->world,
                                       .halt = comm->windows.halt,
                                       .stream = stream};
    memcpy(args.windows, comm->windows.by_rank, sizeof args.windows);
    const s24_status status = s24_device_window_sum(ctx, comm->device, &args);
    comm->broken |= status != S24_OK; /* the others wait for it */
    return status;
}

void s24i_windows_leave(s24_comm *comm)
{
    if (!comm->windows.own) return;
    leave(comm);
    if (comm->broken || s24_comm_barrier(comm->ctx, comm) != S24_OK) comm->windows.own = NULL;
}

void s24i_windows_close(s24_comm *comm)
{
    drop(comm);
}
