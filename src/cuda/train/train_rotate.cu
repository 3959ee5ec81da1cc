// SPDX-License-Identifier: Apache-2.0
/* Rotary positions: a block a token. */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"

enum { THREADS = 128 };

struct rotate_job : s24_device_train_rotate_args {
    int half; /* pairs that are turned */
    float sign;
};

/* Halves of whole heads: four elements and their partners a thread. */
template <class T>
__global__ void __launch_bounds__(THREADS) rotate_kernel(const __grid_constant__ rotate_job job)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t token = blockIdx.x;
    const int d = (int)job.d, half = job.half, pieces = half / 4;
    const int heads = (int)job.heads, kv_heads = (int)job.kv_heads;
    T *row = static_cast<T *>(job.qkv) + token * (heads + 2 * kv_heads) * d;
    const float *cosines = job.angles + (int64_t)job.position[token] * d;
    for (int i = threadIdx.x; i < (heads + kv_heads) * pieces; i += THREADS) {
        const int head = i / pieces, at = i % pieces * 4;
        float a[4], b[4], c[4], s[4];
        T *low = row + head * d + at, *high = low + half;
        load_narrow<T>(a, low);
        load_narrow<T>(b, high);
        load_wide(c, cosines + at);
        load_wide(s, cosines + half + at);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float x = a[e], y = b[e], sine = job.sign * s[e];
            a[e] = x * c[e] - y * sine;
            b[e] = y * c[e] + x * sine;
        }
        store_narrow<T>(low, a);
        store_narrow<T>(high, b);
    }
}

/* A part of a head, or neighbours in it: a pair a thread. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    rotate_pairs_kernel(const __grid_constant__ rotate_job job)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t token = blockIdx.x;
    const int d = (int)job.d, half = job.half;
    const int heads = (int)job.heads, kv_heads = (int)job.kv_heads;
    T *row = static_cast<T *>(job.qkv) + token * (heads + 2 * kv_heads) * d;
    const float *cosines = job.angles + (int64_t)job.position[token] * 2 * half;
    for (int i = threadIdx.x; i < (heads + kv_heads) * half; i += THREADS) {
        const int at = i % half;
        T *low = row + i / half * d + (job.adjacent ? 2 * at : at);
        T *high = low + (job.adjacent ? 1 : half);
        const float x = (float)*low, y = (float)*high;
        const float cosine = cosines[at], sine = job.sign * cosines[half + at];
        *low = (T)(x * cosine - y * sine);
        *high = (T)(y * cosine + x * sine);
    }
}

TRAIN_ENQUEUE(rotate, s24_device_train_rotate_args)
{
    (void)device;
    static const void *const kernels[2][2] = {
        {(const void *)rotate_kernel<__nv_bfloat16>, (const void *)rotate_kernel<__half>},
        {(const void *)rotate_pairs_kernel<__nv_bfloat16>,
         (const void *)rotate_pairs_kernel<__half>}};
    const int64_t turned = job->turned ? job->turned : job->d;
    rotate_job r = {*job, (int)(turned / 2), job->back ? -1.0f : 1.0f};
    const device_launch launch = {"launching a rotation",
                                  kernels[job->adjacent || turned != job->d][job->dtype == S24_F16],
                                  dim3((unsigned)job->tokens),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&r};
    return device_launch_kernel(error, &launch, args, stream);
}
