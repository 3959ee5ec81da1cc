// SPDX-License-Identifier: Apache-2.0
/*
 * Many tokens: a block of threads stays and walks over tiles, each a row of blocks by 256 tokens.
 * One warp asks the copy engine for slices of blocks and the same columns of the tokens, 128 bytes
 * of k a stage: a slice of a large block, or those of several small ones, which lie one after the
 * other. Two warpgroups multiply, tokens by outputs, and write y as it lies. A step of wgmma takes
 * 32 bytes of k: of blocks of 16x16 in 8 bits those of two, the last of an odd number with zeros.
 */
#ifndef S24_CUDA_BLOCKS_MANY_CUH
#define S24_CUDA_BLOCKS_MANY_CUH

#include "cuda/blocks/blocks.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/wgmma_dense.cuh"

template <class T, int BLOCK> struct blocks_tile : blocks_kind<T, BLOCK> {
    using kind = blocks_kind<T, BLOCK>;
    static constexpr int tiles = 2; /* of 64 tokens, of a warpgroup */
    static constexpr int groups = 2, tokens = 64 * groups * tiles, threads = 128 * groups + 32;
    static constexpr int eights = 2 * tiles; /* a thread's tokens: one in eight, two of a tile */
    static constexpr int columns = kind::row / (int)sizeof(T); /* of a slice */
    static constexpr int each = 128 / kind::row;               /* slices of a stage */
    static constexpr int step = 32;                            /* bytes of k */
    static constexpr int together = kind::row < step ? 2 : 1;  /* slices of a step */
    static constexpr int x_slice = tokens * kind::row, x_bytes = each * x_slice;
    static constexpr int stage = x_bytes + each * kind::slice;
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

/* The slices from i on, at most up to `end`, and their columns of the tokens from `first` on. What
   makes an odd number even are zeros times columns that the last slice has, too. */
template <class TILE>
static __device__ __forceinline__ void
blocks_load_stage(const CUtensorMap *map, const blocks_params &p, int i, int end, int first,
                  uint32_t to, uint32_t full, uint32_t empty, int phase)
{
    const int there = min(TILE::each, end - i);
    const int count = (there + TILE::together - 1) / TILE::together * TILE::together;
    int column[TILE::each];
#pragma unroll
    for (int j = 0; j < TILE::each; j++) {
        const int at = min(i + j, end - 1);
        column[j] = p.index[at / TILE::slices] * TILE::block + at % TILE::slices * TILE::columns;
    }
    barrier_wait(empty, phase);
    barrier_expect(full, count * (TILE::x_slice + TILE::slice));
#pragma unroll
    for (int j = 0; j < TILE::each; j++)
        if (j < count) tile_load(to + j * TILE::x_slice, map, column[j], first, full);
    to += TILE::x_bytes;
    bulk_load(to, p.values + (int64_t)i * TILE::slice, there * TILE::slice, full);
    if (there < count) bulk_load(to + there * TILE::slice, p.zeros, TILE::slice, full);
}

template <class TILE>
static __device__ __forceinline__ void blocks_load(const CUtensorMap *map, const blocks_params &p,
                                                   uint32_t ring, uint32_t full, uint32_t empty)
{
    blocks_place at = {0, 0};
    const int count = p.lines * ((p.m + TILE::tokens - 1) / TILE::tokens);
    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const int line = p.order[tile % p.lines], first = tile / p.lines * TILE::tokens;
        const int end = p.starts[line + 1] * TILE::slices;
        for (int i = p.starts[line] * TILE::slices; i < end; i += TILE::each) {
            blocks_load_stage<TILE>(map, p, i, end, first, ring + at.stage * TILE::stage,
                                    full + 8 * at.stage, empty + 8 * at.stage, at.phase ^ 1);
            at.next<TILE::depth>();
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

/* What a thread's outputs, two of each eight from `first` on, are multiplied by and added to. */
template <class TILE, int N>
static __device__ __forceinline__ void blocks_terms(float (&scale)[N], float (&bias)[N],
                                                    const blocks_params &p, int first)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        scale[j] = blocks_scale<TILE>(p, first + j / 2 * 8 + j % 2);
        bias[j] = blocks_bias<TILE>(p, first + j / 2 * 8 + j % 2);
    }
}

/* A warpgroup's tokens, 64 of each of its tiles; `token` is the thread's first. */
template <class TILE>
static __device__ __forceinline__ void
    blocks_store(typename TILE::sum (&sums)[TILE::tiles][TILE::block / 2], const blocks_params &p,
                 const float (&token_scale)[TILE::eights], int token, int output)
{
    using T = typename TILE::output;
    constexpr int part = TILE::block < 32 ? TILE::block : 32, pairs = part / 8;
    const int mine = threadIdx.x % 4 * 2;
#pragma unroll
    for (int c = 0; c < TILE::block; c += part) {
        float scale[2 * pairs], bias[2 * pairs];
        blocks_terms<TILE>(scale, bias, p, output + c + mine);
#pragma unroll
        for (int i = 0; i < TILE::eights; i++) {
            const int row = token + i / 2 * 64 + i % 2 * 8;
            float v[8];
#pragma unroll
            for (int j = 0; j < 2 * pairs; j++)
                v[j] = blocks_scaled<TILE>(sums[i / 2][c / 2 + j / 2 * 4 + i % 2 * 2 + j % 2],
                                           token_scale[i], scale[j]) +
                       bias[j];
            if (p.activation) activate(v, p.activation);
            if (part == 32)
                blocks_store_32<T>(v, p, row, output + c);
            else if (row < p.m)
#pragma unroll
                for (int j = 0; j < pairs; j++)
                    *reinterpret_cast<uint32_t *>(p.y + row * p.y_ld + output + 8 * j + mine) =
                        two_of<T>(v[2 * j], v[2 * j + 1]);
        }
    }
}

/* Where 64 tokens or a block's rows lie of a step, `slice` bytes before what follows along k. */
template <int ROW>
static __device__ __forceinline__ uint64_t blocks_operand(uint32_t address, uint32_t slice)
{
    if constexpr (ROW < 32)
        return pieces_place(address, slice);
    else
        return rows_place<ROW>(address);
}

/* The products of STEPS slices, or pairs of them, of a stage. */
template <class TILE, int STEPS>
static __device__ __forceinline__ void
    blocks_add(typename TILE::sum (&sums)[TILE::tiles][TILE::block / 2], uint32_t x, uint32_t w)
{
    products_begin();
#pragma unroll
    for (int j = 0; j < STEPS * TILE::together; j += TILE::together)
#pragma unroll
        for (int k = 0; k < TILE::row * TILE::together; k += TILE::step)
#pragma unroll
            for (int t = 0; t < TILE::tiles; t++)
                wgmma<typename TILE::T, TILE::block>::rows(
                    sums[t],
                    blocks_operand<TILE::row>(x + j * TILE::x_slice + t * 64 * TILE::row + k,
                                              TILE::x_slice),
                    blocks_operand<TILE::row>(w + j * TILE::slice + k, TILE::slice), 1);
    products_commit();
}

/* A stage with fewer slices than it has room for: one after another, since what is not known to be
   the same in all threads would make all products of the kernel wait for one another. */
template <class TILE>
static __device__ __forceinline__ void
    blocks_add_rest(typename TILE::sum (&sums)[TILE::tiles][TILE::block / 2], uint32_t x,
                    uint32_t w, uint32_t full, int phase, int there)
{
    if constexpr (TILE::each > TILE::together)
#pragma unroll 1
        for (int j = 0; j < there; j += TILE::together) {
            barrier_wait(full, phase);
            blocks_add<TILE, 1>(sums, x + j * TILE::x_slice, w + j * TILE::slice);
            products_wait<0>();
        }
}

template <class TILE>
static __device__ __forceinline__ void blocks_multiply(const blocks_params &p, uint32_t ring,
                                                       uint32_t full, uint32_t empty)
{
    constexpr int SUMS = TILE::block / 2;
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    const uint32_t tokens = group * TILE::tiles * 64 * TILE::row; /* of a stage, the group's */
    const int count = p.lines * ((p.m + TILE::tokens - 1) / TILE::tokens);
    blocks_place at = {0, 0};
    for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const int line = p.order[tile % p.lines];
        const int slices = (p.starts[line + 1] - p.starts[line]) * TILE::slices;
        const int token = tile / p.lines * TILE::tokens + group * TILE::tiles * 64 +
                          thread / 32 * 16 + thread % 32 / 4;
        float token_scale[TILE::eights]; /* under way while products run */
#pragma unroll
        for (int i = 0; i < TILE::eights; i++)
            token_scale[i] = blocks_token_scale<TILE>(p, token + i / 2 * 64 + i % 2 * 8);
        int before = -1; /* the stage whose products may still run */
        typename TILE::sum sums[TILE::tiles][SUMS];
#pragma unroll
        for (int t = 0; t < TILE::tiles; t++)
#pragma unroll
            for (int i = 0; i < SUMS; i++)
                sums[t][i] = 0;
        int i = 0;
        for (; i + TILE::each <= slices; i += TILE::each) {
            const uint32_t stage = ring + at.stage * TILE::stage;
            barrier_wait(full + 8 * at.stage, at.phase);
            blocks_add<TILE, TILE::each / TILE::together>(sums, stage + tokens,
                                                          stage + TILE::x_bytes);
            products_wait<1>();
            if (before >= 0 && thread == 0) barrier_arrive(empty + 8 * before);
            before = at.stage;
            at.next<TILE::depth>();
        }
        products_wait<0>();
        if (before >= 0 && thread == 0) barrier_arrive(empty + 8 * before);
        blocks_add_rest<TILE>(sums, ring + at.stage * TILE::stage + tokens,
                              ring + at.stage * TILE::stage + TILE::x_bytes, full + 8 * at.stage,
                              at.phase, slices - i);
        if (i < slices) {
            if (thread == 0) barrier_arrive(empty + 8 * at.stage);
            at.next<TILE::depth>();
        }
#pragma unroll
        for (int t = 0; t < TILE::tiles; t++)
            products_pin(sums[t]);
        blocks_store<TILE>(sums, p, token_scale, token, line * TILE::block);
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
