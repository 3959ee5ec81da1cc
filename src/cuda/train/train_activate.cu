// SPDX-License-Identifier: Apache-2.0
/*
 * Activations in training, forward and backward, gated ones too; backward with the column sums that
 * are the bias's gradient. A block has 256 columns and its warps take rows by turns, so that a
 * thread keeps its columns' sums and biases in registers.
 */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_largest.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, ROWS_AHEAD = 4 };

/* ---- the functions --------------------------------------------------------------------------- */

struct curve {
    float value, slope;
};

/* x·s(u) and its slope s + x·s·(1 − s)·u', s = 1/(1 + exp(−u)). */
static __device__ inline curve logistic_curve(float x, float u, float u_slope)
{
    const float s = __fdividef(1.0f, 1.0f + __expf(-u));
    return {x * s, fmaf(x * u_slope * s, 1.0f - s, s)};
}

/* x·Φ(x) and Φ(x) + x·φ(x), Φ by formula 7.1.26 of Abramowitz and Stegun as on the CPU. */
static __device__ inline curve gelu_curve(float x)
{
    const float z = fabsf(x) * 0.70710678119f;
    const float t = __fdividef(1.0f, fmaf(z, 0.3275911f, 1.0f));
    const float gauss = __expf(-z * z);
    float p = 1.061405429f;
    p = fmaf(p, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    const float half = fmaf(0.5f, copysignf(fmaf(-p * t, gauss, 1.0f), x), 0.5f);
    return {x * half, fmaf(x * gauss, 0.39894228040f, half)};
}

template <int ACTIVATION> static __device__ inline curve curve_of(float x)
{
    if (ACTIVATION == S24_ACTIVATION_RELU) return {x < 0 ? 0 : x, x > 0 ? 1.0f : x != x ? x : 0.0f};
    if (ACTIVATION == S24_ACTIVATION_GELU) return gelu_curve(x);
    if (ACTIVATION == S24_ACTIVATION_GELU_TANH) {
        const float square = x * x;
        return logistic_curve(x, x * 1.59576912161f * fmaf(square, 0.044715f, 1.0f),
                              1.59576912161f * fmaf(square, 0.134145f, 1.0f));
    }
    if (ACTIVATION == S24_ACTIVATION_SILU) return logistic_curve(x, x, 1.0f);
    if (ACTIVATION == S24_ACTIVATION_GELU_QUICK) return logistic_curve(x, 1.702f * x, 1.702f);
    return {x, 1.0f};
}

template <int ACTIVATION> static __device__ inline curve curve_of(float x, bool squared)
{
    const curve c = curve_of<ACTIVATION>(x);
    if (!squared) return c;
    return {c.value * c.value, 2.0f * c.value * c.slope};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows `step` apart, as many as a thread reads before it writes. */
static __device__ inline bool is_row(int64_t r, int ahead, int64_t step, int64_t rows)
{
    return r + ahead * step < rows;
}

template <class T, int ACTIVATION, bool GATED>
__global__ void __launch_bounds__(THREADS)
    activate_kernel(const __grid_constant__ s24_device_train_activate_args job)
{
    constexpr int halves = GATED ? 2 : 1;
    const int c = (int)(blockIdx.x * 256 + threadIdx.x % 32 * 8);
    const int64_t step = (int64_t)gridDim.y * WARPS, ld = job.width * halves;
    const T *const u = static_cast<const T *>(job.u) + c;
    T *const h = static_cast<T *>(job.h) + c;
    uint32_t most = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = c < job.width ? (int64_t)blockIdx.y * WARPS + threadIdx.x / 32 : job.rows;
         r < job.rows; r += ROWS_AHEAD * step) {
        uint4 bits[ROWS_AHEAD][halves];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++)
#pragma unroll
            for (int half = 0; half < halves; half++)
                if (is_row(r, k, step, job.rows))
                    bits[k][half] = *reinterpret_cast<const uint4 *>(u + (r + k * step) * ld +
                                                                     half * job.width);
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++) {
            if (!is_row(r, k, step, job.rows)) break;
            float v[halves][8];
#pragma unroll
            for (int half = 0; half < halves; half++)
                unpack<T>(v[half], bits[k][half]);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int gate = GATED && job.gate_last ? halves - 1 : 0;
                const float other = v[GATED ? halves - 1 - gate : 0][i];
                v[0][i] =
                    curve_of<ACTIVATION>(gate ? v[halves - 1][i] : v[0][i], job.squared).value;
                if (GATED) v[0][i] *= other;
            }
            store_narrow<T>(h + (r + k * step) * job.width, v[0]);
            most = larger_of(most, v[0]);
        }
    }
    if (job.scale) leave_largest<T>(job.scale, most);
}

/* Gate and what it multiplies in turns, clamped. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    activate_turns_kernel(const __grid_constant__ s24_device_train_activate_args job)
{
    const int c = (int)(blockIdx.x * 256 + threadIdx.x % 32 * 8);
    const int64_t step = (int64_t)gridDim.y * WARPS;
    const float limit = job.limit;
    dependents_may_start();
    wait_for_predecessors();
    if (c >= job.width) return;
    for (int64_t r = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32; r < job.rows; r += step) {
        const T *u = static_cast<const T *>(job.u) + 2 * (r * job.width + c);
        float v[2][8], y[8];
        load_narrow<T>(v[0], u);
        load_narrow<T>(v[1], u + 8);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float gate = fminf(v[i / 4][i % 4 * 2], limit);
            const float up = fminf(fmaxf(v[i / 4][i % 4 * 2 + 1], -limit), limit);
            y[i] = curve_of<S24_ACTIVATION_GELU_QUICK>(gate).value * (1.0f + up);
        }
        store_narrow<T>(static_cast<T *>(job.h) + r * job.width + c, y);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* u and dh become du, and join the sums; the larger of `most` and what du has. */
template <class T, int ACTIVATION, int HALVES>
static __device__ inline uint32_t back_8(T *du, const uint4 (&bits)[HALVES], uint4 dh,
                                         float (&sums)[HALVES][8], uint32_t most, int64_t width,
                                         bool squared)
{
    float v[HALVES][8], d[HALVES][8];
    unpack<T>(d[0], dh);
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        unpack<T>(v[half], bits[half]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const curve f = curve_of<ACTIVATION>(v[0][i], squared);
        if (HALVES == 2) {
            d[HALVES - 1][i] = d[0][i] * f.value;
            d[0][i] *= v[HALVES - 1][i];
        }
        d[0][i] *= f.slope;
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            sums[half][i] += d[half][i];
    }
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        store_narrow<T>(du + half * width, d[half]);
        most = larger_of(most, d[half]);
    }
    return most;
}

template <class T, int ACTIVATION, bool GATED>
__global__ void __launch_bounds__(THREADS)
    activate_back_kernel(const __grid_constant__ s24_device_train_activate_back_args job)
{
    constexpr int halves = GATED ? 2 : 1;
    __shared__ __align__(16) float shared[WARPS][256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int c = (int)(blockIdx.x * 256) + lane * 8;
    const int64_t step = (int64_t)gridDim.y * WARPS, ld = job.width * halves;
    const T *const u = static_cast<const T *>(job.u) + c;
    float sums[halves][8] = {};
    uint32_t most = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = c < job.width ? (int64_t)blockIdx.y * WARPS + warp : job.rows; r < job.rows;
         r += ROWS_AHEAD * step) {
        uint4 bits[ROWS_AHEAD][halves], dh[ROWS_AHEAD];
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++) {
            if (!is_row(r, k, step, job.rows)) break;
            dh[k] = *reinterpret_cast<const uint4 *>(static_cast<const T *>(job.dh) +
                                                     (r + k * step) * job.width + c);
#pragma unroll
            for (int half = 0; half < halves; half++)
                bits[k][half] =
                    *reinterpret_cast<const uint4 *>(u + (r + k * step) * ld + half * job.width);
        }
#pragma unroll
        for (int k = 0; k < ROWS_AHEAD; k++)
            if (is_row(r, k, step, job.rows))
                most = back_8<T, ACTIVATION>(static_cast<T *>(job.du) + (r + k * step) * ld + c,
                                             bits[k], dh[k], sums, most, job.width, job.squared);
    }
    if (job.scale) leave_largest<T>(job.scale, most);
    if (!job.dbias) return;
    const int64_t padded = (int64_t)gridDim.x * 256;
    float *part = static_cast<float *>(job.work) + blockIdx.y * halves * padded;
#pragma unroll
    for (int half = 0; half < halves; half++) {
        __syncthreads();
        store_wide(&shared[warp][lane * 8], sums[half]);
        __syncthreads();
        float all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            all += shared[w][threadIdx.x];
        part[half * padded + blockIdx.x * 256 + threadIdx.x] = all;
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

#define ACTIVATIONS(kernel, T, GATED)                                                              \
    {                                                                                              \
        (const void *)kernel<T, S24_ACTIVATION_NONE, GATED>,                                       \
            (const void *)kernel<T, S24_ACTIVATION_RELU, GATED>,                                   \
            (const void *)kernel<T, S24_ACTIVATION_GELU, GATED>,                                   \
            (const void *)kernel<T, S24_ACTIVATION_GELU_TANH, GATED>,                              \
            (const void *)kernel<T, S24_ACTIVATION_SILU, GATED>,                                   \
            (const void *)kernel<T, S24_ACTIVATION_GELU_QUICK, GATED>                              \
    }
#define ACTIVATION_KERNELS(kernel)                                                                 \
    {                                                                                              \
        {ACTIVATIONS(kernel, __nv_bfloat16, false), ACTIVATIONS(kernel, __nv_bfloat16, true)},     \
        {                                                                                          \
            ACTIVATIONS(kernel, __half, false), ACTIVATIONS(kernel, __half, true)                  \
        }                                                                                          \
    }

/* Columns by rows: about so many blocks a processor. */
static dim3 activation_grid(const s24i_device *device, int64_t rows, int64_t width)
{
    enum { A_PROCESSOR = 4 };
    const int64_t columns = (width + 255) / 256, groups = (rows + WARPS - 1) / WARPS;
    int64_t most = (int64_t)device->processors * A_PROCESSOR / columns;
    if (most < 1) most = 1;
    return dim3((unsigned)columns, (unsigned)(groups < most ? groups : most));
}

TRAIN_ENQUEUE(activate, s24_device_train_activate_args)
{
    static const void *const kernels[2][2][6] = ACTIVATION_KERNELS(activate_kernel);
    static const void *const turns[2] = {(const void *)activate_turns_kernel<__nv_bfloat16>,
                                         (const void *)activate_turns_kernel<__half>};
    s24_device_train_activate_args args_of = *job;
    const int f16 = job->dtype == S24_F16;
    const device_launch launch = {"launching an activation",
                                  job->limit > 0 ? turns[f16]
                                                 : kernels[f16][job->gated != 0][job->activation],
                                  activation_grid(device, job->rows, job->width),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = clear_largest(job->scale, stream, error);
    return status != S24_OK ? status : device_launch_kernel(error, &launch, args, stream);
}

TRAIN_ENQUEUE(activate_back, s24_device_train_activate_back_args)
{
    static const void *const kernels[2][2][6] = ACTIVATION_KERNELS(activate_back_kernel);
    s24_device_train_activate_back_args args_of = *job;
    const device_launch launch = {"launching the gradient of an activation",
                                  kernels[job->dtype == S24_F16][job->gated != 0][job->activation],
                                  activation_grid(device, job->rows, job->width),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    s24_status status = clear_largest(job->scale, stream, error);
    if (status == S24_OK) status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK || !job->dbias) return status;
    const int64_t padded = 256 * (int64_t)launch.grid.x;
    const column_parts ends = {static_cast<const float *>(job->work),
                               (job->gated ? 2 : 1) * padded,
                               padded,
                               job->width,
                               (int)launch.grid.y,
                               {job->dbias, job->gated ? job->dbias + job->width : nullptr}};
    return column_parts_enqueue(device, &ends, stream, error);
}
