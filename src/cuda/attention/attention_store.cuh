// SPDX-License-Identifier: Apache-2.0
/*
 * The end of attention: 64 queries' sums of a warpgroup divided by the sums of their weights, in 16
 * bits or in 8 with one scale, and out by way of the queries' place in shared memory.
 */
#ifndef S24_CUDA_ATTENTION_ATTENTION_STORE_CUH
#define S24_CUDA_ATTENTION_ATTENTION_STORE_CUH

#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"

struct attention_params {
    const int32_t *offsets; /* [texts + 1] tokens */
    const int2 *tiles;      /* text, first query of it */
    const uint8_t *mask;    /* [tokens] or NULL */
    void *context;
    long long ld;                 /* of context */
    int tile_count, heads, items; /* an item is a tile of a head */
    int width;                    /* heads · d */
    float log2_scale;             /* log₂e / √d */
    float factor;                 /* of a context in 8 bits, or 0 */
    bool integers;                /* it is of i8, not of e4m3 */
};

/* What a warpgroup's thread knows of its two queries (rows lane/4 and lane/4 + 8 of its warp). */
struct attention_rows {
    float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/* One over the sums of a thread's two rows, which its quad has in parts. */
static __device__ __forceinline__ void attention_inverse(float (&inverse)[2],
                                                         const attention_rows &rows)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = rows.sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        inverse[r] = 1.0f / sum;
    }
}

/* 16 rows of BYTES each out of a warp's place in shared memory, in which pieces of 16 bytes are
   mixed if MIXED. */
template <int BYTES, bool MIXED>
static __device__ __forceinline__ void attention_rows_out(uint32_t mine, char *to, long long pitch,
                                                          int left)
{
    constexpr int pieces = BYTES / 16;
    for (int i = threadIdx.x % 32; i < 16 * pieces; i += 32) {
        const int r = i / pieces, piece = i % pieces, at = MIXED ? piece ^ (r % pieces) : piece;
        uint4 v;
        if (r >= left) break;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(mine + r * BYTES + at * 16)
                     : "memory");
        *reinterpret_cast<uint4 *>(to + r * pitch + piece * 16) = v;
    }
}

/* Two numbers in 8 bits, to nearest and saturated. */
static __device__ __forceinline__ uint16_t attention_bytes(float low, float high, bool integers)
{
    uint32_t word;
    uint16_t pair;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;"
        : "=r"(word)
        : "r"(__float2int_rn(high)), "r"(__float2int_rn(low)), "r"(0));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return integers ? (uint16_t)word : pair;
}

/* The result of 64 queries in 8 bits, by way of the queries' place in shared memory. */
template <class TILE>
static __device__ void attention_store_eight(const float (&o)[TILE::d / 2],
                                             const attention_rows &rows, const attention_params &p,
                                             uint32_t place, char *to, int left, int group)
{
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const uint32_t mine = place + warp * 16 * TILE::row;
    float inverse[2];
    attention_inverse(inverse, rows);
    named_barrier(1 + group, 128); /* nobody multiplies with the queries any more */
#pragma unroll
    for (int i = 0; i < TILE::d / 2; i += 2) {
        const float factor = inverse[i / 2 % 2] * p.factor;
        const int row = lane / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + lane % 4 * 2;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(mine + row * TILE::d + col),
                     "h"(attention_bytes(o[i] * factor, o[i + 1] * factor, p.integers))
                     : "memory");
    }
    __syncwarp();
    attention_rows_out<TILE::d, false>(mine, to + warp * 16 * p.ld, p.ld, left - warp * 16);
}

/* The result of 64 queries, by way of the queries' place in shared memory. */
template <class T, class TILE>
static __device__ void attention_store(const float (&o)[TILE::d / 2], const attention_rows &rows,
                                       uint32_t place, T *to, long long ld, int left, int group)
{
    constexpr int pieces = TILE::row / 16;
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    float inverse[2];
    attention_inverse(inverse, rows);
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
    attention_rows_out<TILE::row, true>(mine, reinterpret_cast<char *>(to + warp * 16 * ld),
                                        ld * (long long)sizeof(T), left - warp * 16);
}

#endif
