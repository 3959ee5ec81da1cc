// SPDX-License-Identifier: Apache-2.0
/*
 * Dropout by place, with the numbers of the CPU's vector functions: a row falls into blocks of 128
 * elements, of which lane l (of 16) draws Philox's words once for its eight elements 16·q + l, bit
 * q below.
 */
#ifndef S24_CUDA_TRAIN_TRAIN_DROPOUT_CUH
#define S24_CUDA_TRAIN_TRAIN_DROPOUT_CUH

#include "base/random.h"
#include "device/device_train.h"

struct dropper {
    s24i_philox_keys keys;
    uint32_t limit; /* of 65536 */
    float keep;     /* what stays is multiplied by it */

    __host__ __device__ explicit dropper(const s24_device_dropout &drop)
        : keys(s24i_philox_keys_of(drop.seed)), limit((uint32_t)(drop.rate * 65536.0f)),
          keep(65536.0f / (65536.0f - (float)limit))
    {
    }

    /* Bit q: does element 128·block + 16·q + lane of the row stay? */
    __device__ uint32_t bits(int64_t row, int block, int lane) const
    {
        uint32_t words[4], kept = 0;
        s24i_philox_keyed(words, &keys, (uint64_t)row << 20 | (uint64_t)(block * 16 + lane));
#pragma unroll
        for (int w = 0; w < 4; w++)
            kept |= ((words[w] & 0xffff) >= limit ? 1u << 2 * w : 0) |
                    (words[w] >> 16 >= limit ? 2u << 2 * w : 0);
        return kept;
    }

    /* A whole warp: lane i's v are elements 8·i … of 256 that begin at `column`. */
    __device__ void apply(float (&v)[8], int64_t row, int column) const
    {
        const int lane = threadIdx.x % 32;
        multiply(v, words(row, column, lane % 16 / 2) >> (lane / 16 * 16 + lane % 2 * 8));
    }

    /* The same of pieces of a row, or of pieces of 128 elements, lane i's 4·i …, two at a time. */
    template <int CHUNKS, class PLACE>
    __device__ void apply(float (&v)[CHUNKS][8], int64_t row, PLACE piece) const
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            apply(v[c], row, piece(c));
    }
    template <int CHUNKS, class PLACE>
    __device__ void apply(float (&v)[CHUNKS][4], int64_t row, PLACE piece) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < CHUNKS; c += 2) {
            const uint32_t kept = words(row, piece(c), lane / 4) >> lane % 4 * 4;
            multiply(v[c], kept);
            if (c + 1 < CHUNKS) multiply(v[c + 1 < CHUNKS ? c + 1 : c], kept >> 16);
        }
    }

  private:
    /* Bits q of both blocks' lanes from `column` on, this lane's q. */
    __device__ uint32_t words(int64_t row, int column, int wanted) const
    {
        const int lane = threadIdx.x % 32;
        const uint32_t mine = bits(row, column / 128 + lane / 16, lane % 16);
        uint32_t kept = 0;
#pragma unroll
        for (int q = 0; q < 8; q++) {
            const uint32_t all = __ballot_sync(~0u, mine >> q & 1);
            if (wanted == q) kept = all;
        }
        return kept;
    }
    template <int N> __device__ void multiply(float (&v)[N], uint32_t kept) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] *= kept >> i & 1 ? keep : 0.0f;
    }
};

#endif
