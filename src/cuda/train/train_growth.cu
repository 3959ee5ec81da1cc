// SPDX-License-Identifier: Apache-2.0
/* What scores grow by, from a table of buckets: a block some distances of a head. */
#include "cuda/plugin/train.cuh"
#include "cuda/ptx/hopper.cuh"

enum { THREADS = 256 };

__global__ void __launch_bounds__(THREADS)
    distances_kernel(const __grid_constant__ s24_device_train_distances_args job)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int head = blockIdx.y;
    dependents_may_start();
    wait_for_predecessors();
    if (i < job.count)
        job.to[head * job.ld + i] = job.factor * job.table[job.buckets[i] * job.heads + head];
}

TRAIN_ENQUEUE(distances, s24_device_train_distances_args)
{
    (void)device;
    s24_device_train_distances_args args_of = *job;
    const device_launch launch = {
        "launching distances",
        (const void *)distances_kernel,
        dim3((unsigned)((job->count + THREADS - 1) / THREADS), (unsigned)job->heads),
        THREADS,
        0,
        true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
