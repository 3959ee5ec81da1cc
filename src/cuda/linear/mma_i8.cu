// SPDX-License-Identifier: Apache-2.0
/* The products in i8 of every GPU. */
#include "cuda/linear/mma_rows.cuh"

const linear_row mma_rows_i8[] = {
#define MMA_TILE(rows, tokens, warps_n, warps_m, stages)                                           \
    mma_row_of<int8_t, rows, tokens, warps_n, warps_m, stages>(#rows "x" #tokens "/mma"),
#include "cuda/linear/tiles.def"
};
