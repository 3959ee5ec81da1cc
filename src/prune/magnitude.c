// SPDX-License-Identifier: Apache-2.0
/* The criterion "magnitude": keep the two largest |w| of each group. It needs no statistics. */
#include "prune/prune.h"

s24_status s24i_prune_magnitude(s24_ctx *ctx, const s24i_prune_job *job)
{
    s24i_prune_by_score(ctx, job->w, job->n, job->k, NULL);
    return S24_OK;
}
