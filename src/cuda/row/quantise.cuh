// SPDX-License-Identifier: Apache-2.0
/*
 * Brings rows of 16-bit elements to 8 bits with a scale per row: the largest magnitude becomes 127
 * of i8, 448 of e4m3. A NaN or an Inf makes the scale one, and with it every product of the row.
 */
#ifndef S24_CUDA_ROW_QUANTISE_CUH
#define S24_CUDA_ROW_QUANTISE_CUH

#include <cuda_fp8.h>

#include "cuda/row/rows.cuh"

/* The larger magnitude; a NaN stays one. */
static __device__ inline float larger(float most, float v)
{
    v = fabsf(v);
    return v > most || v != v ? v : most;
}
static __device__ inline float largest_of(float most, const float (&v)[8])
{
#pragma unroll
    for (float x : v)
        most = larger(most, x);
    return most;
}
static __device__ inline float warp_largest(float most)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        most = larger(most, __shfl_xor_sync(~0u, most, i));
    return most;
}

/* Of a row with that largest magnitude: its scale, and what elements are multiplied by. */
struct quantiser {
    float scale, factor;
    bool is_integer;
    __device__ quantiser(float most, s24_dtype dtype) : is_integer(dtype == S24_I8)
    {
        const float range = is_integer ? 127.0f : 448.0f;
        scale = most / range;
        factor = most > 0 ? range / most : 0.0f;
        /* The reciprocal of a subnormal is beyond f32. */
        if (factor > 3e38f) scale = factor = 0;
    }
    /* One for all rows, above 0; what is beyond it saturates. */
    __device__ quantiser(s24_dtype dtype, float fixed)
        : scale(fixed), factor(1.0f / fixed), is_integer(dtype == S24_I8)
    {
    }
    __device__ uint32_t four(float a, float b, float c, float d) const
    {
        if (!is_integer) {
            const __nv_fp8x2_storage_t low =
                __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
            const __nv_fp8x2_storage_t high =
                __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
            return (uint32_t)high << 16 | low;
        }
        uint32_t high, word; /* saturated: one scale for all rows may be too small for some */
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;"
            : "=r"(high)
            : "r"(__float2int_rn(d)), "r"(__float2int_rn(c)), "r"(0));
        asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;"
            : "=r"(word)
            : "r"(__float2int_rn(b)), "r"(__float2int_rn(a)), "r"(high));
        return word;
    }
    __device__ void store_8(void *to, const float (&v)[8]) const
    {
        *static_cast<uint2 *>(to) =
            make_uint2(four(v[0] * factor, v[1] * factor, v[2] * factor, v[3] * factor),
                       four(v[4] * factor, v[5] * factor, v[6] * factor, v[7] * factor));
    }
};

#endif
