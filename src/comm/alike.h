// SPDX-License-Identifier: Apache-2.0
/* What all ranks of a world must have alike, compared by hashes before they go on; and how each
   fared, so that none waits for one that has given up. */
#ifndef S24_COMM_ALIKE_H
#define S24_COMM_ALIKE_H

#include "comm/transport.h"

enum { S24I_MOST_ALIKE = 6 };

typedef struct s24i_alike {
    const char *what; /* "another model": what a rank is said to have */
    uint64_t hash;
} s24i_alike;

/* Where a hash begins, and how it goes on. */
#define S24I_ALIKE_FIRST UINT64_C(14695981)
uint64_t s24i_alike_hash(uint64_t hash, const void *data, size_t bytes);
/* Of large data, by all threads of the context. */
uint64_t s24i_alike_hash_large(s24_ctx *ctx, uint64_t hash, const void *data, size_t bytes);

/* Numbers of the table that _compare fills. */
int64_t s24i_alike_room(int world);
/* All ranks call it with as many proofs. OK where all fared well and all hashes are the same; else
   this rank's own status, or another's by its number, or ARGUMENT that names rank and thing: then
   all ranks return an error. */
s24_status s24i_alike_compare(s24_ctx *ctx, s24_comm *comm, double *table, s24_status mine,
                              const s24i_alike *proofs, int count);

#endif
