// SPDX-License-Identifier: Apache-2.0
/* What all ranks of a world must have alike, compared by hashes before they go on; and how each
   fared, so that none waits for one that has given up. */
#ifndef S24_COMM_ALIKE_H
#define S24_COMM_ALIKE_H

#include "base/hash.h"
#include "comm/transport.h"

/* What a rank says at once, next to how it fared: numbers, or half as many hashes. */
enum { S24I_MOST_SAID = 16 };

typedef struct s24i_alike {
    const char *what; /* "another model": what a rank is said to have */
    uint64_t hash;
} s24i_alike;

/* Where a hash (s24i_hash) begins. */
#define S24I_ALIKE_FIRST UINT64_C(14695981)
/* How it goes on with large data, by all threads of the context. */
uint64_t s24i_alike_hash_large(s24_ctx *ctx, uint64_t hash, const void *data, size_t bytes);

/* Numbers of a table that has room for whatever all ranks say. */
int64_t s24i_alike_room(int world);
/* All ranks call it with as many values. Then row r of `table`, [world, 1 + count], is what rank r
   said, after its status. OK where all fared well; else all ranks return an error: their own, or
   another's by its number. NULL for `comm`: a world of one. */
s24_status s24i_alike_say(s24_ctx *ctx, s24_comm *comm, double *table, s24_status mine,
                          const double *values, int count);
/* The same of proofs, whose hashes all ranks must have alike: ARGUMENT names rank and thing. */
s24_status s24i_alike_compare(s24_ctx *ctx, s24_comm *comm, double *table, s24_status mine,
                              const s24i_alike *proofs, int count);
/* Its two halves, for ranks that say more at once than hashes: two values of each proof; and what
   all have said, of whose values those of proofs are compared. */
void s24i_alike_put(double *values, const s24i_alike *proofs, int count);
typedef struct s24i_said {
    const double *table;
    int count, proofs; /* values of each rank, and the first of the proofs */
} s24i_said;
s24_status s24i_alike_check(s24_ctx *ctx, s24_comm *comm, const s24i_said *said,
                            const s24i_alike *proofs, int count);

#endif
