// SPDX-License-Identifier: Apache-2.0
/* Communicators: a kind's table is found, and ranks meet. */
#include <dlfcn.h>
#include <string.h>

#include "base/try.h"
#include "comm/transport.h"

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
    s24i_windows_leave(comm);
    if (comm->state) comm->table->close(comm->state, comm->broken);
    s24i_windows_close(comm);
    if (comm->library) dlclose(comm->library);
    s24_ctx_free(comm->ctx, comm);
}
