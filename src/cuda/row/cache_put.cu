// SPDX-License-Identifier: Apache-2.0
/* Keys and values of a pass to a cache. */
#include "cuda/plugin/device.cuh"
#include "cuda/ptx/hopper.cuh"

/* A block per new token of a text: its keys and values from qkv to the cache. */
__global__ void __launch_bounds__(128)
    cache_put_kernel(const __grid_constant__ s24_device_attention_cache_args job)
{
    const int text = blockIdx.y, t = blockIdx.x, chunks = (int)(job.kv_heads * job.d / 8);
    const int head = (int)(job.d / 8);
    dependents_may_start();
    wait_for_predecessors();
    const int first = job.offsets[text];
    if (first + t >= job.offsets[text + 1]) return;
    const int64_t row = (job.heads + 2 * job.kv_heads) * job.d / 8;
    const uint4 *from = static_cast<const uint4 *>(job.qkv) + (first + t) * row + job.heads * head;
    for (int i = threadIdx.x; i < 2 * chunks; i += 128) {
        const int is_value = i >= chunks, at = i - is_value * chunks;
        const int64_t place = (job.places[text] * job.kv_heads + at / head) * job.room;
        uint4 *to = static_cast<uint4 *>(is_value ? job.values : job.keys);
        to[(place + job.before[text] + t) * head + at % head] = from[i];
    }
}

s24_status cache_put_enqueue(s24i_device *device, const s24_device_attention_cache_args *job,
                             void *stream, s24i_device_error *error)
{
    (void)device;
    const device_launch launch = {"putting keys and values in a cache",
                                  (const void *)cache_put_kernel,
                                  dim3((unsigned)job->longest, (unsigned)job->texts),
                                  128,
                                  0,
                                  true};
    s24_device_attention_cache_args args_of = *job;
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
