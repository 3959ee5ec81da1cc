// SPDX-License-Identifier: Apache-2.0
/*
 * Products with integers on Hopper. Their weight is so few bytes that a processor's share of it
 * nearly fits its shared memory; what counts is that all of it is asked for at once, and that
 * little is left to do after its last byte. So rings of weights and of tokens are filled by a
 * thread each, and warpgroups widen integers in their registers and multiply from there.
 *
 * A block has PARTS of k, and in each of them WIDE warpgroups side by side that share the part's
 * rings; a cluster's blocks have parts of k again, and each stores a part of the outputs. A group's
 * columns are summed alone; while the next ones are multiplied, their sums are scaled and added.
 *
 * A place of the rings has SPAN blocks of the weight: next to each other along k, or, where a tile
 * is TALL, of as many slabs, which share the tokens of one.
 *
 * A tile of which BLOCKS fit a processor has half of its shared memory, so that the next product's
 * blocks fill their rings while this one's are still at work. They may start when what is left to
 * load fits this one's rings: sooner, their loads would come before those that are waited for. And
 * the product ahead must be done by then: with three of them under way, some processors would have
 * two blocks of the third, and others none.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_STRIPS_CUH
#define S24_CUDA_LINEAR_LINEAR_STRIPS_CUH

#include "cuda/linear/linear_strips_row.cuh"
#include "cuda/linear/strips_share.cuh"
#include "cuda/ptx/wgmma_held.cuh"

template <class ORDER, int TOKENS, int WIDE, int PARTS, int TOKEN_SLOTS, int BLOCKS = 1,
          int SPAN = 1, bool TALL = false>
struct strips_tile {
    using order = ORDER;
    using type = typename ORDER::type;
    static constexpr int tokens = TOKENS, wide = WIDE, parts = PARTS, token_slots = TOKEN_SLOTS,
                         blocks = BLOCKS, span = SPAN, slabs = TALL ? WIDE * SPAN : WIDE,
                         along = TALL ? 1 : SPAN; /* blocks of a place along k */
    static constexpr bool many = TOKENS > 64, tall = TALL;
    static constexpr int warpgroups = WIDE * PARTS, rows = 64 * slabs, sums = TOKENS / 2,
                         threads = 128 * warpgroups + (many ? 128 : 64);
    static constexpr int weight_stage = SPAN * WIDE * ORDER::block, token_block = TOKENS * 256,
                         token_stage = along * token_block;
    /* Few sums have a place of their own, many take the rings' when those are done with. */
    static constexpr int sum_bytes = rows * TOKENS * 4 * PARTS, barrier_bytes = many ? 2048 : 1040;
    static constexpr bool apart = sum_bytes <= 16 * 1024;
    static constexpr int most_bytes = (228 / BLOCKS - 2) * 1024;
    static constexpr int weight_at = PARTS * TOKEN_SLOTS * token_stage;
    static constexpr int left = most_bytes - 1024 - barrier_bytes - weight_at - apart * sum_bytes;
    static constexpr int fit = left / (PARTS * weight_stage), weight_slots = fit < 12 ? fit : 12;
    static constexpr int ring_bytes = weight_at + PARTS * weight_slots * weight_stage;
    static constexpr int sums_at = apart ? ring_bytes : 0;
    static constexpr int barriers_at = apart                    ? ring_bytes + sum_bytes
                                       : ring_bytes > sum_bytes ? ring_bytes
                                                                : sum_bytes;
    static constexpr int shared_bytes = 1024 + barriers_at + barrier_bytes; /* 1024: alignment */
    /* Scales of groups: of few tokens the sums have them; where there are many sums per thread, or
       many threads, the weight as it is widened. */
    static constexpr int crowded =
        TOKENS * warpgroups * (!ORDER::sparse && ORDER::scales == 2 ? 2 * BLOCKS : 1);
    static constexpr bool scaled = crowded >= 256 && ORDER::scales > 0;
    static constexpr int scales = scaled ? 0 : ORDER::scales;
    /* What is widened and multiplied at a time, and how often a block of the weight has it. */
    static constexpr int unit_steps =
                             scaled || many || (ORDER::sparse && (scales == 2 || span > 1)) ? 2 : 4,
                         units = ORDER::steps / unit_steps;
    static_assert(shared_bytes <= most_bytes && weight_slots > 1, "shared memory");
    static_assert(PARTS * (weight_slots + TOKEN_SLOTS) * 16 + 8 <= barrier_bytes, "barriers");
};

template <class TILE> struct strips_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */

    __device__ uint32_t tokens(int part, int slot) const
    {
        return base + (part * TILE::token_slots + slot) * TILE::token_stage;
    }
    __device__ uint32_t weight(int part, int slot) const
    {
        return base + TILE::weight_at + (part * TILE::weight_slots + slot) * TILE::weight_stage;
    }
    __device__ uint32_t weight_full(int part, int slot) const
    {
        return base + TILE::barriers_at +
               (part * (TILE::weight_slots + TILE::token_slots) + slot) * 16;
    }
    __device__ uint32_t tokens_full(int part, int slot) const
    {
        return weight_full(part, TILE::weight_slots + slot);
    }
    __device__ uint32_t sums_full() const
    {
        return weight_full(TILE::parts, 0);
    }
    static __device__ uint32_t empty(uint32_t full)
    {
        return full + 8;
    }
};

/* ---- the producers: a thread each ------------------------------------------------------------ */

/* EARLY: the next product may start once the rings have room for what is left, and a place of them
   has been given back, or else the product ahead is done. */
template <class TILE, bool EARLY = false>
static __device__ void strips_load_weight(const strips_ring<TILE> &ring, const strips_params &p,
                                          const strips_part &part,
                                          ring_place<TILE::weight_slots> &at)
{
    constexpr int block = TILE::order::block, stage = TILE::along * block,
                  held = TILE::parts * TILE::weight_slots;
    const size_t slab = (size_t)p.k_blocks * block;
    const int first = part.tile * TILE::slabs, last = p.slabs - 1 - first;
    const uint8_t *from = p.w + (size_t)first * slab + (size_t)part.begin * stage;
    const int start = max(held, part.count - held);
#pragma unroll 1
    for (int i = 0; i < part.count; i += TILE::parts, at.next())
        for (int g = 0; g < TILE::parts && i + g < part.count; g++) {
            const uint32_t full = ring.weight_full(g, at.stage);
            barrier_wait(ring.empty(full), at.parity ^ 1);
            if (EARLY && i + g == start) dependents_may_start();
            barrier_expect(full, TILE::weight_stage);
            /* Past the last slab or block, that is loaded again; the block's tokens are zeros. */
            const bool whole = (part.begin + i + g + 1) * TILE::along <= p.k_blocks;
#pragma unroll
            for (int j = 0; j < TILE::slabs; j++) {
                const uint32_t to = ring.weight(g, at.stage) + j * stage;
                const uint8_t *w = from + (size_t)min(j, last) * slab + (size_t)(i + g) * stage;
                bulk_load(to, w, whole ? stage : block, full);
                if (!whole) bulk_load(to + block, w, block, full);
            }
        }
    if (!EARLY || part.count > held) return;
    wait_for_predecessors();
    dependents_may_start();
}

template <class TILE>
static __device__ void strips_load_tokens(const strips_ring<TILE> &ring, const strips_params &p,
                                          const CUtensorMap *x, const strips_part &part, int token,
                                          ring_place<TILE::token_slots> &at)
{
    /* Into L2, which changes with what the kernels before still write: a box here and one there. */
#pragma unroll 1
    for (int i = blockIdx.x; i < 2 * p.k_blocks && !TILE::many; i += gridDim.x)
        tile_ask(x, i * 64, token);
    wait_for_predecessors();
#pragma unroll 1
    for (int i = 0; i < part.count; i += TILE::parts, at.next())
        for (int g = 0; g < TILE::parts && i + g < part.count; g++) {
            const uint32_t full = ring.tokens_full(g, at.stage), to = ring.tokens(g, at.stage);
            const int k = (part.begin + i + g) * TILE::along * 128;
            barrier_wait(ring.empty(full), at.parity ^ 1);
            barrier_expect(full, TILE::along * p.turn * 256);
#pragma unroll
            for (int j = 0; j < 2 * TILE::along; j++)
                tile_load(to + j * (TILE::token_block / 2), x, k + j * 64, token, full);
        }
}

/* ---- consumers: a warpgroup ------------------------------------------------------------------ */

/* What a thread has of the product. Registers that the tensor cores read take turns: those of units
   or, where a block of the weight is one unit, of blocks. */
template <class TILE> struct strips_sums {
    using order = typename TILE::order;
    static constexpr int turns = TILE::scales ? 2 : 1, heights = TILE::tall ? 2 : 1;
    static_assert(!TILE::tall || (TILE::wide == 1 && TILE::span == 2 && TILE::scales == 1),
                  "each turn has a slab's sums");
    uint32_t a[2][TILE::unit_steps][4], codes[2][2];
    float scales[2][2] = {};
    float d[turns][TILE::sums]; /* of the groups being multiplied, or of all */
    float total[heights][TILE::scales ? TILE::sums : 1] = {}; /* of all, scaled; of a slab */

    /* The sums of a turn, which are done, times their scale. */
    template <int TURN> __device__ __forceinline__ void add()
    {
        if constexpr (TILE::scales > 0) {
            float(&sums)[TILE::sums] = total[TILE::tall ? TURN : 0];
            products_pin(d[TURN]);
#pragma unroll
            for (int i = 0; i < TILE::sums; i++)
                sums[i] = fmaf(scales[TURN][i % 4 / 2], d[TURN][i], sums[i]);
        }
    }
    __device__ __forceinline__ float sum(int height, int i) const
    {
        if constexpr (TILE::scales > 0)
            return total[height][i];
        else
            return d[0][i];
    }
};

template <class TILE> struct strips_place {
    ring_place<TILE::weight_slots> weight;
    ring_place<TILE::token_slots> tokens;
};

/* A strip of the weight's block as it lies in memory. */
template <class TILE> struct strips_read {
    using order = typename TILE::order;
    uint32_t words[order::words], scales[order::scales ? order::scales : 1][2];

    static __device__ __forceinline__ void load_codes(uint32_t (&codes)[2], uint32_t strip,
                                                      int lane)
    {
        if (order::sparse) shared_words_2(codes, strip + order::codes_at + lane * 8);
    }
    __device__ __forceinline__ void load(uint32_t strip, int lane)
    {
#pragma unroll
        for (int i = 0; i < order::words; i += 4)
            shared_words_4(words + i, strip + i * 128 + lane * 16);
#pragma unroll
        for (int i = 0; i < order::scales; i++)
            shared_words_2(scales[i], strip + order::scales_at + i * 64 + lane / 4 * 8);
    }
};

/* Widens unit UNIT of a block and begins to multiply with it; `start`: all sums begin here. */
template <class TILE, int TURN, int UNIT>
static __device__ __forceinline__ void
strips_multiply(strips_sums<TILE> &s, const strips_read<TILE> &read, uint32_t tokens, bool start)
{
    using order = typename TILE::order;
    constexpr int A = TILE::units == 1 ? TURN : UNIT % 2, D = TILE::scales == 2   ? UNIT
                                                              : TILE::scales == 1 ? TURN
                                                                                  : 0;
    constexpr bool begins = TILE::scales == 2 || (TILE::scales == 1 && UNIT == 0);
#pragma unroll
    for (int i = 0; i < TILE::unit_steps; i++) {
        const int step = UNIT * TILE::unit_steps + i;
        widen<typename TILE::type, order::bits>::run(s.a[A][i],
                                                     read.words + step * (order::bits / 4));
        if constexpr (TILE::scaled) {
            const uint32_t(&scales)[2] = read.scales[step * order::scales / order::steps];
            const pair_scale<typename TILE::type> low(__uint_as_float(scales[0])),
                high(__uint_as_float(scales[1]));
#pragma unroll
            for (int j = 0; j < 4; j++)
                s.a[A][i][j] = (j % 2 ? high : low).of(s.a[A][i][j]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) /* here, not after products_begin */
            asm volatile("" : "+r"(s.a[A][i][j])::"memory");
    }
    products_begin();
    strips_steps<TILE::unit_steps>::run([&](auto index) {
        constexpr int I = decltype(index)::value, STEP = UNIT * TILE::unit_steps + I;
        constexpr int at = STEP * (order::sparse ? 64 : 32); /* bytes of a token */
        const int add = TILE::scales ? I > 0 || !begins : STEP > 0 || !start;
        wgmma_held<typename TILE::type, order::sparse, TILE::tokens, STEP % 2>::run(
            s.d[D], s.a[A][I],
            tokens_place(tokens + at / TOKEN_BYTES * (TILE::token_block / 2) + at % TOKEN_BYTES),
            s.codes[TURN][STEP / 2 % 2], add);
    });
    products_commit();
}

/* Gives places of both rings back to the producers. */
template <class TILE>
static __device__ __forceinline__ void strips_give_back(const strips_ring<TILE> &ring, int part,
                                                        const strips_place<TILE> &at, int lane)
{
    __syncwarp();
    if (lane != 0) return;
    barrier_arrive(ring.empty(ring.weight_full(part, at.weight.stage)));
    barrier_arrive(ring.empty(ring.tokens_full(part, at.tokens.stage)));
}

/* The compiler does not know how long the tensor cores read what they were given. */
template <class TILE>
static __device__ __forceinline__ void strips_keep(strips_sums<TILE> &s, int a, int turn)
{
#pragma unroll
    for (int i = 0; i < TILE::unit_steps * 4; i++)
        asm volatile("" : "+r"(s.a[a][i / 4][i % 4])::"memory");
    asm volatile("" : "+r"(s.codes[turn][0]), "+r"(s.codes[turn][1])::"memory");
}

/* Multiplies with a block of the weight that has been read; what is left of the one before is added
   meanwhile. `start`: all sums begin here. `done`: what is done once the products before are. */
template <class TILE, int TURN, class DONE>
static __device__ __forceinline__ void strips_block(strips_sums<TILE> &s,
                                                    const strips_read<TILE> &read, uint32_t tokens,
                                                    bool start, bool left, const DONE &done)
{
    strips_steps<TILE::units>::run([&](auto index) {
        constexpr int UNIT = decltype(index)::value;
        constexpr bool begins = TILE::scales == 2 || (TILE::scales == 1 && UNIT == 0);
        constexpr int D = TILE::scales == 2 ? UNIT : TURN;
        strips_multiply<TILE, TURN, UNIT>(s, read, tokens, start);
        products_wait<1>(); /* the unit before is done */
        if (TILE::span > 1 && (UNIT > 0 || left))
            strips_keep(s, TILE::units == 1 ? 1 - TURN : 1 - UNIT % 2, UNIT > 0 ? TURN : 1 - TURN);
        if constexpr (begins) {
            if ((TILE::scales == 2 && TILE::span == 1) || UNIT > 0 || left)
                s.template add<1 - D>(); /* at first of zeros */
            s.scales[D][0] = __uint_as_float(read.scales[TILE::scales == 2 ? UNIT : 0][0]);
            s.scales[D][1] = __uint_as_float(read.scales[TILE::scales == 2 ? UNIT : 0][1]);
        }
        if (UNIT > 0) return;
        asm volatile("" : "+r"(s.codes[1 - TURN][0]), "+r"(s.codes[1 - TURN][1])::"memory");
        done();
    });
}

template <class TILE>
static __device__ __forceinline__ uint32_t strips_weight(const strips_ring<TILE> &ring, int part,
                                                         int strip, int slot)
{
    using order = typename TILE::order;
    return ring.weight(part, slot) + strip / 4 * (TILE::span * order::block) +
           strip % 4 * order::strip;
}

/* The same with a place of the rings that has one block: products go on while the next one is read,
   and it is the place before that is given back. */
template <class TILE, int TURN>
static __device__ __forceinline__ void
strips_one(strips_sums<TILE> &s, const strips_ring<TILE> &ring, int part, int strip, int lane,
           strips_place<TILE> &at, strips_place<TILE> &before, bool first)
{
    const uint32_t tokens = ring.tokens(part, at.tokens.stage);
    const uint32_t weight = strips_weight<TILE>(ring, part, strip, at.weight.stage);
    strips_read<TILE> read;
    barrier_wait(ring.weight_full(part, at.weight.stage), at.weight.parity);
    read.load(weight, lane);
    strips_read<TILE>::load_codes(s.codes[TURN], weight, lane);
    barrier_wait(ring.tokens_full(part, at.tokens.stage), at.tokens.parity);
    strips_block<TILE, TURN>(s, read, tokens, first, !first, [&] {
        if (!first) strips_give_back(ring, part, before, lane);
    });
    before = at;
    at.weight.next();
    at.tokens.next();
}

/* Spans of two blocks: the next place's integers and scales are read while the tensor cores are at
   work with this one's. */
template <class TILE>
static __device__ __forceinline__ void
strips_pairs(strips_sums<TILE> &s, const strips_ring<TILE> &ring, int part, int strip, int lane,
             int count, strips_place<TILE> &at)
{
    constexpr int block = TILE::order::block;
    strips_read<TILE> next[2];
    const auto ahead = [&] {
        const uint32_t weight = strips_weight<TILE>(ring, part, strip, at.weight.stage);
        barrier_wait(ring.weight_full(part, at.weight.stage), at.weight.parity);
        next[0].load(weight, lane);
        next[1].load(weight + block, lane);
    };
    if (count > 0) ahead();
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const strips_read<TILE> read[2] = {next[0], next[1]};
        const strips_place<TILE> now = at;
        const uint32_t weight = strips_weight<TILE>(ring, part, strip, at.weight.stage),
                       tokens = ring.tokens(part, at.tokens.stage);
        strips_read<TILE>::load_codes(s.codes[0], weight, lane);
        strips_read<TILE>::load_codes(s.codes[1], weight + block, lane);
        barrier_wait(ring.tokens_full(part, at.tokens.stage), at.tokens.parity);
        at.weight.next();
        at.tokens.next();
        strips_block<TILE, 0>(s, read[0], tokens, i == 0, false, [] {});
        strips_block<TILE, 1>(s, read[1], tokens + (TILE::tall ? 0 : TILE::token_block), false,
                              true, [] {});
        if (i + 1 < count) ahead();
        products_wait<0>();
        strips_keep(s, TILE::units == 1 ? 1 : (TILE::units - 1) % 2, 1);
        s.template add<1>();
        strips_give_back(ring, part, now, lane);
    }
}

/* The sums of this warpgroup's part of k, of its 64 rows. Two sets of registers take turns. */
template <class TILE>
static __device__ __forceinline__ void
strips_multiply_all(strips_sums<TILE> &s, const strips_ring<TILE> &ring, int part, int strip,
                    int lane, int count, strips_place<TILE> &at, strips_place<TILE> &before)
{
    int i = 0;
#pragma unroll
    for (int j = 0; j < strips_sums<TILE>::turns * TILE::sums; j++)
        s.d[j / TILE::sums][j % TILE::sums] = 0;
    if constexpr (TILE::span > 1) { /* nothing is left of a place */
        strips_pairs<TILE>(s, ring, part, strip, lane, count, at);
    } else {
#pragma unroll 1
        for (; i + 2 <= count; i += 2) {
            strips_one<TILE, 0>(s, ring, part, strip, lane, at, before, i == 0);
            strips_one<TILE, 1>(s, ring, part, strip, lane, at, before, false);
        }
        if (i < count) {
            strips_one<TILE, 0>(s, ring, part, strip, lane, at, before, i == 0);
            products_wait<0>();
            s.template add<TILE::scales == 2 ? 1 : 0>();
        } else {
            products_wait<0>();
            if (count > 0) s.template add<TILE::scales ? 1 : 0>();
        }
    }
    products_pin(s.d[0]);
}

/* ---- the end --------------------------------------------------------------------------------- */

template <class TILE>
static __device__ __forceinline__ void strips_begin(const strips_ring<TILE> &ring,
                                                    const CUtensorMap *x)
{
    map_prefetch(x);
    for (int g = 0; g < TILE::parts; g++)
        for (int i = 0; i < TILE::weight_slots + TILE::token_slots; i++) {
            barrier_init(ring.weight_full(g, i), 1);
            barrier_init(ring.empty(ring.weight_full(g, i)), 4 * TILE::wide);
        }
    if (!TILE::many) {
        barrier_init(ring.sums_full(), 1);
        barrier_expect(ring.sums_full(), TILE::sum_bytes);
    }
    barrier_init_done();
}

template <class TILE>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    strips_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ strips_params p)
{
    extern __shared__ uint8_t memory[];
    uint32_t base = (shared_address(memory) + 1023) / 1024 * 1024;
    if (TILE::span > 1) { /* else the compiler works it out again for each place */
        asm volatile("" : "+r"(base));
        base = __shfl_sync(~0u, base, 0);
    }
    const strips_ring<TILE> ring = {base};
    const strips_part part(p, TILE::along);
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int producer = warp - 4 * TILE::warpgroups, slice = warp / 4 / TILE::wide;
    const int strip = warp / 4 % TILE::wide * 4 + warp % 4;
    strips_sums<TILE> s;
    strips_place<TILE> at, before;
    if (producer == 0 && one_lane()) strips_begin<TILE>(ring, &x);
    __syncthreads();
    if (p.share > 1) cluster_arrive();
    if (TILE::blocks == 1) dependents_may_start();
    if (producer < 0)
        strips_multiply_all<TILE>(s, ring, slice, strip, lane,
                                  (part.count - slice + TILE::parts - 1) / TILE::parts, at, before);
    else if (producer == 0 && one_lane())
        strips_load_weight<TILE, (TILE::blocks > 1)>(ring, p, part, at.weight);
    else if (producer == 1 && one_lane())
        strips_load_tokens<TILE>(ring, p, &x, part, blockIdx.y * p.turn, at.tokens);
    __syncwarp();
    if (p.share > 1) cluster_wait();        /* all blocks have begun */
    if (!TILE::apart) strips_meet(p.share); /* and are done with their rings */
    if (producer < 0)
#pragma unroll
        for (int height = 0; height < strips_sums<TILE>::heights; height++)
            strips_send<TILE::tokens>([&](int i) { return s.sum(height, i); },
                                      ring.base + TILE::sums_at, ring.sums_full(),
                                      TILE::rows / p.share, part.rank * TILE::parts + slice,
                                      (strip + height * 4) * 16, p.share == 1);
    if (p.share > 1)
        barrier_wait(ring.sums_full(), 0);
    else
        __syncthreads();
    const int rows = TILE::rows / p.share;
    strips_store<TILE::tokens>(p,
                               reinterpret_cast<const float *>(
                                   memory + (ring.base - shared_address(memory)) + TILE::sums_at),
                               p.share * TILE::parts, rows,
                               part.tile * TILE::rows + part.rank * rows, blockIdx.y * p.turn,
                               TILE::threads);
}

/* Two blocks in a place (SPAN) are for 4 bits, 2:4, alone: dense ones are no faster by them. */
template <class T, int TOKENS, int WIDE, int PARTS, int TOKEN_SLOTS, int BLOCKS = 1, int SPAN = 1,
          bool TALL = false>
constexpr strips_row strips_row_of()
{
    strips_row row = {TOKENS,
                      64 * (TALL ? SPAN : WIDE),
                      PARTS * (TALL ? 1 : SPAN),
                      128 * WIDE * PARTS + 64,
                      BLOCKS,
                      {}};
#define STRIPS(bits, sparse, group, at)                                                            \
    if constexpr (SPAN == 1 || (bits == 4 && sparse && (!TALL || group == 128))) {                 \
        using TILE = strips_tile<strips_order<T, bits, sparse, group>, TOKENS, WIDE, PARTS,        \
                                 TOKEN_SLOTS, BLOCKS, SPAN, TALL>;                                 \
        row.kernels[at] = {(const void *)strips_kernel<TILE>, TILE::shared_bytes};                 \
    }
#include "cuda/linear/strips_orders.def"
#undef STRIPS
    return row;
}

#endif
