// SPDX-License-Identifier: Apache-2.0
/*
 * Products on Hopper that have about as many tiles as the GPU has processors, or fewer: a block of
 * threads computes one tile, or a cluster of two to four shares it, and every block has all tokens
 * of the tile, its outputs and a part of k. What such a product takes is the way of its weights and
 * its tokens, so there are rings for each, of different depth. Weights do not depend on the kernels
 * before this one in the stream and are on their way before those are done; the tokens' ring is as
 * deep as it is long until they come. Where all have multiplied, each block adds up and stores a
 * part of the tokens.
 *
 * The tokens of a product are dealt out evenly, in eights: tiles have as many as that needs, and no
 * more are loaded, whatever the kernel multiplies.
 *
 * A block has 1 to 4 consumer warpgroups, 64 outputs each, and two producers, a thread each.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_FEW_CUH
#define S24_CUDA_LINEAR_LINEAR_FEW_CUH

#include "cuda/linear/linear.cuh"
#include "cuda/linear/linear_few_store.cuh"
#include "cuda/linear/linear_row.cuh"

/* SLOTS of weights, and of tokens. */
template <class T, int ROWS, int TOKENS, int WEIGHT_SLOTS, int TOKEN_SLOTS> struct few_tile {
    using type = T;
    using element = element_of<T>;
    using sum = typename element::sum;
    static constexpr bool columns = false;
    static constexpr int rows = ROWS, tokens = TOKENS, warpgroups = ROWS / 64,
                         weight_slots = WEIGHT_SLOTS, token_slots = TOKEN_SLOTS, most_shares = 4;
    static constexpr int blocks = 1, depth = 1, sums = TOKENS / 2; /* a warpgroup's */
    static constexpr int threads = 128 * warpgroups + 64;
    static constexpr int block = element::weight_block, token_block = TOKENS * TOKEN_BYTES,
                         weight_block = warpgroups * block;
    /* A warpgroup's sums of eight tokens are 2048 bytes. Its inbox holds what the others of its
       cluster send of the tokens that this block stores. */
    static constexpr int eights = TOKENS / 8, inbox_bytes = (eights + most_shares - 1) * 2048;
    static constexpr int full_bytes = eights * 2048; /* on their way to Y, as sum_place has it */
    /* Slots of weights that are filled before the tokens' first ones, which wait for them. */
    static constexpr int early = ROWS == 64 ? (WEIGHT_SLOTS < 7 ? WEIGHT_SLOTS : 7) : WEIGHT_SLOTS;
    static constexpr int weight_at = TOKEN_SLOTS * token_block;
    static constexpr int rings_end = weight_at + WEIGHT_SLOTS * weight_block;
    static constexpr int after = warpgroups * 512 + (WEIGHT_SLOTS + TOKEN_SLOTS) * 16 +
                                 warpgroups * 8 + 1024; /* terms, barriers, alignment */
    /* Where there is no room of its own for the inbox, it lies over the rings, and nothing is sent
       before the whole cluster has multiplied. */
    static constexpr bool over = rings_end + warpgroups * inbox_bytes + after > 227 * 1024;
    static constexpr int inbox_at = over ? 0 : rings_end;
    static constexpr int terms_at = over ? rings_end : rings_end + warpgroups * inbox_bytes;
    static constexpr int barriers_at = terms_at + warpgroups * 512;
    static constexpr int shared_bytes =
        1024 + barriers_at + (WEIGHT_SLOTS + TOKEN_SLOTS) * 16 + warpgroups * 8;
    static_assert(ROWS % 64 == 0 && TOKENS % 8 == 0, "parts");
    static_assert(warpgroups * inbox_bytes <= rings_end, "sums over the rings");
    static_assert(shared_bytes <= 227 * 1024, "shared memory");
};

template <class TILE> struct few_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */

    __device__ uint32_t tokens(int slot) const
    {
        return base + slot * TILE::token_block;
    }
    __device__ uint32_t weight(int slot) const
    {
        return base + TILE::weight_at + slot * TILE::weight_block;
    }
    __device__ uint32_t weight_full(int slot) const
    {
        return base + TILE::barriers_at + slot * 16;
    }
    __device__ uint32_t weight_empty(int slot) const
    {
        return weight_full(slot) + 8;
    }
    __device__ uint32_t tokens_full(int slot) const
    {
        return weight_full(TILE::weight_slots + slot);
    }
    __device__ uint32_t tokens_empty(int slot) const
    {
        return tokens_full(slot) + 8;
    }
    __device__ uint32_t inbox_full(int warpgroup) const
    {
        return tokens_full(TILE::token_slots) + warpgroup * 8;
    }
    /* A warpgroup's sums of another block; when they are added up, the first is the way to Y. */
    __device__ uint32_t inbox(int warpgroup, int eight) const
    {
        return base + TILE::inbox_at + warpgroup * TILE::inbox_bytes + eight * 2048;
    }
    __device__ uint32_t terms(int warpgroup) const
    {
        return base + TILE::terms_at + warpgroup * 512;
    }
};

/* Which blocks along k of which tile this block of threads has, and which of its tokens, in eights,
   each block of the cluster stores: the last ones may have fewer, or none. */
template <class TILE> struct few_part {
    int share, rank, n_tile, m, tokens, begin, count, own;

    __device__ explicit few_part(const linear_shape &s)
        : share(s.share), rank(blockIdx.x % s.share), n_tile(blockIdx.x / s.share / s.m_tiles),
          m((int)(blockIdx.x / s.share % s.m_tiles) * s.tokens), tokens(min(s.tokens, s.m - m)),
          begin(s.k_blocks * rank / s.share), count(s.k_blocks * (rank + 1) / s.share - begin),
          own(s.share == 1 ? TILE::eights : (s.tokens / 8 + s.share - 1) / s.share)
    {
    }
    /* How many of the eights of tokens this block stores. */
    __device__ int own_eights() const
    {
        return max(0, min(own, (tokens + 7) / 8 - rank * own));
    }
};

/* ---- the producers: a thread each ------------------------------------------------------------ */

template <class TILE>
static __device__ void few_load_weights(const few_ring<TILE> &ring, const linear_params &p,
                                        const few_part<TILE> &part)
{
    const int first = part.n_tile * TILE::warpgroups;
    const uint8_t *from = p.w + (size_t)first * p.slab_bytes + (size_t)part.begin * TILE::block;
    const int slabs = p.w_slabs - 1 - first; /* past the last one, that is loaded again */
    ring_place<TILE::weight_slots> at;
#pragma unroll 1
    for (int i = 0; i < part.count; i++, at.next(), from += TILE::block) {
        if (i == TILE::early) wait_for_predecessors();
        barrier_wait(ring.weight_empty(at.stage), at.parity ^ 1);
        barrier_expect(ring.weight_full(at.stage), TILE::weight_block);
#pragma unroll
        for (int j = 0; j < TILE::warpgroups; j++)
            bulk_load(ring.weight(at.stage) + j * TILE::block,
                      from + (size_t)(unsigned)min(j, slabs) * p.slab_bytes, TILE::block,
                      ring.weight_full(at.stage));
    }
}

template <class TILE>
static __device__ void few_load_tokens(const few_ring<TILE> &ring, const linear_shape &s,
                                       const CUtensorMap *x, const CUtensorMap *last,
                                       const few_part<TILE> &part)
{
    ring_place<TILE::token_slots> at;
    const token_source from(s, x, last, part.m, s.tokens);
    /* Into L2, which changes with what the kernels before still write: a box here and one there. */
#pragma unroll 1
    for (int i = blockIdx.x; i < s.k_blocks * s.m_tiles; i += gridDim.x)
        tile_ask(i % s.m_tiles < s.m_tiles - 1 ? x : last, i / s.m_tiles * TILE::element::block_k,
                 i % s.m_tiles * s.tokens);
    wait_for_predecessors();
#pragma unroll 1
    for (int i = 0; i < part.count; i++, at.next()) {
        barrier_wait(ring.tokens_empty(at.stage), at.parity ^ 1);
        barrier_expect(ring.tokens_full(at.stage), from.bytes);
        tile_load(ring.tokens(at.stage), from.x, (part.begin + i) * TILE::element::block_k, part.m,
                  ring.tokens_full(at.stage));
    }
}

/* ---- consumers: a warpgroup ------------------------------------------------------------------ */

/* Where in the rings one is. */
template <class TILE> struct few_place {
    ring_place<TILE::weight_slots> weight;
    ring_place<TILE::token_slots> tokens;
    __device__ void next()
    {
        weight.next();
        tokens.next();
    }
};

template <class TILE>
static __device__ __forceinline__ void
few_give_back(const few_ring<TILE> &ring, const few_place<TILE> &at, const thread_place &me)
{
    __syncwarp(); /* every lane has read its metadata */
    if (me.lane != 0) return;
    barrier_arrive(ring.weight_empty(at.weight.stage));
    barrier_arrive(ring.tokens_empty(at.tokens.stage));
}

/* Multiplies with a block of the weight, and gives the one before back to the producers. */
template <class TILE>
static __device__ __forceinline__ void
few_multiply_one(typename TILE::sum (&d)[TILE::sums], const few_ring<TILE> &ring,
                 few_place<TILE> &at, few_place<TILE> &before, const thread_place &me, bool first,
                 stage_metadata<TILE> &meta, const stage_metadata<TILE> &meta_before)
{
    const uint32_t weight = ring.weight(at.weight.stage) + me.warpgroup * TILE::block;
    const uint32_t tokens = ring.tokens(at.tokens.stage);
    barrier_wait(ring.weight_full(at.weight.stage), at.weight.parity);
    meta.template load<1>(weight, me.thread);
    barrier_wait(ring.tokens_full(at.tokens.stage), at.tokens.parity);
    products_begin();
    product<TILE, 0>::run(d, weight_place(weight), step_place<TILE, 0>(tokens), meta.words[0][0],
                          !first);
    product<TILE, 1>::run(d, weight_place(weight + WEIGHT_STEP_VALUES), step_place<TILE, 1>(tokens),
                          meta.words[0][0], 1);
    products_commit();
    products_wait<1>(); /* the block before is done */
    meta_before.keep();
    if (!first) few_give_back<TILE>(ring, before, me);
    before = at;
    at.next();
}

/* The sums of this block's part of k. Two sets of metadata take turns, as in multiply(). */
template <class TILE>
static __device__ __forceinline__ void few_multiply(typename TILE::sum (&d)[TILE::sums],
                                                    const few_ring<TILE> &ring,
                                                    const thread_place &me, int count)
{
    stage_metadata<TILE> even, odd = {};
    few_place<TILE> at, before;
    int i = 0;
#pragma unroll 1
    for (; i + 2 <= count; i += 2) {
        few_multiply_one<TILE>(d, ring, at, before, me, i == 0, even, odd);
        few_multiply_one<TILE>(d, ring, at, before, me, false, odd, even);
    }
    if (i < count) few_multiply_one<TILE>(d, ring, at, before, me, i == 0, even, odd);
    products_wait<0>();
    even.keep();
    odd.keep();
    products_pin(d);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* f(i, at) for each of the eights of tokens that the block of that rank stores; `at` counts
   them. */
template <class TILE, class F>
static __device__ __forceinline__ void few_each(const few_part<TILE> &part, int rank, F f)
{
    const int first = rank * part.own;
#pragma unroll
    for (int i = 0; i < TILE::eights; i++)
        if (i >= first && i < first + part.own && i * 8 < part.tokens) f(i, i - first);
}

/* To each of the other blocks the sums of its tokens. */
template <class TILE>
static __device__ __forceinline__ void
few_send(const typename TILE::sum (&d)[TILE::sums], const few_ring<TILE> &ring,
         const few_part<TILE> &part, const thread_place &me, int zero)
{
#pragma unroll 1
    for (int rank = 0; rank < part.share; rank++) {
        const uint32_t bar = cluster_place(ring.inbox_full(me.warpgroup), rank);
        const int place = (part.rank - (part.rank > rank)) * part.own;
        const uint32_t to = cluster_place(ring.inbox(me.warpgroup, place), rank) + me.thread * 16;
        if (rank == part.rank) continue;
        few_each<TILE>(part, rank, [&](int i, int at) {
            uint32_t bits[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                bits[j] = copy_of_sum(d[i * 4 + j], zero);
            cluster_send(to + at * 2048, bits, bar);
        });
    }
}

/* Adds what the others sent of this block's tokens, in the order of their ranks. */
template <class TILE>
static __device__ __forceinline__ void
few_receive(typename TILE::sum (&d)[TILE::sums], const few_ring<TILE> &ring,
            const few_part<TILE> &part, const thread_place &me)
{
    barrier_wait(ring.inbox_full(me.warpgroup), 0);
#pragma unroll 1
    for (int from = 0; from < part.share - 1; from++)
        few_each<TILE>(part, part.rank, [&](int i, int at) {
            uint32_t bits[4];
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
                         : "r"(ring.inbox(me.warpgroup, from * part.own + at) + me.thread * 16)
                         : "memory");
#pragma unroll
            for (int j = 0; j < 4; j++)
                d[i * 4 + j] += sum_of_bits(bits[j], d[i * 4 + j]);
        });
}

/* Stores 64 outputs of this block's tokens to Y, whatever there is next to them. */
template <class TILE>
static __device__ __forceinline__ void few_store(const typename TILE::sum (&d)[TILE::sums],
                                                 const few_ring<TILE> &ring, const linear_params &p,
                                                 const few_part<TILE> &part, const thread_place &me,
                                                 int n, int zero)
{
    const bool bare =
        p.y_dtype == S24_I32 && !p.x_scale && !p.w_scale && !p.bias && !p.residual && !p.activation;
    const int first = part.rank * part.own * 8;
    const int tokens = min(part.own * 8, part.tokens - first);
    const uint32_t out = ring.inbox(me.warpgroup, 0), terms = ring.terms(me.warpgroup);
    const int token = me.lane % 4 * 2, row = me.warp * 16 + me.lane / 4;
    named_barrier(BARRIER_STORE + me.warpgroup, 128); /* everybody has added what lay there */
    few_each<TILE>(part, part.rank, [&](int i, int at) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(
                             out + sum_place<TILE>(at * 8 + token + j % 2, row + j / 2 * 8)),
                         "r"(copy_of_sum(d[i * 4 + j], zero))
                         : "memory");
    });
    named_barrier(BARRIER_STORE + me.warpgroup, 128);
#pragma unroll 1
    for (int i = me.thread / 8; i < tokens; i += 16) {
        const int col = me.thread % 8 * 8, count = min(8, p.shape.n - n - col);
        uint32_t bits[8];
        if (count <= 0) break;
        shared_read_8(bits, out + sum_place<TILE>(i, col), out + sum_place<TILE>(i, col + 4));
        const int m = part.m + first + i;
        if (!bare) finish_outputs<TILE>(bits, p, terms + col * 4, m, n + col, count);
        write_outputs(p.y, (size_t)m * p.y_ld + n + col, bits, count, p.y_dtype);
    }
}

/* Until the others of the cluster may be sent sums: they have begun, or, where what is sent lies
   over the rings, are done with those. */
template <class TILE>
static __device__ __forceinline__ void few_meet(const few_part<TILE> &part, bool quick)
{
    if (TILE::over && part.share > 1) cluster_arrive();
    if (part.share > 1)
        cluster_wait();
    else if (TILE::over && !quick)
        named_barrier(BARRIER_MET, 128 * TILE::warpgroups);
}

template <class TILE>
static __device__ __forceinline__ void few_consume(const few_ring<TILE> &ring,
                                                   const linear_params &p,
                                                   const few_part<TILE> &part, int warp)
{
    const int thread = threadIdx.x;
    const thread_place me = {warp / 4, 0, warp / 4, warp % 4, thread % 128, thread % 32};
    const int n = (part.n_tile * TILE::warpgroups + me.warpgroup) * 64, zero = p.shape.whole >> 31;
    typename TILE::sum d[TILE::sums];
    few_multiply<TILE>(d, ring, me, part.count);
    const few_way<typename TILE::type> way(p, part.m + part.rank * part.own * 8,
                                           part.m + part.tokens, n + me.warp * 16, me.lane);
    few_meet<TILE>(part, way.quick);
    if (part.share > 1) few_send<TILE>(d, ring, part, me, zero);
    if (!way.quick) put_terms(ring.terms(me.warpgroup), p, me.thread, n);
    if (part.share > 1) few_receive<TILE>(d, ring, part, me);
    if (!way.quick) {
        few_store<TILE>(d, ring, p, part, me, n, zero);
        return;
    }
    few_each<TILE>(part, part.rank, [&](int i, int at) {
        const typename TILE::sum four[4] = {d[i * 4], d[i * 4 + 1], d[i * 4 + 2], d[i * 4 + 3]};
        way.store(four, at);
    });
}

template <class TILE>
__global__ void __launch_bounds__(TILE::threads, 1)
    few_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap,
               const __grid_constant__ linear_params p, const __grid_constant__ CUtensorMap last)
{
    extern __shared__ uint8_t memory[];
    const few_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const few_part<TILE> part(p.shape);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - 4 * TILE::warpgroups;
    if (producer == 0 && one_lane()) {
        map_prefetch(&x);
        for (int i = 0; i < TILE::weight_slots + TILE::token_slots; i++) {
            barrier_init(ring.weight_full(i), 1);
            barrier_init(ring.weight_empty(i), 4 * TILE::warpgroups);
        }
        for (int i = 0; i < TILE::warpgroups; i++)
            barrier_init(ring.inbox_full(i), 1);
        barrier_init_done();
        for (int i = 0; i < TILE::warpgroups; i++)
            barrier_expect(ring.inbox_full(i), (part.share - 1) * part.own_eights() * 2048);
    }
    __syncthreads();
    if (!TILE::over && part.share > 1) cluster_arrive();
    dependents_may_start();
    if (producer < 0)
        few_consume<TILE>(ring, p, part, warp);
    else if (producer == 0 && one_lane())
        few_load_weights<TILE>(ring, p, part);
    else if (producer == 1 && one_lane())
        few_load_tokens<TILE>(ring, p.shape, &x, &last, part);
}

template <class T, int ROWS, int TOKENS, int WEIGHT_SLOTS, int TOKEN_SLOTS>
constexpr linear_row few_row_of(const char *name)
{
    using TILE = few_tile<T, ROWS, TOKENS, WEIGHT_SLOTS, TOKEN_SLOTS>;
    linear_row row = {
        name,          TILE::rows,         TILE::tokens, 1,      0, 0, TILE::most_shares,
        TILE::threads, TILE::shared_bytes, {},           nullptr};
    for (const void *&kernel : row.kernels)
        kernel = (const void *)few_kernel<TILE>;
    return row;
}

#endif
