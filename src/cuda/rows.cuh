// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of 16-bit elements in registers. A thread has eight neighbours at a time, 16 bytes of a row;
 * a warp has 256 columns of it.
 */
#ifndef S24_CUDA_ROWS_CUH
#define S24_CUDA_ROWS_CUH

#include "hopper.cuh"
#include "linear_tile.cuh"

/* Eight elements as f32. */
template <class T> static __device__ inline void unpack_8(float (&v)[8], uint4 bits)
{
    union {
        uint4 all;
        T each[8];
    } u = {bits};
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = (float)u.each[i];
}
template <class T> static __device__ inline void load_8(float (&v)[8], const void *from)
{
    unpack_8<T>(v, *static_cast<const uint4 *>(from));
}
template <class T> static __device__ inline void store_8(void *to, const float (&v)[8])
{
    *static_cast<uint4 *>(to) =
        make_uint4(pair_of<T>::pack(v[0], v[1]), pair_of<T>::pack(v[2], v[3]),
                   pair_of<T>::pack(v[4], v[5]), pair_of<T>::pack(v[6], v[7]));
}

/* The same of f32 memory. */
static __device__ inline void load_8_wide(float (&v)[8], const float *from)
{
    const float4 low = reinterpret_cast<const float4 *>(from)[0];
    const float4 high = reinterpret_cast<const float4 *>(from)[1];
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = all[i];
}
static __device__ inline void store_8_wide(float *to, const float (&v)[8])
{
    reinterpret_cast<float4 *>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

static __device__ inline float warp_sum(float v)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}
static __device__ inline double warp_sum(double v)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(~0u, v, i);
    return v;
}

#endif
