// SPDX-License-Identifier: Apache-2.0
/* A forward pass over the blocks. */
#ifndef S24_RUN_CPU_PASS_H
#define S24_RUN_CPU_PASS_H

#include "run/session.h"

typedef struct s24i_pass {
    s24_session *session;
    s24_ctx *ctx;
    const s24_batch *batch; /* checked, its tiles laid out in the session */
    float *hidden;          /* [tokens, width] */
    const s24i_observer *observer;
} s24i_pass;

/* Is the input of that slot's product the last thing that the observer wants of a block? */
static inline int s24i_pass_ends_at(const s24i_pass *pass, s24i_slot slot)
{
    return pass->observer && pass->observer->last == 1u << slot;
}

/* The same of any slot before the attention, or of this one's output. */
static inline int s24i_pass_ends_by(const s24i_pass *pass, s24i_slot last)
{
    return pass->observer && pass->observer->last && pass->observer->last <= 1u << last;
}

/* y (+)= activation(x·wᵀ + bias) on the lane's threads, with its memory. */
s24_status s24i_lane_linear(const s24i_lane *lane, const s24i_linear *l, const s24_dense *y,
                            const s24_dense *x, int accumulate);
/* How a pass of that many tokens on the session's threads runs the product, and is that 2:4? */
s24i_way s24i_pass_way(const s24i_linear *l, const s24_session *session, int64_t tokens);
int s24i_pass_runs_sparse(const s24i_linear *l, const s24_session *session, int64_t tokens);
/* What the first block of the pass needs before its attention. */
s24_status s24i_pass_start(const s24i_pass *pass, int64_t block);
/* hidden goes through a block in place, the one that started or followed; more: the next one
   follows. */
s24_status s24i_pass_block(const s24i_pass *pass, int64_t block, int more);

#endif
