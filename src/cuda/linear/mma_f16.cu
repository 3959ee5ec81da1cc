// SPDX-License-Identifier: Apache-2.0
/* The products in f16 of every GPU. */
#include "cuda/linear/mma_rows.cuh"

const linear_row mma_rows_f16[] = {
#define MMA_TILE(rows, tokens, warps_n, warps_m, stages)                                           \
    mma_row_of<__half, rows, tokens, warps_n, warps_m, stages>(#rows "x" #tokens "/mma"),
#include "cuda/linear/tiles.def"
};
