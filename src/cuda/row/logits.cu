// SPDX-License-Identifier: Apache-2.0
/* Logits of models that multiply or cap them, in place. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { THREADS = 256 };

/* Four neighbours a thread; rows are the launch's second dimension. */
__global__ void __launch_bounds__(THREADS)
    logits_kernel(const __grid_constant__ s24_device_logits_args job)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (at >= job.n) return;
    float v[4], *place = job.logits + blockIdx.y * job.ld + at;
    load_wide(v, place);
#pragma unroll
    for (float &x : v) {
        x *= job.factor;
        if (job.cap > 0) x = job.cap * tanhf(x / job.cap);
    }
    store_wide(place, v); /* past n there is room to the row's end */
}

s24_status logits_enqueue(s24i_device *device, const s24_device_logits_args *args, void *stream,
                          s24i_device_error *error)
{
    (void)device;
    s24_device_logits_args job = *args;
    if (!(job.factor > 0)) job.factor = 1;
    const device_launch launch = {
        "scaling logits",
        (const void *)logits_kernel,
        dim3((unsigned)((job.n + 4 * THREADS - 1) / (4 * THREADS)), (unsigned)job.rows),
        THREADS,
        0,
        true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
