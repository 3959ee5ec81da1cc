// SPDX-License-Identifier: Apache-2.0
/*
 * The steps of a block on the CPU. A step between two attentions works on one chunk of tokens, with
 * the memory of the lane that runs it; attention works on all tokens of a pass.
 */
#ifndef S24_RUN_CPU_CPU_STEPS_H
#define S24_RUN_CPU_CPU_STEPS_H

#include "run/cpu/pass.h"

/* Rows of tokens that go through steps together, no more than their lane takes. */
typedef struct s24i_chunk {
    const s24i_pass *pass;
    const s24i_lane *lane;
    const s24i_block *block;
    int64_t first, rows; /* tokens of the pass */
} s24i_chunk;

/* Runs the session's steps first … end − 1, none of which attends, on a chunk. What an observer has
   seen the last of ends there. */
s24_status s24i_chunk_run(const s24i_chunk *chunk, int first, int end);
/* The step that attends, on the pass's threads. */
void s24i_pass_attend(const s24i_pass *pass, const s24i_block *block);

/* Where queries, keys and values of a pass's first token stand: side by side if they are one
   product, else each in a matrix of its own; and how far apart their heads are. */
typedef struct s24i_qkv_places {
    void *at[3];
    int64_t ld[3], head;
} s24i_qkv_places;
s24i_qkv_places s24i_qkv_of(const s24i_pass *pass, const s24i_block *block);

#endif
