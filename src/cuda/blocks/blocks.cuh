// SPDX-License-Identifier: Apache-2.0
/*
 * Products with weights in rows of square blocks, 16 bits: y = activation(x · wᵀ + bias). A block
 * lies as shared memory wants it (device_table.h), so that a slice of it is one copy.
 */
#ifndef S24_CUDA_BLOCKS_BLOCKS_CUH
#define S24_CUDA_BLOCKS_BLOCKS_CUH

#include "cuda/plugin/device.cuh"

struct blocks_params {
    const int *starts; /* [lines + 1] */
    const int *index;  /* block columns */
    const int *order;  /* [lines]: the longest first */
    const uint16_t *values;
    const void *bias; /* of the blocks' dtype, or NULL */
    const uint16_t *x;
    uint16_t *y;
    int64_t x_ld, y_ld;
    int m, lines, activation;
};

/* Two outputs as they lie in y. */
template <class T> static __device__ __forceinline__ uint32_t two_of(float a, float b)
{
    const T pair[2] = {(T)a, (T)b};
    uint32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

/* A kernel of a block's side. */
struct blocks_row {
    int block;
    s24_device_blocks_way way;
    int tokens; /* of a tile, or at most of few */
    int threads, shared_bytes;
    const void *kernel;
};
/* Rows of a dtype, by side and way; few with the fewest tokens first, and with the most threads. */
enum { BLOCKS_ROWS = 20 };
extern const blocks_row blocks_rows_bf16[BLOCKS_ROWS], blocks_rows_f16[BLOCKS_ROWS];

#endif
