// SPDX-License-Identifier: Apache-2.0
/* Kernels of products with integers as the host sees them. */
#ifndef S24_CUDA_LINEAR_LINEAR_STRIPS_ROW_CUH
#define S24_CUDA_LINEAR_LINEAR_STRIPS_ROW_CUH

#include "cuda/linear/strips.cuh"

enum { STRIPS_ORDERS = 12, STRIPS_TILES = 8 };

struct strips_kernel_of {
    const void *kernel;
    int shared_bytes;
};

/* Tokens by outputs of a tile, parts of k in a block, blocks of a processor; kernels by
   strips_orders.def. */
struct strips_row {
    int tokens, rows, parts, threads, blocks;
    strips_kernel_of kernels[STRIPS_ORDERS];
};

/* By tokens: the first that has as many, the last ones for all above, too; of each number one for
   as many tiles as there are processors, then one for more. */
extern const strips_row strips_rows_bf16[STRIPS_TILES], strips_rows_f16[STRIPS_TILES];
/* Those of every GPU, of one tile each. */
extern const strips_row strips_mma_bf16, strips_mma_f16;

#endif
