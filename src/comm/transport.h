// SPDX-License-Identifier: Apache-2.0
/*
 * A transport is a filled table, the library's own or a plugin's: MPI's ABI differs from one
 * implementation to the next, so what calls it is compiled against each. The table knows no
 * context: it says in a sentence what went wrong, and never waits, but for open and close.
 */
#ifndef S24_COMM_TRANSPORT_H
#define S24_COMM_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "device/device_layers.h"
#include "sparse24/comm.h"

#define S24I_COMM_MPI_SYMBOL "s24i_comm_mpi"
enum { S24I_COMM_ABI = 5, S24I_COMM_SENTENCE = 512 };

typedef struct s24i_comm_error {
    char text[S24I_COMM_SENTENCE];
} s24i_comm_error;

typedef struct s24i_comm_table {
    int abi;
    int on_device; /* 1: reduce and broadcast take device memory */
    /* Meets the others; *rank and *world are then the transport's own. */
    s24_status (*open)(void **state, s24_ctx *ctx, const s24_comm_opts *opts,
                       s24i_comm_error *error);
    void (*place)(const void *state, int *rank, int *world);
    /* Begins the sum of f32 (or f64) over all ranks, in place. */
    s24_status (*reduce)(void *state, void *data, int64_t count, int f64, s24i_comm_error *error);
    /* Of a transport on the device: the same of numbers in host memory, next to whatever the device
       has to do; one at a time. NULL: reduce takes these. */
    s24_status (*reduce_host)(void *state, void *data, int64_t count, int f64,
                              s24i_comm_error *error);
    /* What comes next in the device's default stream waits for what was begun, and the host does
       not. NULL: it does. */
    s24_status (*follow)(void *state, s24i_comm_error *error);
    /* Moves on what was begun; *done: all of it is there. */
    s24_status (*test)(void *state, int *done, s24i_comm_error *error);
    /* Begins to hand the root's bytes to all. */
    s24_status (*broadcast)(void *state, void *data, size_t bytes, int root,
                            s24i_comm_error *error);
    /* Puts the sum of 16-bit floats of the device's memory, in place, into one of its streams: it
       is there when this returns. The stream may be captured. NULL: the transport cannot. */
    s24_status (*enqueue)(void *state, void *data, int64_t count, s24_dtype dtype, void *stream,
                          s24i_comm_error *error);
    /* From now on, until it is closed, sets *flag to 1 when it ends what waits for other ranks.
       What enqueues has it. */
    void (*halts)(void *state, int *flag);
    /* Ends the other ranks, if it can. */
    void (*abort)(void *state, int exit_code);
    /* broken: a call failed, and the others may never come. */
    void (*close)(void *state, int broken);
} s24i_comm_table;

/* Memory of the ranks' GPUs that small sums go through (comm_windows.c); own NULL: none. */
typedef struct s24i_windows {
    void *own, *by_rank[S24_DEVICE_WINDOW_RANKS];
    int *halt; /* pinned: the transport has ended the ranks */
} s24i_windows;

struct s24_comm {
    s24_ctx *ctx;
    const s24i_comm_table *table;
    void *library; /* where the table lies; NULL: in this one */
    void *state;
    s24_device *device;
    s24i_windows windows;
    double patience;
    int rank, world;
    int broken; /* a call failed */
    int agreed; /* all ranks know what failed, and no sum was begun since */
};

#define COMM(name)                                                                                 \
    s24_status s24i_comm_find_##name(s24_comm *comm, s24_ctx *ctx, const s24_comm_opts *opts);
#include "comm/comms.def"
#undef COMM

/* Begins to replace bytes, in the memory that sums are begun in, by those of rank `root`; they may
   be touched after s24_comm_wait. Order and errors are as s24_comm_sum_begin's. */
s24_status s24i_comm_broadcast_begin(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes,
                                     int root);
/* What comes next in the device's default stream finds what was begun done, in the device's memory
   without a wait of the host; for other memory that waits, as s24_comm_wait. Errors: as that. */
s24_status s24i_comm_follow(s24_ctx *ctx, s24_comm *comm);
/* Can sums stand in a device's stream? */
int s24i_comm_enqueues(const s24_comm *comm);
/* The device that sums are on; NULL: none. */
s24_device *s24i_comm_device(const s24_comm *comm);
/* Puts the sum of F16 or BF16 numbers there, in place, into a stream of that device, which may be
   captured into a graph: all ranks put the same sums into their streams, and run them, in the same
   order. Graphs end before the communicator. Errors: IO, UNSUPPORTED. */
s24_status s24i_comm_enqueue(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                             s24_dtype dtype, void *stream);
/* After waiting for a stream with such sums, which end in any case: IO where a rank is gone. */
s24_status s24i_comm_alive(s24_ctx *ctx, s24_comm *comm);
/* ARGUMENT without one, IO once a call has failed. */
s24_status s24i_comm_check(s24_ctx *ctx, const s24_comm *comm);
/* The sentence of a failed call, which names the rank; no call succeeds any more. */
s24_status s24i_comm_failed(s24_comm *comm, s24_ctx *ctx, s24_status status, const char *what,
                            const s24i_comm_error *error);
/* Opens windows between ranks, where all of them can; else none has one. Errors: of a sum. */
s24_status s24i_windows_open(s24_ctx *ctx, s24_comm *comm);
/* Do sums of so many 16-bit numbers go through them? */
int s24i_windows_take(const s24_comm *comm, int64_t count);
s24_status s24i_windows_sum(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                            s24_dtype dtype, void *stream);
/* Leaves the others' and waits for them, who may still write into this rank's: where they are gone
   its memory stays until this process ends. */
void s24i_windows_leave(s24_comm *comm);
/* Once the transport is closed, which sets the flag. */
void s24i_windows_close(s24_comm *comm);
/* All ranks have heard of a failure and go their ways: none ends the others. */
void s24i_comm_agree(s24_comm *comm);

#endif
