// SPDX-License-Identifier: Apache-2.0
/*
 * A model's walk through its blocks while they are pruned: what model_prune_blocks.c and
 * calibration_there.c, which has the passes that a device runs, share.
 */
#ifndef S24_RECIPE_CALIBRATION_H
#define S24_RECIPE_CALIBRATION_H

#include "recipe/aim.h"
#include "recipe/kept_blocks.h"
#include "recipe/reconstruct.h"

enum { S24I_STAGES = 6, S24I_OUTER_STAGES = 2 };

/* The layers of a block that share an input, which is observed as the first one's, in the order
   they are pruned; count 0: the model has no such stage. */
typedef struct s24i_stage_kind {
    s24i_slot slots[3];
    int count;
} s24i_stage_kind;
s24i_stage_kind s24i_stage_kind_of(const s24i_shape *shape, int kind);

/* A stage of a block's own layers (first −1, end 0), or of some of its experts'. */
typedef struct s24i_stage {
    int kind; /* below S24I_STAGES */
    int64_t first, end;
} s24i_stage;

typedef struct s24i_reach s24i_reach; /* reach.h */

typedef struct s24i_calibration {
    const s24i_pruner *pruner;
    s24_ctx *ctx;
    s24_model *model;
    s24_session *session;
    int64_t max_tokens; /* of a text */
    int64_t texts;      /* or images, each a text of all positions */
    int64_t *ends;      /* [texts + 1]: text t is tokens ends[t] … ends[t + 1] */
    int32_t *ids;       /* of the tokens; NULL: images */
    int32_t *types;     /* likewise; NULL: 0 */
    int64_t ids_capacity;
    int64_t most_tokens;                 /* of a batch */
    int64_t *offsets;                    /* [texts + 1]: of the batch at hand */
    float *hidden;                       /* [tokens, width] */
    float *copy;                         /* [most_tokens, width] */
    int numbers;                         /* of a block's layers */
    const s24_tensor **tensors;          /* [layers][numbers], NULL: the model has none */
    const s24_tensor *const *block;      /* those of the block at hand */
    s24_dense *weights;                  /* [numbers]: and its weights, pruned one after another */
    int observed;                        /* the slot whose input goes into stats, */
    s24i_stage at;                       /* of these experts */
    s24_stats **stats;                   /* [1 or experts] */
    int is_there;                        /* the passes of training calibrate: halves'; else here */
    s24i_halves *halves;                 /* for that, or where the CPU reconstructs */
    s24i_aim *aim;                       /* or NULL; then it is there */
    s24i_reconstruction *reconstruction; /* or NULL */
    s24i_kept_blocks *kept;              /* or NULL */
    s24i_reach *reach;                   /* likewise: where errors are followed to the end */
    int64_t done, total;                 /* batches through blocks */
} s24i_calibration;

/* Texts first … end, whose lengths stand in offsets until the next. */
s24_batch s24i_calibration_batch(s24i_calibration *c, int64_t first, int64_t end);
/* The weights of the block at hand as the checkpoint has them. */
s24_status s24i_calibration_load(s24i_calibration *c);
/* Is there a layer that gets pruned among those of an expert of a stage, or with −1 of the block's
   own? */
int s24i_calibration_takes(const s24i_calibration *c, int64_t block, int kind, int64_t expert);
/* A stage's layers by its statistics, of ranks by those of all. */
s24_status s24i_calibration_prune(s24i_calibration *c, int64_t block, const s24i_stage *s);
/* The same, each by one of the ranks, whose statistics are the same. */
s24_status s24i_calibration_take_turns(s24i_calibration *c, const s24i_stage *s);

/* Makes halves and reconstruction, where opts ask for them. */
s24_status s24i_calibration_prepare_halves(s24i_calibration *c);
/* The pruned weights of the block at hand learn, and only then are written. */
s24_status s24i_calibration_reconstruct(s24i_calibration *c, int64_t block);
/* Prunes a block whose passes are there, up to halves->middle; and the same of one that an
   earlier run has done, whose weights are there. */
s24_status s24i_calibration_prune_there(s24i_calibration *c, int64_t block);
s24_status s24i_calibration_take(s24i_calibration *c, int64_t block);
/* All texts there from before the block's second half to the next block. */
s24_status s24i_calibration_leave_there(s24i_calibration *c, int64_t block);

#endif
