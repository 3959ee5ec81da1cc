// SPDX-License-Identifier: Apache-2.0
/*
 * context = softmax(q·kᵀ/√d + mask)·v within each text, texts laid end to end, after the online
 * softmax of Milakov and Gimelshein (2018) and FlashAttention (Dao et al., 2022; Shah et al.,
 * 2024): scores never leave the registers.
 *
 * An item is some queries of one text and head; blocks stay and take one after the other. GROUPS
 * warpgroups have 64 queries each and share the keys and values, which a producer brings KEYS at a
 * time into a ring of STAGES, running ahead into the next items. A warpgroup starts its
 * next scores before it adds up values, and takes its exponentials while these products run; the
 * other warpgroups multiply then, too.
 */
#ifndef S24_CUDA_ATTENTION_ATTENTION_CUH
#define S24_CUDA_ATTENTION_ATTENTION_CUH

#include "cuda/attention/attention_store.cuh"
#include "cuda/attention/exponents.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/wgmma_dense.cuh"

/* A tile of which BLOCKS run per multiprocessor. */
template <int D, int GROUPS, int KEYS, int STAGES, int BLOCKS> struct attention_tile {
    static constexpr int d = D, groups = GROUPS, keys = KEYS, stages = STAGES, blocks = BLOCKS;
    static constexpr int queries = 64 * GROUPS, threads = 128 * (GROUPS + 1);
    static constexpr int row = 2 * D; /* bytes */
    static constexpr int query_bytes = queries * row, key_bytes = KEYS * row;
    static constexpr int keys_at = 2 * query_bytes; /* of this item and the next one */
    static constexpr int items_at = keys_at + STAGES * 2 * key_bytes;
    static constexpr int barriers_at = items_at + 2 * 16;
    static constexpr int shared_bytes = 1024 + barriers_at + (4 + STAGES * 3) * 8;
    /* Registers a thread of producer and consumers: 64 Ki in all. */
    static constexpr int compiled = 65536 / (threads * BLOCKS) / 8 * 8, give = 24;
    static constexpr int most = (compiled * (GROUPS + 1) - give) / GROUPS / 8 * 8;
    static constexpr int take = most < 240 ? most : 240;
    static_assert(shared_bytes <= 227 * 1024 && key_bytes % 1024 == 0, "shared memory");
};

template <class TILE> struct attention_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */
    __device__ uint32_t query(int slot, int group) const
    {
        return base + slot * TILE::query_bytes + group * 64 * TILE::row;
    }
    __device__ uint32_t keys(int stage) const
    {
        return base + TILE::keys_at + stage * 2 * TILE::key_bytes;
    }
    __device__ uint32_t values(int stage) const
    {
        return keys(stage) + TILE::key_bytes;
    }
    __device__ uint32_t item(int slot) const
    {
        return base + TILE::items_at + slot * 16;
    }
    __device__ uint32_t query_in(int slot) const
    {
        return base + TILE::barriers_at + slot * 16;
    }
    __device__ uint32_t query_used(int slot) const
    {
        return query_in(slot) + 8;
    }
    __device__ uint32_t keys_in(int stage) const
    {
        return base + TILE::barriers_at + 32 + stage * 24;
    }
    __device__ uint32_t values_in(int stage) const
    {
        return keys_in(stage) + 8;
    }
    __device__ uint32_t used(int stage) const
    {
        return keys_in(stage) + 16;
    }
};

/* What a warpgroup computes at a time. */
struct attention_item {
    int text, length, query, column; /* first token, tokens, first query of the text, of the head */
};

template <class TILE> static __device__ int attention_blocks(int length)
{
    return (length + TILE::keys - 1) / TILE::keys;
}

/* ---- the producer: one thread ---------------------------------------------------------------- */

template <class TILE>
static __device__ void attention_produce(const attention_ring<TILE> &ring,
                                         const attention_params &p, const CUtensorMap *query_map,
                                         const CUtensorMap *map)
{
    ring_place<2> slot;
    ring_place<TILE::stages> at;
    for (int i = blockIdx.x; i < p.items; i += gridDim.x, slot.next()) {
        /* The product before wrote the last tokens last: they may still be in L2. */
        const int from_end = i / p.heads, head = i - from_end * p.heads;
        const int2 tile = p.tiles[p.tile_count - 1 - from_end];
        const int text = p.offsets[tile.x], length = p.offsets[tile.x + 1] - text;
        const int column = head * TILE::d;
        barrier_wait(ring.query_used(slot.stage), slot.parity ^ 1);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(ring.item(slot.stage)),
                     "r"(text), "r"(length), "r"(tile.y), "r"(column)
                     : "memory");
        barrier_expect(ring.query_in(slot.stage), TILE::query_bytes);
        tile_load(ring.query(slot.stage, 0), query_map, column, text + tile.y,
                  ring.query_in(slot.stage));
        for (int b = 0; b < attention_blocks<TILE>(length); b++, at.next()) {
            const int token = text + b * TILE::keys;
            barrier_wait(ring.used(at.stage), at.parity ^ 1);
            barrier_expect(ring.keys_in(at.stage), TILE::key_bytes);
            tile_load(ring.keys(at.stage), map, column + p.width, token, ring.keys_in(at.stage));
            barrier_expect(ring.values_in(at.stage), TILE::key_bytes);
            tile_load(ring.values(at.stage), map, column + 2 * p.width, token,
                      ring.values_in(at.stage));
        }
    }
}

/* ---- consumers: a warpgroup ------------------------------------------------------------------ */

/* Scores of keys that are not the text's become −∞, of masked ones a number below all others whose
   product with any scale is exact: texts of masked tokens only have equal weights. */
template <int SUMS>
static __device__ void attention_mask(float (&s)[SUMS], const uint8_t *mask, int left, int lane)
{
    const float masked = -0x1p100f;
    const int first = lane % 4 * 2; /* this thread's keys are this one and the next of each eight */
    static_assert(SUMS <= 64, "a word has 32 bits");
    uint32_t hidden = 0;
    if (mask)
#pragma unroll 4
        for (int i = 0; i < SUMS / 2; i++) {
            const int key = i / 2 * 8 + first + i % 2;
            if (key < left && !mask[key]) hidden |= 1u << i;
        }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        if (i / 4 * 8 + i % 2 >= left - first)
            s[i] = -INFINITY;
        else if (hidden >> (i / 4 * 2 + i % 2) & 1)
            s[i] = masked;
    }
}

/* Scores to weights, in place; the sums so far are to be multiplied with factor. Both rows in one
   loop, each in two chains: a warp has nobody to hide its latency. */
template <int SUMS>
static __device__ __forceinline__ void attention_softmax(float (&s)[SUMS], attention_rows &rows,
                                                         float (&factor)[2], float log2_scale)
{
    float most[2][2], sum[2][2] = {}, at[2];
#pragma unroll
    for (int r = 0; r < 2; r++)
        most[r][0] = most[r][1] = rows.most[r];
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        most[i / 2 % 2][i % 2] = fmaxf(most[i / 2 % 2][i % 2], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r][0] = fmaxf(most[r][0], most[r][1]);
        most[r][0] = fmaxf(most[r][0], __shfl_xor_sync(~0u, most[r][0], 1));
        most[r][0] = fmaxf(most[r][0], __shfl_xor_sync(~0u, most[r][0], 2));
        at[r] = most[r][0] * log2_scale;
        factor[r] = exp2_of(fmaf(rows.most[r], log2_scale, -at[r]));
        rows.most[r] = most[r][0];
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        s[i] = exp2_of(fmaf(s[i], log2_scale, -at[i / 2 % 2]));
        sum[i / 2 % 2][i % 2] += s[i];
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        rows.sum[r] = rows.sum[r] * factor[r] + (sum[r][0] + sum[r][1]);
}

/* Rows of values past the text's end belong to another one; a weight of 0 times NaN were NaN. */
template <class TILE>
static __device__ void attention_clear(uint32_t values, int left, int thread, int group)
{
    for (int i = left * TILE::row + thread * 16; i < TILE::key_bytes; i += 128 * 16)
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i), "r"(0)
                     : "memory");
    publish_shared();
    named_barrier(1 + group, 128);
}

/*
 * Warpgroups have the tensor cores work for them in turn: else all would get their scores at about
 * the same time, and then be at their exponentials together.
 */
template <class TILE> static __device__ __forceinline__ void attention_turn_take(int group)
{
    if (TILE::groups > 1) named_barrier(BARRIER_TURN + group, 256);
}
template <class TILE> static __device__ __forceinline__ void attention_turn_give(int group)
{
    const int next = group + 1 == TILE::groups ? 0 : group + 1;
    if (TILE::groups > 1) asm volatile("bar.arrive %0, 256;" ::"r"(BARRIER_TURN + next) : "memory");
}

/* Has the scores of the queries with a block of keys computed. */
template <class T, class TILE>
static __device__ __forceinline__ void
attention_scores(float (&s)[TILE::keys / 2], const attention_ring<TILE> &ring, uint32_t query,
                 const ring_place<TILE::stages> &at)
{
    barrier_wait(ring.keys_in(at.stage), at.parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++)
        wgmma<T, TILE::keys>::rows(s, rows_place<TILE::row>(query + k * 32),
                                   rows_place<TILE::row>(ring.keys(at.stage) + k * 32), k > 0);
    products_commit();
}

/* Has a block's values added up with their weights; `left` of them are the text's. */
template <class T, class TILE>
static __device__ __forceinline__ void
attention_sum(float (&o)[TILE::d / 2], const uint32_t (&weights)[TILE::keys / 16][4],
              const attention_ring<TILE> &ring, int stage, uint32_t parity, int left, int group)
{
    barrier_wait(ring.values_in(stage), parity);
    if (left < TILE::keys)
        attention_clear<TILE>(ring.values(stage), left, threadIdx.x % 128, group);
    products_pin(o);
    products_begin();
#pragma unroll
    for (int k = 0; k < TILE::keys / 16; k++)
        wgmma<T, TILE::d>::columns(o, weights[k],
                                   rows_place<TILE::row>(ring.values(stage) + k * 16 * TILE::row));
    products_commit();
}

/* The sums are there, and nobody reads the weights any more: the stage is free. */
template <class TILE>
static __device__ __forceinline__ void
attention_summed(float (&o)[TILE::d / 2], const uint32_t (&weights)[TILE::keys / 16][4],
                 const attention_ring<TILE> &ring, int stage)
{
    products_wait<0>();
    products_pin(o);
#pragma unroll
    for (int k = 0; k < TILE::keys / 16; k++)
        asm volatile("" ::"r"(weights[k][0]), "r"(weights[k][1]), "r"(weights[k][2]),
                     "r"(weights[k][3])
                     : "memory");
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.used(stage));
}

/* The scores of block b to weights, in place. */
template <class TILE>
static __device__ __forceinline__ void
attention_softmax_of(float (&s)[TILE::keys / 2], attention_rows &rows, float (&factor)[2],
                     const attention_params &p, const attention_item &item, int b)
{
    const int left = item.length - b * TILE::keys;
    if (p.mask || left < TILE::keys)
        attention_mask(s, p.mask ? p.mask + item.text + b * TILE::keys : nullptr, left,
                       threadIdx.x % 32);
    attention_softmax(s, rows, factor, p.log2_scale);
}

template <class T, int KEYS>
static __device__ __forceinline__ void attention_pack(uint32_t (&weights)[KEYS][4],
                                                      const float (&s)[8 * KEYS])
{
#pragma unroll
    for (int k = 0; k < KEYS; k++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            weights[k][j] = pair_of<T>::pack(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
}

template <class T, class TILE>
static __device__ __forceinline__ void
attention_group(const attention_ring<TILE> &ring, const attention_params &p,
                const attention_item &item, uint32_t query, ring_place<TILE::stages> &at, int group)
{
    const int blocks = attention_blocks<TILE>(item.length);
    float s[TILE::keys / 2], o[TILE::d / 2], factor[2];
    uint32_t weights[TILE::keys / 16][4];
    attention_rows rows;
#pragma unroll
    for (float &v : o)
        v = 0;
    attention_turn_take<TILE>(group);
    attention_scores<T, TILE>(s, ring, query, at);
    attention_turn_give<TILE>(group);
    products_wait<0>();
    products_pin(s);
    attention_softmax_of<TILE>(s, rows, factor, p, item, 0);
    attention_pack<T>(weights, s);
#pragma unroll 1
    for (int b = 1; b < blocks; b++) {
        const int before = at.stage;
        const uint32_t parity = at.parity;
        at.next();
        attention_turn_take<TILE>(group);
        attention_scores<T, TILE>(s, ring, query, at);
        attention_sum<T, TILE>(o, weights, ring, before, parity, TILE::keys, group);
        attention_turn_give<TILE>(group);
        products_wait<1>();
        products_pin(s);
        attention_softmax_of<TILE>(s, rows, factor, p, item, b);
        attention_summed<TILE>(o, weights, ring, before);
#pragma unroll
        for (int i = 0; i < TILE::d / 2; i++)
            o[i] *= factor[i / 2 % 2];
        attention_pack<T>(weights, s);
    }
    attention_sum<T, TILE>(o, weights, ring, at.stage, at.parity,
                           item.length - (blocks - 1) * TILE::keys, group);
    attention_summed<TILE>(o, weights, ring, at.stage);
    at.next();
    const long long first = (long long)(item.text + item.query) * p.ld + item.column;
    if (p.factor > 0)
        attention_store_eight<TILE>(o, rows, p, query, static_cast<char *>(p.context) + first,
                                    item.length - item.query, group);
    else
        attention_store<T, TILE>(o, rows, query, static_cast<T *>(p.context) + first, p.ld,
                                 item.length - item.query, group);
}

template <class T, class TILE>
static __device__ void attention_consume(const attention_ring<TILE> &ring,
                                         const attention_params &p, int group)
{
    ring_place<2> slot;
    ring_place<TILE::stages> at;
    if (group == TILE::groups - 1) attention_turn_give<TILE>(group);
    for (int i = blockIdx.x; i < p.items; i += gridDim.x, slot.next()) {
        attention_item item;
        barrier_wait(ring.query_in(slot.stage), slot.parity);
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(item.text), "=r"(item.length), "=r"(item.query), "=r"(item.column)
                     : "r"(ring.item(slot.stage))
                     : "memory");
        item.query += group * 64;
        if (item.query < item.length) {
            attention_group<T, TILE>(ring, p, item, ring.query(slot.stage, group), at, group);
        } else {
            for (int b = 0; b < attention_blocks<TILE>(item.length); b++, at.next()) {
                attention_turn_take<TILE>(group);
                attention_turn_give<TILE>(group);
                barrier_wait(ring.values_in(at.stage), at.parity);
                if (threadIdx.x % 32 == 0) barrier_arrive(ring.used(at.stage));
            }
        }
        publish_shared();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.query_used(slot.stage));
    }
    if (group == 0) attention_turn_take<TILE>(group); /* what the last one gave */
}

template <class T, class TILE>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    attention_kernel(const __grid_constant__ CUtensorMap query_map,
                     const __grid_constant__ CUtensorMap map,
                     const __grid_constant__ attention_params p)
{
    extern __shared__ uint8_t memory[];
    const attention_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), producer = warp - 4 * TILE::groups;
    if (producer == 0 && one_lane()) {
        map_prefetch(&query_map);
        map_prefetch(&map);
        for (int i = 0; i < 2; i++) {
            barrier_init(ring.query_in(i), 1);
            barrier_init(ring.query_used(i), 4 * TILE::groups);
        }
        for (int i = 0; i < TILE::stages; i++) {
            barrier_init(ring.keys_in(i), 1);
            barrier_init(ring.values_in(i), 1);
            barrier_init(ring.used(i), 4 * TILE::groups);
        }
        barrier_init_done();
    }
    __syncthreads();
    dependents_may_start();
    if (producer >= 0) {
        registers_give<TILE::give>();
        wait_for_predecessors();
        if (producer == 0 && one_lane()) attention_produce<TILE>(ring, p, &query_map, &map);
    } else {
        registers_take<TILE::take>();
        attention_consume<T, TILE>(ring, p, warp / 4);
    }
}

#endif
