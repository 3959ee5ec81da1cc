// SPDX-License-Identifier: Apache-2.0
/*
 * context = softmax(q·kᵀ/√d + mask)·v within each text, texts laid end to end, after the online
 * softmax of Milakov and Gimelshein (2018) and FlashAttention (Dao et al., 2022): scores never
 * leave the registers.
 *
 * A block has GROUPS warpgroups, each with 64 queries of one text and head; they share the keys and
 * values, which the copy engine brings KEYS at a time into a ring of STAGES. A ring that holds a
 * whole text is filled once and nobody waits for a stage to be free. Other warpgroups on the
 * multiprocessor multiply while one is at its exponentials.
 */
#ifndef S24_CUDA_ATTENTION_CUH
#define S24_CUDA_ATTENTION_CUH

#include "hopper.cuh"
#include "linear_tile.cuh"
#include "wgmma_dense.cuh"

struct attention_params {
    const int32_t *offsets; /* [texts + 1] tokens */
    const int2 *tiles;      /* text, first query of it; a block each */
    const uint8_t *mask;    /* [tokens] or NULL */
    void *context;
    long long ld;     /* of context */
    int width;        /* heads · d */
    float log2_scale; /* log₂e / √d */
};

template <int D, int GROUPS, int KEYS, int STAGES> struct attention_tile {
    static constexpr int d = D, groups = GROUPS, keys = KEYS, stages = STAGES;
    static constexpr int queries = 64 * GROUPS, threads = 128 * GROUPS;
    static constexpr int row = 2 * D; /* bytes */
    static constexpr int query_bytes = queries * row, key_bytes = KEYS * row;
    static constexpr int barriers_at = query_bytes + STAGES * 2 * key_bytes;
    static constexpr int shared_bytes = 1024 + barriers_at + STAGES * 3 * 8;
    static_assert(shared_bytes <= 227 * 1024 && key_bytes % 1024 == 0, "shared memory");
};

template <class TILE> struct attention_ring {
    uint32_t base; /* in shared memory, a multiple of 1024 */
    __device__ uint32_t query(int group) const
    {
        return base + group * 64 * TILE::row;
    }
    __device__ uint32_t keys(int stage) const
    {
        return base + TILE::query_bytes + stage * 2 * TILE::key_bytes;
    }
    __device__ uint32_t values(int stage) const
    {
        return keys(stage) + TILE::key_bytes;
    }
    __device__ uint32_t keys_in(int stage) const
    {
        return base + TILE::barriers_at + stage * 24;
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

/* One thread: block number `block` of a text's keys and values into its stage. */
template <class TILE>
static __device__ void attention_load(const attention_ring<TILE> &ring, const CUtensorMap *map,
                                      int block, int text, int column, int width, uint32_t queries)
{
    const int stage = block % TILE::stages, token = text + block * TILE::keys;
    barrier_expect(ring.keys_in(stage), TILE::key_bytes + queries);
    tile_load(ring.keys(stage), map, column + width, token, ring.keys_in(stage));
    barrier_expect(ring.values_in(stage), TILE::key_bytes);
    tile_load(ring.values(stage), map, column + 2 * width, token, ring.values_in(stage));
}

/* Scores of keys that are not the text's become −∞, of masked ones a number below all others whose
   product with any scale is exact: texts of masked tokens only have equal weights. */
template <int SUMS>
static __device__ void attention_mask(float (&s)[SUMS], const uint8_t *mask, int left, int lane)
{
    const float masked = -0x1p100f;
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        int key = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (key >= left)
            s[i] = -INFINITY;
        else if (mask && !mask[key])
            s[i] = masked;
    }
}

/* What a warpgroup's thread knows of its two queries (rows lane/4 and lane/4 + 8 of its warp). */
struct attention_rows {
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/* Scores to weights, in place; the sums so far are to be multiplied with factor. */
template <int SUMS>
static __device__ __forceinline__ void attention_softmax(float (&s)[SUMS], attention_rows &rows,
                                                         float (&factor)[2], float log2_scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = rows.most[r];
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
            most = fmaxf(most, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float at = most * log2_scale;
        factor[r] = exp2f(fmaf(rows.most[r], log2_scale, -at));
        rows.most[r] = most;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
#pragma unroll
            for (int j = 2 * r; j < 2 * r + 2; j++) {
                asm("ex2.approx.ftz.f32 %0, %1;"
                    : "=f"(s[i + j])
                    : "f"(fmaf(s[i + j], log2_scale, -at)));
                sum += s[i + j];
            }
        rows.sum[r] = rows.sum[r] * factor[r] + sum;
    }
}

/* Rows of values behind the text's end belong to another one; a weight of 0 times NaN were NaN. */
template <class TILE>
static __device__ void attention_clear(uint32_t values, int left, int thread, int group)
{
    for (int i = left * TILE::row + thread * 16; i < TILE::key_bytes; i += 128 * 16)
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(values + i), "r"(0)
                     : "memory");
    publish_shared();
    named_barrier(1 + group, 128);
}

/* The result of 64 queries, by way of the queries' place in shared memory. */
template <class T, class TILE>
static __device__ void attention_store(const float (&o)[TILE::d / 2], const attention_rows &rows,
                                       uint32_t place, T *to, long long ld, int left, int group)
{
    constexpr int pieces = TILE::row / 16;
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        inverse[r] = 1.0f / sum;
    }
    named_barrier(1 + group, 128); /* nobody multiplies with the queries any more */
    const uint32_t mine = place + warp * 16 * TILE::row;
    const int row = lane % 16; /* of the matrices that this lane holds the address of */
#pragma unroll
    for (int i = 0; i < TILE::d / 2; i += 8) {
        uint32_t v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] =
                pair_of<T>::pack(o[i + 2 * j] * inverse[j % 2], o[i + 2 * j + 1] * inverse[j % 2]);
        const int piece = (i / 4 + lane / 16) ^ (row % pieces);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         mine + row * TILE::row + piece * 16),
                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
    }
    __syncwarp();
    for (int i = lane; i < 16 * pieces; i += 32) {
        const int r = i / pieces, piece = i % pieces;
        if (warp * 16 + r >= left) break;
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(mine + r * TILE::row + (piece ^ (r % pieces)) * 16)
                     : "memory");
        *reinterpret_cast<uint4 *>(to + (warp * 16 + r) * ld + piece * 8) = v;
    }
}

template <class T, class TILE>
static __device__ __forceinline__ void
attention_block(float (&o)[TILE::d / 2], attention_rows &rows, const attention_ring<TILE> &ring,
                const attention_params &p, int block, int text, int length, int group)
{
    const int thread = threadIdx.x % 128, lane = thread % 32, stage = block % TILE::stages;
    const uint32_t parity = block / TILE::stages & 1;
    const int left = length - block * TILE::keys;
    float s[TILE::keys / 2], factor[2];
    barrier_wait(ring.keys_in(stage), parity);
    products_begin();
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++)
        wgmma<T, TILE::keys>::rows(s, rows_place<TILE::row>(ring.query(group) + k * 32),
                                   rows_place<TILE::row>(ring.keys(stage) + k * 32), k > 0);
    products_commit();
    products_wait<0>();
    products_pin(s);
    if (p.mask || left < TILE::keys)
        attention_mask(s, p.mask ? p.mask + text + block * TILE::keys : nullptr, left, lane);
    attention_softmax(s, rows, factor, p.log2_scale);
#pragma unroll
    for (int i = 0; i < TILE::d / 2; i++)
        o[i] *= factor[i / 2 % 2];
    uint32_t weights[TILE::keys / 16][4];
#pragma unroll
    for (int k = 0; k < TILE::keys / 16; k++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            weights[k][j] = pair_of<T>::pack(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
    barrier_wait(ring.values_in(stage), parity);
    if (left < TILE::keys) attention_clear<TILE>(ring.values(stage), left, thread, group);
    products_pin(o);
    products_begin();
#pragma unroll
    for (int k = 0; k < TILE::keys / 16; k++)
        wgmma<T, TILE::d>::columns(o, weights[k],
                                   rows_place<TILE::row>(ring.values(stage) + k * 16 * TILE::row));
    products_commit();
    products_wait<0>();
    products_pin(o);
#pragma unroll
    for (int k = 0; k < TILE::keys / 16; k++) /* read while the products run: kept until here */
        asm volatile("" ::"r"(weights[k][0]), "r"(weights[k][1]), "r"(weights[k][2]),
                     "r"(weights[k][3])
                     : "memory");
}

template <class T, class TILE, int BLOCKS>
__global__ void __launch_bounds__(TILE::threads, BLOCKS)
    attention_kernel(const __grid_constant__ CUtensorMap query_map,
                     const __grid_constant__ CUtensorMap map,
                     const __grid_constant__ attention_params p)
{
    extern __shared__ uint8_t memory[];
    const attention_ring<TILE> ring = {(shared_address(memory) + 1023) / 1024 * 1024};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int column = blockIdx.y * TILE::d;
    const bool leads = warp == 0 && one_lane();
    if (leads) {
        for (int i = 0; i < TILE::stages; i++) {
            barrier_init(ring.keys_in(i), 1);
            barrier_init(ring.values_in(i), 1);
            barrier_init(ring.used(i), 4 * TILE::groups);
        }
        barrier_init_done();
    }
    __syncthreads();
    dependents_may_start();
    wait_for_predecessors();
    const int2 tile = p.tiles[blockIdx.x];
    const int text = p.offsets[tile.x], length = p.offsets[tile.x + 1] - text;
    const int blocks = (length + TILE::keys - 1) / TILE::keys;
    const int queries = tile.y + group * 64; /* the warpgroup's first */
    if (leads)
        for (int b = 0; b < min(blocks, TILE::stages); b++) {
            if (b == 0)
                tile_load(ring.query(0), &query_map, column, text + tile.y, ring.keys_in(0));
            attention_load<TILE>(ring, &map, b, text, column, p.width,
                                 b == 0 ? TILE::query_bytes : 0);
        }
    float o[TILE::d / 2];
#pragma unroll
    for (float &v : o)
        v = 0;
    attention_rows rows;
#pragma unroll 1
    for (int b = 0; b < blocks; b++) {
        const int next = b - 1 + TILE::stages; /* in the place of the block before this one */
        if (b > 0 && next < blocks && leads) {
            barrier_wait(ring.used(next % TILE::stages), (next / TILE::stages - 1) & 1);
            attention_load<TILE>(ring, &map, next, text, column, p.width, 0);
        }
        __syncwarp();
        attention_block<T, TILE>(o, rows, ring, p, b, text, length, group);
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.used(b % TILE::stages));
    }
    const int left = length - queries;
    if (left > 0)
        attention_store<T, TILE>(o, rows, ring.query(group),
                                 static_cast<T *>(p.context) + (long long)(text + queries) * p.ld +
                                     column,
                                 p.ld, left, group);
}

#endif
