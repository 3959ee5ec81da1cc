// SPDX-License-Identifier: Apache-2.0
/*
 * Masks of what learns and what runs of it, a matrix at a time: a thread has a tile of 4x4, whose
 * rows are groups along k. Choices are the CPU's, from its own lines (kernel/tile_choose.h) or, of
 * chance, from its numbers in double.
 */
#include "base/random.h"
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_patterns.cuh"
#include "cuda/train/train_sums.cuh"
#include "cuda/weight/weight.cuh"
#include "kernel/tile_choose.h"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Where a thread's tile lies; rows: how many are there. */
struct tile_at {
    int64_t row, col;
    int rows;
};

/* ---- who stays ------------------------------------------------------------------------------- */

static __device__ inline unsigned largest_of(const float w[4])
{
    const uint32_t bits[4] = {__float_as_uint(w[0]), __float_as_uint(w[1]), __float_as_uint(w[2]),
                              __float_as_uint(w[3])};
    return largest_two(bits, 0x7f800000u);
}

/* Normal by Box and Muller, as the CPU draws it. */
static __device__ float noisy(const s24_device_train_mask_args &job, float w, int64_t element)
{
    uint32_t words[4];
    if (!(job.noise > 0)) return w;
    s24i_philox(words, job.noise_seed, (uint64_t)(job.first + element));
    const double u = ((double)words[0] + 1.0) / 4294967296.0;
    const double angle = (double)words[1] / 4294967296.0 * 6.283185307179586;
    return (float)((double)w * exp(job.noise * sqrt(-2 * log(u)) * cos(angle)));
}

static __device__ inline uint32_t nibble_before(const s24_device_train_mask_args &job,
                                                int64_t element)
{
    const int64_t at = job.first + element;
    return job.bits[at / 32] >> (at % 32) & 15u;
}

/* Of one row of a tile, whose first number is `element` of the matrix. */
template <int STAYS>
static __device__ unsigned stays_of_group(const s24_device_train_mask_args &job, const float w[4],
                                          int64_t element)
{
    if (STAYS == S24_DEVICE_TRAIN_BEFORE) return nibble_before(job, element);
    if (STAYS == S24_DEVICE_TRAIN_GROUPS) return largest_of(w);
    if (STAYS == S24_DEVICE_TRAIN_SAMPLED) {
        float other[4];
        for (int i = 0; i < 4; i++)
            other[i] = noisy(job, w[i], element + i);
        return largest_of(other);
    }
    if (STAYS == S24_DEVICE_TRAIN_DRAWN)
        return pattern_drawn(job.chance, job.logits + element / 4 * PATTERNS, element / 4);
    return 15u;
}

template <int STAYS>
static __device__ unsigned stays_of(const s24_device_train_mask_args &job, const float w[16],
                                    const tile_at &at)
{
    unsigned keep = 0;
    if constexpr (STAYS == S24_DEVICE_TRAIN_TILES)
        keep = s24i_tile_best(w, at.rows);
    else if constexpr (STAYS == S24_DEVICE_TRAIN_GREEDY)
        keep = s24i_tile_greedy(w, at.rows);
    else
        for (int r = 0; r < at.rows; r++)
            keep |= stays_of_group<STAYS>(job, w + 4 * r, (at.row + r) * job.cols + at.col)
                    << 4 * r;
    return keep;
}

/* ---- what runs ------------------------------------------------------------------------------- */

/* The larger two of a group less the third largest, times beta; what is left, as bits. */
static __device__ unsigned soften(float w[4], float beta)
{
    const float a = fabsf(w[0]), b = fabsf(w[1]), c = fabsf(w[2]), d = fabsf(w[3]);
    const float threshold = fminf(fmaxf(fminf(a, b), fminf(c, d)), fminf(fmaxf(a, b), fmaxf(c, d)));
    unsigned keep = 0;
    for (int i = 0; i < 4; i++) {
        const bool above = fabsf(w[i]) > threshold;
        const float soft = above ? copysignf(fabsf(w[i]) - threshold, w[i]) : 0.0f;
        keep |= (unsigned)(soft != 0) << i;
        w[i] = beta * soft;
    }
    return keep;
}

/* The bits of four neighbours, of which no other thread has any; how many changed. */
static __device__ int note(const s24_device_train_mask_args &job, int64_t element, unsigned keep)
{
    const int64_t at = job.first + element;
    const int shift = (int)(at % 32);
    const uint32_t old = job.bits[at / 32] >> shift & 15u;
    if (old & ~keep) atomicAnd(&job.bits[at / 32], ~((old & ~keep) << shift));
    if (keep & ~old) atomicOr(&job.bits[at / 32], (keep & ~old) << shift);
    return __popc(old ^ keep);
}

template <class T>
static __device__ void put(const s24_device_train_mask_args &job, float w[4], unsigned keep,
                           int64_t row, int64_t col)
{
    const int64_t element = row * job.cols + col;
    for (int i = 0; i < 4; i++) {
        if (!job.all_run && !(keep >> i & 1)) w[i] = 0.0f;
        if (job.scales) w[i] *= job.scales[2 * row + (col + i >= job.cols / 2)];
    }
    float four[4] = {w[0], w[1], w[2], w[3]};
    if (job.to) store_wide(job.to + element, four);
    if (job.narrow) store_narrow<T>(static_cast<T *>(job.narrow) + element, four);
}

struct mask_sums {
    double flips, kept, all;
};

template <class T, int STAYS>
static __device__ void make_tile(mask_sums &sums, const s24_device_train_mask_args &job,
                                 const tile_at &at)
{
    float w[16] = {};
    for (int r = 0; r < at.rows; r++) {
        float four[4];
        load_wide(four, job.from + (at.row + r) * job.cols + at.col);
        for (int i = 0; i < 4; i++)
            w[4 * r + i] = four[i];
    }
    const unsigned all = stays_of<STAYS>(job, w, at);
    for (int r = 0; r < at.rows; r++) {
        unsigned keep = all >> 4 * r & 15u;
        float size[4], kept = 0, whole = 0;
        for (int i = 0; i < 4; i++)
            size[i] = fabsf(w[4 * r + i]);
        if (job.beta > 0) keep = soften(w + 4 * r, job.beta);
        for (int i = 0; i < 4; i++) {
            whole += size[i];
            kept += keep >> i & 1 ? size[i] : 0.0f;
        }
        sums.all += (double)whole;
        sums.kept += (double)kept;
        if (job.notes) sums.flips += note(job, (at.row + r) * job.cols + at.col, keep);
        if (job.to || job.narrow) put<T>(job, w + 4 * r, keep, at.row + r, at.col);
    }
}

template <class T, int STAYS>
__global__ void __launch_bounds__(THREADS)
    mask_kernel(const __grid_constant__ s24_device_train_mask_args job)
{
    const int64_t across = job.cols / 4, tiles = (job.rows + 3) / 4 * across;
    mask_sums sums = {};
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < tiles;
         i += (int64_t)gridDim.x * THREADS) {
        tile_at at = {i / across * 4, i % across * 4, 4};
        if (job.rows - at.row < 4) at.rows = (int)(job.rows - at.row);
        make_tile<T, STAYS>(sums, job, at);
    }
    const double each[3] = {sums.flips, sums.kept, sums.all};
    for (int i = 0; i < S24_DEVICE_TRAIN_MASK_SUMS; i++) {
        const double sum = block_total<WARPS>(each[i]);
        if (threadIdx.x == 0) job.sums[S24_DEVICE_TRAIN_MASK_SUMS * blockIdx.x + i] += sum;
        __syncthreads();
    }
}

template <class T> static const void *mask_of(s24_device_train_stays stays)
{
    static const void *const kernels[] = {(const void *)mask_kernel<T, S24_DEVICE_TRAIN_ALL>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_BEFORE>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_GROUPS>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_TILES>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_GREEDY>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_SAMPLED>,
                                          (const void *)mask_kernel<T, S24_DEVICE_TRAIN_DRAWN>};
    return kernels[stays];
}

/* Blocks for so many threads, one part of the sums each. */
static dim3 part_blocks(const s24i_device *device, int64_t threads)
{
    const unsigned blocks = train_blocks(device, threads, THREADS, 3);
    return dim3(blocks < S24_DEVICE_TRAIN_PARTS ? blocks : S24_DEVICE_TRAIN_PARTS);
}

TRAIN_ENQUEUE(mask, s24_device_train_mask_args)
{
    s24_device_train_mask_args args_of = *job;
    const device_launch launch = {"launching a mask",
                                  job->dtype == S24_BF16 ? mask_of<__nv_bfloat16>(job->stays)
                                                         : mask_of<__half>(job->stays),
                                  part_blocks(device, (job->rows + 3) / 4 * (job->cols / 4)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- what lies next to the weights ----------------------------------------------------------- */

/* A block has a row. */
__global__ void __launch_bounds__(THREADS)
    scales_kernel(const __grid_constant__ s24_device_train_extra_args job)
{
    const int64_t first = (int64_t)blockIdx.x * job.cols;
    double sums[2] = {0, 0};
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t c = threadIdx.x; c < job.cols; c += THREADS) {
        const int half = c >= job.cols / 2;
        const float g = job.g[first + c];
        sums[half] += (double)g * (double)job.w[first + c];
        job.g[first + c] = g * job.extra[2 * blockIdx.x + half];
    }
    for (int half = 0; half < 2; half++) {
        const double sum = block_total<WARPS>(sums[half]);
        if (threadIdx.x == 0) job.gradients[2 * blockIdx.x + half] += (float)sum;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS)
    patterns_kernel(const __grid_constant__ s24_device_train_extra_args job)
{
    const int64_t groups = job.rows * job.cols / 4;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < groups;
         i += (int64_t)gridDim.x * THREADS) {
        float g[4], w[4];
        load_wide(g, job.g + 4 * i);
        load_wide(w, job.w + 4 * i);
        pattern_slopes(job.gradients + PATTERNS * i, job.chance, job.extra + PATTERNS * i, g, w, i);
    }
}

TRAIN_ENQUEUE(extra, s24_device_train_extra_args)
{
    s24_device_train_extra_args args_of = *job;
    const dim3 groups(train_blocks(device, job->rows * job->cols / 4, THREADS, 8));
    const device_launch launch = {"launching gradients next to weights",
                                  job->patterns ? (const void *)patterns_kernel
                                                : (const void *)scales_kernel,
                                  job->patterns ? groups : dim3((unsigned)job->rows),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
