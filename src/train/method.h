// SPDX-License-Identifier: Apache-2.0
/*
 * Methods of sparse training: each is a row of methods.def, which says what of the weights runs,
 * who chooses their zeros, which inputs of layers are 2:4 and how the optimiser differs. What is
 * not said there is as in dense training.
 */
#ifndef S24_TRAIN_METHOD_H
#define S24_TRAIN_METHOD_H

#include "sparse24/train.h"

typedef enum s24i_forward {
    S24I_FORWARD_WEIGHTS, /* what learns */
    S24I_FORWARD_KEPT,    /* what the mask leaves of it */
    S24I_FORWARD_SOFT,    /* what a soft threshold leaves of it, scaled */
    S24I_FORWARD_SCALED,  /* all of it, times a scale per half row, until the end */
    S24I_FORWARD_DRAWN    /* what a drawn pattern leaves of it; the patterns learn, it does not */
} s24i_forward;

typedef enum s24i_mask_choice {
    S24I_CHOICE_NOBODY,
    S24I_CHOICE_ZEROS,    /* those of 2:4 layers as they came */
    S24I_CHOICE_GROUPS,   /* magnitudes along k; what is 2:4 along k and n stays so */
    S24I_CHOICE_TILES,    /* magnitudes of 4x4 tiles, the best choice, */
    S24I_CHOICE_GREEDY,   /* the greedy one */
    S24I_CHOICE_PATTERNS, /* logits of the six patterns of a group */
    S24I_CHOICE_SAMPLES   /* one of several masks by magnitudes times noise */
} s24i_mask_choice;

/* What a layer multiplies with instead of its inputs. */
typedef enum s24i_inputs {
    S24I_INPUTS_DENSE,
    /* 2:4 along features and, but of causal models, tokens; gradients go to all */
    S24I_INPUTS_TILES,
    S24I_INPUTS_OUTER /* of the last product of a block: 2:4 along features forward, of that what is
                          2:4 along permuted tokens in dW; gradients go to what is kept */
} s24i_inputs;

typedef enum s24i_adam {
    S24I_ADAM_ADAMW,
    S24I_ADAM_STEP,    /* variance is frozen after a phase */
    S24I_ADAM_ADAMS,   /* decay of what is masked in the moments, by sign */
    S24I_ADAM_PATTERNS /* of the patterns' logits alone */
} s24i_adam;

/* The numbers of all methods; each has some. */
typedef struct s24i_numbers {
#define NUMBER(field, name, least, most, whole, help) double field;
#include "train/method_numbers.def"
} s24i_numbers;

typedef struct s24i_method {
    const char *name;
    s24i_forward forward;
    s24i_mask_choice choice;
    s24i_inputs inputs;
    s24i_adam adam;
    const char *numbers; /* "NAME=X,…": those that it has, with their defaults */
    const char *summary;
} s24i_method;

/* The row of that name; NULL: there is none. */
const s24i_method *s24i_method_find(const char *name);
/* The row that the options say, and its numbers. ARGUMENT for names and numbers that it has not. */
s24_status s24i_method_read(const s24i_method **row, s24i_numbers *numbers, s24_ctx *ctx,
                            const s24_train_opts *opts);

#endif
