// SPDX-License-Identifier: Apache-2.0
/*
 * Integers of 8 and 4 bits to f16 and bf16, exactly, two a register: their bits become the low ones
 * of the mantissa of a power of two, which is then taken off again. A lane's four registers of a
 * step of 16 columns come from one word of 4 bits an integer or two of 8 (docs/format.md, strips).
 */
#ifndef S24_CUDA_PTX_WIDEN_CUH
#define S24_CUDA_PTX_WIDEN_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

enum { AND_XOR = (0xf0 & 0xcc) ^ 0xaa, AND_OR = (0xf0 & 0xcc) | 0xaa };

/* A function of three words, bit by bit, by its table. */
template <int TABLE>
static __device__ __forceinline__ uint32_t lop3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(out) : "r"(a), "r"(b), "r"(c), "n"(TABLE));
    return out;
}
static __device__ __forceinline__ uint32_t fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}
static __device__ __forceinline__ uint32_t fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}
static __device__ __forceinline__ uint32_t add_f16(uint32_t a, uint32_t b)
{
    uint32_t out;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

template <class T, int BITS> struct widen;
/* 128 has seven bits below it: 128 + (q + 8), less 136. */
template <> struct widen<__nv_bfloat16, 4> {
    static __device__ __forceinline__ void run(uint32_t (&a)[4], const uint32_t *words)
    {
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = fma_bf16(lop3<AND_XOR>(words[0] >> 4 * j, 0x000f000f, 0x43084308), 0x3f803f80,
                            0xc308c308);
    }
};
/* Seven bits of q next to its sign, which is worth -128: (128 + low bits) - (128 or 256). */
template <> struct widen<__nv_bfloat16, 8> {
    static __device__ __forceinline__ void run(uint32_t (&a)[4], const uint32_t *words)
    {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t v = words[j / 2] >> 8 * (j % 2);
            const uint32_t low = lop3<AND_OR>(v, 0x007f007f, 0x43004300);
            const uint32_t sign = lop3<AND_OR>(v, 0x00800080, 0x43004300);
            a[j] = fma_bf16(sign, 0xbf80bf80, low);
        }
    }
};
/* 1024 + (q + 8), less 1032; four bits higher (1024 + 16·(q + 8))/16, less 72. */
template <> struct widen<__half, 4> {
    static __device__ __forceinline__ void run(uint32_t (&a)[4], const uint32_t *words)
    {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const uint32_t v = words[0] >> 4 * j;
            a[j] = add_f16(lop3<AND_XOR>(v, 0x000f000f, 0x64086408), 0xe408e408);
            a[j + 1] = fma_f16(lop3<AND_XOR>(v, 0x00f000f0, 0x64806480), 0x2c002c00, 0xd480d480);
        }
    }
};
/* 1024 + (q + 128), less 1152. */
template <> struct widen<__half, 8> {
    static __device__ __forceinline__ void run(uint32_t (&a)[4], const uint32_t *words)
    {
#pragma unroll
        for (int j = 0; j < 4; j++)
            a[j] = add_f16(lop3<AND_XOR>(words[j / 2] >> 8 * (j % 2), 0x00ff00ff, 0x64806480),
                           0xe480e480);
    }
};

/* Two values times a scale, each rounded once. */
template <class T> static __device__ __forceinline__ uint32_t pair_scaled(uint32_t v, float scale);
template <> __device__ __forceinline__ uint32_t pair_scaled<__nv_bfloat16>(uint32_t v, float scale)
{
    const float low = __uint_as_float(v << 16), high = __uint_as_float(v & 0xffff0000);
    const __nv_bfloat162 both = __floats2bfloat162_rn(low * scale, high * scale);
    return *reinterpret_cast<const uint32_t *>(&both);
}
template <> __device__ __forceinline__ uint32_t pair_scaled<__half>(uint32_t v, float scale)
{
    const float2 wide = __half22float2(*reinterpret_cast<const __half2 *>(&v));
    const __half2 both = __floats2half2_rn(wide.x * scale, wide.y * scale);
    return *reinterpret_cast<const uint32_t *>(&both);
}

/* The same of a scale that many pairs have. As two values of bf16 it has all the bits that count:
   what is rounded before the end is a product with the low ones. */
template <class T> struct pair_scale {
    float scale;
    __device__ __forceinline__ explicit pair_scale(float s) : scale(s)
    {
    }
    __device__ __forceinline__ uint32_t of(uint32_t v) const
    {
        return pair_scaled<T>(v, scale);
    }
};
template <> struct pair_scale<__nv_bfloat16> {
    uint32_t high, low;
    __device__ __forceinline__ explicit pair_scale(float s)
    {
        const float rest = s - __bfloat162float(__float2bfloat16_rn(s));
        const __nv_bfloat162 both[2] = {__float2bfloat162_rn(s), __float2bfloat162_rn(rest)};
        high = *reinterpret_cast<const uint32_t *>(&both[0]);
        low = *reinterpret_cast<const uint32_t *>(&both[1]);
    }
    __device__ __forceinline__ uint32_t of(uint32_t v) const
    {
        return fma_bf16(v, high, fma_bf16(v, low, 0x80008000));
    }
};

#endif
