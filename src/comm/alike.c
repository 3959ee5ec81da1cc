// SPDX-License-Identifier: Apache-2.0
/* Ranks say how they fared and their numbers in one sum: each fills its own row of a table that is
   zero elsewhere. */
#include "comm/alike.h"

#include <stdatomic.h>
#include <string.h>

#include "base/try.h"

enum { PIECE = 1 << 20 };

typedef struct hash_job {
    const char *data;
    size_t bytes;
    _Atomic uint64_t sum; /* of the pieces' hashes, whatever their order */
} hash_job;

static void hash_range(void *arg, int64_t begin, int64_t end, int thread)
{
    hash_job *job = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)i * PIECE, left = job->bytes - at;
        const uint64_t first = s24i_hash(S24I_ALIKE_FIRST, &i, sizeof i);
        atomic_fetch_add(&job->sum, s24i_hash(first, job->data + at, left < PIECE ? left : PIECE));
    }
}

uint64_t s24i_alike_hash_large(s24_ctx *ctx, uint64_t hash, const void *data, size_t bytes)
{
    hash_job job = {.data = data, .bytes = bytes};
    s24_ctx_parallel_for(ctx, (int64_t)((bytes + PIECE - 1) / PIECE), hash_range, &job);
    const uint64_t numbers[] = {bytes, atomic_load(&job.sum)};
    return s24i_hash(hash, numbers, sizeof numbers);
}

int64_t s24i_alike_room(int world)
{
    return (int64_t)world * (1 + S24I_MOST_SAID);
}

s24_status s24i_alike_say(s24_ctx *ctx, s24_comm *comm, double *table, s24_status mine,
                          const double *values, int count)
{
    const int world = s24_comm_world(comm);
    const int64_t row = 1 + count;
    double *own = table + s24_comm_rank(comm) * row;
    memset(table, 0, (size_t)(world * row) * sizeof *table);
    own[0] = mine;
    memcpy(own + 1, values, (size_t)count * sizeof *values);
    if (!comm) return mine;
    const s24_status heard = s24_comm_sum(ctx, comm, table, world * row, S24_F64);
    if (heard != S24_OK) return mine != S24_OK ? mine : heard;
    for (int r = 0; r < world; r++) {
        const s24_status status = (s24_status)table[r * row];
        if (status == S24_OK) continue;
        s24i_comm_agree(comm);
        return mine != S24_OK
                   ? mine
                   : s24_ctx_fail(ctx, status, "rank %d of %d failed (%s), which says why", r,
                                  world, s24_status_text(status));
    }
    return S24_OK;
}

void s24i_alike_put(double *values, const s24i_alike *proofs, int count)
{
    for (int i = 0; i < count; i++) { /* halves are whole numbers of a double */
        values[2 * i] = (double)(uint32_t)proofs[i].hash;
        values[2 * i + 1] = (double)(uint32_t)(proofs[i].hash >> 32);
    }
}

s24_status s24i_alike_check(s24_ctx *ctx, s24_comm *comm, const s24i_said *said,
                            const s24i_alike *proofs, int count)
{
    const int64_t row = 1 + said->count;
    const double *first = said->table + 1 + said->proofs;
    for (int i = 0; i < 2 * count; i++)
        for (int r = 1; r < s24_comm_world(comm); r++) {
            if (first[r * row + i] == first[i]) continue;
            s24i_comm_agree(comm);
            return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "rank %d has %s than rank 0", r,
                                proofs[i / 2].what);
        }
    return S24_OK;
}

s24_status s24i_alike_compare(s24_ctx *ctx, s24_comm *comm, double *table, s24_status mine,
                              const s24i_alike *proofs, int count)
{
    double halves[S24I_MOST_SAID];
    const s24i_said said = {table, 2 * count, 0};
    s24i_alike_put(halves, proofs, count);
    TRY(s24i_alike_say(ctx, comm, table, mine, halves, 2 * count));
    return s24i_alike_check(ctx, comm, &said, proofs, count);
}
