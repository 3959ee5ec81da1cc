// SPDX-License-Identifier: Apache-2.0
/*
 * Mixtures of experts: feed-forward layers of which a token takes those few that a router chooses.
 *
 *     scores = softmax or sigmoid of router · x, one for each expert
 *     (of groups of experts those stay in play whose best, or best two, score most)
 *     chosen = the largest of scores (+ correction), as many as are used
 *     y      = Σ weight_e · expert_e(x) over the chosen (+ shared(x))
 *
 * An expert's layers are numbered on from the slots of a block (s24i_slot): three for each expert,
 * those of the shared one last. So a number says which layer of a block a tensor, a product, a
 * source or an input is, and tables of a block are as long as it has numbers. A softmax of the
 * chosen alone is that of all, normalised.
 */
#ifndef S24_MODEL_MIXTURE_H
#define S24_MODEL_MIXTURE_H

#include <stdint.h>

#include "sparse24/sparse24.h"

/* The linear layers of a block. */
typedef enum s24i_slot {
    S24I_QUERY = 0,
    S24I_KEY,
    S24I_VALUE,
    S24I_LATENT,    /* of latent queries (latent.h) */
    S24I_ATTENTION, /* of the attention's output */
    S24I_INTERMEDIATE,
    S24I_OUTPUT,
    S24I_SLOTS,             /* of a block without a gate */
    S24I_GATE = S24I_SLOTS, /* of a gated block: output(activation(gate) · intermediate) */
    S24I_ALL_SLOTS,         /* from here on those of experts */
    S24I_MOST_SLOTS = 1 << 20
} s24i_slot;

enum {
    S24I_EXPERT_SLOTS = S24I_ALL_SLOTS - S24I_INTERMEDIATE,
    S24I_MOST_EXPERTS = 1 << 12,
    S24I_MOST_GROUPS = 64, /* of experts: bits say which stay in play */
    S24I_MOST_MIXED = 256  /* blocks, of which bits are kept */
};

/* How a row of models.def has experts. In names the first %d is the block, the second the expert;
   what a model has not is NULL or 0. */
typedef struct s24i_mixture_row {
    const char *key_experts, *key_used; /* how many there are, and how many a token takes */
    const char *key_width;              /* of an expert; NULL: the row's key_intermediate */
    /* Are weights divided by their sum? usual: where the key is not there. */
    const char *key_normalised;
    int usual_normalised;
    const char *key_factor;                       /* and multiplied */
    const char *key_shared_width;                 /* of the expert that each token takes, */
    const char *key_shared_count;                 /* or so many times an expert's */
    const char *key_first, *key_last, *key_every; /* which blocks have experts: from … to (−1: the
                                                      last), every so many, */
    const char *key_dense;                        /* but for these, */
    const char *key_kinds;                        /* or those that a list calls sparse */
    const char *key_groups, *key_groups_used;     /* of experts, and of them of a token's */
    const char *key_method;                       /* NULL, or what must say "greedy", for one
                                                     group, or "group_limited_greedy" */
    const char *router;                           /* without .weight */
    int router_biased;                            /* and .bias */
    const char *correction;                       /* whole; of any rank */
    const char *slots[S24I_ALL_SLOTS];            /* of an expert, without .weight */
    const char *shared[S24I_ALL_SLOTS];           /* of the shared one */
    const char *shared_gate;                      /* of its weight: sigmoid(gate · x) */
    const char *stacked[S24I_ALL_SLOTS];          /* whole: all experts' as one tensor; of
                                                      INTERMEDIATE the gate's rows come first */
    /* Of all experts, [experts, n], whole. Such a row's stacked tensors may be of rank 2: they are
       [experts · n, k]. */
    const char *biases[S24I_ALL_SLOTS];
    int turned;  /* stacked tensors of rank 3 may be [experts, k, n], else [experts, n, k] */
    int sigmoid; /* scores, not a softmax */
    const char *key_jitter; /* of a mixture of two that weighs each among those near it: how near */
    float usual_jitter;
} s24i_mixture_row;

typedef struct s24i_mixture {
    int64_t experts; /* 0: there are none */
    int64_t used, width, shared_width;
    int normalised;
    float factor;                /* 0: 1 */
    float jitter;                /* 0: weights are scores */
    int64_t groups, groups_used; /* 0: one */
    uint64_t blocks[4];          /* bits of blocks that have them */
} s24i_mixture;

/* All of a block's, the shared one too. */
static inline int64_t s24i_mixture_all(const s24i_mixture *mixture)
{
    return mixture->experts + (mixture->shared_width > 0);
}

/* Has the block experts in the place of feed-forward layers? */
static inline int s24i_mixture_has(const s24i_mixture *mixture, int64_t block)
{
    return mixture->experts && mixture->blocks[block / 64 % 4] >> block % 64 & 1;
}

/* The number of an expert's layer, of −1 a block's own. */
static inline s24i_slot s24i_slot_of(int64_t expert, s24i_slot slot)
{
    return (s24i_slot)((int64_t)slot + S24I_EXPERT_SLOTS * (expert + 1));
}

/* Whose layer it is, −1: a block's own. */
static inline int64_t s24i_slot_expert(s24i_slot slot)
{
    return slot < S24I_ALL_SLOTS ? -1 : ((int64_t)slot - S24I_ALL_SLOTS) / S24I_EXPERT_SLOTS;
}

/* The slot of its kind that a block itself has. */
static inline s24i_slot s24i_slot_kind(s24i_slot slot)
{
    return slot < S24I_ALL_SLOTS
               ? slot
               : (s24i_slot)(S24I_INTERMEDIATE + (slot - S24I_ALL_SLOTS) % S24I_EXPERT_SLOTS);
}

/* Numbers that layers of a block may have. */
static inline int s24i_slot_numbers(const s24i_mixture *mixture)
{
    return S24I_ALL_SLOTS + S24I_EXPERT_SLOTS * (int)s24i_mixture_all(mixture);
}

#endif
