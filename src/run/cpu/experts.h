// SPDX-License-Identifier: Apache-2.0
/*
 * The step of a mixture of experts on the CPU. It takes some of a pass's tokens at a time, all at
 * once: the router gives each its experts, tokens are gathered by expert, each expert runs its
 * products over its tokens, and what its experts give is summed up for each token. Threads take one
 * expert after another, or share each product where there are too few of them.
 */
#ifndef S24_RUN_CPU_EXPERTS_H
#define S24_RUN_CPU_EXPERTS_H

#include "run/cpu/pass.h"

/* Some of an expert's tokens, whose results lie one after the other. */
typedef struct s24i_expert_part {
    int64_t expert, first, rows;
} s24i_expert_part;

typedef struct s24i_experts {
    int64_t tokens;    /* at a time */
    int64_t each;      /* experts of a token, the shared one too */
    int64_t part_rows; /* tokens of an expert at a time */
    int64_t widest;    /* of what lies between an expert's layers */
    s24_dtype between; /* f32 or bf16: of that */
    float *normed;     /* [the session's tokens, width]: S24I_AT_NORMED of a pass */
    float *scores;     /* [tokens, experts] */
    float *weights;    /* [tokens, each] */
    int32_t *chosen;   /* [tokens, each] */
    int64_t *places;   /* [tokens, each]: rows of results */
    int64_t *order;    /* [tokens · each]: whose token a row of results is */
    int64_t *begins;   /* [experts + 2]: of each one's rows */
    s24i_expert_part *parts;
    int64_t part_count;
    float *results; /* [tokens · each, width] */
    float *inputs;  /* [lanes, part_rows, width] */
    void *inner;    /* [lanes, part_rows, 3 · widest]: gate and intermediate, then their product */
} s24i_experts;

/* *out NULL: the model has none. What it has after an error, destroy frees. MEMORY. */
s24_status s24i_experts_create(s24i_experts **out, s24_ctx *ctx, const s24_session *session);
void s24i_experts_destroy(s24i_experts *experts, s24_ctx *ctx);
/* The step of a block that has experts, for all tokens of the pass. */
s24_status s24i_experts_run(const s24i_pass *pass, const s24i_block *block,
                            const s24i_block_step *step);
/* Bytes of weights that so many tokens read of a block's experts, if these are chosen alike. */
int64_t s24i_experts_read_bytes(const s24_model *model, const s24i_block *block, int64_t tokens);

#endif
