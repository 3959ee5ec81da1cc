// SPDX-License-Identifier: Apache-2.0
/* The parameters of mma_linear.cuh, for its host too. */
#ifndef S24_CUDA_LINEAR_MMA_PARAMS_CUH
#define S24_CUDA_LINEAR_MMA_PARAMS_CUH

#include "cuda/linear/linear_tile.cuh"

struct mma_params {
    linear_params linear;
    const uint8_t *x;
    long long x_pitch; /* bytes from one row to the next */
    int x_row, x_rows; /* bytes of a row, rows */
    bool sums;         /* into a Y of i32 as they are */
};

#endif
