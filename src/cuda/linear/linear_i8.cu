// SPDX-License-Identifier: Apache-2.0
/* The products in i8, with sums in i32. */
#include "cuda/linear/linear_rows.cuh"

const linear_row linear_rows_i8[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares)               \
    linear_row_of<int8_t, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares>( \
        #rows "x" #tokens),
#include "cuda/linear/tiles.def"
};
