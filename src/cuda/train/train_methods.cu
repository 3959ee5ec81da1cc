// SPDX-License-Identifier: Apache-2.0
/*
 * Gradients of outputs and activations that a method leaves two of four tokens of, and the changes
 * of the variance that STEP watches. Sums are of integers or left in parts, so that their order
 * is no matter.
 */
#include "base/random.h"
#include "cuda/plugin/train.cuh"
#include "cuda/ptx/element.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* ---- MVUE24 ---------------------------------------------------------------------------------- */

/* A job, and what its chance is made from, once for all threads. */
struct mvue_job {
    s24_device_train_mvue_args args;
    s24i_philox_keys keys;
};

static __device__ inline float reciprocal(float x)
{
    return __fdividef(1.0f, x);
}

/* (0, 1] without a conversion, which is as slow as a division. */
static __device__ inline float quick_uniform(uint32_t word)
{
    return __uint_as_float(0x3f800000u | word >> 9) - (1.0f - 0x1p-23f);
}

/* Of four, with d[i] what the others sum up to: a[i] times the sum of a[j] / d[j] over the others
   and 1. All quotients are of one reciprocal. */
static __device__ inline void inclusions(float to[4], const float a[4], const float d[4])
{
    const float front = d[0] * d[1], back = d[2] * d[3], all = reciprocal(front * back);
    const float of_front = all * back, of_back = all * front;
    const float t[4] = {a[0] * (of_front * d[1]), a[1] * (of_front * d[0]), a[2] * (of_back * d[3]),
                        a[3] * (of_back * d[2])};
    const float more = 1 + (t[2] + t[3]), less = 1 + (t[0] + t[1]);
    to[0] = a[0] * (more + t[1]);
    to[1] = a[1] * (more + t[0]);
    to[2] = a[2] * (less + t[3]);
    to[3] = a[3] * (less + t[2]);
}

/* One where a < b, as a number: sums and products of such are quicker than choices. */
static __device__ inline float below(float a, float b)
{
    return a < b ? 1.0f : 0.0f;
}

/* Which two are drawn, one after the other: 1 at its place, 0 elsewhere. */
static __device__ inline void draw_two(float first[4], float second[4], const float a[4],
                                       float total, const uint32_t words[4])
{
    const float u = quick_uniform(words[0]) * total, two = a[0] + a[1];
    const float past[3] = {below(a[0], u), below(two, u), below(two + a[2], u)};
    first[0] = 1 - past[0];
    first[1] = past[0] - past[1];
    first[2] = past[1] - past[2];
    first[3] = past[2];
    float sum[4], rest = 0, none = 1;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[i] = rest; /* of those before it */
        rest += fmaf(-first[i], a[i], a[i]);
    }
    const float v = quick_uniform(words[1]) * rest;
#pragma unroll
    for (int i = 3; i >= 0; i--) {
        const float may = i ? below(sum[i], v) : 1.0f;
        second[i] = fmaf(-first[i], may, may) * none;
        none -= second[i];
    }
}

static __device__ inline float inner(const float a[4], const float b[4])
{
    return fmaf(a[0], b[0], fmaf(a[1], b[1], fmaf(a[2], b[2], a[3] * b[3])));
}

/* Nearly of the least variance: two are drawn one after the other and divided by the probability
   that they are kept (kernel/mvue24.h, in f32). What keeps zeros possible is small next to the
   largest, which a power of two makes 1 to 2: gradients are of any size. */
static __device__ inline void mvue_group(float x[4], const s24i_philox_keys &keys, uint64_t number)
{
    float a[4], each[4], first[4], second[4];
    uint32_t words[4];
    const float most =
        fmaxf(fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3]))),
              0x1p-126f); /* four zeros stay zeros */
    const float scale = __uint_as_float((254u << 23) - (__float_as_uint(most) & 0x7f800000u));
    s24i_philox_keyed(words, &keys, number);
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = fmaf(fabsf(x[i]), scale, most * scale * 0x1p-23f);
    const float front = a[0] + a[1], back = a[2] + a[3], total = front + back;
    const float others[4] = {a[1] + back, a[0] + back, front + a[3], front + a[2]};
    inclusions(each, a, others);
    draw_two(first, second, a, total, words);
    const float one = inner(first, each), other = inner(second, each);
    const float both = total * reciprocal(one * other);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] *= fmaf(first[i], both * other, second[i] * (both * one));
}

/* The probabilities of pairs as src/train/cpu_sparse.c has them; value 0: the largest stays
   itself, a smaller one becomes the sum of all three. */
static __device__ void exact_pairs(float p[5], float &value, const float a[4])
{
    const float sum = a[0] + a[1] + a[2] + a[3], three = a[0] + a[1] + a[2];
    value = sum / 2;
    if (2 * a[0] + a[2] - a[3] > 0) {
        p[0] = (2 * a[0] + a[2] - a[3]) / (2 * sum);
        p[1] = (2 * a[0] - a[2] + a[3]) / (2 * sum);
        p[2] = (2 * a[1] + a[2] - a[3]) / (2 * sum);
        p[3] = (2 * a[1] - a[2] + a[3]) / (2 * sum);
        p[4] = (a[2] + a[3] - a[0] - a[1]) / sum;
        return;
    }
    const bool spread = three > a[3];
    p[0] = 0;
    p[1] = spread ? 2 * a[0] / sum : a[0] / three;
    p[2] = spread ? (three - a[3]) / sum : 0;
    p[3] = spread ? (a[1] + a[3] - a[0] - a[2]) / sum : a[1] / three;
    p[4] = spread ? (a[2] + a[3] - a[0] - a[1]) / sum : a[2] / three;
    if (!spread) value = 0;
}

/* How many magnitudes are below that of place i, of equal ones those before it. */
static __device__ inline int rank_of(const float x[4], int i)
{
    int rank = 0;
    for (int j = 0; j < 4; j++)
        rank += fabsf(x[j]) < fabsf(x[i]) || (fabsf(x[j]) == fabsf(x[i]) && j < i);
    return rank;
}

static __device__ void exact_group(float x[4], float u)
{
    float a[4] = {}, p[5], value;
    int rank[4], pair = 0;
    for (int i = 0; i < 4; i++) {
        rank[i] = rank_of(x, i);
        for (int r = 0; r < 4; r++)
            a[r] = rank[i] == r ? fabsf(x[i]) : a[r];
    }
    if (a[1] == 0) return; /* two of four already */
    exact_pairs(p, value, a);
    for (; pair < 4 && u > p[pair]; pair++)
        u -= p[pair];
    const int low = pair < 2 ? 0 : pair < 4 ? 1 : 2, high = pair == 0 || pair == 2 ? 2 : 3;
    for (int i = 0; i < 4; i++) {
        const float to = value > 0 ? value : rank[i] == 3 ? a[3] : a[0] + a[1] + a[2];
        x[i] = rank[i] == low || rank[i] == high ? copysignf(to, x[i]) : 0.0f;
    }
}

template <bool EXACT>
static __device__ inline void estimate(float x[4], const mvue_job &job, int64_t group, int64_t col)
{
    const s24_device_train_mvue_args &args = job.args;
    if (EXACT) {
        uint32_t words[4];
        s24i_philox_keyed(words, &job.keys, args.first + (uint64_t)(group * args.cols + col));
        exact_group(x, ((float)(words[0] >> 8) + 0.5f) / 16777216.0f);
    } else {
        mvue_group(x, job.keys, (uint64_t)(col * (args.rows / 4) + group));
    }
}

/* A thread has two columns, of four rows at a time; a warp 32 pairs of columns. */
template <class T, bool EXACT>
__global__ void __launch_bounds__(THREADS) mvue_kernel(const __grid_constant__ mvue_job job)
{
    const s24_device_train_mvue_args &args = job.args;
    const int64_t groups = args.rows / 4, col = 2 * (32 * (int64_t)blockIdx.x + threadIdx.x % 32);
    int64_t group = WARPS * (int64_t)blockIdx.y + threadIdx.x / 32;
    const T *from = static_cast<const T *>(args.from) + 4 * group * args.ld + col;
    T *to = static_cast<T *>(args.to) + 4 * group * args.ld + col;
    const int64_t step = WARPS * (int64_t)gridDim.y, apart = 4 * step * args.ld;
    dependents_may_start();
    wait_for_predecessors();
    if (col >= args.cols) return;
    for (; group < groups; group += step, from += apart, to += apart) {
        float x[2][4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const float2 v =
                pair_of<T>::values(*reinterpret_cast<const uint32_t *>(from + r * args.ld));
            x[0][r] = v.x;
            x[1][r] = v.y;
        }
        estimate<EXACT>(x[0], job, group, col);
        estimate<EXACT>(x[1], job, group, col + 1);
#pragma unroll
        for (int r = 0; r < 4; r++)
            *reinterpret_cast<uint32_t *>(to + r * args.ld) = pair_of<T>::pack(x[0][r], x[1][r]);
    }
    for (int64_t r = 0; group == groups && r < args.rows % 4; r++)
        *reinterpret_cast<uint32_t *>(to + r * args.ld) =
            *reinterpret_cast<const uint32_t *>(from + r * args.ld);
}

template <class T> static const void *mvue_of(int exact)
{
    return exact ? (const void *)mvue_kernel<T, true> : (const void *)mvue_kernel<T, false>;
}

TRAIN_ENQUEUE(mvue, s24_device_train_mvue_args)
{
    mvue_job of = {*job, s24i_philox_keys_of(job->seed)};
    const int64_t across = (job->cols / 2 + 31) / 32, groups = job->rows / 4 + 1;
    const int down = train_blocks(device, groups * 32 * across, THREADS, 16) / (int)across;
    const device_launch launch = {"launching MVUE24",
                                  job->dtype == S24_BF16 ? mvue_of<__nv_bfloat16>(job->exact)
                                                         : mvue_of<__half>(job->exact),
                                  dim3((unsigned)across, (unsigned)(down > 0 ? down : 1)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

enum { COUNTED_ROWS = 128 };

/* counts[c] += the numbers in column c that are not 0. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    counts_kernel(const __grid_constant__ s24_device_train_tokens_args job)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t first = (int64_t)blockIdx.y * COUNTED_ROWS;
    int count = 0;
    if (c >= job.cols) return;
    for (int64_t r = first; r < first + COUNTED_ROWS && r < job.rows; r++)
        count += (float)static_cast<const T *>(job.x)[r * job.cols + c] != 0.0f;
    if (count) atomicAdd(&job.counts[c], count);
}

/* Is a column one of the fullest, of equal ones the first? */
__global__ void __launch_bounds__(THREADS)
    whole_kernel(const __grid_constant__ s24_device_train_tokens_args job)
{
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t before = 0;
    if (c >= job.cols) return;
    const int count = job.counts[c];
    for (int64_t i = 0; i < job.cols; i++)
        before += job.counts[i] > count || (job.counts[i] == count && i < c);
    job.counts[job.cols + c] = count > 0 && before < job.whole;
}

/* Of four numbers of a column the smallest go until two are left. */
static __device__ inline void leave_two(float x[4])
{
    for (int drop = 0; drop < 2; drop++) {
        int there = 0, least = -1;
        for (int i = 0; i < 4; i++) {
            there += x[i] != 0.0f;
            if (x[i] != 0.0f && (least < 0 || fabsf(x[i]) < fabsf(x[least]))) least = i;
        }
        for (int i = 0; i < 4 && there > 2; i++)
            x[i] = i == least ? 0.0f : x[i];
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    tokens_kernel(const __grid_constant__ s24_device_train_tokens_args job)
{
    const int64_t groups = (job.rows + 3) / 4;
    T *x = static_cast<T *>(job.x);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < groups * job.cols;
         i += (int64_t)gridDim.x * THREADS) {
        const int64_t group = i / job.cols, c = i % job.cols;
        int64_t at[4];
        float four[4] = {};
        const int there = job.rows - 4 * group < 4 ? (int)(job.rows - 4 * group) : 4;
        if (job.counts[job.cols + c]) continue;
        for (int r = 0; r < there; r++) {
            at[r] = (job.first + (4 * group + r) * job.step) % job.rows * job.cols + c;
            four[r] = (float)x[at[r]];
        }
        leave_two(four);
        for (int r = 0; r < there; r++)
            if (four[r] == 0.0f) x[at[r]] = (T)0.0f;
    }
}

template <class T>
static s24_status tokens(s24i_device *device, const s24_device_train_tokens_args *job, void *stream,
                         s24i_device_error *error)
{
    s24_device_train_tokens_args args_of = *job;
    const unsigned columns = (unsigned)((job->cols + THREADS - 1) / THREADS);
    const unsigned parts = (unsigned)((job->rows + COUNTED_ROWS - 1) / COUNTED_ROWS);
    const int64_t all = (job->rows + 3) / 4 * job->cols;
    const device_launch each[] = {
        {"counting numbers", (const void *)counts_kernel<T>, dim3(columns, parts), THREADS, 0,
         false},
        {"choosing columns", (const void *)whole_kernel, dim3(columns), THREADS, 0, false},
        {"choosing tokens", (const void *)tokens_kernel<T>,
         dim3(train_blocks(device, all, THREADS, 16)), THREADS, 0, false}};
    void *args[] = {&args_of};
    CUDA_TRY(error, "clearing counts",
             cudaMemsetAsync(job->counts, 0, (size_t)job->cols * sizeof *job->counts,
                             static_cast<cudaStream_t>(stream)));
    for (const device_launch &launch : each) {
        const s24_status status = device_launch_kernel(error, &launch, args, stream);
        if (status != S24_OK) return status;
    }
    return S24_OK;
}

TRAIN_ENQUEUE(tokens, s24_device_train_tokens_args)
{
    return job->dtype == S24_BF16 ? tokens<__nv_bfloat16>(device, job, stream, error)
                                  : tokens<__half>(device, job, stream, error);
}

/* ---- STEP's variance ------------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
    variance_kernel(const __grid_constant__ s24_device_train_variance_args job)
{
    double each[S24_DEVICE_TRAIN_CHANGES] = {};
    dependents_may_start();
    wait_for_predecessors();
    const double norm = sqrt(*job.squares) / job.gradient_scale;
    const double gain =
        (job.clip > 0 && norm > job.clip ? job.clip / norm : 1.0) / job.gradient_scale;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < job.count;
         i += (int64_t)gridDim.x * THREADS) {
        if (!(job.bits[i / 16] >> (i % 16) & 1)) continue;
        const double g = gain * (double)job.g[i];
        const double change = fabs((1 - job.beta2) * (g * g - (double)job.v[i]));
        each[0] += change;
        each[2] += 1;
        if (change == 0) continue;
        each[1] += log(change);
        each[3] += 1;
    }
    for (int i = 0; i < S24_DEVICE_TRAIN_CHANGES; i++) {
        const double sum = block_total<WARPS>(each[i]);
        if (threadIdx.x == 0) job.changes[S24_DEVICE_TRAIN_CHANGES * blockIdx.x + i] = sum;
        __syncthreads();
    }
}

TRAIN_ENQUEUE(variance, s24_device_train_variance_args)
{
    s24_device_train_variance_args args_of = *job;
    const device_launch launch = {"launching changes of the variance",
                                  (const void *)variance_kernel,
                                  dim3(S24_DEVICE_TRAIN_PARTS),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    (void)device;
    return device_launch_kernel(error, &launch, args, stream);
}
