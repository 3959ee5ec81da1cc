// SPDX-License-Identifier: Apache-2.0
/* Weights in rows of blocks end to end, as rows of one weight. */
#ifndef S24_RUN_LOAD_JOIN_BLOCKS_H
#define S24_RUN_LOAD_JOIN_BLOCKS_H

#include "model/model.h"

/* Are the sources all of blocks of one side and dtype, with the same columns? */
int s24i_blocks_join_up(const s24i_source *sources, int count);
/* Their rows, which join up, one source's after the other's. MEMORY. */
s24_status s24i_blocks_join(s24_sparse **out, s24_ctx *ctx, const s24i_source *sources, int count);

#endif
