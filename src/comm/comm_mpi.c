// SPDX-License-Identifier: Apache-2.0
/* Finds the plugin that calls MPI. */
#include <dlfcn.h>
#include <string.h>

#include "base/try.h"
#include "comm/transport.h"

#define PLUGIN "libsparse24-mpi.so.0"

s24_status s24i_comm_find_mpi(s24_comm *comm, s24_ctx *ctx, const s24_comm_opts *opts)
{
    const s24i_comm_table *(*table)(void);
    const char *path = opts->library ? opts->library : PLUGIN;
    /* MPI ends with threads and handlers of its own that outlive it: it is not unloaded. */
    comm->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    REQUIRE(ctx, comm->library, S24_ERROR_UNSUPPORTED,
            "no MPI here: the plugin cannot be opened (%s); builds where MPI's headers are have it",
            dlerror());
    /* ISO C has no cast from an object pointer to a function's; its bytes are the same here. */
    void *symbol = dlsym(comm->library, S24I_COMM_MPI_SYMBOL);
    memcpy(&table, &symbol, sizeof table);
    REQUIRE(ctx, symbol, S24_ERROR_UNSUPPORTED, "%s is no plugin of sparse24: it has no %s", path,
            S24I_COMM_MPI_SYMBOL);
    comm->table = table();
    REQUIRE(ctx, comm->table->abi == S24I_COMM_ABI, S24_ERROR_UNSUPPORTED,
            "the plugin %s has interface %d, this library %d; both must be of one version", path,
            comm->table->abi, S24I_COMM_ABI);
    return S24_OK;
}
