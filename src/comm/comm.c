// SPDX-License-Identifier: Apache-2.0
/* Communicators: a kind's table is found, ranks meet, and waiting has an end. */
#include "comm/transport.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "sparse24/device.h"

static const struct {
    const char *name;
    s24_status (*find)(s24_comm *comm, s24_ctx *ctx, const s24_comm_opts *opts);
} kinds[] = {
#define COMM(name) {#name, s24i_comm_find_##name},
#include "comm/comms.def"
#undef COMM
};
enum { KINDS = sizeof kinds / sizeof *kinds, PATIENCE = 1800 /* seconds */ };

const char *s24_comm_kind_name(int index)
{
    return index >= 0 && index < KINDS ? kinds[index].name : NULL;
}

static s24_status failed(s24_comm *c, s24_ctx *ctx, s24_status status, const char *what,
                         const s24i_comm_error *error)
{
    c->broken = 1;
    return s24_ctx_fail(ctx, status, "rank %d of %d, %s: %s", c->rank, c->world, what, error->text);
}

static s24_status open_kind(s24_comm *c, s24_ctx *ctx, const s24_comm_opts *opts)
{
    s24i_comm_error error = {""};
    const char *kind = opts->kind ? opts->kind : kinds[0].name;
    int i = 0;
    while (i < KINDS && strcmp(kinds[i].name, kind) != 0)
        i++;
    REQUIRE(ctx, i < KINDS, S24_ERROR_ARGUMENT,
            "s24_comm_opts.kind is \"%s\"; none, mpi or nccl is expected", kind);
    REQUIRE(ctx,
            opts->world >= 0 && opts->rank >= 0 && opts->rank < (opts->world ? opts->world : 1),
            S24_ERROR_ARGUMENT, "rank %d in a world of %d", opts->rank, opts->world);
    TRY(kinds[i].find(c, ctx, opts));
    const s24_status status = c->table->open(&c->state, ctx, opts, &error);
    REQUIRE(ctx, status == S24_OK, status, "%s: %s", kind, error.text);
    c->table->place(c->state, &c->rank, &c->world);
    if (opts->world && c->world != opts->world) {
        c->broken = 1;
        return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                            "%s has a world of %d, the launcher started %d: the launcher is of "
                            "another implementation than the plugin",
                            kind, c->world, opts->world);
    }
    return S24_OK;
}

s24_status s24_comm_create(s24_comm **out, s24_ctx *ctx, const s24_comm_opts *opts)
{
    s24_comm_opts known;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_comm_opts"));
    if (known.patience <= 0) known.patience = PATIENCE;
    s24_comm *c = s24_ctx_alloc(ctx, sizeof *c);
    REQUIRE(ctx, c, S24_ERROR_MEMORY, "out of memory for a communicator");
    *c = (s24_comm){.ctx = ctx, .world = 1, .device = known.device, .patience = known.patience};
    s24_status status = open_kind(c, ctx, &known);
    if (status == S24_OK) status = s24i_windows_open(ctx, c);
    GIVE(out, c, s24_comm_destroy, status);
}

void s24_comm_destroy(s24_comm *comm)
{
    if (!comm) return;
    s24i_windows_close(comm);
    if (comm->state) comm->table->close(comm->state, comm->broken);
    if (comm->library) dlclose(comm->library);
    s24_ctx_free(comm->ctx, comm);
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

static s24_status check(s24_ctx *ctx, const s24_comm *c)
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

static s24_status begin(s24_ctx *ctx, s24_comm *c, void *data, int64_t count, s24_dtype dtype)
{
    s24i_comm_error error = {""};
    TRY(check_sum(ctx, data, count, dtype));
    c->agreed = 0;
    const s24_status status = c->table->reduce(c->state, data, count, dtype == S24_F64, &error);
    return status == S24_OK ? S24_OK : failed(c, ctx, status, "a sum", &error);
}

s24_status s24_comm_sum_begin(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                              s24_dtype dtype)
{
    int done;
    s24i_comm_error error = {""};
    TRY(check(ctx, comm));
    TRY(begin(ctx, comm, data, count, dtype));
    const s24_status status = comm->table->test(comm->state, &done, &error);
    return status == S24_OK ? S24_OK : failed(comm, ctx, status, "a sum", &error);
}

/* Who waits long leaves the core to others. */
static void rest(double waited)
{
    const struct timespec nap = {0, 50000};
    if (waited > 2e-3)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

s24_status s24_comm_wait(s24_ctx *ctx, s24_comm *comm)
{
    s24i_comm_error error = {""};
    int done = 0;
    TRY(check(ctx, comm));
    const double start = s24i_seconds();
    for (;;) {
        const s24_status status = comm->table->test(comm->state, &done, &error);
        if (status != S24_OK) return failed(comm, ctx, status, "a sum", &error);
        if (done) return S24_OK;
        const double waited = s24i_seconds() - start;
        if (waited > comm->patience) break;
        rest(waited);
    }
    snprintf(error.text, sizeof error.text, "another rank did not come within %g s",
             comm->patience);
    return failed(comm, ctx, S24_ERROR_IO, "a sum", &error);
}

s24_status s24i_comm_broadcast_begin(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes,
                                     int root)
{
    s24i_comm_error error = {""};
    TRY(check(ctx, comm));
    if (!bytes) return S24_OK;
    const s24_status status = comm->table->broadcast(comm->state, data, bytes, root, &error);
    return status == S24_OK ? S24_OK : failed(comm, ctx, status, "a broadcast", &error);
}

/* ---- sums in a device's stream --------------------------------------------------------------- */

int s24i_comm_enqueues(const s24_comm *comm)
{
    return comm->table->enqueue && comm->device;
}

s24_device *s24i_comm_device(const s24_comm *comm)
{
    return comm->table->on_device ? comm->device : NULL;
}

s24_status s24i_comm_enqueue(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count,
                             s24_dtype dtype, void *stream)
{
    s24i_comm_error error = {""};
    TRY(check(ctx, comm));
    REQUIRE(ctx, comm->table->enqueue, S24_ERROR_UNSUPPORTED,
            "what carries sums between the ranks has none in a device's stream");
    comm->agreed = 0;
    if (s24i_windows_take(comm, count))
        return s24i_windows_sum(ctx, comm, data, count, dtype, stream);
    const s24_status status = comm->table->enqueue(comm->state, data, count, dtype, stream, &error);
    return status == S24_OK ? S24_OK : failed(comm, ctx, status, "a sum", &error);
}

s24_status s24i_comm_alive(s24_ctx *ctx, s24_comm *comm)
{
    s24i_comm_error error = {""};
    int done;
    TRY(check(ctx, comm));
    const s24_status status = comm->table->test(comm->state, &done, &error);
    return status == S24_OK ? S24_OK : failed(comm, ctx, status, "a sum", &error);
}

/* ---- in host memory -------------------------------------------------------------------------- */

/* A sum of `count` numbers, or, where there are none, the bytes of a root. */
typedef struct exchange {
    int64_t count;
    s24_dtype dtype;
    size_t bytes;
    int root;
} exchange;

static s24_status run_exchange(s24_ctx *ctx, s24_comm *c, void *data, const exchange *what)
{
    TRY(what->count ? begin(ctx, c, data, what->count, what->dtype)
                    : s24i_comm_broadcast_begin(ctx, c, data, what->bytes, what->root));
    return s24_comm_wait(ctx, c);
}

/* Host memory, through the device's where the transport takes that. */
static s24_status exchange_host(s24_ctx *ctx, s24_comm *c, void *data, const exchange *what)
{
    const size_t bytes = what->bytes;
    void *there;
    if (!c->table->on_device || !bytes) return run_exchange(ctx, c, data, what);
    TRY(s24_device_alloc(&there, ctx, c->device, bytes, NULL));
    s24_status status = s24_device_copy(ctx, c->device, there, data, bytes, NULL);
    if (status == S24_OK) status = run_exchange(ctx, c, there, what);
    if (status == S24_OK) status = s24_device_copy(ctx, c->device, data, there, bytes, NULL);
    if (status == S24_OK) status = s24_device_wait(ctx, c->device, NULL);
    (void)s24_device_free(ctx, c->device, there, NULL);
    return status;
}

s24_status s24_comm_sum(s24_ctx *ctx, s24_comm *comm, void *data, int64_t count, s24_dtype dtype)
{
    TRY(check(ctx, comm));
    TRY(check_sum(ctx, data, count, dtype));
    const exchange sum = {count, dtype, (size_t)count * s24_dtype_bytes(dtype), 0};
    return exchange_host(ctx, comm, data, &sum);
}

s24_status s24_comm_broadcast(s24_ctx *ctx, s24_comm *comm, void *data, size_t bytes, int root)
{
    const exchange given = {.bytes = bytes, .root = root};
    TRY(check(ctx, comm));
    REQUIRE(ctx, data && root >= 0 && root < comm->world, S24_ERROR_ARGUMENT,
            data ? "root is %d in a world of %d" : "data is NULL (root %d, a world of %d)", root,
            comm->world);
    return exchange_host(ctx, comm, data, &given);
}

s24_status s24_comm_barrier(s24_ctx *ctx, s24_comm *comm)
{
    double none = 0;
    return s24_comm_sum(ctx, comm, &none, 1, S24_F64);
}
