// SPDX-License-Identifier: Apache-2.0
/* The criterion "random": numbers of the seed and the weight's place, the control of all others. */
#include "prune/prune.h"

s24_status s24i_score_random(void *user, s24_ctx *ctx, double *scores, const s24_score_inputs *in)
{
    (void)user;
    (void)ctx;
    for (int64_t i = 0; i < in->rows * in->cols; i++) {
        uint32_t words[4];
        s24_random(words, in->seed, (uint64_t)i);
        scores[i] = (double)words[0];
    }
    return S24_OK;
}
