// SPDX-License-Identifier: Apache-2.0
/*
 * Products of integers with more than 64 tokens on Hopper. A block has 128 outputs by up to 256
 * tokens, so that the tensor cores, not the widening of the weight, are what is waited for: a
 * weight is widened once for all of a tile's tokens, with its group's scale, rounded as
 * s24_device_integers_to_dense rounds it. Rings, producers and products are linear_strips.cuh's.
 *
 * The end is linear_few.cuh's: each block of a cluster adds up and stores a part of the tokens.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_STRIPS_MANY_CUH
#define S24_CUDA_LINEAR_LINEAR_STRIPS_MANY_CUH

#include "cuda/linear/linear_few.cuh"
#include "cuda/linear/linear_strips.cuh"

/* What linear_few.cuh's end asks of a tile; its rings are done with when sums take their place. */
template <class TILE> struct strips_end {
    using type = typename TILE::type;
    using element = element_of<type>;
    using sum = float;
    static constexpr int rows = TILE::rows, tokens = TILE::tokens, warpgroups = TILE::warpgroups,
                         weight_slots = TILE::weight_slots, token_slots = TILE::token_slots,
                         most_shares = 8, sums = TILE::sums, eights = TILE::tokens / 8,
                         inbox_bytes = (eights + most_shares - 1) * 2048,
                         full_bytes = eights * 2048, inbox_at = 0, block = 0, token_block = 0,
                         weight_block = 0, weight_at = 0, barriers_at = TILE::barriers_at,
                         terms_at = TILE::barriers_at + 1024;
    static constexpr bool over = true;
    static_assert(warpgroups * inbox_bytes <= TILE::barriers_at, "sums over the rings");
    static_assert((weight_slots + token_slots) * 16 + warpgroups * 8 <= 1024, "barriers");
};

static __device__ linear_params strips_params_of_end(const strips_params &p)
{
    linear_params few = {};
    few.shape.m = p.m;
    few.shape.n = p.n;
    few.shape.m_tiles = 1;
    few.shape.tokens = (p.turn + 7) / 8 * 8;
    few.shape.share = p.share;
    few.shape.k_blocks = p.k_blocks;
    few.bias = p.bias;
    few.residual = p.residual;
    few.y = p.y;
    few.residual_ld = p.residual_ld;
    few.y_ld = p.y_ld;
    few.alpha = few.y_factor = 1;
    few.activation = p.activation;
    few.y_dtype = few.bias_dtype = p.y_dtype;
    return few;
}

/* The tokens of a tile: few_part counts those of the first turn. */
template <class END>
static __device__ few_part<END> strips_part_of_end(const strips_params &p, const linear_params &few,
                                                   int tile)
{
    few_part<END> part(few.shape);
    part.m = tile / p.tiles * p.turn;
    part.tokens = min(p.turn, p.m - part.m);
    return part;
}

/* f(tile) for each tile of a block, outputs first: one of them where blocks share it, or where its
   end needs the rings' place. */
template <class F>
static __device__ __forceinline__ void strips_many_each(const strips_params &p, F f)
{
#pragma unroll 1
    for (int tile = blockIdx.x / p.share; tile < p.tiles * p.turns; tile += gridDim.x / p.share)
        f(tile);
}

/* A tile's outputs and the blocks of its k that this block has. */
static __device__ __forceinline__ strips_part strips_many_part(const strips_params &p, int tile)
{
    strips_part part(p);
    part.tile = tile % p.tiles;
    return part;
}

template <class TILE>
static __device__ __forceinline__ void
strips_many_begin(const strips_ring<TILE> &ring, const CUtensorMap *x, const strips_params &p)
{
    using END = strips_end<TILE>;
    const few_ring<END> end = {ring.base};
    const few_part<END> part =
        strips_part_of_end<END>(p, strips_params_of_end(p), blockIdx.x / p.share);
    for (int i = 0; i < END::warpgroups; i++)
        barrier_init(end.inbox_full(i), 1);
    strips_begin<TILE>(ring, x);
    for (int i = 0; i < END::warpgroups; i++)
        barrier_expect(end.inbox_full(i), (part.share - 1) * part.own_eights() * 2048);
}

/* Scales of rows, where a weight has those. */
template <class TILE>
static __device__ __forceinline__ void strips_scale_rows(float (&d)[TILE::sums],
                                                         const strips_params &p, int row)
{
    const int low = row + threadIdx.x % 32 / 4, high = low + 8;
    if (!p.row_scales) return;
    const float low_scale = low < p.n ? p.row_scales[low] : 0,
                high_scale = high < p.n ? p.row_scales[high] : 0;
#pragma unroll
    for (int i = 0; i < TILE::sums; i++)
        d[i] *= i % 4 / 2 ? high_scale : low_scale;
}

/* A tile's sums to Y, as few_consume has it. */
template <class TILE>
static __device__ __forceinline__ void
strips_many_finish(strips_sums<TILE> &s, const strips_ring<TILE> &ring, const strips_params &p,
                   int tile, int warp)
{
    using END = strips_end<TILE>;
    const few_ring<END> end = {ring.base};
    const linear_params few = strips_params_of_end(p);
    const few_part<END> part = strips_part_of_end<END>(p, few, tile);
    const int thread = threadIdx.x;
    const thread_place me = {warp / 4, 0, warp / 4, warp % 4, thread % 128, thread % 32};
    const int n = tile % p.tiles * TILE::rows + me.warpgroup * 64, zero = p.share >> 31;
    strips_scale_rows<TILE>(s.d[0], p, n + me.warp * 16);
    const few_way<typename TILE::type> way(few, part.m + part.rank * part.own * 8,
                                           part.m + part.tokens, n + me.warp * 16, me.lane);
    few_meet<END>(part, way.quick);
    if (part.share > 1) few_send<END>(s.d[0], end, part, me, zero);
    if (!way.quick) put_terms(end.terms(me.warpgroup), few, me.thread, n);
    if (part.share > 1) few_receive<END>(s.d[0], end, part, me);
    if (!way.quick) {
        few_store<END>(s.d[0], end, few, part, me, n, zero);
        return;
    }
    few_each<END>(part, part.rank, [&](int i, int at) {
        const float four[4] = {s.d[0][i * 4], s.d[0][i * 4 + 1], s.d[0][i * 4 + 2],
                               s.d[0][i * 4 + 3]};
        way.store(four, at);
    });
}

template <class TILE>
static __device__ __forceinline__ void strips_many_consume(const strips_ring<TILE> &ring,
                                                           const strips_params &p, int warp)
{
    const int lane = threadIdx.x % 32;
    strips_place<TILE> at, before;
    strips_sums<TILE> s;
    strips_many_each(p, [&](int tile) {
        strips_multiply_all<TILE>(s, ring, 0, warp, lane, strips_many_part(p, tile).count, at,
                                  before);
        strips_give_back<TILE>(ring, 0, before, lane);
        strips_many_finish<TILE>(s, ring, p, tile, warp);
    });
}

/* A fourth of the threads loads, in two of its warps, and has few registers. */
template <class TILE>
__global__ void __launch_bounds__(TILE::threads, 1)
    strips_many_kernel(const __grid_constant__ CUtensorMap x,
                       const __grid_constant__ strips_params p)
{
    extern __shared__ uint8_t memory[];
    const strips_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - 4 * TILE::warpgroups;
    if (producer == 0 && one_lane()) strips_many_begin<TILE>(ring, &x, p);
    __syncthreads();
    dependents_may_start();
    if (producer >= 0) {
        registers_give<40>();
        strips_place<TILE> at;
        if (producer == 0 && one_lane())
            strips_many_each(p, [&](int tile) {
                strips_load_weight<TILE>(ring, p, strips_many_part(p, tile), at.weight);
            });
        else if (producer == 1 && one_lane())
            strips_many_each(p, [&](int tile) {
                strips_load_tokens<TILE>(ring, p, &x, strips_many_part(p, tile),
                                         tile / p.tiles * p.turn, at.tokens);
            });
    } else {
        registers_take<232>();
        strips_many_consume<TILE>(ring, p, warp);
    }
}

template <class T, int TOKENS, int TOKEN_SLOTS> constexpr strips_row strips_many_row_of()
{
    constexpr int WIDE = 2;
    strips_row row = {TOKENS, 64 * WIDE, 1, 128 * WIDE + 128, 1, {}};
#define STRIPS(bits, sparse, group, at)                                                            \
    {                                                                                              \
        using TILE = strips_tile<strips_order<T, bits, sparse, group>, TOKENS, WIDE, 1,            \
                                 TOKEN_SLOTS - (bits == 8 && !sparse && TOKENS > 128)>;            \
        row.kernels[at] = {(const void *)strips_many_kernel<TILE>, TILE::shared_bytes};            \
    }
#include "cuda/linear/strips_orders.def"
#undef STRIPS
    return row;
}

#endif
