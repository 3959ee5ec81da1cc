// SPDX-License-Identifier: Apache-2.0
/* Sums and broadcasts of a communicator: what fails is said by rank, and waiting has an end. */
#include "comm/transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "sparse24/device.h"

s24_status s24i_comm_failed(s24_comm *c, s24_ctx *ctx, s24_status status, const char *what,
                            const s24i_comm_error *error)
{
    c->broken = 1;
    return s24_ctx_fail(ctx, status, "rank %d of %d, %s: %s", c->rank, c->world, what, error->text);
}

int s24_comm_rank(const s24_comm *comm)
{
    return comm ? comm->rank : 0;
}

int s24_comm_world(const s24_comm *comm)
{
    return comm ? comm->world : 1;
}

int s24_comm_is_on_device(const s24_comm *comm)
{
    return comm && comm->table->on_device;
}

void s24i_comm_agree(s24_comm *comm)
{
    if (comm) comm->agreed = 1;
}

void s24_comm_abort(s24_comm *comm, int exit_code)
{
    if (!comm || comm->agreed) return;
    comm->broken = 1;
    comm->table->abort(comm->state, exit_code);
}

s24_status s24i_comm_check(s24_ctx *ctx, const s24_comm *c)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, c, S24_ERROR_ARGUMENT, "comm is NULL");
    REQUIRE(ctx, !c->broken, S24_ERROR_IO,
            "rank %d of %d: the others are out of reach since an "
            "earlier call failed",
            c->rank, c->world);
    return S24_OK;
}

static s24_status check_sum(s24_ctx *ctx, const void *data, int64_t count, s24_dtype dtype)
{
    REQUIRE(ctx, data && count > 0, S24_ERROR_ARGUMENT,
            data ? "count is %lld, 1 or more is expected" : "data is NULL (%lld numbers)",
            (long long)count);
    REQUIRE(ctx, dtype == S24_F32 || dtype == S24_F64, S24_ERROR_ARGUMENT,
            "sums are of f32 or f64, not %s", s24_dtype_name(dtype));
    return S24_OK;
}

typedef s24_status (*reduction)(void *state, void *data, int64_t count, int f64,
                                s24i_comm_error *error);

static s24_status begin(s24_ctx *ctx, s24_comm *c, reduction reduce, void *data, int64_t count,
                        s24_dtype dtype)
{
    s24i_comm_error error = {""};
    TRY(check_sum(ctx, data, count, dtype));
    c->agreed = 0;
    const s24_status status = reduce(c->state, data, count, dtype == S24_F64, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(c, ctx, status, "a sum", &error);
}

s24_status s24_comm_sum_begin(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                              s24_dtype dtype)
{
    int done;
    s24i_comm_error error = {""};
    TRY(s24i_comm_check(ctx, comm));
    TRY(begin(ctx, comm, comm->table->reduce, data, count, dtype));
    const s24_status status = comm->table->test(comm->state, &done, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(comm, ctx, status, "a sum", &error);
}

/* Who waits long leaves the core to others: of a device, whose ranks have cores of their own,
   longer than a step of a small model takes. */
static void rest(const s24_comm *c, double waited)
{
    const struct timespec nap = {0, 50000};
    if (waited > (c->table->on_device ? 20e-3 : 2e-3))
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

s24_status s24_comm_wait(s24_ctx *ctx, s24_comm *comm)
{
    s24i_comm_error error = {""};
    int done = 0;
    TRY(s24i_comm_check(ctx, comm));
    const double start = s24i_seconds();
    for (;;) {
        const s24_status status = comm->table->test(comm->state, &done, &error);
        if (status != S24_OK) return s24i_comm_failed(comm, ctx, status, "a sum", &error);
        if (done) return S24_OK;
        const double waited = s24i_seconds() - start;
        if (waited > comm->patience) break;
        rest(comm, waited);
    }
    snprintf(error.text, sizeof error.text, "another rank did not come within %g s",
             comm->patience);
    return s24i_comm_failed(comm, ctx, S24_ERROR_IO, "a sum", &error);
}

s24_status s24i_comm_broadcast_begin(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes,
                                     int root)
{
    s24i_comm_error error = {""};
    TRY(s24i_comm_check(ctx, comm));
    if (!bytes) return S24_OK;
    const s24_status status = comm->table->broadcast(comm->state, data, bytes, root, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(comm, ctx, status, "a broadcast", &error);
}

/* ---- in host memory -------------------------------------------------------------------------- */

s24_status s24_comm_sum(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count, s24_dtype dtype)
{
    TRY(s24i_comm_check(ctx, comm));
    const s24i_comm_table *table = comm->table;
    TRY(begin(ctx, comm, table->reduce_host ? table->reduce_host : table->reduce, data, count,
              dtype));
    return s24_comm_wait(ctx, comm);
}

static s24_status run_broadcast(s24_ctx *ctx, s24_comm *c, void *data, size_t bytes, int root)
{
    TRY(s24i_comm_broadcast_begin(ctx, c, data, bytes, root));
    return s24_comm_wait(ctx, c);
}

/* Through the device's memory where the transport takes that. */
s24_status s24_comm_broadcast(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes, int root)
{
    s24_comm *c = comm;
    void *there;
    TRY(s24i_comm_check(ctx, c));
    REQUIRE(ctx, data && root >= 0 && root < c->world, S24_ERROR_ARGUMENT,
            data ? "root is %d in a world of %d" : "data is NULL (root %d, a world of %d)", root,
            c->world);
    if (!c->table->on_device || !bytes) return run_broadcast(ctx, c, data, bytes, root);
    TRY(s24_device_alloc(&there, ctx, c->device, bytes, NULL));
    s24_status status = s24_device_copy(ctx, c->device, there, data, bytes, NULL);
    if (status == S24_OK) status = run_broadcast(ctx, c, there, bytes, root);
    if (status == S24_OK) status = s24_device_copy(ctx, c->device, data, there, bytes, NULL);
    if (status == S24_OK) status = s24_device_wait(ctx, c->device, NULL);
    (void)s24_device_free(ctx, c->device, there, NULL);
    return status;
}

s24_status s24_comm_barrier(s24_ctx *ctx, s24_comm *comm)
{
    double none = 0;
    return s24_comm_sum(ctx, comm, &none, 1, S24_F64);
}
