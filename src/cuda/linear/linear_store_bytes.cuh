// SPDX-License-Identifier: Apache-2.0
/* The end of a tile of i8 or e4m3 whose Y is of that dtype, too: sums, through scales, a bias and a
   GELU where there are some, saturated, and out through shared memory by the copy engine, as in
   linear_store.cuh. */
#ifndef S24_CUDA_LINEAR_LINEAR_STORE_BYTES_CUH
#define S24_CUDA_LINEAR_LINEAR_STORE_BYTES_CUH

#include "cuda/linear/linear_store.cuh"

/* Four numbers as the bytes of a word, to nearest and saturated; `a` is the lowest. */
template <class T> struct bytes_of_word;
template <> struct bytes_of_word<int8_t> {
    static __device__ __forceinline__ uint32_t pack(int a, int b, int c, int d)
    {
        uint32_t high, word;
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(d), "r"(c), "r"(0));
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(high));
        return word;
    }
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d)
    {
        return pack(__float2int_rn(a), __float2int_rn(b), __float2int_rn(c), __float2int_rn(d));
    }
    /* Of halves of what a GELU is of, times a factor. */
    static __device__ __forceinline__ uint32_t gelu(float a, float b, float c, float d,
                                                    float factor)
    {
        return pack(factor * gelu_of_half(a), factor * gelu_of_half(b), factor * gelu_of_half(c),
                    factor * gelu_of_half(d));
    }
};
template <> struct bytes_of_word<__nv_fp8_e4m3> {
    /* Halves of numbers before a GELU, which f16 holds better than these bytes what it gives. */
    static __device__ __forceinline__ uint16_t gelu(float low, float high, float factor)
    {
        const __half2 y = __hmul2(gelu_halves(low, high), __float2half2_rn(factor));
        uint16_t pair;
        asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;"
            : "=h"(pair)
            : "r"(*reinterpret_cast<const uint32_t *>(&y)));
        return pair;
    }
    static __device__ __forceinline__ uint32_t gelu(float a, float b, float c, float d,
                                                    float factor)
    {
        return (uint32_t)gelu(c, d, factor) << 16 | gelu(a, b, factor);
    }
    static __device__ __forceinline__ uint32_t pack(float a, float b, float c, float d)
    {
        uint16_t low, high;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
        return (uint32_t)high << 16 | low;
    }
};

/* Where in a place of 64 bytes per token the 16 outputs of a warp are: mixed as the copy engine's
   64-byte swizzle does. */
static __device__ __forceinline__ uint32_t bytes_place(int token, int warp)
{
    return token * 64 + (warp ^ token / 2 % 4) * 16;
}

/*
 * 16 sums, or 8 at last, as matrices of eight tokens by eight pairs of bytes, from the place of
 * their first token on. A thread's pair is what it has of a token, outputs `row` and row + 8.
 */
template <class T, bool GELU, class NUMBER, int N>
static __device__ __forceinline__ void put_byte_pairs(const NUMBER (&v)[N], float factor,
                                                      uint32_t out, const thread_place &me)
{
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < N; i += 4)
        words[i / 4] = GELU ? bytes_of_word<T>::gelu(v[i], v[i + 2], v[i + 1], v[i + 3], factor)
                            : bytes_of_word<T>::pack(v[i], v[i + 2], v[i + 1], v[i + 3]);
    if (N > 8)
        matrices_store_4(out + bytes_place(me.lane, me.warp), words);
    else /* of eight tokens the second matrix is none; a place has room for the double */
        matrices_store_2(out + bytes_place(me.lane % 16, me.warp), words);
}

/* So a token's 16 outputs of a warp arrive by turns, 0 8 1 9 …: they are put in order where they
   lie, a token a lane. */
template <int TOKENS>
static __device__ __forceinline__ void order_bytes(uint32_t out, const thread_place &me)
{
    __syncwarp();
#pragma unroll
    for (int i = 0; i < TOKENS; i += 32) {
        const uint32_t at = out + bytes_place(i + me.lane, me.warp);
        uint32_t w[4];
        if (i + me.lane >= TOKENS) break;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(at)
                     : "memory");
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(__byte_perm(w[0], w[1], 0x6420)), "r"(__byte_perm(w[2], w[3], 0x6420)),
                     "r"(__byte_perm(w[0], w[1], 0x7531)), "r"(__byte_perm(w[2], w[3], 0x7531))
                     : "memory");
    }
}

/* A chunk by hand, where n ends between what the copy engine can write. */
template <class TILE>
static __device__ void store_bytes_edge(uint32_t out, const linear_params &p,
                                        const thread_place &me, int m, int n)
{
#pragma unroll 1
    for (int i = me.thread; i < TILE::chunk * 64; i += 128) {
        const int token = i / 64, col = i % 64;
        uint32_t byte;
        asm volatile("ld.shared.u8 %0, [%1];"
                     : "=r"(byte)
                     : "r"(out + bytes_place(token, col / 16) + col % 16)
                     : "memory");
        if (m + token < p.shape.m && n + col < p.shape.n)
            static_cast<uint8_t *>(p.y)[(size_t)(m + token) * p.y_ld + n + col] = (uint8_t)byte;
    }
}

/* What a thread's sums of one output are multiplied with, and what is added. */
struct output_terms {
    float scale, bias;
    __device__ output_terms(const linear_params &p, int row, float share)
        : scale(share * (p.w_scale && row < p.shape.n ? p.alpha * p.w_scale[row] : 1.0f)),
          bias(share * (p.bias && row < p.shape.n ? static_cast<const float *>(p.bias)[row] : 0.0f))
    {
    }
    template <class SUM> __device__ float apply(SUM sum) const
    {
        return fmaf((float)sum, scale, bias);
    }
};

template <class SUM, bool SCALED> struct stored_number {
    using type = float;
};
template <class SUM> struct stored_number<SUM, false> {
    using type = SUM;
};

/* As store_quick: sums as they are, or through whatever scales and bias there are. */
template <class TILE, linear_epilogue EPILOGUE>
static __device__ void store_bytes(const typename TILE::sum (&d)[TILE::sums],
                                   const linear_ring<TILE> &ring, const linear_params &p,
                                   const CUtensorMap *y, const thread_place &me, int m, int n,
                                   int &buffer)
{
    constexpr int PART = TILE::chunk % 32 == 0 ? 16 : TILE::chunk % 16 == 0 ? 8 : 4; /* sums */
    constexpr bool SCALED = EPILOGUE != LINEAR_BYTES, GELU = EPILOGUE == LINEAR_SCALED_GELU_BYTES;
    const int row = n + me.warp * 16 + me.lane / 4;
    const float share = GELU ? 0.5f : p.y_factor; /* that activation wants halves */
    const output_terms low(p, row, share), high(p, row + 8, share);
    const token_scales<SCALED ? TILE::tokens : 0> scales(p, me, m);
#pragma unroll
    for (int c = 0; c < TILE::tokens; c += TILE::chunk) {
        const uint32_t out = ring.out(me.warpgroup) + buffer * TILE::chunk_bytes;
        if (m + c >= p.shape.m) break;
        chunk_begin<TILE>(me);
#pragma unroll
        for (int i = 0; i < TILE::chunk / 2; i += PART) {
            typename stored_number<typename TILE::sum, SCALED>::type v[PART];
#pragma unroll
            for (int j = 0; j < PART; j += 4)
#pragma unroll
                for (int t = j; t < j + 2; t++) { /* of two tokens outputs `row` and row + 8 */
                    const int at = c / 2 + i + t;
                    if constexpr (SCALED) {
                        v[t] = (float)d[at];
                        v[t + 2] = (float)d[at + 2];
                        if (p.x_scale) {
                            const float scale = scales.of(c + (i + j) * 2, t - j, me);
                            v[t] *= scale;
                            v[t + 2] *= scale;
                        }
                        v[t] = low.apply(v[t]);
                        v[t + 2] = high.apply(v[t + 2]);
                    } else {
                        v[t] = d[at];
                        v[t + 2] = d[at + 2];
                    }
                }
            put_byte_pairs<typename TILE::type, GELU>(v, p.y_factor, out + i * 128, me);
        }
        order_bytes<TILE::chunk>(out, me);
        chunk_end<TILE>(me);
        if (n + 64 > p.shape.n && p.shape.n % 16 != 0)
            store_bytes_edge<TILE>(out, p, me, m + c, n);
        else if (me.thread == 0)
            tile_store(y, n, m + c, out);
        if (me.thread == 0) stores_commit();
        buffer = buffer + 1 == TILE::buffers ? 0 : buffer + 1;
    }
}

#endif
