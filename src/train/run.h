// SPDX-License-Identifier: Apache-2.0
/* The inside of a training run. */
#ifndef S24_TRAIN_RUN_H
#define S24_TRAIN_RUN_H

#include "sparse24/task.h"
#include "train/transformer.h"

/* Examples side by side in host memory. */
typedef struct s24i_examples {
    const s24_train_source *source;
    int64_t most;     /* examples at a time */
    int64_t *offsets; /* [most + 1], and as many for one batch of them */
    int32_t *ids, *types, *targets, *starts, *ends;
    float *pixels;
    int64_t tokens, count, labels; /* of those that are there */
} s24i_examples;

/* Room for `most` examples of a source. ARGUMENT, MEMORY. */
s24_status s24i_examples_create(s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                                const s24_train_source *source, int64_t most);
void s24i_examples_free(s24i_examples *e, s24_ctx *ctx);
/* Fills it with the examples of these numbers. */
s24_status s24i_examples_read(s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                              const int64_t *which, int64_t count);
/* Adds the gradients of all of them, in as many batches as the transformer needs, and their
   loss, to what the machine has. */
s24_status s24i_examples_gradients(const s24i_examples *e, s24_transformer *t, s24_ctx *ctx,
                                   const s24_objective *objective);

typedef struct s24i_optimiser {
    float *m, *v;   /* in the machine's memory, laid out as the weights */
    uint16_t *mask; /* likewise, a bit a weight; NULL: all may be anything */
    float *latent;  /* the weights before they are masked, where masks change; else NULL */
} s24i_optimiser;

s24_status s24i_optimiser_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                                 const s24_train_opts *opts);
/* o->mask: the zeros of 2:4 layers, or, where there are latent weights, their magnitudes'
   choice, by which the transformer's weights are made anew. NOT_TWO_FOUR. */
s24_status s24i_masks_make(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* Where weights are fixed: 2:4 layers are multiplied as such from now on. */
s24_status s24i_optimiser_fix(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              int64_t *plan);
void s24i_optimiser_free(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* Step number `step` (1, 2, …) at a learning rate, which leaves the squares of the gradients
   with the loss and clears them; nothing else where one of these is not finite. Waits for
   nothing. */
void s24i_optimiser_step(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                         const s24_train_opts *opts, int64_t step, double rate);
/* The learning rate's share at progress 0 … 1 of a run whose step takes `share` of it. */
double s24i_schedule_at(const s24_train_opts *opts, double progress, double share);

/* What a run goes on from, beside weights and moments. */
typedef struct s24i_train_state {
    int64_t step, tokens;
    double seconds;
    uint64_t run; /* of the options and the source that the run was started with */
    /* Of gradients in f16: what they are multiplied by, steps since that was changed, and steps
       that were left out because a gradient was too large for it. */
    double scale;
    int64_t since, left_out;
    int64_t plan; /* which layers run 2:4, see s24i_ops.fix */
} s24i_train_state;

s24_status s24i_checkpoint_write(s24_transformer *t, s24_ctx *ctx, const s24i_optimiser *o,
                                 const s24i_train_state *state, const char *path);
/* FORMAT where it is of another run or of another model. */
s24_status s24i_checkpoint_read(s24i_train_state *state, s24_transformer *t, s24_ctx *ctx,
                                const s24i_optimiser *o, const char *path);

#endif
