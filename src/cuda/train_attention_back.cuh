// SPDX-License-Identifier: Apache-2.0
/*
 * Attention's pass backward after FlashAttention-2 (Dao, 2023), the weights P computed again from
 * the sums of the pass forward, with dropout D on them:
 *
 *     dP = dO·Vᵀ ∘ D     dS = P ∘ (dP − Σ dO∘O)     dQ = dS·K/√d     dK = dSᵀ·Q/√d     dV = (P∘D)ᵀ·dO
 *
 * One kernel's blocks have queries and make dQ, and the sums of dO∘O on the way; the other's have
 * keys, see all transposed, and make dK and dV of all heads that share them. So each result is one
 * block's, summed in one order.
 */
#ifndef S24_CUDA_TRAIN_ATTENTION_BACK_CUH
#define S24_CUDA_TRAIN_ATTENTION_BACK_CUH

#include "train_attention.cuh"

/* A query's weights: exp2(score·log2_scale − sum); where it sees masked keys only, 1/number. */
struct train_query {
    float sum;    /* of base 2 */
    float number; /* 1/keys seen of such a query, else 0 */
};
static __device__ inline train_query train_query_of(const train_heads &h, float lse, int query,
                                                    int length)
{
    const bool none = h.mask && lse < -1e28f;
    return {lse * LOG2E, none ? 1.0f / (float)(h.causal ? query + 1 : length) : 0.0f};
}

/* ---- dQ --------------------------------------------------------------------------------------- */

template <class TILE> static constexpr int train_queries_bytes()
{
    static_assert(TILE::rows <= 2 * TILE::n, "the context has place in a stage");
    return 2 * TILE::own_bytes + 4 * TILE::other_bytes;
}

template <class T> static __device__ inline float product_of_pairs(uint32_t a, uint32_t b)
{
    const T *x = reinterpret_cast<const T *>(&a), *y = reinterpret_cast<const T *>(&b);
    return (float)x[0] * (float)y[0] + (float)x[1] * (float)y[1];
}

/* The sums of dO∘O of the warp's rows, O in shared memory at `at`, and to where the other kernel
   reads them. */
template <class T, class TILE>
static __device__ inline void train_delta(float (&delta)[TILE::tiles][2],
                                          const uint32_t (&dout)[TILE::tiles][TILE::d / 16][4],
                                          uint32_t at, float *to, int row, int length)
{
    const int lane = threadIdx.x % 32;
    const uint32_t mine =
        as_rows<TILE>(at + threadIdx.x / 32 * 16 * TILE::tiles * TILE::pitch, lane);
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++) {
        delta[m][0] = delta[m][1] = 0;
#pragma unroll
        for (int k = 0; k < TILE::d / 16; k++) {
            uint32_t o[4];
            matrices(o, mine + m * 16 * TILE::pitch + k * 32);
#pragma unroll
            for (int j = 0; j < 4; j++)
                delta[m][j % 2] += product_of_pairs<T>(o[j], dout[m][k][j]);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + lane / 4 + m * 16 + i * 8;
            delta[m][i] = sum_of_four(delta[m][i]);
            if (lane % 4 == 0 && r < length) to[r] = delta[m][i];
        }
    }
}

template <class T, class TILE, bool DROP>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    train_queries_kernel(const __grid_constant__ train_heads h)
{
    extern __shared__ __align__(128) uint8_t memory[];
    const uint32_t own = shared_address(memory), other = own + 2 * TILE::own_bytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, true);
    if (at.row >= at.length) return;
    const int64_t column = at.head * h.d, one = (int64_t)at.head * h.tokens + at.first;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    const T *keys = rows + (h.heads + at.head / (h.heads / h.kv_heads)) * h.d;
    const T *values = keys + h.kv_heads * h.d;
    const int seen = h.causal ? min(at.length, at.row + TILE::rows) : at.length;
    const int row = at.row + warp * 16 * TILE::tiles; /* the warp's first */
    const float keeps = drop_keeps(h);

    rows_in<TILE, TILE::rows>(own, rows + column, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(own + TILE::own_bytes,
                              static_cast<const T *>(h.dcontext) + at.first * h.ld_context + column,
                              h.ld_context, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(other + 2 * TILE::other_bytes,
                              static_cast<const T *>(h.context) + at.first * h.ld_context + column,
                              h.ld_context, at.row, at.length, h.d);
    copies_commit();
    rows_in<TILE, TILE::n>(other, keys, h.ld, 0, at.length, h.d);
    rows_in<TILE, TILE::n>(other + TILE::other_bytes, values, h.ld, 0, at.length, h.d);
    copies_commit();
    uint32_t q[TILE::tiles][TILE::d / 16][4], dout[TILE::tiles][TILE::d / 16][4];
    uint32_t kept[TILE::tiles][2];
    float dq[TILE::tiles][TILE::d / 8][4] = {}, delta[TILE::tiles][2];
    train_query query[TILE::tiles][2];
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = row + lane / 4 + m * 16 + i * 8;
            query[m][i] = train_query_of(h, r < at.length ? h.lse[one + r] : 0.0f, r, at.length);
        }
    copies_wait<1>();
    __syncthreads();
    fragments<TILE>(q, own);
    fragments<TILE>(dout, own + TILE::own_bytes);
    train_delta<T, TILE>(delta, dout, other + 2 * TILE::other_bytes, h.delta + one, row, at.length);

    for (int key = 0, stage = 0; key < seen; key += TILE::n, stage ^= 1) {
        const uint32_t here = other + stage * 2 * TILE::other_bytes;
        copies_wait<0>();
        __syncthreads();
        if (key + TILE::n < seen) {
            const uint32_t there = other + (stage ^ 1) * 2 * TILE::other_bytes;
            rows_in<TILE, TILE::n>(there, keys, h.ld, key + TILE::n, at.length, h.d);
            rows_in<TILE, TILE::n>(there + TILE::other_bytes, values, h.ld, key + TILE::n,
                                   at.length, h.d);
            copies_commit();
        }
        if (DROP && key % 128 == 0) {
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    kept[m][i] =
                        drop_of_row(h, drop_counter(h, at.first + row + lane / 4 + m * 16 + i * 8,
                                                    at.head, key / 128));
        }
        const bool edge =
            h.mask || key + TILE::n > at.length || (h.causal && key + TILE::n > row + 1);
#pragma unroll
        for (int c = 0; c < TILE::n; c += 16) {
            float s[TILE::tiles][2][4] = {}, dp[TILE::tiles][2][4] = {};
            times_rows<T, TILE>(s, q, as_columns<TILE>(here + c * TILE::pitch, lane));
            times_rows<T, TILE>(dp, dout,
                                as_columns<TILE>(here + TILE::other_bytes + c * TILE::pitch, lane));
            uint32_t ds[TILE::tiles][4];
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++) {
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const int n = j / 4, i = j / 2 % 2;
                    float p = exp2_of(fmaf(s[m][n][j % 4], h.log2_scale, -query[m][i].sum));
                    if (edge) {
                        const int k = key + c + n * 8 + lane % 4 * 2 + j % 2;
                        if (h.mask && k < at.length) {
                            if (!h.mask[at.first + k]) p = 0;
                            if (query[m][i].number > 0) p = query[m][i].number;
                        }
                        if (k >= at.length || (h.causal && k > row + lane / 4 + m * 16 + i * 8))
                            p = 0;
                    }
                    float d = dp[m][n][j % 4];
                    if (DROP)
                        d = kept[m][i] >> ((key % 128 + c) / 4 + 2 * n + j % 2) & 1 ? d * keeps : 0;
                    s[m][n][j % 4] = p * (d - delta[m][i]);
                }
                as_operand<T>(ds[m], s[m]);
            }
            times_columns<T, TILE>(dq, ds, as_rows<TILE>(here + c * TILE::pitch, lane));
        }
    }
    float factor[TILE::tiles][2];
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
        factor[m][0] = factor[m][1] = h.scale;
    rows_out<T, TILE>(dq, factor, own, static_cast<T *>(h.dqkv) + at.first * h.ld + column, h.ld,
                      at.row, at.length, h.d);
}

/* ---- dK and dV -------------------------------------------------------------------------------- */

/* Behind a stage's queries and their dO: their sums, deltas, and with dropout 16 bytes each. */
template <class TILE> struct train_keys_stage {
    static constexpr int sums_at = 2 * TILE::other_bytes, deltas_at = sums_at + 4 * TILE::n;
    static constexpr int kept_at = deltas_at + 4 * TILE::n, bytes = kept_at + 16 * TILE::n;
};
template <class TILE> static constexpr int train_keys_bytes()
{
    return 2 * TILE::own_bytes + 2 * train_keys_stage<TILE>::bytes;
}

static __device__ inline float2 shared_pair(uint32_t at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
static __device__ inline uint32_t shared_byte(uint32_t at)
{
    uint32_t v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

/* Queries from `query` on of a head into a stage. */
template <class T, class TILE, bool DROP>
static __device__ inline void train_queries_in(uint32_t stage, const train_heads &h,
                                               const train_place &at, int head, int query)
{
    using place = train_keys_stage<TILE>;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld + head * h.d;
    const T *dout = static_cast<const T *>(h.dcontext) + at.first * h.ld_context + head * h.d;
    const int64_t one = (int64_t)head * h.tokens + at.first;
    rows_in<TILE, TILE::n>(stage, rows, h.ld, query, at.length, h.d);
    rows_in<TILE, TILE::n>(stage + TILE::other_bytes, dout, h.ld_context, query, at.length, h.d);
    for (int i = threadIdx.x; i < TILE::n; i += TILE::threads) {
        const bool here = query + i < at.length;
        copy_4(stage + place::sums_at + 4 * i, h.lse + one + (here ? query + i : 0), here);
        copy_4(stage + place::deltas_at + 4 * i, h.delta + one + (here ? query + i : 0), here);
    }
    copies_commit();
    for (int i = threadIdx.x; DROP && i < 16 * TILE::n; i += TILE::threads)
        asm volatile(
            "st.shared.u8 [%0], %1;" ::"r"(stage + place::kept_at + i),
            "r"(drop_of_column(h, drop_counter(h, at.first + query + i / 16, head, at.row / 128) +
                                      i % 16))
            : "memory");
}

template <class T, class TILE, bool DROP>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    train_keys_kernel(const __grid_constant__ train_heads h)
{
    using place = train_keys_stage<TILE>;
    static_assert(128 % TILE::rows == 0, "keys of one block of dropout");
    extern __shared__ __align__(128) uint8_t memory[];
    const uint32_t own = shared_address(memory), other = own + 2 * TILE::own_bytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, false);
    if (at.row >= at.length) return;
    const int64_t column = (h.heads + at.head) * h.d, values = column + h.kv_heads * h.d;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    const int from = h.causal ? at.row / TILE::n * TILE::n : 0; /* no earlier query sees them */
    const int group = h.heads / h.kv_heads, last = (at.head + 1) * group;
    const int key = at.row + warp * 16 * TILE::tiles + lane / 4; /* the lane's first */
    const float keeps = drop_keeps(h);
    uint32_t masked = 0; /* bit 2m + i: of key + 16m + 8i */

    rows_in<TILE, TILE::rows>(own, rows + column, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::rows>(own + TILE::own_bytes, rows + values, h.ld, at.row, at.length, h.d);
    copies_commit();
    train_queries_in<T, TILE, DROP>(other, h, at, at.head * group, from);
#pragma unroll
    for (int i = 0; i < 2 * TILE::tiles; i++)
        if (h.mask && key + i * 8 < at.length && !h.mask[at.first + key + i * 8]) masked |= 1u << i;
    copies_wait<1>();
    __syncthreads();
    uint32_t k[TILE::tiles][TILE::d / 16][4], v[TILE::tiles][TILE::d / 16][4];
    float dk[TILE::tiles][TILE::d / 8][4] = {}, dv[TILE::tiles][TILE::d / 8][4] = {};
    fragments<TILE>(k, own);
    fragments<TILE>(v, own + TILE::own_bytes);

    for (int head = at.head * group, query = from, stage = 0; head < last; stage ^= 1) {
        const uint32_t here = other + stage * place::bytes;
        const int now = query;
        copies_wait<0>();
        __syncthreads();
        query += TILE::n;
        if (query >= at.length) {
            query = from;
            head++;
        }
        if (head < last)
            train_queries_in<T, TILE, DROP>(other + (stage ^ 1) * place::bytes, h, at, head, query);
        const bool edge = h.mask || (h.causal && now < at.row + TILE::rows);
#pragma unroll
        for (int c = 0; c < TILE::n; c += 16) {
            float s[TILE::tiles][2][4] = {}, dp[TILE::tiles][2][4] = {};
            times_rows<T, TILE>(s, k, as_columns<TILE>(here + c * TILE::pitch, lane));
            times_rows<T, TILE>(dp, v,
                                as_columns<TILE>(here + TILE::other_bytes + c * TILE::pitch, lane));
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const int column_of = c + n * 8 + lane % 4 * 2;
                const float2 sums = shared_pair(here + place::sums_at + 4 * column_of);
                const float2 deltas = shared_pair(here + place::deltas_at + 4 * column_of);
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float lse = e ? sums.y : sums.x, delta = e ? deltas.y : deltas.x;
                    const float base = lse * -LOG2E;
                    uint32_t kept[2];
#pragma unroll
                    for (int i = 0; DROP && i < 2; i++)
                        kept[i] = shared_byte(here + place::kept_at + 16 * (column_of + e) +
                                              lane / 4 + 8 * i) >>
                                  ((at.row % 128 / 16) + warp * TILE::tiles);
#pragma unroll
                    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            float p = exp2_of(fmaf(s[m][n][2 * i + e], h.log2_scale, base));
                            if (edge) {
                                const int seer = now + column_of + e;
                                const train_query q = train_query_of(h, lse, seer, at.length);
                                if (masked >> (2 * m + i) & 1) p = 0;
                                if (q.number > 0) p = q.number;
                                if (h.causal && seer < key + m * 16 + i * 8) p = 0;
                            }
                            float d = dp[m][n][2 * i + e];
                            const bool stays = !DROP || kept[i] >> m & 1;
                            if (DROP) d = stays ? d * keeps : 0;
                            dp[m][n][2 * i + e] = p * (d - delta);
                            s[m][n][2 * i + e] = stays ? p : 0;
                        }
                }
            }
            uint32_t p[TILE::tiles][4], ds[TILE::tiles][4];
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++) {
                as_operand<T>(p[m], s[m]);
                as_operand<T>(ds[m], dp[m]);
            }
            times_columns<T, TILE>(dv, p,
                                   as_rows<TILE>(here + TILE::other_bytes + c * TILE::pitch, lane));
            times_columns<T, TILE>(dk, ds, as_rows<TILE>(here + c * TILE::pitch, lane));
        }
    }
    float factor[TILE::tiles][2];
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
        factor[m][0] = factor[m][1] = h.scale;
    T *to = static_cast<T *>(h.dqkv) + at.first * h.ld;
    rows_out<T, TILE>(dk, factor, own, to + column, h.ld, at.row, at.length, h.d);
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
        factor[m][0] = factor[m][1] = DROP ? keeps : 1.0f;
    rows_out<T, TILE>(dv, factor, own + TILE::own_bytes, to + values, h.ld, at.row, at.length, h.d);
}

#endif
