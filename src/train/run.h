// SPDX-License-Identifier: Apache-2.0
/* The inside of a training run. */
#ifndef S24_TRAIN_RUN_H
#define S24_TRAIN_RUN_H

#include "sparse24/task.h"
#include "train/method.h"
#include "train/transformer.h"

/* Examples side by side in host memory. */
typedef struct s24i_examples {
    const s24_train_source *source;
    int64_t most;     /* examples at a time */
    int64_t *offsets; /* [most + 1], and as many for one batch of them */
    int32_t *ids, *types, *targets, *starts, *ends;
    float *pixels; /* in memory of the machine's, where it has some for that */
    const s24i_machine *machine;
    int64_t tokens, count, labels; /* of those that are there */
    /* Of the step, whose examples several ranks may share, and which of them is the first here. */
    int64_t all_tokens, all_count, all_labels, first;
    s24i_ready ready; /* hears of the last batch's gradients */
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

/* Numbers that a run of a method remembers, on the host: these, then a number for each place of
   the transformer (a scale, or whether it stays 2:4 along both sides), then a window of STEP's. */
enum {
    S24I_REMEMBERS_SPARSE, /* was the last step in 2:4? −1: there was none */
    S24I_REMEMBERS_CHOSEN, /* the step that chose the masks */
    S24I_REMEMBERS_FLIPS,
    S24I_REMEMBERS_KEPT,
    S24I_REMEMBERS_BETA,
    S24I_REMEMBERS_FROZEN,  /* the step after which the variance is; 0: it is not */
    S24I_REMEMBERS_COUNT,   /* of what came into the window */
    S24I_REMEMBERS_SQUARES, /* the running mean of the gradients' squares, as Adam's moments go */
    S24I_REMEMBERS_SCORES,  /* of eight masks */
    S24I_REMEMBERS_FIXED = S24I_REMEMBERS_SCORES + 8
};

/* A part of the arena; both are multiples of 16. */
typedef struct s24i_range {
    int64_t first, count;
} s24i_range;

typedef struct s24i_optimiser {
    float *m, *v; /* in the machine's memory, laid out by `segments` (moments.c) */
    int64_t moment_count;
    uint32_t *moments_at; /* in a device's memory: see s24i_update; NULL: all have moments */
    uint16_t *mask;       /* likewise, a bit a weight; NULL: all may be anything */
    int learns;           /* does what is masked learn on? */
    /* What learns of some segments, where it and what runs of it are both f32 (learning.c), and,
       for each segment of the transformer, where it begins there, −1: nowhere. NULL: the weights
       are what learns, and what runs is what the machine rounds next to them. */
    float *latent;
    int64_t *apart, latent_count;
    const s24i_method *method;
    s24i_numbers numbers;
    const char *include, *exclude;
    uint64_t seed;
    /* In the machine: the mask as it was chosen last, or looked at, which `mask` is where it is
       applied; and the sums that a device leaves while it makes masks (NULL: they come at once). */
    uint16_t *bits;
    double *sums;
    int pending;          /* are there sums that memory has not yet? */
    int64_t pending_bits; /* of how many bits changes were counted; 0: they were not */
    double *memory;       /* what a run remembers, on the host */
    int64_t memory_count;
    /* In the machine: what of a method learns next to the weights, with its two moments and its
       gradients, and the sum of their squares. NULL: the method has none. */
    float *extra;
    int64_t extra_count;
    double *extra_squares;
    s24i_layer_rule rule;   /* of the layers that the method is for */
    uint16_t *taken;        /* STEP's: in the machine, the bits of those layers */
    s24i_range own;         /* the weights that are moved here: all, or a rank's, */
    int parts;              /* 1: where ranks share the moments out */
    s24i_segment *segments; /* of these, from own.first on */
    int64_t segment_count;
    int64_t step_tokens;    /* of a step here, about */
    double noise, overhead; /* as the report has them */
    float
        *whole; /* while rank 0 writes a checkpoint of several ranks' moments: both, on the host */
} s24i_optimiser;

/* Where a run stands: before this step, 0 … 1. */
typedef struct s24i_moment {
    int64_t step;
    double progress;
} s24i_moment;

s24_status s24i_optimiser_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                                 const s24_train_opts *opts, s24i_range own);
/* Room for the moments, all 0, once it is known which masks stay. */
s24_status s24i_moments_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* A moment on the host, laid out as all weights are, from where it lies, or to there. */
s24_status s24i_moments_read(float *all, const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                             const float *moment);
s24_status s24i_moments_write(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              float *moment, const float *all);
/* Room for what learns, and the weights as they are in it. */
s24_status s24i_learning_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* Where an element of the arena learns, and those that follow it in its segment. */
float *s24i_learning(const s24i_optimiser *o, const s24_transformer *t, int64_t element);
/* All that learns, on the host, laid out as the weights are, from where it lies, or to there. */
void s24i_learning_read(float *all, const s24i_optimiser *o, s24_transformer *t);
void s24i_learning_write(const s24i_optimiser *o, s24_transformer *t, const float *all);
/* Where masks stay for some steps: 2:4 layers are multiplied as such from now on. */
s24_status s24i_optimiser_fix(const s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              int64_t *plan);
void s24i_optimiser_free(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* Step number `step` (1, 2, …) at a learning rate, which leaves the squares of the gradients
   with the loss and clears them; nothing else where one of these is not finite. */
typedef struct s24i_stride {
    int64_t step;
    s24i_moment at; /* before it, */
    double after;   /* and the progress after it */
    double rate;
} s24i_stride;
s24_status s24i_optimiser_step(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                               const s24_train_opts *opts, const s24i_stride *stride);

/* Masks of a moment (masks.c): chosen anew where `chooses`, all ones where the step is dense; what
   runs of them, in a step, or, where it settles, at the end. */
typedef struct s24i_look {
    s24i_moment moment;
    int sparse, chooses, settles;
    int lays; /* what runs is made once more of what has been noted */
    int ends; /* what learns becomes what runs */
} s24i_look;

/* The squares of the first moment that a step left, among the machine's sums (noise.c). */
void s24i_noise_measure(const s24i_optimiser *o, s24_transformer *t);
/* o->noise, from the sums of Adam's step number `step`, whose gradients had that norm when they
   were clipped. */
void s24i_noise_told(s24i_optimiser *o, const s24i_sums *sums, double norm,
                     const s24_train_opts *opts, int64_t step);

/* Does the method choose zeros of that tensor? */
int s24i_method_takes(const s24i_optimiser *o, const s24i_place *place);
/* Refuses what the transformer, its machine or the objective has not; room for what the method
   learns and remembers. */
s24_status s24i_method_create(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              const s24_train_opts *opts);
/* Weights and masks as the step at a moment runs with them; *changed: was the step before it
   dense and this is not, or the other way round? */
s24_status s24i_method_begin(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                             const s24i_moment *moment, int *changed);
/* Weights as the method leaves them at its end; the next begin takes that back. */
s24_status s24i_method_settle(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              const s24i_moment *moment);
/* What runs, of weights and masks that came from elsewhere. */
s24_status s24i_method_lay(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* However a run ended, the weights are what runs, and nothing learns any more: `status`, or what
   failed after it was OK. */
s24_status s24i_method_finish(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                              s24_status status);
/* After the step of that loss, which was applied. */
s24_status s24i_method_end(s24i_optimiser *o, s24_transformer *t, const s24i_moment *moment,
                           double loss);
/* Ends what the transformer's layers know of the method. */
void s24i_method_free(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);
/* Fills the fields of the report. */
void s24i_method_report(s24_train_report *report, const s24i_optimiser *o);

s24_status s24i_masks_make(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx,
                           const s24i_look *look);
/* What a device has summed up while it made masks, among what the run remembers. */
s24_status s24i_masks_told(s24i_optimiser *o, s24_transformer *t, s24_ctx *ctx);

/* Which of several masks a step trains; at the end that of the least loss. */
int s24i_mask_of_step(const s24i_optimiser *o, const s24i_moment *moment, int settles);

/* How much of o->extra a place has. */
int64_t s24i_extra_of(const s24i_optimiser *o, const s24i_place *place);
/* Gradients of o->extra, after its moments, from those of the weights. */
s24_status s24i_extra_back(const s24i_optimiser *o, s24_transformer *t, const s24i_look *look);
/* How the patterns of a place are drawn at a moment. */
s24i_pattern_draw s24i_patterns_draw(const s24i_optimiser *o, const s24i_look *look, int64_t place);

/* A scale for each half of a row: [rows, 2]. */
void s24i_scales_apply(float *w, const float *scales, int64_t rows, int64_t cols);

/* Patterns (mask_patterns.c): six logits a group of four, near those of `keep` at the start. */
enum { S24I_PATTERNS = 6 };
void s24i_patterns_begin(const s24i_optimiser *o, float *logits, const uint8_t *keep, int64_t count,
                         int64_t place);
/* A pattern for each of the groups of `count` weights. */
void s24i_patterns_keep(uint8_t *keep, const s24i_pattern_draw *draw, const float *logits,
                        int64_t count);
void s24i_patterns_back(const s24i_extra_place *at);

/* Whether STEP's dense phase ends with a step at `progress`: as soon as the mean of the last
   changes is below eps, not before `least` and at the latest after `most`. */
int s24i_step_freezes(double mean, double eps, double progress, const s24i_numbers *numbers);

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
                                s24i_optimiser *o, const char *path);

#endif
