// SPDX-License-Identifier: Apache-2.0
/* The products in f16. */
#include "cuda/linear/linear_rows.cuh"

const linear_row linear_rows_f16[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares)               \
    linear_row_of<__half, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares>( \
        #rows "x" #tokens),
#include "cuda/linear/tiles.def"
};
