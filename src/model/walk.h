// SPDX-License-Identifier: Apache-2.0
/*
 * One walk over the tensors that a model type's row wants of a checkpoint, in one order, with a
 * sink for each use: what runs a model and what trains it name no tensor themselves. Loaders walk
 * twice, first to check everything before memory of the configuration's size is allocated, then to
 * read.
 */
#ifndef S24_MODEL_WALK_H
#define S24_MODEL_WALK_H

#include "model/model.h"

typedef enum s24i_role {
    S24I_ROLE_WORDS,
    S24I_ROLE_POSITIONS,
    S24I_ROLE_TYPES,
    S24I_ROLE_FIRST_TOKEN,
    S24I_ROLE_MORE_TOKENS,
    S24I_ROLE_PATCHES,        /* weight, bias */
    S24I_ROLE_RELATIVE,       /* [buckets, heads] */
    S24I_ROLE_APART,          /* [2·span, width] */
    S24I_ROLE_APART_NORM,     /* a norm */
    S24I_ROLE_PROJECT,        /* weight, bias */
    S24I_ROLE_EMBEDDING_NORM, /* a norm: weight, and bias unless it is rms */
    S24I_ROLE_LAYER,          /* of a block, by slot: weight, bias */
    S24I_ROLE_ATTENTION_NORM,
    S24I_ROLE_OUTPUT_NORM,
    S24I_ROLE_AFTER_ATTENTION_NORM,
    S24I_ROLE_AFTER_OUTPUT_NORM,
    S24I_ROLE_SINKS,
    S24I_ROLE_QUERY_NORM, /* of a head: weight */
    S24I_ROLE_KEY_NORM,
    S24I_ROLE_ROUTER, /* of a mixture of experts: weight */
    S24I_ROLE_ROUTER_BIAS,
    S24I_ROLE_EXPERT_BIAS, /* by slot, of all experts */
    S24I_ROLE_CORRECTION,
    S24I_ROLE_SHARED_GATE,
    S24I_ROLE_REL_H, /* tables of relative positions */
    S24I_ROLE_REL_W,
    S24I_ROLE_ATTENTION_SCALE,
    S24I_ROLE_OUTPUT_SCALE,
    S24I_ROLE_FINAL_NORM,
    S24I_ROLE_PROBE,      /* by part */
    S24I_ROLE_PROJECTION, /* weight, bias */
    S24I_ROLE_SQUARE,     /* of a head of texts: weight, bias */
    S24I_ROLE_CLASS_NORM, /* likewise */
    S24I_ROLE_HEAD        /* weight, bias */
} s24i_role;

typedef struct s24i_wanted {
    s24i_role role;
    s24i_slot slot;       /* of S24I_ROLE_LAYER: its number */
    s24i_probe_part part; /* of S24I_ROLE_PROBE */
    int64_t block;
    int is_bias; /* the second of a pair */
    /* the first of a stack: layers that read one input, their weights or their biases */
    int begins;
    int stacked; /* a bias, and the checkpoint has one of that stack: a missing one is 0 */
    const char *pattern, *suffix; /* of an expert's layer while it is given */
    const char *old_suffix;       /* of files before 2020, or NULL */
    int64_t rows, cols;           /* as the model has it; cols 0: a vector */
    int optional;
    int transposed; /* [cols, rows] in the checkpoint */
    int any_rank;   /* whatever its shape, that many elements */
} s24i_wanted;

/* A head of the model: its pattern; rows 0: it has none. */
typedef struct s24i_wanted_head {
    const char *pattern;
    int64_t rows;
    int optional_bias;
} s24i_wanted_head;

typedef struct s24i_walk {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_architecture *arch;
    const s24i_shape *shape;
    s24i_wanted_head heads[2];
    s24i_classifies classifies; /* what stands before such a head is wanted */
    int draws;  /* 1: the checkpoint has no tensors, all that must be there are made */
    int checks; /* 1: presence, dtype, shape and finite values of every tensor before it is given */
    /* Given every wanted tensor in order; NULL for an optional one, or for a head's, that is not
       there. May be NULL. */
    s24_status (*take)(void *user, const s24i_wanted *wanted, const s24_tensor *tensor);
    /* Given the end of every block; may be NULL. */
    s24_status (*block_done)(void *user, int64_t block);
    void *user;
} s24i_walk;

/* Errors: FORMAT for a tensor that is missing or of another shape or dtype, NOT_FINITE, and the
   sink's. */
s24_status s24i_walk_tensors(const s24i_walk *walk);
/* Which parts of a head of texts a model has that classifies them. */
int s24i_has_square(const s24i_architecture *arch, s24i_classifies whom);
int s24i_has_class_norm(const s24i_architecture *arch, s24i_classifies whom);
/* Does the checkpoint have such a layer's weight? */
const s24_tensor *s24i_walk_weight(const s24i_walk *walk, const char *pattern);

#endif
