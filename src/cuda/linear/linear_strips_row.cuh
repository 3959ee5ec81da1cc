// SPDX-License-Identifier: Apache-2.0
/* Kernels of products with integers as the host sees them. */
#ifndef S24_CUDA_LINEAR_LINEAR_STRIPS_ROW_CUH
#define S24_CUDA_LINEAR_LINEAR_STRIPS_ROW_CUH

#include "cuda/linear/strips.cuh"

enum { STRIPS_ORDERS = 12, STRIPS_TILES = 7, STRIPS_MANY = 3 };

struct strips_kernel_of {
    const void *kernel;
    int shared_bytes;
};

/* Tokens by outputs of a tile, blocks of the weight along k that a block of threads has at a time,
   blocks that a processor has room for; kernels by strips_orders.def. */
struct strips_row {
    int tokens, rows, parts, threads, blocks;
    strips_kernel_of kernels[STRIPS_ORDERS];
};

/* By tokens: of each number one for at most as many tiles as there are processors, then one for
   more; the last, for 64, has none for more. */
extern const strips_row strips_rows_bf16[STRIPS_TILES], strips_rows_f16[STRIPS_TILES];
/* Those for more tokens than that, by tokens. */
extern const strips_row strips_many_bf16[STRIPS_MANY], strips_many_f16[STRIPS_MANY];
/* Those of every GPU, of one tile each. */
extern const strips_row strips_mma_bf16, strips_mma_f16;

#endif
