// SPDX-License-Identifier: Apache-2.0
/* The products in e4m3. */
#include "cuda/linear/linear_rows.cuh"

const linear_row linear_rows_e4m3[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares)               \
    linear_row_of<__nv_fp8_e4m3, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers,   \
                  shares>(#rows "x" #tokens),
#include "cuda/linear/tiles.def"
};
