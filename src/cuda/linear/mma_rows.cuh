// SPDX-License-Identifier: Apache-2.0
/* The rows of tiles.def for every GPU as the host sees them; one file a dtype compiles them. */
#ifndef S24_CUDA_LINEAR_MMA_ROWS_CUH
#define S24_CUDA_LINEAR_MMA_ROWS_CUH

#include "cuda/linear/linear_row.cuh"
#include "cuda/linear/mma_linear.cuh"

template <class T, int ROWS, int TOKENS, int WARPS_N, int WARPS_M, int STAGES>
constexpr linear_row mma_row_of(const char *name)
{
    using TILE = mma_tile<T, ROWS, TOKENS, WARPS_N, WARPS_M, STAGES, false>;
    linear_row row = {name, ROWS,   TOKENS, 1, 0, 0, 1, TILE::threads, TILE::shared_bytes,
                      {},   nullptr};
    for (const void *&kernel : row.kernels)
        kernel = (const void *)mma_kernel<TILE>;
    if constexpr (TILE::element::is_16_bit) {
        using COLUMNS = mma_tile<T, ROWS, TOKENS, WARPS_N, WARPS_M, STAGES, true>;
        static_assert(COLUMNS::shared_bytes == TILE::shared_bytes, "one launch");
        row.columns = (const void *)mma_kernel<COLUMNS>;
    }
    return row;
}

#endif
