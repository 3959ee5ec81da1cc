// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a tile, the quick way: a bias on the sums, in f32, one rounding to 16 bits, and out to
 * Y through shared memory, because a thread's sums are of few outputs and many tokens and Y wants
 * the opposite.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_STORE_CUH
#define S24_CUDA_LINEAR_LINEAR_STORE_CUH

#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"

/*
 * x·Φ(x) of h = x/2: h + h·tanh u where tanh u = erf(x/√2). u/x is a line in x², minimax for the
 * result to 1.4e-4·|x|; the hardware's tanh is good to 2⁻¹¹, so 4e-4·|x| in all. An exact one takes
 * twice the instructions, and nothing else runs next to them.
 */
constexpr float GELU_U = 1.59760291f, GELU_CUBE = 0.28225625f; /* u = h·(GELU_U + GELU_CUBE·h²) */

static __device__ inline float gelu_of_half(float h)
{
    const float u = h * fmaf(h * h, GELU_CUBE, GELU_U);
    float tanh;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(u));
    return fmaf(h, tanh, h);
}
static __device__ inline float gelu(float x)
{
    return gelu_of_half(0.5f * x);
}

/* Of two halves, rounded to 16 bits. */
template <class OUT> static __device__ __forceinline__ uint32_t gelu_pair(float low, float high)
{
    return pair_of<OUT>::pack(gelu_of_half(low), gelu_of_half(high));
}
/* In f16 both at a time. What f16 does not hold becomes its largest number first: twice that is the
   Inf it should be, and below it nothing is left. */
static __device__ __forceinline__ __half2 gelu_halves(float low, float high)
{
    uint32_t bits, tanh;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    const __half2 h = *reinterpret_cast<__half2 *>(&bits);
    const __half2 u =
        __hmul2(h, __hfma2(__hmul2(h, h), __float2half2_rn(GELU_CUBE), __float2half2_rn(GELU_U)));
    asm("tanh.approx.f16x2 %0, %1;" : "=r"(tanh) : "r"(*reinterpret_cast<const uint32_t *>(&u)));
    return __hfma2(h, *reinterpret_cast<__half2 *>(&tanh), h);
}
template <> __device__ __forceinline__ uint32_t gelu_pair<__half>(float low, float high)
{
    const __half2 y = gelu_halves(low, high);
    return *reinterpret_cast<const uint32_t *>(&y);
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
template <class OUT, bool GELU, int N>
static __device__ __forceinline__ void put_matrices(const float (&s)[N], uint32_t out,
                                                    uint32_t place)
{
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        uint32_t v[4] = {};
#pragma unroll
        for (int j = 0; j < (N - i >= 8 ? 4 : 2); j++)
            v[j] = GELU ? gelu_pair<OUT>(s[i + 2 * j], s[i + 2 * j + 1])
                        : pair_of<OUT>::pack(s[i + 2 * j], s[i + 2 * j + 1]);
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

/* A thread's sums of a chunk, of the tile's tokens from `first` on, times a share of the scales of
   these and of its outputs `row` and row + 8, and the biases of those. */
template <int N, int TOKENS>
static __device__ __forceinline__ void
scale_sums(float (&s)[N], const linear_params &p, const thread_place &me,
           const token_scales<TOKENS> &scales, int first, int row, float share, float bias_low,
           float bias_high)
{
    const float low = row < p.shape.n ? share * p.alpha * p.w_scale[row] : 0.0f;
    const float high = row + 8 < p.shape.n ? share * p.alpha * p.w_scale[row + 8] : 0.0f;
    if (!p.x_scale) { /* all tokens have one */
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = i / 2 % 2 ? fmaf(s[i], high, bias_high) : fmaf(s[i], low, bias_low);
        return;
    }
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
 * from it any more is made sure of while the chunk before is handed over, for the price of no
 * barrier of its own, unless there is only one place.
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
    constexpr bool GELU = EPILOGUE == LINEAR_GELU || EPILOGUE == LINEAR_SCALED_GELU;
    constexpr float SHARE = GELU ? 0.5f : 1.0f; /* that activation wants halves */
    const output *bias = static_cast<const output *>(p.bias);
    const int row = n + me.warp * 16 + me.lane / 4;
    const float bias_low = bias && row < p.shape.n ? SHARE * (float)bias[row] : 0.0f;
    const float bias_high = bias && row + 8 < p.shape.n ? SHARE * (float)bias[row + 8] : 0.0f;
    /* This lane's row of the matrices: a token, and which eight outputs of it. */
    const int token = (me.lane / 16) * 8 + me.lane % 8, piece = me.warp * 2 + me.lane / 8 % 2;
    const uint32_t place = token * 128 + ((piece ^ (me.lane % 8)) * 16);
    const token_scales<SCALED ? TILE::tokens : 0> scales(p, me, m);
#pragma unroll
    for (int c = 0; c < TILE::tokens / TILE::chunk; c++) {
        const int first = m + c * TILE::chunk;
        float s[TILE::chunk / 2];
        if (first >= p.shape.m) break;
            /* Of each eight tokens a thread has two: two sums of output `row`, then of row + 8. */
#pragma unroll
        for (int i = 0; i < TILE::chunk / 2; i++) {
            const float sum = (float)d[c * TILE::chunk / 2 + i];
            s[i] = SCALED ? sum : fmaf(sum, SHARE, i / 2 % 2 ? bias_high : bias_low);
        }
        if constexpr (SCALED)
            scale_sums(s, p, me, scales, c * TILE::chunk, row, SHARE, bias_low, bias_high);
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::chunk_bytes;
        chunk_begin<TILE>(me);
        put_matrices<output, GELU>(s, out, place);
        chunk_end<TILE>(me);
        if (n + 64 > p.shape.n && p.shape.n % 8 != 0)
            store_edge<TILE>(out, p, me, first, n);
        else if (me.thread == 0)
            tile_store(y, n, first, out);
        if (me.thread == 0) stores_commit();
        buffer = buffer + 1 == TILE::buffers ? 0 : buffer + 1;
    }
}

/* The same to a Y [n, m]: a thread's sums are of one output and tokens side by side, as Y wants
   them. m is a multiple of 8, so that the copy engine writes every edge. */
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
