// SPDX-License-Identifier: Apache-2.0
/* The rows of tiles.def as the host sees them; one file a dtype compiles them. */
#ifndef S24_CUDA_LINEAR_ROWS_CUH
#define S24_CUDA_LINEAR_ROWS_CUH

#include "linear.cuh"

struct linear_row {
    const char *name;
    int rows, tokens, chunk, threads, shared_bytes;
    int step_ns, end_ns;
    const void *kernels[3]; /* by linear_epilogue */
};

extern const linear_row linear_rows_bf16[], linear_rows_f16[]; /* in the order of tiles.def */

template <class T, class TILE>
constexpr linear_row linear_row_of(const char *name, int step_ns, int end_ns)
{
    return {name,
            TILE::rows,
            TILE::tokens,
            TILE::chunk,
            TILE::threads,
            TILE::shared_bytes,
            step_ns,
            end_ns,
            {(const void *)linear_kernel<T, TILE, LINEAR_BIAS>,
             (const void *)linear_kernel<T, TILE, LINEAR_GELU>,
             (const void *)linear_kernel<T, TILE, LINEAR_FULL>}};
}

#endif
