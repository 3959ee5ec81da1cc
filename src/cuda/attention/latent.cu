// SPDX-License-Identifier: Apache-2.0
/* Heads' queries, keys and values of latents, side by side as attention reads them: eight elements
   a thread, which lie in one part of a head. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/rows.cuh"

enum { THREADS = 256 };

/* Elements at … at + 7 of what a token's position turns. */
template <class T>
static __device__ inline void turned_8(float (&v)[8], const s24_device_latent_args &job,
                                       const T *from, int64_t token, int at)
{
    const int half = (int)job.turned / 2;
    const float *angles = job.angles + job.position[token] * job.turned;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int e = at + i, first = job.halves ? e < half : e % 2 == 0;
        const int pair = job.halves ? e % half : e / 2, by = job.halves ? half : 1;
        const float sine = first ? -angles[half + pair] : angles[half + pair];
        v[i] = (float)from[e] * angles[pair] + (float)from[first ? e + by : e - by] * sine;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    latent_kernel(const __grid_constant__ s24_device_latent_args job)
{
    const int plain = (int)job.plain, turned = (int)job.turned, value = (int)job.value;
    const int64_t pieces = job.d / 8, row = 3 * job.heads * pieces, all = job.tokens * row;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t token = i / row, head = i % row / pieces % job.heads;
        const int part = (int)(i % row / pieces / job.heads), at = (int)(i % pieces * 8);
        const T *queries = static_cast<const T *>(job.queries) +
                           (token * job.heads + head) * (plain + turned),
                *made =
                    static_cast<const T *>(job.made) + (token * job.heads + head) * (plain + value),
                *key = static_cast<const T *>(job.key) + token * job.key_ld;
        float v[8] = {};
        if (part == 2) {
            if (at < value) load_narrow<T>(v, made + plain + at);
        } else if (at < plain) {
            load_narrow<T>(v, (part ? made : queries) + at);
        } else if (at < plain + turned) {
            turned_8<T>(v, job, part ? key : queries + plain, token, at - plain);
        }
        store_narrow<T>(static_cast<T *>(job.qkv) + 8 * i, v);
    }
}

s24_status latent_enqueue(s24i_device *device, const s24_device_latent_args *args, void *stream,
                          s24i_device_error *error)
{
    enum { A_PROCESSOR = 8 };
    s24_device_latent_args job = *args;
    const int64_t most = (int64_t)device->processors * A_PROCESSOR;
    const int64_t blocks = (job.tokens * 3 * job.heads * job.d / 8 + THREADS - 1) / THREADS;
    const device_launch launch = {"launching heads of latents",
                                  job.dtype == S24_BF16 ? (const void *)latent_kernel<__nv_bfloat16>
                                                        : (const void *)latent_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  THREADS,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
