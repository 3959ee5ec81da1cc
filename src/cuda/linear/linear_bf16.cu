// SPDX-License-Identifier: Apache-2.0
/* The products in bf16. */
#include "cuda/linear/linear_rows.cuh"

const linear_row linear_rows_bf16[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares)               \
    linear_row_of<__nv_bfloat16, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers,   \
                  shares>(#rows "x" #tokens),
#include "cuda/linear/tiles.def"
};
