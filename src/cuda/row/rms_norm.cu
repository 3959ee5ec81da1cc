// SPDX-License-Identifier: Apache-2.0
/*
 * Norms that divide by the root mean square, with the addition to the sums before them: a block has
 * a row, a thread eight elements of it. Few rows are a matter of latency: gammas are asked for
 * before the kernels before this one are done.
 */
#include "cuda/plugin/device.cuh"
#include "cuda/row/quantise.cuh"

enum { MOST_WARPS = 32 };

struct rms_job : s24_device_rms_norm_args {
    void *narrow_rows;
    s24_dtype narrow_dtype;
};

/* The sum, or the largest, of what all warps have. */
template <class F> static __device__ float over_block(float (&parts)[MOST_WARPS], float mine, F add)
{
    const int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    float all = parts[0];
    for (int w = 1; w < warps; w++)
        all = add(all, parts[w]);
    return all;
}

template <class T>
__global__ void __launch_bounds__(32 * MOST_WARPS)
    rms_norm_kernel(const __grid_constant__ rms_job job)
{
    __shared__ float sums[MOST_WARPS], largest[MOST_WARPS];
    const int at = threadIdx.x * 8;
    const bool here = at < job.width;
    const int64_t place = blockIdx.x * job.width + at;
    float gamma[8] = {}, v[8] = {}, squares = 0, most = 0;
    dependents_may_start();
    if (here) load_wide(gamma, job.gamma + at);
    wait_for_predecessors();
    if (here) {
        T *sum = static_cast<T *>(job.sum) + place;
        load_narrow<T>(v, sum);
        if (job.x) {
            float x[8];
            load_narrow<T>(x, static_cast<const T *>(job.x) + place);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = (float)(T)(v[i] + x[i]);
            store_narrow<T>(sum, v);
        }
    }
#pragma unroll
    for (float x : v)
        squares += x * x;
    squares = over_block(sums, warp_sum(squares), [](float a, float b) { return a + b; });
    const float inverse = 1.0f / sqrtf(squares / (float)job.width + job.eps);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] *= inverse * gamma[i];
    if (here) store_narrow<T>(static_cast<T *>(job.y) + place, v);
    if (!job.narrow_rows) return;
    most = over_block(largest, warp_largest(largest_of(most, v)), larger);
    const quantiser q(most, job.narrow_dtype);
    if (threadIdx.x == 0) job.narrow_scale[blockIdx.x] = q.scale;
    if (here) q.store_8(static_cast<uint8_t *>(job.narrow_rows) + place, v);
}

s24_status rms_norm_enqueue(s24i_device *device, const s24_device_rms_norm_args *args, void *stream,
                            s24i_device_error *error)
{
    (void)device;
    rms_job job = {*args, data_of(args->narrow),
                   args->narrow ? args->narrow->dtype : S24_DTYPE_NONE};
    const device_launch launch = {"launching a norm",
                                  job.dtype == S24_BF16
                                      ? (const void *)rms_norm_kernel<__nv_bfloat16>
                                      : (const void *)rms_norm_kernel<__half>,
                                  dim3((unsigned)job.rows),
                                  (int)(job.width + 255) / 256 * 32,
                                  0,
                                  job.rows * job.width <= EARLY_NORM};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
