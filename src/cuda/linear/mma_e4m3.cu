// SPDX-License-Identifier: Apache-2.0
/* The products in e4m3 of every GPU. */
#include "cuda/linear/mma_rows.cuh"

const linear_row mma_rows_e4m3[] = {
#define MMA_TILE(rows, tokens, warps_n, warps_m, stages)                                           \
    mma_row_of<__nv_fp8_e4m3, rows, tokens, warps_n, warps_m, stages>(#rows "x" #tokens "/mma"),
#include "cuda/linear/tiles.def"
};
