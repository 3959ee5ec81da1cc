// SPDX-License-Identifier: Apache-2.0
/* The criteria "tile-…": 2:4 along k and along n at once, by the rules of kernel/tile_rules.def.
   They need no statistics. */
#include "op/op.h"
#include "prune/prune.h"

s24_status s24i_prune_tiles(s24_ctx *ctx, const s24i_prune_job *job)
{
    const s24_dense w = {job->w, S24_F32, job->n, job->k, 0};
    uint8_t *mask = s24_ctx_alloc(ctx, (size_t)job->n * (size_t)job->k);
    REQUIRE(ctx, mask, S24_ERROR_MEMORY, "out of memory for the mask of [%lld, %lld]",
            (long long)job->n, (long long)job->k);
    s24i_tile_mask(mask, ctx, &w, job->select);
    s24_status status = s24_mask_apply(ctx, &w, &w, mask);
    s24_ctx_free(ctx, mask);
    return status;
}
