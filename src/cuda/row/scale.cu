// SPDX-License-Identifier: Apache-2.0
/* Rows times a number each, columns times one each: eight elements a thread. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { THREADS = 256 };

template <class T>
__global__ void __launch_bounds__(THREADS)
    scale_kernel(const __grid_constant__ s24_device_scale_args job)
{
    const int64_t pieces = job.width / 8, all = job.rows * pieces;
    const float factor = job.factor != 0 ? job.factor : 1.0f;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        T *x = static_cast<T *>(job.x) + 8 * i;
        const float of_row = factor * (job.factors ? job.factors[i / pieces] : 1.0f);
        float v[8], columns[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        load_narrow<T>(v, x);
        if (job.columns)
            load_narrow<T>(columns, static_cast<const T *>(job.columns) + i % pieces * 8);
#pragma unroll
        for (int e = 0; e < 8; e++)
            v[e] *= columns[e] * of_row;
        store_narrow<T>(x, v);
    }
}

s24_status scale_enqueue(s24i_device *device, const s24_device_scale_args *args, void *stream,
                         s24i_device_error *error)
{
    enum { A_PROCESSOR = 8 };
    s24_device_scale_args job = *args;
    const int64_t most = (int64_t)device->processors * A_PROCESSOR;
    const int64_t blocks = (job.rows * job.width / 8 + THREADS - 1) / THREADS;
    const device_launch launch = {"launching factors",
                                  job.dtype == S24_BF16 ? (const void *)scale_kernel<__nv_bfloat16>
                                                        : (const void *)scale_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  THREADS,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
