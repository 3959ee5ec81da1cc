// SPDX-License-Identifier: Apache-2.0
/* The kernels of a dtype, compiled: included by its file, which defines ELEMENT and ROWS. */
#include "cuda/blocks/blocks_few.cuh"
#include "cuda/blocks/blocks_many.cuh"

#define FEW(block, tokens, warps)                                                                  \
    {                                                                                              \
        block, S24_BLOCKS_FEW, tokens, 32 * warps,                                                 \
            blocks_few_tile<ELEMENT, block, tokens, warps>::shared_bytes,                          \
            (const void *)blocks_few_kernel<blocks_few_tile<ELEMENT, block, tokens, warps>>        \
    }
#define MANY(block)                                                                                \
    {                                                                                              \
        block, S24_BLOCKS_MANY, blocks_tile<ELEMENT, block>::tokens,                               \
            blocks_tile<ELEMENT, block>::threads, blocks_tile<ELEMENT, block>::shared_bytes,       \
            (const void *)blocks_many_kernel<blocks_tile<ELEMENT, block>>                          \
    }
#define BLOCK(block)                                                                               \
    FEW(block, 8, 16), FEW(block, 8, 8), FEW(block, 16, 16), FEW(block, 16, 8), MANY(block)

const blocks_row ROWS[BLOCKS_ROWS] = {BLOCK(16), BLOCK(32), BLOCK(64), BLOCK(128)};
