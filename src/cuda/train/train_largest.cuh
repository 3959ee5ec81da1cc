// SPDX-License-Identifier: Apache-2.0
/* The largest magnitude of a matrix, left by the kernel that makes it, for 8 bits (train_fp8.cu):
   as an integer, so that the order of blocks is no matter. */
#ifndef S24_CUDA_TRAIN_TRAIN_LARGEST_CUH
#define S24_CUDA_TRAIN_TRAIN_LARGEST_CUH

#include "cuda/plugin/device.cuh"

/* Bits of magnitudes grow with them, and a NaN's are the largest. */
template <int N> static __device__ inline uint32_t larger_of(uint32_t most, const float (&v)[N])
{
#pragma unroll
    for (float x : v)
        most = max(most, __float_as_uint(x) & 0x7fffffffu);
    return most;
}

/* Rounding keeps order, so that the largest is the one of what was rounded to T. All of a block is
   here. */
template <class T> static __device__ inline void leave_largest(float *scale, uint32_t most)
{
    __shared__ uint32_t all;
    uint32_t *const to = reinterpret_cast<uint32_t *>(scale + 1);
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0) atomicMax(&all, most);
    __syncthreads();
    if (threadIdx.x > 0) return;
    most = __float_as_uint((float)(T)__uint_as_float(all)) & 0x7fffffffu;
    if (most > *static_cast<volatile uint32_t *>(to)) atomicMax(to, most);
}

/* Before the kernel; nothing where it is not asked for. */
static inline s24_status clear_largest(float *scale, void *stream, s24i_device_error *error)
{
    if (!scale) return S24_OK;
    CUDA_TRY(error, "clearing the largest magnitude",
             cudaMemsetAsync(scale, 0, 2 * sizeof *scale, static_cast<cudaStream_t>(stream)));
    return S24_OK;
}

#endif
