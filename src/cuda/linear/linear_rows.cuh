// SPDX-License-Identifier: Apache-2.0
/* The rows of tiles.def as the host sees them; one file a dtype compiles them. */
#ifndef S24_CUDA_LINEAR_LINEAR_ROWS_CUH
#define S24_CUDA_LINEAR_LINEAR_ROWS_CUH

#include "cuda/linear/linear.cuh"
#include "cuda/linear/linear_row.cuh"

template <class T, int ROWS, int TOKENS, int WARPGROUPS, int TEAMS, int STAGES, int DEPTH,
          int CHUNK, int BUFFERS, int SHARES>
constexpr linear_row linear_row_of(const char *name)
{
    using TILE =
        linear_tile<T, ROWS, TOKENS, WARPGROUPS, TEAMS, STAGES, DEPTH, CHUNK, BUFFERS, SHARES>;
    linear_row row = {
        name,         TILE::rows,    TILE::tokens,       TILE::depth, TILE::chunk, TILE::full_chunk,
        TILE::shares, TILE::threads, TILE::shared_bytes, {},          nullptr};
    if constexpr (TILE::element::takes(TOKENS)) {
        row.kernels[LINEAR_BIAS] = (const void *)linear_kernel<TILE, LINEAR_BIAS>;
        row.kernels[LINEAR_FULL] = (const void *)linear_kernel<TILE, LINEAR_FULL>;
    }
    if constexpr (TILE::element::is_16_bit && TOKENS % 64 == 0 && CHUNK == 64) {
        using COLUMNS = linear_tile<T, ROWS, TOKENS, WARPGROUPS, TEAMS, STAGES, DEPTH, CHUNK,
                                    BUFFERS, SHARES, true>;
        row.columns = (const void *)linear_kernel<COLUMNS, LINEAR_BIAS>;
    }
    if constexpr (TILE::element::is_16_bit)
        row.kernels[LINEAR_GELU] = (const void *)linear_kernel<TILE, LINEAR_GELU>;
    if constexpr (TILE::element::takes(TOKENS) && TILE::element::has_scales) {
        row.kernels[LINEAR_SCALED] = (const void *)linear_kernel<TILE, LINEAR_SCALED>;
        row.kernels[LINEAR_SCALED_GELU] = (const void *)linear_kernel<TILE, LINEAR_SCALED_GELU>;
        row.kernels[LINEAR_SCALED_GELU_BYTES] =
            (const void *)linear_kernel<TILE, LINEAR_SCALED_GELU_BYTES>;
    }
    if constexpr (TILE::element::takes(TOKENS) && TILE::element::is_integer) {
        row.kernels[LINEAR_SUMS] = (const void *)linear_kernel<TILE, LINEAR_SUMS>;
        row.kernels[LINEAR_BYTES] = (const void *)linear_kernel<TILE, LINEAR_BYTES>;
        row.kernels[LINEAR_SCALED_BYTES] = (const void *)linear_kernel<TILE, LINEAR_SCALED_BYTES>;
    }
    return row;
}

#endif
