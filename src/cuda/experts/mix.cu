// SPDX-License-Identifier: Apache-2.0
/* What a token's experts give together: eight elements a thread, added in the order of experts. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { THREADS = 256 };

template <class T>
__global__ void __launch_bounds__(THREADS)
    mix_kernel(const __grid_constant__ s24_device_mix_args job)
{
    const int used = (int)job.used;
    const int64_t pieces = job.width / 8, all = job.tokens * pieces;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t token = i / pieces, at = i % pieces * 8;
        const float *weights = job.weights + token * (used + 1);
        const T *x = static_cast<const T *>(job.x) + token * used * job.width + at;
        float sum[8] = {}, v[8];
        for (int e = 0; e <= used; e++) {
            if (e == used && !job.shared) break;
            const T *from = e < used ? x + e * job.width
                                     : static_cast<const T *>(job.shared) + token * job.width + at;
            load_narrow<T>(v, from);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[j] = fmaf(weights[e], v[j], sum[j]);
        }
        store_narrow<T>(static_cast<T *>(job.y) + token * job.width + at, sum);
    }
}

s24_status mix_enqueue(s24i_device *device, const s24_device_mix_args *args, void *stream,
                       s24i_device_error *error)
{
    enum { A_PROCESSOR = 8 };
    s24_device_mix_args job = *args;
    const int64_t most = (int64_t)device->processors * A_PROCESSOR;
    const int64_t blocks = (job.tokens * job.width / 8 + THREADS - 1) / THREADS;
    const device_launch launch = {"launching a sum of experts",
                                  job.dtype == S24_BF16 ? (const void *)mix_kernel<__nv_bfloat16>
                                                        : (const void *)mix_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  THREADS,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
