// SPDX-License-Identifier: Apache-2.0
/*
 * What a product needs to know of its dtype: the type of the sums, and the Hopper order of a weight
 * of it (docs/format.md). A stage of the ring is one block of that order along k and 128 bytes of
 * every token, whatever the dtype.
 */
#ifndef S24_CUDA_PTX_ELEMENT_CUH
#define S24_CUDA_PTX_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

enum {
    WEIGHT_VALUES = 4096,      /* bytes of a block; then its metadata */
    WEIGHT_STEP_VALUES = 2048, /* of one of its two steps of the hardware */
    TOKEN_BYTES = 128,         /* of a token and a block */
};

/* The bits of a sum in another register, which takes arithmetic: where a store reads the register
   of a sum itself, ptxas does not see that the tensor cores are done with it, and makes them wait
   for each other everywhere. `zero` must not be known to the compiler. */
static __device__ inline uint32_t copy_of_sum(float v, int zero)
{
    return __float_as_uint(v + __int_as_float(zero));
}
static __device__ inline uint32_t copy_of_sum(int v, int zero)
{
    return (uint32_t)(v + zero);
}
/* The second operand only says which. */
static __device__ inline float sum_of_bits(uint32_t bits, float)
{
    return __uint_as_float(bits);
}
static __device__ inline int sum_of_bits(uint32_t bits, int)
{
    return (int)bits;
}

template <class SUM, int BITS> struct element_base {
    using sum = SUM;
    static constexpr bool is_16_bit = BITS == 16, is_integer = false;
    static constexpr bool has_scales = false;        /* the quick way, of both sides */
    static constexpr int metadata_words = 16 / BITS; /* a thread and block */
    static constexpr int weight_block = WEIGHT_VALUES + 512 * metadata_words;
    static constexpr int block_k = 64 * metadata_words;
    /* Does the hardware multiply with so many tokens at once? */
    static constexpr bool takes(int)
    {
        return true;
    }
};
template <class T> struct element_of;
template <> struct element_of<__nv_bfloat16> : element_base<float, 16> {
    using output = __nv_bfloat16; /* the quick way */
};
template <> struct element_of<__half> : element_base<float, 16> {
    using output = __half;
};
template <> struct element_of<__nv_fp8_e4m3> : element_base<float, 8> {
    using output = __nv_bfloat16;
    static constexpr bool has_scales = true;
};
template <> struct element_of<__nv_fp8_e5m2> : element_base<float, 8> {
    using output = __nv_bfloat16;
};
template <> struct element_of<int8_t> : element_base<int, 8> {
    using output = __nv_bfloat16;
    static constexpr bool is_integer = true, has_scales = true;
    static constexpr bool takes(int tokens)
    {
        return tokens % 16 == 0 || tokens == 8;
    }
};

/* Two numbers of 16 bits in a word. */
template <class T> struct pair_of;
template <> struct pair_of<__nv_bfloat16> {
    static __device__ uint32_t pack(float low, float high)
    {
        __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&v);
    }
    static __device__ float2 values(uint32_t bits)
    {
        return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&bits));
    }
};
template <> struct pair_of<__half> {
    static __device__ uint32_t pack(float low, float high)
    {
        __half2 v = __floats2half2_rn(low, high);
        return *reinterpret_cast<uint32_t *>(&v);
    }
    static __device__ float2 values(uint32_t bits)
    {
        return __half22float2(*reinterpret_cast<__half2 *>(&bits));
    }
};

#endif
