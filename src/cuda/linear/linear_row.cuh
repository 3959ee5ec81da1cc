// SPDX-License-Identifier: Apache-2.0
/* A row of tiles.def as the host sees it. */
#ifndef S24_CUDA_LINEAR_LINEAR_ROW_CUH
#define S24_CUDA_LINEAR_LINEAR_ROW_CUH

#include "cuda/linear/linear_tile.cuh"

struct linear_row {
    const char *name; /* the kernels are NULL where the dtype has no such tile */
    int rows, tokens, depth, chunk, full_chunk, shares, threads, shared_bytes;
    const void *kernels[LINEAR_EPILOGUES];
    const void *columns; /* X [k, m] and Y [n, m], with whatever there is; or NULL */
};

/* In the order of tiles.def. */
extern const linear_row linear_rows_bf16[], linear_rows_f16[], linear_rows_i8[], linear_rows_e4m3[],
    linear_rows_e5m2[];
extern const linear_row norm_rows_bf16[], norm_rows_f16[];
extern const linear_row kept_rows_bf16[], kept_rows_f16[], kept_rows_i8[], kept_rows_e4m3[],
    kept_rows_e5m2[];
extern const linear_row few_rows_bf16[], few_rows_f16[], few_rows_i8[], few_rows_e4m3[],
    few_rows_e5m2[];
extern const linear_row mma_rows_bf16[], mma_rows_f16[], mma_rows_i8[], mma_rows_e4m3[],
    mma_rows_e5m2[];

#endif
