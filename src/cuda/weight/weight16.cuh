// SPDX-License-Identifier: Apache-2.0
/*
 * Weights of 16 bits from dense memory to the Hopper order. A tile of threads' work is one block of
 * the order, 64 rows and 64 columns, 8 KiB in and 4.5 out: what a thread does to a group of four
 * decides whether it keeps up with memory, hence group16.cuh.
 */
#ifndef S24_CUDA_WEIGHT_WEIGHT16_CUH
#define S24_CUDA_WEIGHT_WEIGHT16_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/ptx/hopper.cuh"
#include "cuda/weight/group16.cuh"
#include "cuda/weight/weight.cuh"
#include "kernel/mvue24.h"

enum { WEIGHT16_BYTES = 4608 };

struct weight16_params {
    uint8_t *packed, *packed_t; /* of W, of its transpose or NULL */
    const uint16_t *dense;
    const uint8_t *mask; /* [n, k] or NULL */
    long long ld;
    int n, k, steps, steps_t; /* blocks along k, along n */
    uint32_t infinity;        /* in both halves; magnitudes from here on are Inf or NaN */
    unsigned long long seed;
    weight_report *report;
};

/* Of the dtype: wide and back. */
struct weight_bf16 {
    using pair = __nv_bfloat162;
    static constexpr uint32_t minus_infinity = 0xff80ff80u;
    static __device__ float widen(uint32_t bits)
    {
        return __uint_as_float(bits << 16);
    }
    static __device__ uint32_t narrow(float v)
    {
        return __bfloat16_as_ushort(__float2bfloat16_rn(v));
    }
};
struct weight_f16 {
    using pair = __half2;
    static constexpr uint32_t minus_infinity = 0xfc00fc00u;
    static __device__ float widen(uint32_t bits)
    {
        return __half2float(__ushort_as_half((unsigned short)bits));
    }
    static __device__ uint32_t narrow(float v)
    {
        return __half_as_ushort(__float2half_rn(v));
    }
};

/* ---- pieces in and out ----------------------------------------------------------------------- */

struct piece_at {
    int row, col;
};

/* Eight columns; what is not there is zero. */
static __device__ __forceinline__ uint4 piece_load(const weight16_params &p, piece_at at)
{
    uint16_t v[8];
    if (at.row >= p.n || at.col >= p.k) return make_uint4(0, 0, 0, 0);
    const uint16_t *from = p.dense + (size_t)at.row * p.ld + at.col;
    if (at.col + 8 <= p.k && ((size_t)from & 15) == 0)
        return __ldcs(reinterpret_cast<const uint4 *>(from));
    for (int i = 0; i < 8; i++)
        v[i] = at.col + i < p.k ? from[i] : (uint16_t)0;
    return make_uint4(v[0] | (uint32_t)v[1] << 16, v[2] | (uint32_t)v[3] << 16,
                      v[4] | (uint32_t)v[5] << 16, v[6] | (uint32_t)v[7] << 16);
}

static __device__ __forceinline__ uint2 piece_mask(const weight16_params &p, piece_at at)
{
    if (at.row >= p.n || at.col >= p.k) return make_uint2(0, 0);
    const uint8_t *from = p.mask + (size_t)at.row * p.k + at.col;
    if (at.col + 8 <= p.k && ((size_t)from & 7) == 0) return *reinterpret_cast<const uint2 *>(from);
    uint32_t v[2] = {0, 0};
    for (int i = 0; i < 8 && at.col + i < p.k; i++)
        v[i / 4] |= (uint32_t)from[i] << 8 * (i % 4);
    return make_uint2(v[0], v[1]);
}

/* The least place at which bits has a sign set, of columns i of the left and 4 + i of the right. */
static __device__ __noinline__ void report_least(unsigned long long *least, unsigned long long at,
                                                 uint32_t bits)
{
    atomicMin(least, at + (bits & 0x8000u ? 0 : 4));
}

/* Magnitudes of a piece; a NaN or an Inf is reported, and every NaN made the same. */
static __device__ __forceinline__ void piece_sizes(uint32_t (&size)[4], const uint32_t (&v)[4],
                                                   const weight16_params &p, piece_at at)
{
    const uint32_t beyond = SIGNS - p.infinity;
    uint32_t any = 0;
    for (int i = 0; i < 4; i++) {
        size[i] = v[i] & MAGNITUDES;
        any |= size[i] + beyond;
    }
    if (!(any & SIGNS)) return;
    for (int i = 0; i < 4; i++) {
        uint32_t bits = (size[i] + beyond) & SIGNS;
        unsigned long long place = (unsigned long long)at.row * p.k + at.col + i;
        if (bits) report_least(&p.report->nonfinite, place, bits);
        size[i] = __vminu2(size[i], p.infinity + 0x00010001u);
    }
}

static __device__ __forceinline__ void block_put(uint8_t *block, int row, int piece, uint32_t left,
                                                 uint32_t right, uint32_t codes)
{
    *reinterpret_cast<uint2 *>(block + weight_block<uint16_t>::values_at(row, piece)) =
        make_uint2(left, right);
    block[weight_block<uint16_t>::codes_at(row, piece)] = (uint8_t)codes;
}

/* ---- one direction --------------------------------------------------------------------------- */

enum weight_mode { WEIGHT_STRICT, WEIGHT_MAGNITUDE, WEIGHT_MASK, WEIGHT_MVUE24 };

template <class D>
static __device__ void piece_mvue24(uint8_t *block, int row, int piece, const uint4 &from,
                                    const weight16_params &p, piece_at at)
{
    const uint32_t words[4] = {from.x, from.y, from.z, from.w};
    uint32_t out[2] = {0, 0}, codes = 0xee;
    for (int g = 0; g < 2 && at.row < p.n && at.col + 4 * g < p.k; g++) {
        float group[4], values[2];
        int kept[2];
        for (int i = 0; i < 4; i++)
            group[i] = D::widen(words[2 * g + i / 2] >> 16 * (i % 2) & 0xffffu);
        unsigned long long first = (unsigned long long)at.row * p.k + at.col + 4 * g;
        s24i_mvue24_group(kept, values, group, p.seed, first / 4);
        for (int i = 0; i < 2; i++) {
            uint32_t bits = D::narrow(values[i]);
            out[g] |= bits << 16 * i;
            if ((bits & 0x7fffu) >= (p.infinity & 0xffffu))
                atomicMin(&p.report->beyond, first + kept[i]);
        }
        codes = (codes & ~(15u << 4 * g)) | (uint32_t)(kept[0] | kept[1] << 2) << 4 * g;
    }
    block_put(block, row, piece, out[0], out[1], codes);
}

template <weight_mode MODE, class D>
static __device__ __forceinline__ void piece_pack(uint8_t *block, int row, int piece,
                                                  const uint4 &from, const uint2 &mask,
                                                  const weight16_params &p, piece_at at)
{
    uint32_t v[4], size[4], keep[4];
    split_piece(v, from);
    piece_sizes(size, v, p, at);
    if (MODE == WEIGHT_MVUE24) {
        piece_mvue24<D>(block, row, piece, from, p, at);
        return;
    }
    if (MODE == WEIGHT_MAGNITUDE) keep_largest(keep, size);
    if (MODE == WEIGHT_STRICT) keep_nonzeros(keep, size);
    if (MODE == WEIGHT_MASK) keep_masked(keep, mask);
    if (MODE != WEIGHT_MAGNITUDE && (more_than_two(keep) & SIGNS))
        report_least(&p.report->bad_group, (unsigned long long)at.row * p.k + at.col,
                     more_than_two(keep));
    packed_groups out = pack_groups<MODE == WEIGHT_MASK>(v, keep);
    block_put(block, row, piece, permute(out.low, out.high, 0x5410),
              permute(out.low, out.high, 0x7632), out.codes);
}

/* What a thread has of a tile: row threadIdx/8 and every 16th from there, piece threadIdx%8. */
struct tile_pieces {
    uint4 v[4];
    uint2 mask[4];
};

static __device__ __forceinline__ piece_at place_of(const weight16_params &p, int tile, int i)
{
    return {tile / p.steps * 64 + (int)threadIdx.x / 8 + 16 * i,
            tile % p.steps * 64 + (int)threadIdx.x % 8 * 8};
}

template <weight_mode MODE>
static __device__ __forceinline__ void tile_load(tile_pieces &t, const weight16_params &p, int tile)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        t.v[i] = piece_load(p, place_of(p, tile, i));
        if (MODE == WEIGHT_MASK) t.mask[i] = piece_mask(p, place_of(p, tile, i));
    }
}

/* Blocks on a processor at a time, by their registers. */
static constexpr int weight_resident(weight_mode mode)
{
    return mode == WEIGHT_MASK ? 6 : mode == WEIGHT_MVUE24 ? 5 : 8;
}

/* A packed block to its place, when all threads are here. */
static __device__ __forceinline__ void block_store(uint8_t *to, const uint8_t *block)
{
#if __CUDA_ARCH__ >= 900
    publish_shared();
    if (threadIdx.x == 0) stores_read<0>(); /* the other block's: the next turn writes there */
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(to, shared_address(block), WEIGHT16_BYTES);
        stores_commit();
    }
#else
    __syncthreads();
    for (int i = threadIdx.x; i < WEIGHT16_BYTES / 16; i += WEIGHT_THREADS)
        __stcs(reinterpret_cast<uint4 *>(to) + i, reinterpret_cast<const uint4 *>(block)[i]);
#endif
}

/* As many blocks as fit walk the tiles; each reads the next tile while it packs this one, and the
   copy engine, where there is one, carries the packed one away. */
template <weight_mode MODE, class D>
__global__ void __launch_bounds__(WEIGHT_THREADS, weight_resident(MODE))
    weight16_kernel(const weight16_params p)
{
    __shared__ __align__(128) uint8_t blocks[2][WEIGHT16_BYTES];
    const int tiles = p.steps * p.steps_t, jump = (int)gridDim.x;
    tile_pieces next;
    tile_load<MODE>(next, p, (int)blockIdx.x);
    for (int tile = (int)blockIdx.x, turn = 0; tile < tiles; tile += jump, turn ^= 1) {
        const tile_pieces now = next;
        if (tile + jump < tiles) tile_load<MODE>(next, p, tile + jump);
#pragma unroll
        for (int i = 0; i < 4; i++)
            piece_pack<MODE, D>(blocks[turn], (int)threadIdx.x / 8 + 16 * i, (int)threadIdx.x % 8,
                                now.v[i], now.mask[i], p, place_of(p, tile, i));
        block_store(p.packed + (size_t)tile * WEIGHT16_BYTES, blocks[turn]);
    }
    if (threadIdx.x == 0) stores_read<0>();
}

#endif
