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
    float frozen_gain, frozen_eps, fade; /* of STEP and of AdamS */
};

/* What g is multiplied by; NaN: nothing of this step is applied. */
static __device__ float gradient_factor(const s24_device_train_adamw_args &job)
{
    const double norm = sqrt(*job.squares) / job.gradient_scale;
    if (!isfinite(norm) || !isfinite(*job.loss)) return NAN;
    return (float)((job.clip > 0 && norm > job.clip ? job.clip / norm : 1.0) / job.gradient_scale);
}

/* What p moves by where AdamS and STEP differ from AdamW, and what the variance becomes. */
static __device__ inline float move_as(float &v, float g, float m, bool frozen, bool fades, float p,
                                       const s24_device_train_adamw_args &job,
                                       const adamw_factors &f)
{
    const float sign = p > 0 ? 1.0f : p < 0 ? -1.0f : 0.0f;
    if (fades) m = (1 - f.fade) * m + f.fade * f.pull * sign;
    const float slope = job.signs ? m : g;
    if (!frozen) v = fmaf(f.beta2, v, f.new2 * (slope * slope));
    const float root =
        frozen ? fmaf(sqrtf(v), f.frozen_gain, f.frozen_eps) : fmaf(sqrtf(v), f.inverse2, f.eps);
    return f.step * __fdividef(m, root);
}

/* Moments of eight elements of which those alone have some that the mask lets be. */
static __device__ inline void load_halved(float x[8], const float *from, uint32_t on)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
        x[k] = on >> k & 1 ? from[__popc(on & ((1u << k) - 1))] : 0.0f;
}

static __device__ inline void store_halved(float *to, const float x[8], uint32_t on)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (on >> k & 1) to[__popc(on & ((1u << k) - 1))] = x[k];
}

/* Where the moments of elements i … i + 7 begin; are they halved? */
static __device__ inline int64_t moments_of(bool &halved, const s24_device_train_adamw_args &job,
                                            int64_t i)
{
    halved = false;
    if (!job.moments_at) return i;
    const uint32_t at = job.moments_at[i / 16];
    halved = at >> 31;
    const int before = i % 16 ? __popc(bits_8(job.mask, i - 8)) : 0;
    return (int64_t)(at & 0x7fffffffu) * 8 + (halved ? before : i % 16);
}

template <class T, bool AS>
static __device__ void adamw_8(const s24_device_train_adamw_args &job, const adamw_factors &f,
                               float factor, int64_t i)
{
    const uint32_t on = bits_8(job.mask, i);
    const uint32_t matrix = job.matrices ? bits_8(job.matrices, i) : 0;
    const uint32_t frozen = AS && job.frozen ? bits_8(job.frozen, i) : 0;
    float p[8], g[8], m[8], v[8];
    bool halved;
    const int64_t at = moments_of(halved, job, i);
    load_wide(p, job.p + i);
    load_wide(g, job.g + i);
    if (halved) {
        load_halved(m, job.m + at, on);
        load_halved(v, job.v + at, on);
    } else {
        load_wide(m, job.m + at);
        load_wide(v, job.v + at);
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const bool allowed = on >> k & 1, learns = allowed || job.learns;
        const float pull = allowed || (AS && job.signs) ? 0.0f : f.pull * p[k], was = p[k];
        g[k] = learns ? fmaf(g[k], factor, pull) : g[k] * 0.0f;
        p[k] *= learns ? (matrix >> k & 1 ? f.keep_matrix : 1.0f) : 0.0f;
        m[k] = fmaf(f.beta1, m[k], f.new1 * g[k]);
        if (AS) {
            p[k] -= move_as(v[k], g[k], m[k], frozen >> k & 1, job.signs && !allowed, was, job, f);
            continue;
        }
        v[k] = fmaf(f.beta2, v[k], f.new2 * (g[k] * g[k]));
        p[k] -= f.step * __fdividef(m[k], fmaf(sqrtf(v[k]), f.inverse2, f.eps));
    }
    store_wide(job.p + i, p);
    if (halved) {
        store_halved(job.m + at, m, on);
        store_halved(job.v + at, v, on);
    } else {
        store_wide(job.m + at, m);
        store_wide(job.v + at, v);
    }
    if (!job.narrow) return;
#pragma unroll
    for (int k = 0; k < 8; k++)
        p[k] = on >> k & 1 ? p[k] : 0.0f;
    store_narrow<T>(static_cast<T *>(job.narrow) + i, p);
}

template <class T, bool AS>
__global__ void __launch_bounds__(THREADS)
    adamw_kernel(const __grid_constant__ s24_device_train_adamw_args job)
{
    const adamw_factors f = {(float)job.beta1,       (float)(1 - job.beta1), (float)job.beta2,
                             (float)(1 - job.beta2), (float)job.eps,         (float)(1 - job.decay),
                             (float)job.step,        (float)job.inverse2,    (float)job.pull,
                             (float)job.frozen_gain, (float)job.frozen_eps,  (float)job.fade};
    const float none[8] = {};
    const int64_t step = (int64_t)gridDim.x * THREADS * 8;
    dependents_may_start();
    wait_for_predecessors();
    const float factor = gradient_factor(job);
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 8; i < job.count; i += step) {
        if (factor == factor) adamw_8<T, AS>(job, f, factor, i);
        store_wide(job.g + i, none);
    }
}

template <bool AS> static const void *adamw_of(s24_dtype dtype)
{
    return dtype == S24_BF16 ? (const void *)adamw_kernel<__nv_bfloat16, AS>
                             : (const void *)adamw_kernel<__half, AS>;
}

TRAIN_ENQUEUE(adamw, s24_device_train_adamw_args)
{
    s24_device_train_adamw_args args_of = *job;
    const bool as = job->frozen || job->signs;
    const device_launch launch = {"launching AdamW",
                                  as ? adamw_of<true>(job->dtype) : adamw_of<false>(job->dtype),
                                  dim3(train_blocks(device, job->count / 8, THREADS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
