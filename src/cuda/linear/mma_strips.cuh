// SPDX-License-Identifier: Apache-2.0
/*
 * Products with integers on every GPU since compute capability 8.0: a block has 16 outputs and 16
 * tokens, each of its warps a part of k, straight from memory.
 */
#ifndef S24_CUDA_LINEAR_MMA_STRIPS_CUH
#define S24_CUDA_LINEAR_MMA_STRIPS_CUH

#include "cuda/linear/linear_strips_row.cuh"
#include "cuda/linear/mma_strips_block.cuh"

enum { STRIPS_MMA_WARPS = 8, STRIPS_MMA_ROWS = 16, STRIPS_MMA_TOKENS = 16 };

/* A token's 128 columns: of each eight, two of this lane's. */
static __device__ __forceinline__ void strips_mma_tokens(uint32_t (&b)[16], const strips_params &p,
                                                         int token, int column)
{
    const uint16_t *x =
        static_cast<const uint16_t *>(p.x) + (size_t)min(token, p.m - 1) * p.x_ld + column;
#pragma unroll
    for (int j = 0; j < 16; j++)
        b[j] = column + 8 * j < p.k ? __ldg(reinterpret_cast<const unsigned *>(x + 8 * j)) : 0;
}

template <class ORDER>
__global__ void __launch_bounds__(32 * STRIPS_MMA_WARPS)
    strips_mma_kernel(const __grid_constant__ strips_params p)
{
    __shared__ float shared[STRIPS_MMA_WARPS * STRIPS_MMA_ROWS * STRIPS_MMA_TOKENS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int token = blockIdx.y * p.turn, slab = blockIdx.x / 4;
    float sums[2][4] = {};
    dependents_may_start();
    wait_for_predecessors();
    for (int i = warp; i < p.k_blocks; i += STRIPS_MMA_WARPS) {
        strips_mma_weight<ORDER> w;
        uint32_t b[2][16];
        w.load(p.w + ((size_t)slab * p.k_blocks + i) * ORDER::block + blockIdx.x % 4 * ORDER::strip,
               lane);
#pragma unroll
        for (int t = 0; t < 2; t++)
            strips_mma_tokens(b[t], p, token + t * 8 + lane / 4, i * 128 + lane % 4 * 2);
        strips_mma_block<ORDER>(sums, w, b);
    }
    float *mine = shared + warp * STRIPS_MMA_ROWS * STRIPS_MMA_TOKENS;
#pragma unroll
    for (int i = 0; i < 8; i++)
        mine[strips_sum_at(lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2, 2)] =
            sums[i / 4][i % 4];
    __syncthreads();
    strips_store<STRIPS_MMA_TOKENS>(p, shared, STRIPS_MMA_WARPS, STRIPS_MMA_ROWS,
                                    blockIdx.x * STRIPS_MMA_ROWS, token, 32 * STRIPS_MMA_WARPS);
}

template <class T> constexpr strips_row strips_mma_row_of()
{
    strips_row row = {
        STRIPS_MMA_TOKENS, STRIPS_MMA_ROWS, STRIPS_MMA_WARPS, 32 * STRIPS_MMA_WARPS, 1, {}};
#define STRIPS(bits, sparse, group, at)                                                            \
    row.kernels[at] = {(const void *)strips_mma_kernel<strips_order<T, bits, sparse, group>>, 0};
#include "cuda/linear/strips_orders.def"
#undef STRIPS
    return row;
}

#endif
