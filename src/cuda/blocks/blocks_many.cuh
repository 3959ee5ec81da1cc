// SPDX-License-Identifier: Apache-2.0
/*
 * Many tokens: a block of threads stays and walks over tiles, each a row of blocks by 256 tokens.
 * One warp asks the copy engine for slices of blocks and the same columns of the tokens; two
 * warpgroups multiply, tokens by outputs, and write y as it lies.
 */
#ifndef S24_CUDA_BLOCKS_MANY_CUH
#define S24_CUDA_BLOCKS_MANY_CUH

#include "cuda/blocks/blocks.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/wgmma_dense.cuh"

template <class T_, int BLOCK> struct blocks_tile {
    using T = T_;
    static constexpr int block = BLOCK, tiles = 2; /* of 64 tokens, of a warpgroup */
    static constexpr int groups = 2, tokens = 64 * groups * tiles, threads = 128 * groups + 32;
    static constexpr int slice = S24I_BLOCKS_SLICE(BLOCK), slices = BLOCK / slice, row = 2 * slice;
    static constexpr int x_bytes = tokens * row, w_bytes = BLOCK * row, stage = x_bytes + w_bytes;
    static constexpr int room = 220 * 1024, depth = room / stage < 12 ? room / stage : 12;
    static constexpr int shared_bytes = depth * (stage + 16) + 1024;
};

/* Where a ring stands. */
struct blocks_place {
    int stage, phase;
    template <int DEPTH> __device__ void next()
    {
        if (++stage == DEPTH) {
            stage = 0;
            phase ^= 1;
        }
    }
};

template <class TILE>
static __device__ __forceinline__ void blocks_load(const CUtensorMap *map, const blocks_params &p,
                                                   uint32_t ring, uint32_t full, uint32_t empty)
{
    blocks_place at = {0, 0};
    const int count = p.lines * ((p.m + TILE::tokens - 1) / TILE::tokens);
    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const int line = p.order[tile % p.lines], first = tile / p.lines * TILE::tokens;
        for (int i = p.starts[line]; i < p.starts[line + 1]; i++) {
            const int column = p.index[i] * TILE::block;
            const uint16_t *w = p.values + (int64_t)i * TILE::block * TILE::block;
            for (int s = 0; s < TILE::slices; s++) {
                const uint32_t to = ring + at.stage * TILE::stage, bar = full + 8 * at.stage;
                barrier_wait(empty + 8 * at.stage, at.phase ^ 1);
                barrier_expect(bar, TILE::stage);
                tile_load(to, map, column + s * TILE::slice, first, bar);
                bulk_load(to + TILE::x_bytes, w + s * TILE::block * TILE::slice, TILE::w_bytes,
                          bar);
                at.next<TILE::depth>();
            }
        }
    }
}

/* Four registers of each of four neighbours: thread i gets register i of all. */
static __device__ __forceinline__ void quad_turn(uint32_t (&r)[4])
{
    const int odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(~0u, odd ? r[i] : r[i + 1], 1);
        r[i] = odd ? got : r[i];
        r[i + 1] = odd ? r[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t got = __shfl_xor_sync(~0u, high ? r[i] : r[i + 2], 2);
        r[i] = high ? got : r[i];
        r[i + 2] = high ? r[i + 2] : got;
    }
}

/* 32 outputs of 8 tokens of a warp, of which a thread has two in each 8. */
template <class T>
static __device__ __forceinline__ void blocks_store_32(const float *v, const blocks_params &p,
                                                       int token, int output)
{
    const int mine = threadIdx.x % 4;
    uint32_t r[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        r[j] = two_of<T>(v[2 * j], v[2 * j + 1]);
    quad_turn(r);
    if (token < p.m)
        *reinterpret_cast<uint4 *>(p.y + token * p.y_ld + output + 8 * mine) =
            make_uint4(r[0], r[1], r[2], r[3]);
}

template <class TILE>
static __device__ __forceinline__ void blocks_store(float (&sums)[TILE::block / 2],
                                                    const blocks_params &p, int token, int output)
{
    using T = typename TILE::T;
    constexpr int part = TILE::block < 32 ? TILE::block : 32, pairs = part / 8;
    const int mine = threadIdx.x % 4 * 2;
#pragma unroll
    for (int c = 0; c < TILE::block; c += part) {
#pragma unroll
        for (int half = 0; half < 2; half++) { /* eight tokens further */
            float v[8];
#pragma unroll
            for (int j = 0; j < 2 * pairs; j++) {
                const int at = output + c + j / 2 * 8 + mine + j % 2;
                v[j] = sums[c / 2 + j / 2 * 4 + half * 2 + j % 2] +
                       (p.bias ? (float)static_cast<const T *>(p.bias)[at] : 0.0f);
            }
            if (p.activation) activate(v, p.activation);
            if (part == 32)
                blocks_store_32<T>(v, p, token + 8 * half, output + c);
            else if (token + 8 * half < p.m)
#pragma unroll
                for (int j = 0; j < pairs; j++)
                    *reinterpret_cast<uint32_t *>(p.y + (token + 8 * half) * p.y_ld + output +
                                                  8 * j + mine) = two_of<T>(v[2 * j], v[2 * j + 1]);
        }
    }
}

template <class TILE>
static __device__ __forceinline__ void blocks_multiply(const blocks_params &p, uint32_t ring,
                                                       uint32_t full, uint32_t empty)
{
    constexpr int SUMS = TILE::block / 2;
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    const int count = p.lines * ((p.m + TILE::tokens - 1) / TILE::tokens);
    blocks_place at = {0, 0};
    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const int line = p.order[tile % p.lines];
        const int blocks = p.starts[line + 1] - p.starts[line];
        int before = -1; /* the stage whose products may still run */
        float sums[TILE::tiles][SUMS];
#pragma unroll
        for (int t = 0; t < TILE::tiles; t++)
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                sums[t][i] = 0;
        for (int i = 0; i < blocks * TILE::slices; i++) {
            const uint32_t x = ring + at.stage * TILE::stage + group * TILE::tiles * 64 * TILE::row;
            const uint32_t w = ring + at.stage * TILE::stage + TILE::x_bytes;
            barrier_wait(full + 8 * at.stage, at.phase);
            products_begin();
#pragma unroll
            for (int k = 0; k < TILE::slice / 16; k++)
#pragma unroll
                for (int t = 0; t < TILE::tiles; t++)
                    wgmma<typename TILE::T, TILE::block>::rows(
                        sums[t], rows_place<TILE::row>(x + t * 64 * TILE::row + 32 * k),
                        rows_place<TILE::row>(w + 32 * k), 1);
            products_commit();
            products_wait<1>();
            if (before >= 0 && thread == 0) barrier_arrive(empty + 8 * before);
            before = at.stage;
            at.next<TILE::depth>();
        }
        products_wait<0>();
#pragma unroll
        for (int t = 0; t < TILE::tiles; t++)
            products_pin(sums[t]);
        if (before >= 0 && thread == 0) barrier_arrive(empty + 8 * before);
        const int token = tile / p.lines * TILE::tokens + group * TILE::tiles * 64 +
                          thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
        for (int t = 0; t < TILE::tiles; t++)
            blocks_store<TILE>(sums[t], p, token + 64 * t, line * TILE::block);
    }
}

template <class TILE>
__global__ void __launch_bounds__(TILE::threads, 1)
    blocks_many_kernel(const __grid_constant__ CUtensorMap map,
                       const __grid_constant__ blocks_params p)
{
    extern __shared__ char shared[];
    const uint32_t ring = (shared_address(shared) + 1023) / 1024 * 1024;
    const uint32_t full = ring + TILE::depth * TILE::stage, empty = full + 8 * TILE::depth;
    if (threadIdx.x == 0) {
        for (int i = 0; i < TILE::depth; i++) {
            barrier_init(full + 8 * i, 1);
            barrier_init(empty + 8 * i, TILE::groups);
        }
        barrier_init_done();
    }
    __syncthreads();
    dependents_may_start();
    wait_for_predecessors();
    if (threadIdx.x >= 128 * TILE::groups) {
        if (one_lane()) blocks_load<TILE>(&map, p, ring, full, empty);
    } else {
        blocks_multiply<TILE>(p, ring, full, empty);
    }
}

#endif
