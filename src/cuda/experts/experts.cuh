// SPDX-License-Identifier: Apache-2.0
/* What the two kernels of experts' products share: the rows of a weight in the device's order, and
   what a launch needs. */
#ifndef S24_CUDA_EXPERTS_EXPERTS_CUH
#define S24_CUDA_EXPERTS_EXPERTS_CUH

#include "cuda/plugin/device.cuh"
#include "cuda/ptx/hopper.cuh"
#include "cuda/ptx/mma_sp.cuh"

struct experts_params {
    const s24i_device_expert *table; /* [parts, experts] */
    const void *x;
    void *y;
    const int32_t *chosen, *order, *begins;
    const float *bias; /* [parts, experts, n] or NULL */
    int n, k, experts, parts, rows, each;

    /* Blocks of 64 columns of a row. */
    __host__ __device__ int steps() const
    {
        return (k + 63) / 64;
    }
    /* What is added to output `row` of an expert's part. */
    __device__ __forceinline__ float bias_of(int part, int expert, int row) const
    {
        return bias ? bias[(size_t)(part * experts + expert) * (size_t)n + (size_t)row] : 0.0f;
    }
    __host__ __device__ size_t slab_bytes() const
    {
        return (size_t)steps() * element_of<__half>::weight_block;
    }
};

/* Dense products of 16 rows by eight tokens, of 32 columns: `a` has of each eight of them the rows'
   first and second half, as mma's operands lie. */
template <class T>
static __device__ __forceinline__ void dense_step(float (&d)[4], const uint32_t (&low)[4],
                                                  const uint32_t (&high)[4], const uint32_t (&b)[4])
{
    mma<T>::add(d, {low[0], high[0], low[1], high[1]}, b[0], b[1]);
    mma<T>::add(d, {low[2], high[2], low[3], high[3]}, b[2], b[3]);
}

/* Up to a few rows of y, each by itself; else an expert's rows together. */
s24_status experts_few_enqueue(experts_params *p, s24_dtype dtype, void *stream,
                               s24i_device_error *error);
s24_status experts_many_enqueue(experts_params *p, s24_dtype dtype, void *stream,
                                s24i_device_error *error);

#endif
