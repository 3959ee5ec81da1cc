// SPDX-License-Identifier: Apache-2.0
/*
 * Rows of 16-bit elements in registers. A thread has N neighbours at a time: eight, 16 bytes of a
 * row and 256 columns per warp, or four where the row's width asks for them.
 */
#ifndef S24_CUDA_ROW_ROWS_CUH
#define S24_CUDA_ROW_ROWS_CUH

#include "cuda/linear/linear_tile.cuh"
#include "cuda/ptx/hopper.cuh"

template <int N> struct row_bits;
template <> struct row_bits<8> {
    using type = uint4;
};
template <> struct row_bits<4> {
    using type = uint2;
};

/* N elements as f32. */
template <class T, int N>
static __device__ inline void unpack(float (&v)[N], typename row_bits<N>::type bits)
{
    union {
        typename row_bits<N>::type all;
        T each[N];
    } u = {bits};
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = (float)u.each[i];
}
template <class T, int N> static __device__ inline void load_narrow(float (&v)[N], const void *from)
{
    unpack<T>(v, *static_cast<const typename row_bits<N>::type *>(from));
}
template <class T, int N> static __device__ inline void store_narrow(void *to, const float (&v)[N])
{
    union {
        typename row_bits<N>::type all;
        uint32_t pairs[N / 2];
    } u;
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        u.pairs[i] = pair_of<T>::pack(v[2 * i], v[2 * i + 1]);
    *static_cast<typename row_bits<N>::type *>(to) = u.all;
}

/* The same of f32 memory. */
template <int N> static __device__ inline void load_wide(float (&v)[N], const float *from)
{
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i);
        v[i] = four.x;
        v[i + 1] = four.y;
        v[i + 2] = four.z;
        v[i + 3] = four.w;
    }
}
template <int N> static __device__ inline void store_wide(float *to, const float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += 4)
        *reinterpret_cast<float4 *>(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
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
