// SPDX-License-Identifier: Apache-2.0
/*
 * Attention's pass backward after FlashAttention-2 (Dao, 2023), the weights P computed again from
 * the sums of the pass forward, with dropout D on them:
 *
 *     dP = dO·Vᵀ ∘ D     dS = P ∘ (dP − Σ dO∘O)
 *     dQ = dS·K/√d       dK = dSᵀ·Q/√d             dV = (P∘D)ᵀ·dO
 *
 * One kernel's blocks have queries and make dQ, on the way the sums of dO∘O and what dropout keeps;
 * the other's have keys, see all transposed, and make dK and dV of all heads that share them. So
 * each result is one block's, summed in one order. Where scores grow by numbers of distances, which
 * a table of buckets has, a block of queries also leaves the sums of its dS by bucket: a thread has
 * one diagonal of every 64 x 64 of them and a sum for each bucket, then all threads' are added, and
 * a kernel after it adds the blocks'.
 */
#ifndef S24_CUDA_TRAIN_TRAIN_ATTENTION_BACK_CUH
#define S24_CUDA_TRAIN_TRAIN_ATTENTION_BACK_CUH

#include "cuda/train/train_attention.cuh"

/* The weight of the keys of a query that sees masked ones only; of others 0, as of those that take
   up nothing. */
static __device__ inline float train_equal_weight(const train_heads &h, float base, int query,
                                                  int length)
{
    const int first = h.window ? max(0, query + 1 - h.window) : 0;
    return base > 1e20f ? __fdividef(1.0f, (float)(train_keys_end(h, query, length) - first))
                        : 0.0f;
}

/* Where the block of 128 keys' words of a head begin. */
static __device__ inline uint32_t *train_kept(const train_heads &h, int head, int block)
{
    const int blocks = (h.longest + 127) / 128;
    return h.kept + ((int64_t)head * blocks + block) * h.tokens * 4;
}

/* ---- a table's gradients --------------------------------------------------------------------- */

/* Of a block: a stage's dS, rows of which are so far apart that a warp's pairs are in different
   banks, and so are its diagonals; then a sum for each bucket and thread. */
struct train_table_sums {
    static constexpr int ld = 72, threads = 128, sums_at = 64 * ld * 4;
    uint32_t base; /* in shared memory */

    __device__ uint32_t sum(int bucket, int thread) const
    {
        return base + sums_at + (bucket * threads + thread) * 4;
    }
};
static constexpr int train_table_bytes(int64_t buckets)
{
    return train_table_sums::sums_at + (int)buckets * train_table_sums::threads * 4;
}

static __device__ inline float shared_float(uint32_t at)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}
static __device__ inline void shared_float_put(uint32_t at, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

static __device__ inline void train_table_begin(const train_table_sums &table, const train_heads &h)
{
    for (int b = 0; b < h.bucket_count; b++)
        shared_float_put(table.sum(b, threadIdx.x), 0);
}

/* The lane's sums of 64 queries and as many keys. */
static __device__ inline void train_table_put(const train_table_sums &table, const float (&ds)[32])
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; i += 2)
        asm volatile(
            "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(
                table.base +
                ((row + i / 2 % 2 * 8) * train_table_sums::ld + i / 4 * 8 + lane % 4 * 2) * 4),
            "f"(ds[i]), "f"(ds[i + 1])
            : "memory");
}

/* After a barrier: this thread's diagonal, key − query = thread − 63, of which the last has none;
   distance: of the stage's first key and query. What is beyond the text is 0. */
static __device__ inline void train_table_add(const train_table_sums &table, const train_heads &h,
                                              int distance)
{
    const int warp = threadIdx.x / 32 * 32 - 63; /* the diagonal of its first lane */
    const int apart = warp + (int)threadIdx.x % 32, by = distance + apart;
    const int end = min(64, 64 - warp);
    float sum = 0;
#pragma unroll 4
    for (int q = max(0, -31 - warp); q < end; q++)
        if ((unsigned)(q + apart) < 64)
            sum += shared_float(table.base + (q * (train_table_sums::ld + 1) + apart) * 4);
    if (apart > 63 || by < -h.zero || by > h.zero) return;
    const uint32_t to = table.sum(h.buckets[h.zero + by], threadIdx.x);
    shared_float_put(to, shared_float(to) + sum);
}

/* After a barrier: the block's sums to its slot. */
static __device__ inline void train_table_end(const train_table_sums &table, const train_heads &h,
                                              const train_place &at)
{
    const int lane = threadIdx.x % 32;
    const int64_t slot = (at.first + at.row) / 64 + (int)blockIdx.z;
    for (int b = threadIdx.x / 32; b < h.bucket_count; b += train_table_sums::threads / 32) {
        float sum = 0;
#pragma unroll
        for (int t = 0; t < train_table_sums::threads; t += 32)
            sum += shared_float(table.sum(b, t + lane));
#pragma unroll
        for (int step = 16; step; step /= 2)
            sum += __shfl_xor_sync(~0u, sum, step);
        if (lane == 0) h.table_parts[(slot * h.bucket_count + b) * h.heads + at.head] = sum;
    }
}

/* ---- dQ -------------------------------------------------------------------------------------- */

template <class TILE> static constexpr int train_queries_bytes()
{
    static_assert(TILE::rows <= 2 * TILE::n, "the context has place in a stage");
    return 1024 + 2 * TILE::own_bytes + 4 * TILE::other_bytes;
}

/* The sums of dO∘O of the lane's rows, both in shared memory, and to where the other kernel reads
   them. */
template <class T, class TILE>
static __device__ inline void train_delta(float (&delta)[2], uint32_t dout, uint32_t context)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        delta[r] = 0;
#pragma unroll
        for (int n = 0; n < TILE::d / 8; n++) {
            const uint32_t at = piece_at<TILE, TILE::rows>(mine + 8 * r, n) + lane % 4 * 4;
            union {
                uint32_t all;
                T each[2];
            } a, b;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a.all) : "r"(dout + at) : "memory");
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(b.all) : "r"(context + at) : "memory");
            delta[r] = fmaf((float)a.each[0], (float)b.each[0], delta[r]);
            delta[r] = fmaf((float)a.each[1], (float)b.each[1], delta[r]);
        }
        delta[r] = sum_of_four(delta[r]);
    }
}

template <class T, class TILE, train_kind KIND>
__global__ void __launch_bounds__(TILE::threads, KIND == TRAIN_GROWS ? 1 : TILE::blocks)
    train_queries_kernel(const __grid_constant__ train_heads h)
{
    static_assert(TILE::rows == 64 && TILE::n == 64, "as train_table_sums has it");
    const bool drops = train_drops<KIND>(h), sums_table = KIND == TRAIN_GROWS && h.buckets;
    extern __shared__ uint8_t memory[];
    const uint32_t own = train_memory(memory), other = own + 2 * TILE::own_bytes;
    const train_table_sums table = {other + 4 * TILE::other_bytes};
    const int lane = threadIdx.x % 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, true);
    if (at.row >= at.length) return;
    const int64_t column = at.head * h.d, one = (int64_t)at.head * h.tokens + at.first;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    const T *keys = rows + (h.heads + at.head / (h.heads / h.kv_heads)) * h.d;
    const T *values = keys + h.kv_heads * h.d;
    const int seen = train_keys_end(h, at.row + TILE::rows - 1, at.length);
    const int row = at.row + threadIdx.x / 32 * 16 + lane / 4; /* the lane's first */
    const int from = train_first_key(h, at.row);

    rows_in<TILE, TILE::rows>(own, rows + column, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(own + TILE::own_bytes,
                              static_cast<const T *>(h.dcontext) + at.first * h.ld_context + column,
                              h.ld_context, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(other + 2 * TILE::other_bytes,
                              static_cast<const T *>(h.context) + at.first * h.ld_context + column,
                              h.ld_context, at.row, at.length, h.d);
    copies_commit();
    rows_in<TILE, TILE::n>(other, keys, h.ld, from, at.length, h.d);
    rows_in<TILE, TILE::n>(other + TILE::other_bytes, values, h.ld, from, at.length, h.d);
    copies_commit();
    if (sums_table) train_table_begin(table, h);
    uint32_t kept[2];
    float dq[TILE::slabs][TILE::slab / 2] = {}, delta[2], base[2], equal[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        base[r] = row + 8 * r < at.length ? h.lse[one + row + 8 * r] * -LOG2E : 0.0f;
        equal[r] = train_equal_weight(h, base[r], row + 8 * r, at.length);
    }
    rows_wait<1>();
    __syncthreads();
    train_delta<T, TILE>(delta, own + TILE::own_bytes, other + 2 * TILE::other_bytes);
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (lane % 4 == 0 && row + 8 * r < at.length)
            h.sums[one + row + 8 * r] = make_float2(base[r], delta[r]);

    for (int key = from, stage = 0; key < seen; key += TILE::n, stage ^= 1) {
        const uint32_t here = other + stage * 2 * TILE::other_bytes;
        float s[TILE::n / 2], dp[TILE::n / 2];
        rows_wait<0>();
        __syncthreads();
        products_begin();
        times_rows<T, TILE>(s, own, here);
        times_rows<T, TILE>(dp, own + TILE::own_bytes, here + TILE::other_bytes);
        products_commit();
        if (key + TILE::n < seen) {
            const uint32_t there = other + (stage ^ 1) * 2 * TILE::other_bytes;
            rows_in<TILE, TILE::n>(there, keys, h.ld, key + TILE::n, at.length, h.d);
            rows_in<TILE, TILE::n>(there + TILE::other_bytes, values, h.ld, key + TILE::n,
                                   at.length, h.d);
            copies_commit();
        }
        if (drops && key % 128 == 0) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                kept[r] = drop_of_row(h.drop, (int64_t)(at.first + row + 8 * r) * h.heads + at.head,
                                      key / 128);
                if (row + 8 * r < at.length)
                    train_kept(h, at.head, key / 128)[(at.first + row + 8 * r) * 4 + lane % 4] =
                        kept[r];
            }
        }
        const bool edge = h.mask || key + TILE::n > at.length ||
                          (h.causal && key + TILE::n > at.row + 1) ||
                          train_is_past(h, at.row + TILE::rows - 1, key) ||
                          train_is_past(h, at.row, key + TILE::n - 1);
        products_wait<0>();
        products_pin(s);
        products_pin(dp);
        if (KIND == TRAIN_GROWS) train_scores_grow(s, h, at, row, key + lane % 4 * 2);
        const uint32_t bits[2] = {drops ? kept[0] >> key % 128 / 16 : 0,
                                  drops ? kept[1] >> key % 128 / 16 : 0};
#pragma unroll
        for (int i = 0; i < TILE::n / 2; i++)
            s[i] = exp2_of(fmaf(s[i], h.log2_scale, base[i / 2 % 2]));
        if (edge) {
#pragma unroll
            for (int i = 0; i < TILE::n / 2; i++) {
                const int k = key + i / 4 * 8 + lane % 4 * 2 + i % 2, r = i / 2 % 2;
                if (h.mask && k < at.length) {
                    if (!h.mask[at.first + k]) s[i] = 0;
                    if (equal[r] > 0) s[i] = equal[r];
                }
                if (k >= at.length || (h.causal && k > row + 8 * r)) s[i] = 0;
                if (train_is_past(h, row + 8 * r, k)) s[i] = 0;
            }
        }
#pragma unroll
        for (int i = 0; i < TILE::n / 2; i++) {
            const int r = i / 2 % 2;
            if (drops) dp[i] = drop_keeps(bits[r], i) ? dp[i] * h.drop.keep : 0;
            s[i] *= dp[i] - delta[r];
        }
        if (sums_table) {
            train_table_put(table, s);
            __syncthreads();
        }
        uint32_t ds[TILE::n / 16][4];
        as_operand<T>(ds, s);
        sums_pin(dq);
        products_begin();
        times_columns<T, TILE>(dq, ds, here);
        products_commit();
        if (sums_table) train_table_add(table, h, key - at.row);
        products_wait<0>();
        sums_pin(dq);
        operand_pin(ds);
    }
    __syncthreads();
    if (sums_table) train_table_end(table, h, at);
    const float factor[2] = {h.scale, h.scale};
    rows_out<T, TILE>(dq, factor, own, static_cast<T *>(h.dqkv) + at.first * h.ld + column, h.ld,
                      at.row, at.length, h.d);
}

/* ---- dK and dV ------------------------------------------------------------------------------- */

/* What follows a stage's queries and their dO: their sums, and 16 bytes each of dropout. */
template <class TILE> struct train_keys_stage {
    static constexpr int sums_at = 2 * TILE::other_bytes, kept_at = sums_at + 8 * TILE::n;
    static constexpr int bytes = (kept_at + 16 * TILE::n + 1023) / 1024 * 1024;
};
template <class TILE> static constexpr int train_keys_bytes()
{
    return 1024 + 2 * TILE::own_bytes + 2 * train_keys_stage<TILE>::bytes;
}

static __device__ inline uint32_t shared_half(uint32_t at)
{
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}

/* Queries from `query` on of a head into a stage. */
template <class T, class TILE, train_kind KIND>
static __device__ inline void train_queries_in(uint32_t stage, const train_heads &h,
                                               const train_place &at, int head, int query)
{
    using place = train_keys_stage<TILE>;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld + head * h.d;
    const T *dout = static_cast<const T *>(h.dcontext) + at.first * h.ld_context + head * h.d;
    const int64_t one = (int64_t)head * h.tokens + at.first;
    rows_in<TILE, TILE::n>(stage, rows, h.ld, query, at.length, h.d);
    rows_in<TILE, TILE::n>(stage + TILE::other_bytes, dout, h.ld_context, query, at.length, h.d);
    if (threadIdx.x < TILE::n) {
        const int i = threadIdx.x;
        const bool here = query + i < at.length;
        const int token = here ? query + i : 0;
        copy_8(stage + place::sums_at + 8 * i, h.sums + one + token, here);
        if (train_drops<KIND>(h))
            copy_16(stage + place::kept_at + 16 * i,
                    train_kept(h, head, at.row / 128) + (at.first + token) * 4, here);
    }
    copies_commit();
}

/* What the score of a query of that head with a key grows by. */
static __device__ inline float train_growth(const train_heads &h, const train_place &at, int head,
                                            int query, int key)
{
    if (query >= at.length || key >= at.length) return 0;
    return h.distances[head * h.distance_head + h.zero + key - query];
}

template <class T, class TILE, train_kind KIND>
__global__ void __launch_bounds__(TILE::threads, KIND == TRAIN_GROWS ? 1 : TILE::blocks)
    train_keys_kernel(const __grid_constant__ train_heads h)
{
    const bool drops = train_drops<KIND>(h);
    using place = train_keys_stage<TILE>;
    static_assert(128 % TILE::rows == 0, "keys of one block of dropout");
    extern __shared__ uint8_t memory[];
    const uint32_t own = train_memory(memory), other = own + 2 * TILE::own_bytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, false);
    if (at.row >= at.length) return;
    const int64_t column = (h.heads + at.head) * h.d, values = column + h.kv_heads * h.d;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    /* No earlier query sees them. */
    const int from = h.causal   ? at.row / TILE::n * TILE::n
                     : h.window ? max(0, at.row + 1 - h.window) / TILE::n * TILE::n
                                : 0;
    /* After the last query that sees one of them. */
    const int end = h.window ? min(at.length, at.row + TILE::rows - 1 + h.window) : at.length;
    const int group = h.heads / h.kv_heads, last = (at.head + 1) * group;
    const int key = at.row + warp * 16 + lane / 4; /* the lane's first */
    const int shift = at.row % 128 / 16 + warp;    /* its bit of dropout */
    bool masked[2];

    rows_in<TILE, TILE::rows>(own, rows + column, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(own + TILE::own_bytes, rows + values, h.ld, at.row, at.length, h.d);
    train_queries_in<T, TILE, KIND>(other, h, at, at.head * group, from);
#pragma unroll
    for (int r = 0; r < 2; r++)
        masked[r] = h.mask && key + 8 * r < at.length && !h.mask[at.first + key + 8 * r];
    float dk[TILE::slabs][TILE::slab / 2] = {}, dv[TILE::slabs][TILE::slab / 2] = {};

    for (int head = at.head * group, query = from, stage = 0; head < last; stage ^= 1) {
        const uint32_t here = other + stage * place::bytes;
        const int now = query, own_head = head;
        float s[TILE::n / 2], dp[TILE::n / 2];
        rows_wait<0>();
        __syncthreads();
        products_begin();
        times_rows<T, TILE>(s, own, here);
        times_rows<T, TILE>(dp, own + TILE::own_bytes, here + TILE::other_bytes);
        products_commit();
        query += TILE::n;
        if (query >= end) {
            query = from;
            head++;
        }
        if (head < last)
            train_queries_in<T, TILE, KIND>(other + (stage ^ 1) * place::bytes, h, at, head, query);
        const bool edge = h.mask || (h.causal && now < at.row + TILE::rows) ||
                          train_is_past(h, now + TILE::n - 1, at.row) ||
                          train_is_past(h, now, at.row + TILE::rows - 1);
        products_wait<0>();
        products_pin(s);
        products_pin(dp);
#pragma unroll
        for (int n = 0; n < TILE::n / 8; n++) {
            const int queries = n * 8 + lane % 4 * 2; /* this and the next */
            const float4 sums = shared_four(here + place::sums_at + 8 * queries);
            const float base[2] = {sums.x, sums.z}, delta[2] = {sums.y, sums.w};
#pragma unroll
            for (int i = 4 * n; i < 4 * n + 4; i++) {
                if (KIND == TRAIN_GROWS)
                    s[i] +=
                        train_growth(h, at, own_head, now + queries + i % 2, key + i / 2 % 2 * 8);
                s[i] = exp2_of(fmaf(s[i], h.log2_scale, base[i % 2]));
            }
            if (edge) {
#pragma unroll
                for (int i = 4 * n; i < 4 * n + 4; i++) {
                    const int seer = now + queries + i % 2, r = i / 2 % 2;
                    const float equal = train_equal_weight(h, base[i % 2], seer, at.length);
                    if (masked[r]) s[i] = 0;
                    if (h.mask && equal > 0) s[i] = equal;
                    if (h.causal && seer < key + 8 * r) s[i] = 0;
                    if (train_is_past(h, seer, key + 8 * r)) s[i] = 0;
                }
            }
            uint32_t kept[2]; /* of this query and the next: bit 0 of the lane's keys, bit 8 */
#pragma unroll
            for (int e = 0; drops && e < 2; e++)
                kept[e] = shared_half(here + place::kept_at + 16 * (queries + e) +
                                      lane / 4 % 2 * 2 + lane / 8 * 4) >>
                          shift;
#pragma unroll
            for (int i = 4 * n; i < 4 * n + 4; i++) {
                const bool stays = !drops || kept[i % 2] >> i / 2 % 2 * 8 & 1;
                if (drops) dp[i] = stays ? dp[i] * h.drop.keep : 0;
                dp[i] = s[i] * (dp[i] - delta[i % 2]);
                if (!stays) s[i] = 0;
            }
        }
        uint32_t p[TILE::n / 16][4], ds[TILE::n / 16][4];
        as_operand<T>(p, s);
        as_operand<T>(ds, dp);
        sums_pin(dv);
        sums_pin(dk);
        products_begin();
        times_columns<T, TILE>(dv, p, here + TILE::other_bytes);
        times_columns<T, TILE>(dk, ds, here);
        products_commit();
        products_wait<0>();
        sums_pin(dv);
        sums_pin(dk);
        operand_pin(p);
        operand_pin(ds);
    }
    __syncthreads();
    const float of_keys[2] = {h.scale, h.scale};
    const float of_values[2] = {drops ? h.drop.keep : 1.0f, drops ? h.drop.keep : 1.0f};
    T *to = static_cast<T *>(h.dqkv) + at.first * h.ld;
    rows_out<T, TILE>(dk, of_keys, own, to + column, h.ld, at.row, at.length, h.d);
    rows_out<T, TILE>(dv, of_values, own + TILE::own_bytes, to + values, h.ld, at.row, at.length,
                      h.d);
}

#endif
