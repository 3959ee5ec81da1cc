// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a tile, the quick way: a bias on the sums, in f32, one rounding to 16 bits, and out to
 * Y through shared memory, because a thread's sums are of few outputs and many tokens and Y wants
 * the opposite.
 */
#ifndef S24_CUDA_LINEAR_STORE_CUH
#define S24_CUDA_LINEAR_STORE_CUH

#include "hopper.cuh"
#include "linear_tile.cuh"

/*
 * x·Φ(x) = x/2·(1 + tanh u) where tanh u = erf(x/√2): u/x is a polynomial in x², minimax for the
 * result to 1e-4; the hardware's tanh is good to 2⁻¹¹, so 3e-4·|x| in all. An exact one takes twice
 * the instructions, and nothing else runs beside them.
 */
static __device__ inline float gelu(float x)
{
    const float square = fminf(x * x, 30.0f), half = 0.5f * x;
    const float u = x * fmaf(square, fmaf(square, -2.46849922e-4f, 0.036277007f), 0.798420327f);
    float tanh;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(u));
    return fmaf(half, tanh, half);
}

/* The copy engine writes 16 bytes or nothing: where n ends between, a chunk goes by hand. */
template <class TILE>
static __device__ void store_edge(uint32_t out, const linear_params &p, const thread_place &me,
                                  int m, int n)
{
#pragma unroll 1
    for (int i = me.thread; i < TILE::chunk * 64; i += 128) {
        int token = i / 64, col = i % 64;
        uint16_t bits;
        asm volatile("ld.shared.u16 %0, [%1];"
                     : "=h"(bits)
                     : "r"(out + token * 128 + ((col / 8 ^ token % 8) * 16) + col % 8 * 2)
                     : "memory");
        if (m + token < p.shape.m && n + col < p.shape.n)
            static_cast<uint16_t *>(p.y)[(size_t)(m + token) * p.y_ld + n + col] = bits;
    }
}

/* A chunk as matrices of eight tokens by eight outputs, four at a time: of 16 tokens. This lane's
   row of them, a token's eight outputs, is at `place`. Of eight last tokens, the first 16 lanes'
   rows are meant. */
template <class OUT, int N>
static __device__ __forceinline__ void put_matrices(const float (&s)[N], uint32_t out,
                                                    uint32_t place)
{
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        uint32_t v[4] = {};
#pragma unroll
        for (int j = 0; j < (N - i >= 8 ? 4 : 2); j++)
            v[j] = pair_of<OUT>::pack(s[i + 2 * j], s[i + 2 * j + 1]);
        if (N - i >= 8)
            matrices_store_4(out + i * 256 + place, v);
        else
            matrices_store_2(out + i * 256 + place % 1024, v);
    }
}

/* The scales of a tile's tokens from m on, a token a lane: read once, handed around as they are
   needed. */
template <int TOKENS> struct token_scales {
    float held[TOKENS ? (TOKENS + 31) / 32 : 1];

    __device__ token_scales(const linear_params &p, const thread_place &me, int m)
    {
#pragma unroll
        for (int i = 0; i < (TOKENS + 31) / 32; i++) {
            const int token = m + i * 32 + me.lane;
            held[i] = p.x_scale && token < p.shape.m ? p.x_scale[token] : 1.0f;
        }
    }
    /* Of token i + 2·(lane % 4) + which, i a multiple of 8. */
    __device__ float of(int i, int which, const thread_place &me) const
    {
        return __shfl_sync(~0u, held[i / 32], i % 32 + me.lane % 4 * 2 + which);
    }
};

/* A thread's sums of a chunk, of the tile's tokens from `first` on, times the scales of these and of
   its outputs `row` and row + 8, and the biases of those. */
template <int N, int TOKENS>
static __device__ __forceinline__ void
scale_sums(float (&s)[N], const linear_params &p, const thread_place &me,
           const token_scales<TOKENS> &scales, int first, int row, float bias_low, float bias_high)
{
    const float low = row < p.shape.n ? p.w_scale[row] : 0.0f;
    const float high = row + 8 < p.shape.n ? p.w_scale[row + 8] : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float scale = scales.of(first + i * 2, j, me);
            s[i + j] = fmaf(s[i + j] * scale, low, bias_low);
            s[i + 2 + j] = fmaf(s[i + 2 + j] * scale, high, bias_high);
        }
    }
}

/*
 * A chunk's place in shared memory, around the writing of it by a warpgroup: that nothing is read
 * from it any more is made sure of while the chunk before is handed over, for the price of no barrier
 * of its own, unless there is only one place.
 */
template <class TILE> static __device__ __forceinline__ void chunk_begin(const thread_place &me)
{
    if (TILE::buffers > 1) return;
    if (me.thread == 0) stores_read<0>();
    named_barrier(BARRIER_STORE + me.warpgroup, 128);
}
template <class TILE> static __device__ __forceinline__ void chunk_end(const thread_place &me)
{
    publish_shared();
    if (TILE::buffers > 1 && me.thread == 0)
        stores_read<(TILE::buffers > 1 ? TILE::buffers - 2 : 0)>(); /* of the next one */
    named_barrier(BARRIER_STORE + me.warpgroup, 128);
}

/* 64 outputs, whose sums are d, of TOKENS tokens: a chunk at a time into shared memory, token by
   token as Y wants it, and from there to Y. `buffer` goes around from call to call. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ void store_quick(const typename TILE::sum (&d)[TILE::sums],
                                   const linear_ring<TILE> &ring, const linear_params &p,
                                   const CUtensorMap *y, const thread_place &me, int m, int n,
                                   int &buffer)
{
    using output = typename TILE::element::output;
    constexpr bool SCALED = EPILOGUE == LINEAR_SCALED || EPILOGUE == LINEAR_SCALED_GELU;
    const output *bias = static_cast<const output *>(p.bias);
    const int row = n + me.warp * 16 + me.lane / 4;
    const float bias_low = bias && row < p.shape.n ? (float)bias[row] : 0.0f;
    const float bias_high = bias && row + 8 < p.shape.n ? (float)bias[row + 8] : 0.0f;
    /* This lane's row of the matrices: a token, and which eight outputs of it. */
    const int token = (me.lane / 16) * 8 + me.lane % 8, piece = me.warp * 2 + me.lane / 8 % 2;
    const uint32_t place = token * 128 + ((piece ^ (me.lane % 8)) * 16);
    const token_scales<SCALED ? TILE::tokens : 0> scales(p, me, m);
#pragma unroll
    for (int c = 0; c < TILE::tokens / TILE::chunk; c++) {
        const int first = m + c * TILE::chunk;
        float s[TILE::chunk / 2];
        if (first >= p.shape.m) break;
            /* Of each eight tokens a thread has two: two sums of output `row`, then two of row + 8. */
#pragma unroll
        for (int i = 0; i < TILE::chunk / 2; i++)
            s[i] = (float)d[c * TILE::chunk / 2 + i] + (SCALED      ? 0.0f
                                                        : i / 2 % 2 ? bias_high
                                                                    : bias_low);
        if constexpr (SCALED)
            scale_sums(s, p, me, scales, c * TILE::chunk, row, bias_low, bias_high);
        if (EPILOGUE == LINEAR_GELU || EPILOGUE == LINEAR_SCALED_GELU)
#pragma unroll
            for (float &x : s)
                x = gelu(x);
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::chunk_bytes;
        chunk_begin<TILE>(me);
        put_matrices<output>(s, out, place);
        chunk_end<TILE>(me);
        if (n + 64 > p.shape.n && p.shape.n % 8 != 0)
            store_edge<TILE>(out, p, me, first, n);
        else if (me.thread == 0)
            tile_store(y, n, first, out);
        if (me.thread == 0) stores_commit();
        buffer = buffer + 1 == TILE::buffers ? 0 : buffer + 1;
    }
}

/* The same to a Y [n, m]: a thread's sums are of one output and tokens side by side, as Y wants them.
   m is a multiple of 8, so that the copy engine writes every edge. */
template <class TILE>
static __device__ void store_columns(const typename TILE::sum (&d)[TILE::sums],
                                     const linear_ring<TILE> &ring, const linear_params &p,
                                     const CUtensorMap *y, const thread_place &me, int m, int n,
                                     int &buffer)
{
    using output = typename TILE::element::output;
    static_assert(TILE::chunk == 64, "the width of a box");
    const output *bias = static_cast<const output *>(p.bias);
    const int row = n + me.warp * 16 + me.lane / 4;
    const float bias_low = bias && row < p.shape.n ? (float)bias[row] : 0.0f;
    const float bias_high = bias && row + 8 < p.shape.n ? (float)bias[row + 8] : 0.0f;
    const int line = me.warp * 16 + me.lane / 8 % 2 * 8 + me.lane % 8; /* this lane's */
#pragma unroll
    for (int c = 0; c < TILE::tokens / 64; c++) {
        if (m + c * 64 >= p.shape.m) break;
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::chunk_bytes;
        chunk_begin<TILE>(me);
#pragma unroll
        for (int i = 0; i < 32; i += 8) { /* 16 tokens */
            uint32_t v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float b = j % 2 ? bias_high : bias_low;
                const int at = c * 32 + i + 2 * j;
                v[j] = pair_of<output>::pack((float)d[at] + b, (float)d[at + 1] + b);
            }
            matrices_store_rows(out + line * 128 + ((i / 4 + me.lane / 16) ^ me.lane % 8) * 16, v);
        }
        chunk_end<TILE>(me);
        if (me.thread == 0) {
            tile_store(y, m + c * 64, n, out);
            stores_commit();
        }
        buffer = buffer + 1 == TILE::buffers ? 0 : buffer + 1;
    }
}

#endif
