// SPDX-License-Identifier: Apache-2.0
/* The end of a step: the gradients' norm and AdamW, each over the whole arena at once. */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Bit i: may element at + i of the arena be other than 0? */
static __device__ inline uint32_t bits_8(const uint16_t *mask, int64_t at)
{
    return mask ? reinterpret_cast<const uint8_t *>(mask)[at / 8] : 0xffu;
}

/* ---- the norm -------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
    squares_kernel(const __grid_constant__ s24_device_train_squares_args job)
{
    const int64_t step = (int64_t)gridDim.x * THREADS * 8;
    double sum = 0;
    dependents_may_start();
    wait_for_predecessors();
#pragma unroll 4
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8; i < job.count; i += step) {
        const uint32_t on = bits_8(job.mask, i);
        float g[8], squares = 0;
        load_wide(g, job.g + i);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            g[k] *= on >> k & 1 ? 1.0f : 0.0f; /* NaN shows through the mask */
            squares += g[k] * g[k];
        }
        sum += (double)squares;
    }
    sum = block_total<WARPS>(sum);
    if (threadIdx.x == 0) static_cast<double *>(job.work)[blockIdx.x] = sum;
}

TRAIN_ENQUEUE(squares, s24_device_train_squares_args)
{
    s24_device_train_squares_args args_of = *job;
    const device_launch launch = {"launching the norm of gradients",
                                  (const void *)squares_kernel,
                                  dim3(train_blocks(device, job->count / 8, THREADS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK) return status;
    const total_parts sum = {static_cast<const double *>(job->work), (int)launch.grid.x, job->sum,
                             1, 0};
    return total_parts_enqueue(device, &sum, stream, error);
}

/* ---- AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) ------------ */

struct adamw_factors {
    float beta1, new1, beta2, new2; /* new: 1 − beta */
    float eps, keep_matrix, step, inverse2, pull;
};

/* What g is multiplied by; NaN: nothing of this step is applied. */
static __device__ float gradient_factor(const s24_device_train_adamw_args &job)
{
    const double norm = sqrt(*job.squares) / job.gradient_scale;
    if (!isfinite(norm) || !isfinite(*job.loss)) return NAN;
    return (float)((job.clip > 0 && norm > job.clip ? job.clip / norm : 1.0) / job.gradient_scale);
}

template <class T>
static __device__ void adamw_8(const s24_device_train_adamw_args &job, const adamw_factors &f,
                               float factor, int64_t i)
{
    const uint32_t on = bits_8(job.mask, i), matrix = bits_8(job.matrices, i);
    float p[8], g[8], m[8], v[8];
    load_wide(p, job.p + i);
    load_wide(g, job.g + i);
    load_wide(m, job.m + i);
    load_wide(v, job.v + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const bool allowed = on >> k & 1, learns = allowed || job.masked;
        g[k] = learns ? fmaf(g[k], factor, allowed ? 0.0f : f.pull * p[k]) : g[k] * 0.0f;
        p[k] *= learns ? (matrix >> k & 1 ? f.keep_matrix : 1.0f) : 0.0f;
        m[k] = fmaf(f.beta1, m[k], f.new1 * g[k]);
        v[k] = fmaf(f.beta2, v[k], f.new2 * (g[k] * g[k]));
        p[k] -= f.step * __fdividef(m[k], fmaf(sqrtf(v[k]), f.inverse2, f.eps));
    }
    store_wide(job.p + i, p);
    store_wide(job.m + i, m);
    store_wide(job.v + i, v);
    if (job.masked) {
#pragma unroll
        for (int k = 0; k < 8; k++)
            p[k] = on >> k & 1 ? p[k] : 0.0f;
        store_wide(job.masked + i, p);
    }
    store_narrow<T>(static_cast<T *>(job.narrow) + i, p);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    adamw_kernel(const __grid_constant__ s24_device_train_adamw_args job)
{
    const adamw_factors f = {(float)job.beta1,       (float)(1 - job.beta1), (float)job.beta2,
                             (float)(1 - job.beta2), (float)job.eps,         (float)(1 - job.decay),
                             (float)job.step,        (float)job.inverse2,    (float)job.pull};
    const float none[8] = {};
    const int64_t step = (int64_t)gridDim.x * THREADS * 8;
    dependents_may_start();
    wait_for_predecessors();
    const float factor = gradient_factor(job);
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8; i < job.count; i += step) {
        if (factor == factor) adamw_8<T>(job, f, factor, i);
        store_wide(job.g + i, none);
    }
}

TRAIN_ENQUEUE(adamw, s24_device_train_adamw_args)
{
    s24_device_train_adamw_args args_of = *job;
    const device_launch launch = {"launching AdamW",
                                  job->dtype == S24_BF16 ? (const void *)adamw_kernel<__nv_bfloat16>
                                                         : (const void *)adamw_kernel<__half>,
                                  dim3(train_blocks(device, job->count / 8, THREADS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
