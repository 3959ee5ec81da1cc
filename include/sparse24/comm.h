// SPDX-License-Identifier: Apache-2.0
/*
 * libsparse24-nn: processes that train one model together, or hold one (s24_model_opts.comm).
 * Nothing here starts processes: mpirun, torchrun or SLURM does, and says to each which of how many
 * it is. The library reads no environment; the caller hands it the numbers.
 */
#ifndef SPARSE24_COMM_H
#define SPARSE24_COMM_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What carries sums between the ranks of one run. Used by one thread at a time. */
typedef struct s24_comm s24_comm;

/* What carries them, by index: "none" (a world of one), "mpi" (between processes, through the
   plugin libsparse24-mpi), "nccl" (between GPUs, through NVIDIA's libnccl.so.2, from 2.14 on);
   NULL past the end. */
S24_API const char *s24_comm_kind_name(int index);

typedef struct s24_comm_opts {
    size_t size;      /* sizeof(s24_comm_opts) */
    const char *kind; /* a name of s24_comm_kind_name; NULL: "none" */
    /* The file of the plugin, or of NCCL. NULL: libsparse24-mpi.so.0 next to libsparse24-nn or
       where the loader looks; libnccl.so.2. */
    const char *library;
    /* As the launcher says: this process's number, from 0, and how many there are. "mpi" takes them
       from MPI, and refuses a world of another size than this one; 0: not known. "nccl" needs
       both. */
    int rank, world;
    /* Of "nccl": where rank 0 waits for the others, by default "127.0.0.1" and 29400, and listens
       nowhere else. Later its connections tell who has ended. */
    const char *address;
    int port;
    /* Of "nccl": this rank's own GPU. Sums follow what its default stream has when they are
       begun. */
    struct s24_device *device;
    /* Seconds that a rank waits in one call for the others: default 1800. A launcher that ends all
       where one ended is heard earlier. */
    double patience;
} s24_comm_opts;

/*
 * Meets the other ranks of the world: all call it. The caller's, until s24_comm_destroy. Errors:
 * ARGUMENT (no such kind, a rank beyond its world), UNSUPPORTED (no plugin or library, one of
 * another version, a world of another size than the launcher's), IO (a rank that does not come, a
 * port in use), MEMORY.
 */
S24_API s24_status s24_comm_create(s24_comm **out, s24_ctx *ctx, const s24_comm_opts *opts);
/* All ranks call it, after the same calls; where one failed, nothing is waited for. */
S24_API void s24_comm_destroy(s24_comm *comm);
/* NULL is rank 0 in a world of one, here and where an option asks for a communicator. */
S24_API int s24_comm_rank(const s24_comm *comm);
S24_API int s24_comm_world(const s24_comm *comm);
/* 1: s24_comm_sum_begin takes the device's memory, not the host's. */
S24_API int s24_comm_is_on_device(const s24_comm *comm);

/*
 * Begins to replace `count` numbers (F32 or F64) by their sums over all ranks, the same bits on
 * each; they may be touched after s24_comm_wait. All ranks begin the same sums in the same order.
 * Some of the work is done while others are begun. Errors: ARGUMENT, IO (a rank that is gone), and
 * what the transport says; after one of these no call succeeds any more.
 */
S24_API s24_status s24_comm_sum_begin(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                                      s24_dtype dtype);
/* Waits for all that was begun. Errors: as above; IO after `patience` seconds. */
S24_API s24_status s24_comm_wait(s24_ctx *ctx, s24_comm *comm);
/* Both, of numbers in host memory whatever the kind; they wait for nothing that a device does. */
S24_API s24_status s24_comm_sum(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                                s24_dtype dtype);
/* The bytes of rank `root`, in host memory, to all. */
S24_API s24_status s24_comm_broadcast(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes,
                                      int root);
/* Until all ranks are here. */
S24_API s24_status s24_comm_barrier(s24_ctx *ctx, s24_comm *comm);
/*
 * For a rank that cannot go on and whose others wait for it: ends them, and with MPI this process
 * too, with that exit code; returns where the transport ends nobody (then the others hear that this
 * rank is gone) and where all ranks know already, after a failure that s24_train reported to all.
 */
S24_API void s24_comm_abort(s24_comm *comm, int exit_code);

#ifdef __cplusplus
}
#endif

#endif
