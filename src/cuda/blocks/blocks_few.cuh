// SPDX-License-Identifier: Apache-2.0
/*
 * Up to 16 tokens: all that counts is how the blocks stream in. A block of threads has a row of
 * blocks, whose blocks its warps take by turns, straight to registers; the products are mma's,
 * tokens by outputs, a thread's 16 bytes of a row being four of its operands in an order of k that
 * weight and tokens share, whatever the dtype. Sums are added up in the order of warps.
 */
#ifndef S24_CUDA_BLOCKS_FEW_CUH
#define S24_CUDA_BLOCKS_FEW_CUH

#include "cuda/blocks/blocks.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/mma.cuh"

enum { BLOCKS_FEW_TOKENS = 16 };

template <class T, int BLOCK, int TOKENS, int WARPS>
struct blocks_few_tile : blocks_kind<T, BLOCK> {
    using kind = blocks_kind<T, BLOCK>;
    static constexpr int tokens = TOKENS, warps = WARPS;
    static constexpr int step = 64;                      /* bytes of k, 16 of a thread */
    static constexpr int rows = BLOCK < 64 ? BLOCK : 64; /* of a block that a warp has */
    static constexpr int parts = BLOCK / rows;           /* warps that share a block */
    static constexpr int eights = rows / 8;              /* outputs that are multiplied at once */
    static constexpr int blocks = kind::side < step ? step / kind::side : 1; /* of a step */
    static constexpr int steps = kind::side < step ? 1 : kind::side / step;  /* of a block */
    /* Steps of eight eights loaded together; widening e4m3 takes the second's registers. */
    static constexpr int ahead = sizeof(T) == 1 && !kind::element::is_integer ? 1 : 2;
    static constexpr int held = steps < ahead ? steps : ahead;           /* of a block */
    static constexpr int wide = eights >= 8 ? ahead / held : 8 / eights; /* steps' blocks at once */
    static constexpr int shared_bytes = warps * TOKENS * rows * 4;
};

static __device__ __forceinline__ uint4 blocks_read(const uint8_t *at)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

/* Which of a step's blocks a thread reads, and which 16 bytes of its rows. */
template <class TILE> static __device__ __forceinline__ int blocks_few_mine()
{
    return TILE::blocks == 1 ? 0 : threadIdx.x % 4 / (4 / TILE::blocks);
}
template <class TILE> static __device__ __forceinline__ int blocks_few_chunk(int step)
{
    return TILE::blocks == 1 ? step * 4 + threadIdx.x % 4 : threadIdx.x % (4 / TILE::blocks);
}

/* A step of the tokens and of the rows that a warp has. i: this thread's block, or one past the
   end. */
template <class TILE>
static __device__ __forceinline__ void blocks_read_step(uint4 (&w)[TILE::eights], uint4 (&x)[2],
                                                        const blocks_params &p, int i, int end,
                                                        int step)
{
    const int quad = threadIdx.x % 32 / 4, part = threadIdx.x / 32 % TILE::parts;
    const int chunk = blocks_few_chunk<TILE>(step);
    const int slice = chunk * 16 / TILE::row, inside = chunk % (TILE::row / 16);
    const uint8_t *from = p.values + ((int64_t)i * TILE::slices + slice) * TILE::slice +
                          part * TILE::rows * TILE::row;
    x[0] = x[1] = make_uint4(0, 0, 0, 0);
    const int column = i < end ? p.index[i] * TILE::side + chunk * 16 : 0;
#pragma unroll
    for (int e = 0; e < TILE::eights; e++) {
        const int row = 8 * e + quad;
        w[e] = make_uint4(0, 0, 0, 0);
        if (i < end)
            w[e] = blocks_read(from + row * TILE::row +
                               16 * S24I_BLOCKS_CHUNK(TILE::row, row, inside));
    }
#pragma unroll
    for (int h = 0; h < TILE::tokens / 8; h++)
        if (i < end && quad + 8 * h < p.m)
            x[h] = *reinterpret_cast<const uint4 *>(p.x + (quad + 8 * h) * p.x_ld + column);
}

template <class TILE>
static __device__ __forceinline__ void blocks_add_step(typename TILE::sum (&sums)[TILE::eights][4],
                                                       const uint4 (&w)[TILE::eights],
                                                       const uint4 (&x)[2])
{
#pragma unroll
    for (int e = 0; e < TILE::eights; e++) {
        mma<typename TILE::T>::add(sums[e], {x[0].x, x[1].x, x[0].y, x[1].y}, w[e].x, w[e].y);
        mma<typename TILE::T>::add(sums[e], {x[0].z, x[1].z, x[0].w, x[1].w}, w[e].z, w[e].w);
    }
}

/* Adds up the warps' sums of eight outputs of a token, and stores them. */
template <class TILE>
static __device__ __forceinline__ void blocks_few_out(const typename TILE::sum *parts,
                                                      const blocks_params &p, int line)
{
    using T = typename TILE::output;
    constexpr int eights = TILE::block / 8;
    for (int i = threadIdx.x; i < p.m * eights; i += 32 * TILE::warps) {
        const int token = i / eights, output = i % eights * 8, part = output / TILE::rows;
        typename TILE::sum sums[8] = {};
        for (int warp = part; warp < TILE::warps; warp += TILE::parts)
#pragma unroll
            for (int j = 0; j < 8; j++)
                sums[j] +=
                    parts[(warp * TILE::tokens + token) * TILE::rows + output % TILE::rows + j];
        const int first = line * TILE::block + output;
        const float scale = blocks_token_scale<TILE>(p, token);
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = blocks_scaled<TILE>(sums[j], scale, blocks_scale<TILE>(p, first + j)) +
                   blocks_bias<TILE>(p, first + j);
        if (p.activation) activate(v, p.activation);
        *reinterpret_cast<uint4 *>(p.y + token * p.y_ld + first) =
            make_uint4(two_of<T>(v[0], v[1]), two_of<T>(v[2], v[3]), two_of<T>(v[4], v[5]),
                       two_of<T>(v[6], v[7]));
    }
}

template <class TILE>
__global__ void __launch_bounds__(32 * TILE::warps, 16 / TILE::warps)
    blocks_few_kernel(const __grid_constant__ blocks_params p)
{
    extern __shared__ uint32_t memory[];
    typename TILE::sum *parts =
        reinterpret_cast<typename TILE::sum *>(memory); /* [warps][tokens][rows] */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int line = p.order[blockIdx.x], end = p.starts[line + 1];
    constexpr int ranks = TILE::warps / TILE::parts, each = TILE::blocks * TILE::wide;
    typename TILE::sum sums[TILE::eights][4] = {};
    dependents_may_start();
    wait_for_predecessors();
    for (int i = p.starts[line] + warp / TILE::parts * each; i < end; i += ranks * each)
#pragma unroll TILE::ahead
        for (int first = 0; first < TILE::steps; first += TILE::held) {
            uint4 w[TILE::wide * TILE::held][TILE::eights], x[TILE::wide * TILE::held][2];
#pragma unroll
            for (int u = 0; u < TILE::wide * TILE::held; u++)
                blocks_read_step<TILE>(
                    w[u], x[u], p, i + TILE::blocks * (u / TILE::held) + blocks_few_mine<TILE>(),
                    end, first + u % TILE::held);
#pragma unroll
            for (int u = 0; u < TILE::wide * TILE::held; u++)
                blocks_add_step<TILE>(sums, w[u], x[u]);
        }
#pragma unroll
    for (int e = 0; e < TILE::eights; e++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (lane / 4 + j / 2 * 8 < TILE::tokens)
                parts[(warp * TILE::tokens + lane / 4 + j / 2 * 8) * TILE::rows + 8 * e +
                      lane % 4 * 2 + j % 2] = sums[e][j];
    __syncthreads();
    blocks_few_out<TILE>(parts, p, line);
}

#endif
