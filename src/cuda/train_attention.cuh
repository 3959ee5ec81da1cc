// SPDX-License-Identifier: Apache-2.0
/*
 * What attention's passes of training share: where a block works, rows of a text in shared memory,
 * fragments of them, dropout, results on their way out.
 *
 * A block has WARPS warps, each with TILES times 16 rows (queries; keys where their gradients are
 * made) of one text and head, and goes through the other side N rows at a time, two stages of which
 * are in shared memory. Rows there are 16 bytes apart from a multiple of 32, so that eight of them
 * lie in different banks; heads of less than D elements are filled with zeros, as are rows behind
 * the text's end.
 */
#ifndef S24_CUDA_TRAIN_ATTENTION_CUH
#define S24_CUDA_TRAIN_ATTENTION_CUH

#include "base/random.h"
#include "hopper.cuh"
#include "linear_tile.cuh"
#include "mma.cuh"

/* A score that no other is below, whose product with any scale is exact: in a text of masked tokens
   only, all have the same weight. */
static constexpr float MASKED = -0x1p100f;
static constexpr float LOG2E = 1.4426950408889634f;

struct train_heads {
    const int32_t *offsets; /* [texts + 1] */
    const uint8_t *mask;    /* [tokens] or NULL */
    const void *qkv, *dcontext;
    void *context, *dqkv;
    float *lse, *delta; /* [heads, tokens]; delta: the sum of dcontext·context */
    int tokens, heads, kv_heads, d, causal;
    long long ld, ld_context;
    float scale, log2_scale; /* 1/√d, and of exponents of 2 */
    uint32_t drop_limit;     /* of 65536 */
    uint64_t seed;
};

template <int D_, int TILES_, int WARPS_, int N_, int BLOCKS_> struct train_tile {
    static constexpr int d = D_, tiles = TILES_, warps = WARPS_, n = N_, blocks = BLOCKS_;
    static constexpr int rows = 16 * TILES_ * WARPS_, threads = 32 * WARPS_;
    static constexpr int pitch = 2 * D_ + 16; /* bytes */
    static constexpr int own_bytes = rows * pitch, other_bytes = N_ * pitch;
    static_assert(D_ % 16 == 0 && 128 % N_ == 0 && N_ % 16 == 0, "whole products");
};

/* A line of train_attention.def, of one pass: kernels of bf16 and f16, without dropout and with. */
struct train_row {
    int d, rows, threads, shared_bytes;
    const void *kernels[2][2];
};
struct train_rows {
    const train_row *rows;
    int count;
};
extern const train_rows train_forward_rows, train_queries_rows, train_keys_rows;

#define TRAIN_ROW(kernel, bytes, ...)                                                              \
    {                                                                                              \
        train_tile<__VA_ARGS__>::d, train_tile<__VA_ARGS__>::rows,                                 \
            train_tile<__VA_ARGS__>::threads, bytes<train_tile<__VA_ARGS__>>(),                    \
        {                                                                                          \
            {(const void *)kernel<__nv_bfloat16, train_tile<__VA_ARGS__>, false>,                  \
             (const void *)kernel<__nv_bfloat16, train_tile<__VA_ARGS__>, true>},                  \
            {                                                                                      \
                (const void *)kernel<__half, train_tile<__VA_ARGS__>, false>,                      \
                    (const void *)kernel<__half, train_tile<__VA_ARGS__>, true>                    \
            }                                                                                      \
        }                                                                                          \
    }

/* A block's text, the first of its rows there, and its head: of queries, or of keys. */
struct train_place {
    int first, length, row, head;
};

/* Blocks: tiles of the longest text, heads, texts. The tiles with most to do come first: causal
   queries see more the later they are, causal keys are seen by more the earlier they are. */
static __device__ inline train_place train_place_of(const train_heads &h, int rows, bool queries)
{
    const int tile = queries && h.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    train_place at = {h.offsets[blockIdx.z], 0, tile * rows, (int)blockIdx.y};
    at.length = h.offsets[blockIdx.z + 1] - at.first;
    return at;
}

/* ROWS rows of a text from `row` on; from: the text's first token, the head's first element. */
template <class TILE, int ROWS, class T>
static __device__ inline void rows_in(uint32_t to, const T *from, long long ld, int row, int length,
                                      int d)
{
    constexpr int pieces = TILE::d / 8;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * pieces; i += TILE::threads) {
        const int r = i / pieces, piece = i % pieces;
        const bool here = row + r < length && piece * 8 < d;
        copy_16(to + r * TILE::pitch + piece * 16, here ? from + (row + r) * ld + piece * 8 : from,
                here);
    }
}

/* Addresses of ldmatrix: of 16 x 16 elements whose first is at `at`, as an operand's rows (or, turned,
   as columns of k), and as columns that lie in rows. */
template <class TILE> static __device__ inline uint32_t as_rows(uint32_t at, int lane)
{
    return at + lane % 16 * TILE::pitch + lane / 16 * 16;
}
template <class TILE> static __device__ inline uint32_t as_columns(uint32_t at, int lane)
{
    return at + (lane % 8 + lane / 16 * 8) * TILE::pitch + lane / 8 % 2 * 16;
}

/* The warp's rows of shared memory as left operands. */
template <class TILE>
static __device__ inline void fragments(uint32_t (&v)[TILE::tiles][TILE::d / 16][4], uint32_t at)
{
    const uint32_t mine =
        as_rows<TILE>(at + threadIdx.x / 32 * 16 * TILE::tiles * TILE::pitch, threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
        for (int k = 0; k < TILE::d / 16; k++)
            matrices(v[m][k], mine + m * 16 * TILE::pitch + k * 32);
}

/* c[rows, 16] += a·bᵀ of 16 rows b at `at`. */
template <class T, class TILE>
static __device__ inline void times_rows(float (&c)[TILE::tiles][2][4],
                                         const uint32_t (&a)[TILE::tiles][TILE::d / 16][4],
                                         uint32_t at)
{
#pragma unroll
    for (int k = 0; k < TILE::d / 16; k++) {
        uint32_t b[4];
        matrices(b, at + k * 32);
#pragma unroll
        for (int m = 0; m < TILE::tiles; m++) {
            mma<T>::add(c[m][0], a[m][k], b[0], b[1]);
            mma<T>::add(c[m][1], a[m][k], b[2], b[3]);
        }
    }
}

/* c[rows, d] += a·b of 16 rows b at `at`. */
template <class T, class TILE>
static __device__ inline void times_columns(float (&c)[TILE::tiles][TILE::d / 8][4],
                                            const uint32_t (&a)[TILE::tiles][4], uint32_t at)
{
#pragma unroll
    for (int n = 0; n < TILE::d / 16; n++) {
        uint32_t b[4];
        matrices_turned(b, at + n * 32);
#pragma unroll
        for (int m = 0; m < TILE::tiles; m++) {
            mma<T>::add(c[m][2 * n], a[m], b[0], b[1]);
            mma<T>::add(c[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

/* 16 columns of sums as a left operand. */
template <class T>
static __device__ inline void as_operand(uint32_t (&a)[4], const float (&c)[2][4])
{
#pragma unroll
    for (int j = 0; j < 4; j++)
        a[j] = pair_of<T>::pack(c[j / 2][j % 2 * 2], c[j / 2][j % 2 * 2 + 1]);
}

static __device__ inline float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The sum of a row that four lanes share. */
static __device__ inline float sum_of_four(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* The warp's rows of a result, times factor[row], by way of `place` in shared memory, which the warp
   has for itself. to: the text's first token, the head's first element. */
template <class T, class TILE>
static __device__ inline void rows_out(const float (&c)[TILE::tiles][TILE::d / 8][4],
                                       const float (&factor)[TILE::tiles][2], uint32_t place, T *to,
                                       long long ld, int row, int length, int d)
{
    constexpr int pieces = TILE::d / 8;
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16 * TILE::tiles;
    __syncwarp();
    place += mine * TILE::pitch;
    const uint32_t at = place + lane / 4 * TILE::pitch + lane % 4 * 4;
#pragma unroll
    for (int m = 0; m < TILE::tiles; m++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int n = 0; n < TILE::d / 8; n++)
                asm volatile(
                    "st.shared.u32 [%0], %1;" ::"r"(at + (m * 16 + i * 8) * TILE::pitch + n * 16),
                    "r"(pair_of<T>::pack(c[m][n][2 * i] * factor[m][i],
                                         c[m][n][2 * i + 1] * factor[m][i]))
                    : "memory");
    __syncwarp();
    for (int i = lane; i < 16 * TILE::tiles * pieces; i += 32) {
        const int r = i / pieces, piece = i % pieces;
        if (row + mine + r >= length || piece * 8 >= d) continue;
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(place + r * TILE::pitch + piece * 16)
                     : "memory");
        *reinterpret_cast<uint4 *>(to + (row + mine + r) * ld + piece * 8) = v;
    }
}

/* ---- dropout: of 128 weights from key 128·block on, 8 share a counter (nn/vec_impl.h) ---------- */

static __device__ inline uint64_t drop_counter(const train_heads &h, int token, int head, int block)
{
    return (uint64_t)((int64_t)token * h.heads + head) << 20 | (uint64_t)(block * 16);
}

/* The weights of a query that this lane has of a block of 128 keys: bit 4i + 2j + e is key
   16i + 8j + lane%4·2 + e, 1 where it stays. */
static __device__ inline uint32_t drop_of_row(const train_heads &h, uint64_t counter)
{
    uint32_t kept = 0;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        uint32_t words[4];
        s24i_philox(words, h.seed, counter + a / 2 * 8 + threadIdx.x % 4 * 2 + a % 2);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if ((i % 2 ? words[i / 2] : words[i / 2] << 16) >= h.drop_limit << 16)
                kept |= 1u << (4 * i + a);
    }
    return kept;
}

/* Bit i is key 16i + the counter's low four bits. */
static __device__ inline uint32_t drop_of_column(const train_heads &h, uint64_t counter)
{
    uint32_t words[4], kept = 0;
    s24i_philox(words, h.seed, counter);
#pragma unroll
    for (int i = 0; i < 8; i++)
        if ((i % 2 ? words[i / 2] : words[i / 2] << 16) >= h.drop_limit << 16) kept |= 1u << i;
    return kept;
}

/* What a weight that stays is multiplied with. */
static __device__ inline float drop_keeps(const train_heads &h)
{
    return 65536.0f / (65536.0f - (float)h.drop_limit);
}

#endif
