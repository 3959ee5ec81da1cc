// SPDX-License-Identifier: Apache-2.0
/*
 * The likeliest token by a row of logits, and its log probability: blocks have parts of the row,
 * and the last one of a row adds up what all left, in the order of parts.
 */
#include <cmath>

#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { PARTS = 32, THREADS = 256 };

/* Of some logits: the largest, the first that is, and the sum of exponentials below it. A NaN makes
   the id −1, and so does an infinite largest one. */
struct __align__(16) picked
{
    float most, sum;
    int id, bad;

    static __device__ picked none()
    {
        return {-INFINITY, 0, INT32_MAX, 0};
    }
    /* i is after those that are in. */
    __device__ void add(float v, int i)
    {
        if (v > most) {
            sum *= expf(most - v);
            most = v;
            id = i;
        }
        bad |= v != v;
        if (v > -INFINITY) sum += expf(v - most);
    }
    __device__ void add(const picked &other)
    {
        const bool before = other.most > most || (other.most == most && other.id < id);
        const float top = fmaxf(most, other.most);
        if (top > -INFINITY) sum = sum * expf(most - top) + other.sum * expf(other.most - top);
        if (before) id = other.id;
        most = top;
        bad |= other.bad;
    }
    __device__ picked of_lane(int lane) const
    {
        return {__shfl_xor_sync(~0u, most, lane), __shfl_xor_sync(~0u, sum, lane),
                __shfl_xor_sync(~0u, id, lane), __shfl_xor_sync(~0u, bad, lane)};
    }
};

/* The lower half of lanes is always added to, so that every lane has the same. */
static __device__ picked over_warp(picked p)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const picked other = p.of_lane(i);
        picked low = threadIdx.x & i ? other : p;
        low.add(threadIdx.x & i ? p : other);
        p = low;
    }
    return p;
}

__global__ void __launch_bounds__(THREADS)
    pick_kernel(const __grid_constant__ s24_device_pick_args job)
{
    __shared__ picked of_warps[THREADS / 32];
    __shared__ unsigned before;
    const int n = (int)job.n, part = (n + 4 * PARTS - 1) / (4 * PARTS) * 4;
    const int first = blockIdx.x * part, end = min(n, first + part), warp = threadIdx.x / 32;
    const float *row = job.logits + blockIdx.y * job.ld;
    picked *parts =
        reinterpret_cast<picked *>(static_cast<unsigned *>(job.work) + (gridDim.y + 3) / 4 * 4) +
        blockIdx.y * PARTS;
    picked mine = picked::none();
    dependents_may_start();
    wait_for_predecessors();
    for (int i = first + threadIdx.x * 4; i < end; i += THREADS * 4) {
        const float4 four = *reinterpret_cast<const float4 *>(row + i);
        const float v[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < end) mine.add(v[j], i + j);
    }
    mine = over_warp(mine);
    if (threadIdx.x % 32 == 0) of_warps[warp] = mine;
    __syncthreads();
    if (warp > 0) return;
    mine = over_warp(threadIdx.x < THREADS / 32 ? of_warps[threadIdx.x] : picked::none());
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = mine;
        __threadfence();
        before = atomicInc(static_cast<unsigned *>(job.work) + blockIdx.y, PARTS - 1);
        __threadfence();
    }
    __syncwarp();
    if (before != PARTS - 1) return;
    const int4 left = __ldcg(reinterpret_cast<const int4 *>(parts) + threadIdx.x);
    mine = over_warp({__int_as_float(left.x), __int_as_float(left.y), left.z, left.w});
    if (threadIdx.x > 0) return;
    const bool bad = mine.bad || !(fabsf(mine.most) < INFINITY);
    job.y[blockIdx.y] = {bad ? -1 : mine.id, -logf(mine.sum)};
}

size_t device_pick_work_bytes(int64_t rows)
{
    return (size_t)((rows + 3) / 4 * 16) + (size_t)rows * PARTS * sizeof(picked);
}

s24_status pick_enqueue(s24i_device *device, const s24_device_pick_args *job, void *stream,
                        s24i_device_error *error)
{
    (void)device;
    const device_launch launch = {"launching the choice of a token",
                                  (const void *)pick_kernel,
                                  dim3(PARTS, (unsigned)job->rows),
                                  THREADS,
                                  0,
                                  true};
    s24_device_pick_args args_of = *job;
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
