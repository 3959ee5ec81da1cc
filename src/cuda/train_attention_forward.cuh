// SPDX-License-Identifier: Apache-2.0
/*
 * context = dropout(softmax(q·kᵀ/√d + mask))·v and the logarithm of each softmax's sum, after the
 * online softmax of Milakov and Gimelshein (2018) and FlashAttention-2 (Dao, 2023): a block has
 * queries and goes through the keys they see.
 */
#ifndef S24_CUDA_TRAIN_ATTENTION_FORWARD_CUH
#define S24_CUDA_TRAIN_ATTENTION_FORWARD_CUH

#include "train_attention.cuh"

template <class TILE> static constexpr int train_forward_bytes()
{
    return TILE::own_bytes + 4 * TILE::other_bytes;
}

/* Scores of keys that a row does not see become −∞, of masked ones MASKED; NaN stays. row: the
   lane's first one, key: its first one. */
template <class TILE>
static __device__ void train_scores_mask(float (&s)[TILE::tiles][TILE::n / 8][4],
                                         const train_heads &h, const train_place &at, int row,
                                         int key)
{
#pragma unroll
    for (int n = 0; n < TILE::n / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int k = key + n * 8 + e;
            const bool masked = h.mask && k < at.length && !h.mask[at.first + k];
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &v = s[m][n][2 * i + e];
                    if (masked) v += MASKED;
                    if (k >= at.length || (h.causal && k > row + m * 16 + i * 8)) v = -INFINITY;
                }
        }
}

/* Scores to weights, in place; what was summed with the earlier ones is multiplied down. */
template <class TILE>
static __device__ inline void
train_softmax(float (&s)[TILE::tiles][TILE::n / 8][4], float (&o)[TILE::tiles][TILE::d / 8][4],
              float (&most)[TILE::tiles][2], float (&sum)[TILE::tiles][2], float log2_scale)
{
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float top = most[m][i];
#pragma unroll
            for (int n = 0; n < TILE::n / 8; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float at = top * log2_scale;
            const float factor = exp2_of(fmaf(most[m][i], log2_scale, -at));
            float now = 0;
            most[m][i] = top;
#pragma unroll
            for (int n = 0; n < TILE::n / 8; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    s[m][n][e] = exp2_of(fmaf(s[m][n][e], log2_scale, -at));
                    now += s[m][n][e];
                }
            sum[m][i] = fmaf(sum[m][i], factor, now);
#pragma unroll
            for (int n = 0; n < TILE::d / 8; n++) {
                o[m][n][2 * i] *= factor;
                o[m][n][2 * i + 1] *= factor;
            }
        }
}

template <class T, class TILE, bool DROP>
__global__ void __launch_bounds__(TILE::threads, TILE::blocks)
    train_forward_kernel(const __grid_constant__ train_heads h)
{
    extern __shared__ __align__(128) uint8_t memory[];
    const uint32_t own = shared_address(memory), other = own + TILE::own_bytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    dependents_may_start();
    wait_for_predecessors();
    const train_place at = train_place_of(h, TILE::rows, true);
    if (at.row >= at.length) return;
    const T *rows = static_cast<const T *>(h.qkv) + at.first * h.ld;
    const T *keys = rows + (h.heads + at.head / (h.heads / h.kv_heads)) * h.d;
    const T *values = keys + h.kv_heads * h.d;
    const int seen = h.causal ? min(at.length, at.row + TILE::rows) : at.length;
    const int row = at.row + warp * 16 * TILE::tiles; /* the warp's first */
    uint32_t q[TILE::tiles][TILE::d / 16][4], kept[TILE::tiles][2];
    float o[TILE::tiles][TILE::d / 8][4] = {}, sum[TILE::tiles][2] = {}, most[TILE::tiles][2];
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
        most[m][0] = most[m][1] = -INFINITY;

    rows_in<TILE, TILE::rows>(own, rows + at.head * h.d, h.ld, at.row, at.length, h.d);
    rows_in<TILE, TILE::n>(other, keys, h.ld, 0, at.length, h.d);
    rows_in<TILE, TILE::n>(other + TILE::other_bytes, values, h.ld, 0, at.length, h.d);
    copies_commit();
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
        if (key == 0) fragments<TILE>(q, own);
        float s[TILE::tiles][TILE::n / 8][4] = {};
#pragma unroll
        for (int k = 0; k < TILE::d / 16; k++)
#pragma unroll
            for (int n = 0; n < TILE::n / 16; n++) {
                uint32_t b[4];
                matrices(b, as_columns<TILE>(here, lane) + n * 16 * TILE::pitch + k * 32);
#pragma unroll
                for (int m = 0; m < TILE::tiles; m++) {
                    mma<T>::add(s[m][2 * n], q[m][k], b[0], b[1]);
                    mma<T>::add(s[m][2 * n + 1], q[m][k], b[2], b[3]);
                }
            }
        if (h.mask || key + TILE::n > at.length || (h.causal && key + TILE::n > row + 1))
            train_scores_mask<TILE>(s, h, at, row + lane / 4, key + lane % 4 * 2);
        train_softmax<TILE>(s, o, most, sum, h.log2_scale);
        if (DROP) {
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    if (key % 128 == 0)
                        kept[m][i] = drop_of_row(
                            h, drop_counter(h, at.first + row + lane / 4 + m * 16 + i * 8, at.head,
                                            key / 128));
                    const uint32_t bits = kept[m][i] >> (key % 128 / 4);
#pragma unroll
                    for (int n = 0; n < TILE::n / 8; n++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
                            if (!(bits >> (2 * n + e) & 1)) s[m][n][2 * i + e] = 0;
                }
        }
#pragma unroll
        for (int n = 0; n < TILE::n / 16; n++) {
            uint32_t weights[TILE::tiles][4];
#pragma unroll
            for (int m = 0; m < TILE::tiles; m++) {
                const float(&pair)[2][4] = reinterpret_cast<float(&)[2][4]>(s[m][2 * n]);
                as_operand<T>(weights[m], pair);
            }
            times_columns<T, TILE>(
                o, weights, as_rows<TILE>(here + TILE::other_bytes, lane) + n * 16 * TILE::pitch);
        }
    }

    float factor[TILE::tiles][2];
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float all = sum_of_four(sum[m][i]);
            const int mine = row + lane / 4 + m * 16 + i * 8;
            factor[m][i] = (DROP ? drop_keeps(h) : 1.0f) / all;
            if (h.lse && lane % 4 == 0 && mine < at.length)
                h.lse[(int64_t)at.head * h.tokens + at.first + mine] =
                    fmaf(most[m][i], h.scale, logf(all));
        }
    rows_out<T, TILE>(o, factor, own,
                      static_cast<T *>(h.context) + at.first * h.ld_context + at.head * h.d,
                      h.ld_context, at.row, at.length, h.d);
}

#endif
