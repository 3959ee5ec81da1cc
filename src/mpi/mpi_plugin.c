// SPDX-License-Identifier: Apache-2.0
/*
 * libsparse24-mpi, the plugin that calls MPI: sums that are begun and moved on while the caller
 * computes. MPI is started by the first communicator, in a program that has not done so, and ended
 * with it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"

const s24i_comm_table *s24i_comm_mpi(void);

/* MPI counts in int. */
enum { MOST = 1 << 26 };

typedef struct mpi_state {
    MPI_Comm comm;
    MPI_Request *requests;
    int count, room;
    int rank, world;
    int owner; /* MPI was started here */
} mpi_state;

static s24_status said(int code, s24i_comm_error *error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return S24_OK;
    MPI_Error_string(code, text, &length);
    snprintf(error->text, sizeof error->text, "MPI: %.400s", text);
    return S24_ERROR_IO;
}

static s24_status start(mpi_state *s, s24i_comm_error *error)
{
    int is_there = 0, is_over = 0, level;
    MPI_Initialized(&is_there);
    MPI_Finalized(&is_over);
    if (is_over) {
        snprintf(error->text, sizeof error->text, "MPI was ended in this process already");
        return S24_ERROR_UNSUPPORTED;
    }
    if (!is_there) {
        const s24_status status =
            said(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), error);
        if (status != S24_OK) return status;
        s->owner = 1;
    }
    const s24_status status = said(MPI_Comm_dup(MPI_COMM_WORLD, &s->comm), error);
    if (status != S24_OK) return status;
    MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(s->comm, &s->rank);
    MPI_Comm_size(s->comm, &s->world);
    return S24_OK;
}

static s24_status open_mpi(void **state, s24_ctx *ctx, const s24_comm_opts *opts,
                           s24i_comm_error *error)
{
    mpi_state *s = calloc(1, sizeof *s);
    (void)ctx;
    (void)opts;
    if (!s) {
        snprintf(error->text, sizeof error->text, "out of memory");
        return S24_ERROR_MEMORY;
    }
    s->comm = MPI_COMM_NULL;
    const s24_status status = start(s, error);
    if (status == S24_OK)
        *state = s;
    else
        free(s);
    return status;
}

static void place(const void *state, int *rank, int *world)
{
    const mpi_state *s = state;
    *rank = s->rank;
    *world = s->world;
}

/* Room for one more request. */
static s24_status make_room(mpi_state *s, s24i_comm_error *error)
{
    if (s->count < s->room) return S24_OK;
    const int room = s->room ? 2 * s->room : 16;
    MPI_Request *grown = realloc(s->requests, (size_t)room * sizeof(MPI_Request));
    if (!grown) {
        snprintf(error->text, sizeof error->text, "out of memory for %d sums", room);
        return S24_ERROR_MEMORY;
    }
    s->requests = grown;
    s->room = room;
    return S24_OK;
}

static s24_status reduce(void *state, void *data, int64_t count, int f64, s24i_comm_error *error)
{
    mpi_state *s = state;
    const size_t element = f64 ? sizeof(double) : sizeof(float);
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < MOST ? count - at : MOST;
        s24_status status = make_room(s, error);
        if (status != S24_OK) return status;
        status = said(MPI_Iallreduce(MPI_IN_PLACE, (char *)data + (size_t)at * element, (int)n,
                                     f64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, s->comm,
                                     &s->requests[s->count]),
                      error);
        if (status != S24_OK) return status;
        s->count++;
    }
    return S24_OK;
}

static s24_status test(void *state, int *done, s24i_comm_error *error)
{
    mpi_state *s = state;
    *done = 1;
    if (!s->count) return S24_OK;
    const s24_status status =
        said(MPI_Testall(s->count, s->requests, done, MPI_STATUSES_IGNORE), error);
    if (status == S24_OK && *done) s->count = 0;
    return status;
}

static s24_status broadcast(void *state, void *data, size_t bytes, int root, s24i_comm_error *error)
{
    mpi_state *s = state;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < MOST ? bytes - at : MOST;
        s24_status status = make_room(s, error);
        if (status != S24_OK) return status;
        status = said(
            MPI_Ibcast((char *)data + at, (int)n, MPI_BYTE, root, s->comm, &s->requests[s->count]),
            error);
        if (status != S24_OK) return status;
        s->count++;
    }
    return S24_OK;
}

static void end_all(void *state, int exit_code)
{
    mpi_state *s = state;
    MPI_Abort(s->comm, exit_code);
}

/* MPI's end waits for all ranks: one that may never come is left out, and the launcher sees to the
   rest. */
static void close_mpi(void *state, int broken)
{
    mpi_state *s = state;
    if (!broken) {
        MPI_Comm_free(&s->comm);
        if (s->owner) MPI_Finalize();
    }
    free(s->requests);
    free(s);
}

__attribute__((visibility("default"))) const s24i_comm_table *s24i_comm_mpi(void)
{
    static const s24i_comm_table table = {.abi = S24I_COMM_ABI,
                                          .open = open_mpi,
                                          .place = place,
                                          .reduce = reduce,
                                          .test = test,
                                          .broadcast = broadcast,
                                          .abort = end_all,
                                          .close = close_mpi};
    return &table;
}
