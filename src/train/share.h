// SPDX-License-Identifier: Apache-2.0
/*
 * What ranks of one run share. Each reads its part of a step's examples, gradients are summed, and
 * every rank makes the same step of the same weights with the same masks: that they are the same is
 * compared, not hoped. Whatever one rank meets, all hear of before any goes on, so that none waits
 * for another that has left. Alone in a world of one, all of it is nothing.
 */
#ifndef S24_TRAIN_SHARE_H
#define S24_TRAIN_SHARE_H

#include "comm/alike.h"
#include "train/run.h"

/* The examples of a step, by their numbers, and the tokens of every example there is; NULL: all
   have as many. */
typedef struct s24i_step_examples {
    const int64_t *which;
    int64_t count;
    const int32_t *lengths;
} s24i_step_examples;

typedef struct s24i_share {
    s24_comm *comm; /* NULL: alone */
    int rank, world;
    double *table; /* how each rank fared, and what it said */
    int said;      /* numbers that each said last */
    /* Pieces of the gradients that are summed on their own, the last of the arena first, which are
       ready first: piece i is [bounds[i + 1], bounds[i]). */
    int64_t *bounds, *blocks; /* blocks: [layers + 1] where each begins; the last: what follows */
    int64_t pieces, begun;
    s24_status status; /* of sums that were begun in the midst of a pass */
    int cut;           /* 1: a sum failed, and no rank is heard any more */
    int told;          /* 1: all know what the next step's examples have: */
    int64_t tokens, labels;
    float *stage;          /* host memory, for a transport that does not reach the device's */
    uint64_t masks, proof; /* of the masks that were chosen last, and of the weights */
    /* Where moments are dealt out: [world + 1], rank r's are those of the weights from owned[r] to
       owned[r + 1]; NULL: each has all. */
    int64_t *owned;
    float *piece; /* what of a moment is handed round at once */
} s24i_share;

/* Room, and the pieces. ARGUMENT, MEMORY. */
s24_status s24i_share_create(s24i_share *share, const s24_transformer *t, s24_ctx *ctx,
                             const s24_train_opts *opts);
void s24i_share_free(s24i_share *share, s24_ctx *ctx);
/* This rank's part of a step's examples, which follow one another: those whose middles lie in its
   part of all of their tokens. */
void s24i_share_part(const s24i_share *share, const s24i_step_examples *of, int64_t *first,
                     int64_t *mine);

/* All ranks tell one another how they fared and `count` values, which then stand in the table, and
   return the same: OK where all did; else this rank's own status, or another's by its number. */
s24_status s24i_share_say(s24i_share *share, s24_ctx *ctx, s24_status mine, const double *values,
                          int count);
/* What a rank said; the sum of what all said, in their order. */
double s24i_share_of(const s24i_share *share, int rank, int value);
double s24i_share_sum(const s24i_share *share, int value);

/* Of `bytes` in the machine's memory. */
s24_status s24i_share_hash_of(uint64_t *hash, s24_transformer *t, s24_ctx *ctx, const void *data,
                              size_t bytes);

/* Before the first step: all ranks have the same run before them. */
typedef struct s24i_share_run {
    s24i_examples *examples;
    s24_transformer *teacher; /* or NULL */
    uint64_t options;
    int64_t step; /* of the checkpoint that was read; −1: none was */
} s24i_share_run;
s24_status s24i_share_meet(s24i_share *share, s24_transformer *t, s24_ctx *ctx,
                           const s24i_share_run *run, s24_status mine);

/*
 * A step. Between its begin and its end a rank that fails goes on with what the others wait for, so
 * what is handed `mine`, how this rank fared, returns that or what failed here. Its loss is none
 * then, of which nothing is applied on any rank; what has happened all hear at the end.
 */
/* A step's examples are read and its masks made: what all ranks' examples are together, which they
   ask where they were not told by the step before. An error is one that all ranks have. */
typedef struct s24i_share_step {
    s24i_optimiser *optimiser;
    s24i_examples *examples;
    int64_t step, count, first; /* examples of the step, and this rank's first of them */
} s24i_share_step;
s24_status s24i_share_begin(s24i_share *share, s24_transformer *t, s24_ctx *ctx,
                            const s24i_share_step *step, s24_status *mine);
/* The pass backward has left block b: those after it are done (user: the share). */
void s24i_share_ready(void *user, s24_ctx *ctx, s24_transformer *t, int64_t block);
/* Sums what is left of the gradients, and the loss with them, after this rank's pass. */
s24_status s24i_share_gradients(s24i_share *share, s24_transformer *t, s24_ctx *ctx,
                                s24_status mine);
/* What ranks tell one another at a step's end, in one sum: how they fared, that masks, and now and
   then weights, are the same, and what is here. */
typedef struct s24i_share_turn {
    const s24i_examples *next; /* of the next step; NULL: not read yet */
    int stops;                 /* in: does this rank want to? Out: does any? */
    double now;                /* out: rank 0's, the time that all go by from here */
} s24i_share_turn;
s24_status s24i_share_end(s24i_share *share, s24_ctx *ctx, s24i_share_turn *turn, s24_status mine);

/* ---- moments in parts (share_state.c) -------------------------------------------------------- */

/* Which rank keeps what, where opts->shard_optimizer asks for it. MEMORY. */
s24_status s24i_share_deal(s24i_share *share, const s24_transformer *t, s24_ctx *ctx);
/* This rank's part; all of the arena where moments are not dealt out. */
s24i_range s24i_share_owned(const s24i_share *share, const s24_transformer *t);
/* After the optimiser's step: each rank's weights to all, and no gradient is left. */
s24_status s24i_share_weights(s24i_share *share, s24_transformer *t, s24_ctx *ctx,
                              s24i_optimiser *o, s24_status mine);
/* What of a transport failed, after which nobody is asked any more. */
s24_status s24i_share_carried(s24i_share *share, s24_status status);
/* All ranks' moments into o->whole of rank 0, which the caller frees; it stays NULL where each has
   all, and where rank 0 has no memory for them. */
s24_status s24i_share_collect(s24i_share *share, s24_transformer *t, s24_ctx *ctx,
                              s24i_optimiser *o);

#endif
