// SPDX-License-Identifier: Apache-2.0
/*
 * context = dropout(softmax(scores + mask))·v and the logarithm of each softmax's sum, after the
 * online softmax of Milakov and Gimelshein (2018) and FlashAttention-2 (Dao, 2023): a block has
 * queries and goes through the keys they see.
 */
#ifndef S24_CUDA_TRAIN_TRAIN_ATTENTION_FORWARD_CUH
#define S24_CUDA_TRAIN_TRAIN_ATTENTION_FORWARD_CUH

#include "cuda/train/train_attention.cuh"

template <class TILE> static constexpr int train_forward_bytes()
{
    return 1024 + TILE::own_bytes + 4 * TILE::other_bytes;
}

template <int SUMS> static __device__ void train_scores_cap(float (&s)[SUMS], const train_heads &h)
{
#pragma unroll
    for (float &x : s)
        x = capped(x, h.cap, h.cap_scale);
}

/* Scores of keys that a row does not see become −∞, of masked ones MASKED; NaN stays. Of those past
   the window twice that: a row may see none of the first keys, and what it then sums of them is
   multiplied to 0 by the first that it sees. row: the lane's first one, key: its first one. */
template <int SUMS>
static __device__ void train_scores_mask(float (&s)[SUMS], const train_heads &h,
                                         const train_place &at, int row, int key)
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int k = key + i / 4 * 8 + i % 2;
        if (h.mask && k < at.length && !h.mask[at.first + k]) s[i] += MASKED;
        if (k >= at.length || (h.causal && k > row + i / 2 % 2 * 8)) s[i] = -INFINITY;
        if (train_is_past(h, row + i / 2 % 2 * 8, k)) s[i] = 2 * MASKED;
    }
}

/* Does a row whose largest score is `most` see masked keys alone in a window of two sides, in a
   text that has others? Then it takes up nothing, and its lse makes its weights 0 backward. */
static __device__ inline bool train_is_blind(const train_heads &h, const train_place &at,
                                             float most)
{
    int t = 0;
    if (!h.window || h.causal || !h.mask || !(most < MASKED / 2)) return false;
    while (t < at.length && !h.mask[at.first + t])
        t++;
    return t < at.length;
}

/* Scores to weights, in place; what was summed with the earlier ones is multiplied down. */
template <int SUMS, int SLABS, int OUT>
static __device__ inline void train_softmax(float (&s)[SUMS], float (&o)[SLABS][OUT],
                                            float (&most)[2], float (&sum)[2], float log2_scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = most[r];
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
            top = fmaxf(top, fmaxf(s[i + 2 * r], s[i + 2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float at = top * log2_scale, factor = exp2_of(fmaf(most[r], log2_scale, -at));
        float now = 0;
        most[r] = top;
#pragma unroll
        for (int i = 0; i < SUMS; i += 4)
#pragma unroll
            for (int j = i + 2 * r; j < i + 2 * r + 2; j++) {
                s[j] = exp2_of(fmaf(s[j], log2_scale, -at));
                now += s[j];
            }
        sum[r] = fmaf(sum[r], factor, now);
#pragma unroll
        for (int i = 0; i < SLABS * OUT; i += 4) {
            o[i / OUT][i % OUT + 2 * r] *= factor;
            o[i / OUT][i % OUT + 2 * r + 1] *= factor;
        }
    }
}

template <class T, class TILE, train_kind KIND>
__global__ void __launch_bounds__(TILE::threads, KIND == TRAIN_GROWS ? 1 : TILE::blocks)
    train_forward_kernel(const __grid_constant__ train_heads h)
{
    const bool drops = train_drops<KIND>(h);
    extern __shared__ uint8_t memory[];
    const uint32_t own = train_memory(memory), other = own + TILE::own_bytes;
    const int lane = threadIdx.x % 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, true);
    if (at.row >= at.length) return;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    const T *keys = rows + (h.heads + at.head / (h.heads / h.kv_heads)) * h.d;
    const T *values = keys + h.kv_heads * h.d;
    const int seen = train_keys_end(h, at.row + TILE::rows - 1, at.length);
    const int row = at.row + threadIdx.x / 32 * 16 + lane / 4; /* the lane's first */
    const int from = train_first_key(h, at.row);
    uint32_t kept[2];
    float o[TILE::slabs][TILE::slab / 2] = {}, sum[2] = {}, most[2] = {-INFINITY, -INFINITY};

    rows_in<TILE, TILE::rows>(own, rows + at.head * h.d, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::n>(other, keys, h.ld, from, at.length, h.d);
    rows_in<TILE, TILE::n>(other + TILE::other_bytes, values, h.ld, from, at.length, h.d);
    copies_commit();
    for (int key = from, stage = 0; key < seen; key += TILE::n, stage ^= 1) {
        const uint32_t here = other + stage * 2 * TILE::other_bytes;
        float s[TILE::n / 2];
        rows_wait<0>();
        __syncthreads();
        products_begin();
        times_rows<T, TILE>(s, own, here);
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
            for (int r = 0; r < 2; r++)
                kept[r] = drop_of_row(h.drop, (int64_t)(at.first + row + 8 * r) * h.heads + at.head,
                                      key / 128);
        }
        products_wait<0>();
        products_pin(s);
        if (KIND == TRAIN_GROWS) train_scores_grow(s, h, at, row, key + lane % 4 * 2);
        if (h.cap > 0) train_scores_cap(s, h);
        if (h.mask || key + TILE::n > at.length || (h.causal && key + TILE::n > at.row + 1) ||
            train_is_past(h, at.row + TILE::rows - 1, key) ||
            train_is_past(h, at.row, key + TILE::n - 1))
            train_scores_mask(s, h, at, row, key + lane % 4 * 2);
        train_softmax(s, o, most, sum, h.log2_scale);
        if (drops) {
            const uint32_t bits[2] = {kept[0] >> key % 128 / 16, kept[1] >> key % 128 / 16};
#pragma unroll
            for (int i = 0; i < TILE::n / 2; i++)
                if (!drop_keeps(bits[i / 2 % 2], i)) s[i] = 0;
        }
        uint32_t weights[TILE::n / 16][4];
        as_operand<T>(weights, s);
        sums_pin(o);
        products_begin();
        times_columns<T, TILE>(o, weights, here + TILE::other_bytes);
        products_commit();
        products_wait<0>();
        sums_pin(o);
        operand_pin(weights);
    }

    __syncthreads();
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = with_sink(sum_of_four(sum[r]), most[r] * h.log2_scale, h.sinks, at.head);
        const bool blind = train_is_blind(h, at, most[r]);
        factor[r] = blind ? 0.0f : (drops ? h.drop.keep : 1.0f) / all;
        if (h.lse && lane % 4 == 0 && row + 8 * r < at.length)
            h.lse[(int64_t)at.head * h.tokens + at.first + row + 8 * r] =
                blind ? INFINITY : fmaf(most[r], h.scale, logf(all));
    }
    rows_out<T, TILE>(o, factor, own,
                      static_cast<T *>(h.context) + at.first * h.ld_context + at.head * h.value_d,
                      h.ld_context, at.row, at.length, h.value_d);
}

#endif
