// SPDX-License-Identifier: Apache-2.0
/* Sums in a device's stream: small ones through windows where ranks have them, else others. */
#include "comm/transport.h"

#include "base/try.h"

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
    TRY(s24i_comm_check(ctx, comm));
    REQUIRE(ctx, comm->table->enqueue, S24_ERROR_UNSUPPORTED,
            "what carries sums between the ranks has none in a device's stream");
    comm->agreed = 0;
    if (s24i_windows_take(comm, count))
        return s24i_windows_sum(ctx, comm, data, count, dtype, stream);
    const s24_status status = comm->table->enqueue(comm->state, data, count, dtype, stream, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(comm, ctx, status, "a sum", &error);
}

s24_status s24i_comm_follow(s24_ctx *ctx, s24_comm *comm)
{
    s24i_comm_error error = {""};
    TRY(s24i_comm_check(ctx, comm));
    if (!comm->table->follow) return s24_comm_wait(ctx, comm);
    const s24_status status = comm->table->follow(comm->state, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(comm, ctx, status, "a sum", &error);
}

s24_status s24i_comm_alive(s24_ctx *ctx, s24_comm *comm)
{
    s24i_comm_error error = {""};
    int done;
    TRY(s24i_comm_check(ctx, comm));
    const s24_status status = comm->table->test(comm->state, &done, &error);
    return status == S24_OK ? S24_OK : s24i_comm_failed(comm, ctx, status, "a sum", &error);
}
