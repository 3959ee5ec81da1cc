// SPDX-License-Identifier: Apache-2.0
/* The products in e5m2. */
#include "cuda/linear/linear_rows.cuh"

const linear_row linear_rows_e5m2[] = {
#define TILE(rows, tokens, warpgroups, teams, stages, depth, chunk, buffers, shares)               \
    linear_row_of<__nv_fp8_e5m2, rows, tokens, warpgroups, teams, stages, depth, chunk, buffers,   \
                  shares>(#rows "x" #tokens),
#include "cuda/linear/tiles.def"
};
