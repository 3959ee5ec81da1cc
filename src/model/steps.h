// SPDX-License-Identifier: Apache-2.0
/*
 * What a block does, step by step. The list is made once from a model type's row; passes on the CPU
 * and on a GPU, the timing of their plans, calibration and training walk it, and nothing else knows
 * the order. Between two attentions every token goes its own way.
 *
 *   norms after the sums:      QUERY KEY VALUE ─ attend ─ ATTENTION (+x) ─ norm ─
 *                              INTERMEDIATE ─ OUTPUT (+) ─ norm
 *   norms before the layers:   norm ─ QUERY KEY VALUE ─ head norm ─ rotate ─ attend ─
 *                              ATTENTION (+x) ─ norm ─ GATE INTERMEDIATE ─ gate ─ OUTPUT (+),
 *                              a norm after the last
 *   norms of what is added:    … attend ─ ATTENTION ─ norm ─ add (+x) …
 *   side by side:              norm ─ QUERY KEY VALUE ─ rotate ─ attend ─ norm of x ─
 *                              INTERMEDIATE, ATTENTION (+x) ─ OUTPUT (+)
 *
 *   with latents:              norm ─ latents (QUERY KEY …) ─ attend ─ values ─ ATTENTION (+x) …
 *
 *   with experts:              … norm ─ experts (+), in the place of INTERMEDIATE to OUTPUT
 *
 * Where ranks share out a block, ATTENTION and OUTPUT are cut along k and what stands before them
 * along n, and a step that sums over the ranks follows each of the two.
 */
#ifndef S24_MODEL_STEPS_H
#define S24_MODEL_STEPS_H

#include "model/model.h"

typedef enum s24i_step_kind {
    S24I_STEP_NORM,            /* to = norm(from) */
    S24I_STEP_PRODUCT,         /* to = from · wᵀ + bias, then the layer's activation; or to += */
    S24I_STEP_HEAD_NORM,       /* each head of queries and keys = its norm, in place */
    S24I_STEP_ROTATE,          /* queries and keys are turned by their positions, in place */
    S24I_STEP_ATTEND,          /* CONTEXT = attention of QKV, the one step where tokens meet */
    S24I_STEP_ATTEND_NEAR,     /* the same, which in some blocks sees tokens near alone */
    S24I_STEP_ATTEND_DISTANCE, /* the same, with scores that grow by the tokens' distance */
    S24I_STEP_ATTEND_APART,    /* the same, with scores that grow by what a row for their distance
                                  gives with queries and keys */
    S24I_STEP_ATTEND_SINKS,    /* the same, with a score more of each head for no token */
    S24I_STEP_LATENT,          /* QKV = queries of latents, and a row of these, from from */
    S24I_STEP_VALUES,          /* to = heads' values from what latents gave them in from */
    S24I_STEP_ADD,             /* to += residual_factor · from, or by a factor for each column */
    S24I_STEP_GATE,            /* OUTER = activation(gate) · intermediate, both in OUTER before */
    S24I_STEP_EXPERTS,         /* to = a mixture of experts of from (mixture.h); or to += */
    S24I_STEP_SUM,             /* SUMS = their sum over the ranks that hold the model together */
    S24I_STEP_KINDS
} s24i_step_kind;

/* Where a step reads and writes, [tokens, …] each. */
typedef enum s24i_step_place {
    S24I_AT_SUMS,    /* width: the residual stream, a block's input and output */
    S24I_AT_NORMED,  /* width: a norm of the sums, where norms stand before the layers; or what is
                        to be added to them */
    S24I_AT_QKV,     /* queries, keys and values */
    S24I_AT_CONTEXT, /* what the attention gives: heads · head_width */
    S24I_AT_OUTER,   /* intermediate, twice as wide before its gate */
    S24I_AT_VALUES   /* heads' values, of latents */
} s24i_step_place;

enum { S24I_ATTENTION_NORM, S24I_OUTPUT_NORM, S24I_AFTER_ATTENTION_NORM, S24I_AFTER_OUTPUT_NORM };

typedef struct s24i_block_step {
    s24i_step_kind kind;
    s24i_step_place from, to;
    /* Of a product: its first layer; QUERY for all three, INTERMEDIATE for the gate's too. Of what
       is added: the layer that gave it. */
    s24i_slot slot;
    int norm; /* of a norm: which of the block's */
    int adds; /* of a product, or of experts: to += */
} s24i_block_step;

enum { S24I_MOST_STEPS = 18 };

typedef struct s24i_steps {
    s24i_block_step step[S24I_MOST_STEPS];
    int count;
    int attend; /* the index of the step that attends */
} s24i_steps;

/* The steps of a block of that model type; and of one with experts, which differ after the step
   that attends. */
s24i_steps s24i_steps_of(const s24i_architecture *architecture);
s24i_steps s24i_steps_mixed(const s24i_architecture *architecture);
/* The same of a block that ranks share out: a sum follows each product that adds to the sums. */
s24i_steps s24i_steps_shared(const s24i_architecture *architecture);
/* The step of the product whose first layer is that one. */
const s24i_block_step *s24i_steps_product(const s24i_steps *steps, s24i_slot slot);
/* "norm", "product", "rotate", "attend", "gate" … */
const char *s24i_step_name(s24i_step_kind kind);
/* Refuses a model type with a step that whoever walks it lacks, by the step's name; `has` holds
   a bit (1 << kind) for each that is there, `who` says who walks. UNSUPPORTED. */
s24_status s24i_steps_require(s24_ctx *ctx, const s24i_architecture *architecture, unsigned has,
                              const char *who);

#endif
