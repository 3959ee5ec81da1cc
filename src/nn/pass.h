// SPDX-License-Identifier: Apache-2.0
/* A forward pass over the blocks. */
#ifndef S24_NN_PASS_H
#define S24_NN_PASS_H

#include "nn/session.h"

typedef struct s24i_pass {
    s24_session *session;
    s24_ctx *ctx;
    const s24_batch *batch; /* checked, its tiles laid out in the session */
    float *hidden;          /* [tokens, width] */
    const s24i_observer *observer;
} s24i_pass;

/* What the first block of the pass needs before its attention. */
s24_status s24i_pass_start(const s24i_pass *pass, int64_t block);
/* hidden goes through a block in place, the one that started or followed; more: the next one
   follows. */
s24_status s24i_pass_block(const s24i_pass *pass, int64_t block, int more);

#endif
