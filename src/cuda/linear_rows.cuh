// SPDX-License-Identifier: Apache-2.0
/* The rows of tiles.def as the host sees them; one file a dtype compiles them. */
#ifndef S24_CUDA_LINEAR_ROWS_CUH
#define S24_CUDA_LINEAR_ROWS_CUH

#include "linear.cuh"

struct linear_row {
    const char *name; /* the kernels are NULL where the dtype has no such tile */
    int rows, tokens, depth, chunk, full_chunk, shares, threads, shared_bytes;
    int step_ns, end_ns;
    const void *kernels[LINEAR_EPILOGUES];
};

/* In the order of tiles.def. */
extern const linear_row linear_rows_bf16[], linear_rows_f16[], linear_rows_i8[], linear_rows_e4m3[],
    linear_rows_e5m2[];

template <class T, int ROWS, int TOKENS, int WARPGROUPS, int TEAMS, int STAGES, int DEPTH,
          int CHUNK, int BUFFERS, int SHARES>
constexpr linear_row linear_row_of(const char *name, int step_ns, int end_ns)
{
    using TILE =
        linear_tile<T, ROWS, TOKENS, WARPGROUPS, TEAMS, STAGES, DEPTH, CHUNK, BUFFERS, SHARES>;
    linear_row row = {
        name,         TILE::rows,    TILE::tokens,       TILE::depth, TILE::chunk, TILE::full_chunk,
        TILE::shares, TILE::threads, TILE::shared_bytes, step_ns,     end_ns,      {}};
    if constexpr (TILE::element::takes(TOKENS)) {
        row.kernels[LINEAR_BIAS] = (const void *)linear_kernel<TILE, LINEAR_BIAS>;
        row.kernels[LINEAR_FULL] = (const void *)linear_kernel<TILE, LINEAR_FULL>;
    }
    if constexpr (TILE::element::is_16_bit)
        row.kernels[LINEAR_GELU] = (const void *)linear_kernel<TILE, LINEAR_GELU>;
    if constexpr (TILE::element::takes(TOKENS) && TILE::element::is_integer)
        row.kernels[LINEAR_SUMS] = (const void *)linear_kernel<TILE, LINEAR_SUMS>;
    return row;
}

#endif
