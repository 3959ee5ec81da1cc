// SPDX-License-Identifier: Apache-2.0
/* The products between norms, in bf16. */
#include "cuda/linear/linear_norm.cuh"

const linear_row norm_rows_bf16[] = {
#define NORM_TILE(rows, tokens, warpgroups, stages, depth, chunk, pieces, shares)                  \
    norm_row_of<__nv_bfloat16, rows, tokens, warpgroups, stages, depth, chunk, pieces, shares>(    \
        #rows "x" #tokens "/norm"),
#include "cuda/linear/tiles.def"
};
