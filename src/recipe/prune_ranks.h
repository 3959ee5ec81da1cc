// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks that prune one model together (opts.comm). Each runs its share of the calibration passages,
 * what layers read is summed over all, and the layers that read the same are pruned by ranks in
 * turn, so that all go on with the same weights. Rank 0 writes.
 *
 * Whatever one rank meets, all hear of: between a call of s24i_prune_ranks_say that goes well and
 * the sums and broadcasts that follow it no rank leaves, and one that leaves later says so at its
 * end, where the others ask next. NULL for ranks: this process is alone.
 */
#ifndef S24_RECIPE_PRUNE_RANKS_H
#define S24_RECIPE_PRUNE_RANKS_H

#include "recipe/model_prune.h"
#include "sparse24/comm.h"

typedef struct s24i_prune_ranks {
    s24_ctx *ctx;
    s24_comm *comm;
    int rank, world;
    double *table;     /* what ranks say */
    double *piece;     /* sums on their way */
    uint64_t passages; /* a hash of all ranks', */
    uint64_t weights;  /* and of all that was pruned */
    int is_over;       /* a rank has failed, and all know */
} s24i_prune_ranks;

/* For the pruner's options; world 1: nothing. MEMORY. */
s24_status s24i_prune_ranks_begin(s24i_prune_ranks *ranks, s24_ctx *ctx, s24_comm *comm);
/* How this rank fared; the error of all, where one has failed that did not say so before. */
s24_status s24i_prune_ranks_end(s24i_prune_ranks *ranks, s24_status mine);

/* Have all ranks fared well so far? Else each returns an error: its own, or another's. */
s24_status s24i_prune_ranks_say(s24i_prune_ranks *ranks);
/* Do all ranks prune the same with the same, version and machine too? ARGUMENT names rank and
   thing. The pruner's passages, all of one model, become this rank's share of them, which `batch`
   holds; ARGUMENT: there are fewer than ranks. */
s24_status s24i_prune_ranks_meet(s24i_pruner *pruner, s24_batch *batch, const s24i_shape *shape);
/* Do all have pruned to the same weights? */
s24_status s24i_prune_ranks_agree(s24i_prune_ranks *ranks);
/* Adds up what all ranks have gathered. */
s24_status s24i_prune_ranks_sum(s24i_prune_ranks *ranks, s24_stats *stats, int64_t k);
/* A weight of f32 of rank `root` goes to all. */
s24_status s24i_prune_ranks_hand_round(s24i_prune_ranks *ranks, const s24_dense *w, int root);
/* Takes a weight that this rank has finished into the hash. */
void s24i_prune_ranks_note(s24i_prune_ranks *ranks, const s24_dense *w);

#endif
