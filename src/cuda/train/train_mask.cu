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

enum { WARPS = 8, THREADS = 32 * WARPS, A_PROCESSOR = 3 };

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

/* Of one row of a tile, whose first number is `element` of the matrix. A soft threshold chooses by
   itself. */
template <int STAYS>
static __device__ inline unsigned stays_of_group(const s24_device_train_mask_args &job,
                                                 const float *w, unsigned before, int64_t element)
{
    if (STAYS == S24_DEVICE_TRAIN_BEFORE) return before;
    if (STAYS == S24_DEVICE_TRAIN_GROUPS) return job.beta > 0 ? 15u : largest_of(w);
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
static __device__ inline unsigned stays_of(const s24_device_train_mask_args &job,
                                           const float (&w)[16], unsigned before, const tile_at &at)
{
    if constexpr (STAYS == S24_DEVICE_TRAIN_TILES) {
        return s24i_tile_best(w, at.rows);
    } else if constexpr (STAYS == S24_DEVICE_TRAIN_GREEDY) {
        return s24i_tile_greedy(w, at.rows);
    } else {
        unsigned keep = 0;
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (r < at.rows)
                keep |= stays_of_group<STAYS>(job, w + 4 * r, before >> 4 * r & 15u,
                                              (at.row + r) * job.cols + at.col)
                        << 4 * r;
        return keep;
    }
}

/* ---- what runs ------------------------------------------------------------------------------- */

/* The larger two of a group less the third largest, times beta; what is left, as bits. */
static __device__ inline unsigned soften(float *w, float beta)
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
static __device__ inline int note(const s24_device_train_mask_args &job, int64_t element,
                                  unsigned before, unsigned keep)
{
    const int64_t at = job.first + element;
    const int shift = (int)(at % 32);
    if (before & ~keep) atomicAnd(&job.bits[at / 32], ~((before & ~keep) << shift));
    if (keep & ~before) atomicOr(&job.bits[at / 32], (keep & ~before) << shift);
    return __popc(before ^ keep);
}

template <class T>
static __device__ inline void put(const s24_device_train_mask_args &job, float *w, unsigned keep,
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

/* A row of a tile: what stood in its bits, and which of it stay. */
struct group_bits {
    unsigned before, keep;
};

template <class T>
static __device__ inline void make_group(mask_sums &sums, const s24_device_train_mask_args &job,
                                         float *w, group_bits bits, int64_t row, int64_t col)
{
    float size[4], kept = 0, whole = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        size[i] = fabsf(w[i]);
    if (job.beta > 0) bits.keep = soften(w, job.beta);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        whole += size[i];
        kept += bits.keep >> i & 1 ? size[i] : 0.0f;
    }
    sums.all += (double)whole;
    sums.kept += (double)kept;
    if (job.notes) sums.flips += note(job, row * job.cols + col, bits.before, bits.keep);
    if (job.to || job.narrow) put<T>(job, w, bits.keep, row, col);
}

/* A tile in registers, which takes loops of a constant length; what is not there is 0. */
struct tile_of {
    float w[16];
    unsigned before;
};

template <int STAYS>
static __device__ inline tile_of load_tile(const s24_device_train_mask_args &job, const tile_at &at)
{
    const bool reads = job.notes || STAYS == S24_DEVICE_TRAIN_BEFORE;
    tile_of tile = {};
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int64_t element = (at.row + r) * job.cols + at.col, bit = job.first + element;
        float four[4] = {};
        if (r < at.rows) load_wide(four, job.from + element);
        if (r < at.rows && reads) tile.before |= (job.bits[bit / 32] >> bit % 32 & 15u) << 4 * r;
#pragma unroll
        for (int i = 0; i < 4; i++)
            tile.w[4 * r + i] = four[i];
    }
    return tile;
}

template <class T, int STAYS>
static __device__ inline void make_tile(mask_sums &sums, const s24_device_train_mask_args &job,
                                        const tile_at &at)
{
    tile_of tile = load_tile<STAYS>(job, at);
    const unsigned all = stays_of<STAYS>(job, tile.w, tile.before, at);
#pragma unroll
    for (int r = 0; r < 4; r++)
        if (r < at.rows)
            make_group<T>(sums, job, tile.w + 4 * r,
                          {tile.before >> 4 * r & 15u, all >> 4 * r & 15u}, at.row + r, at.col);
}

/* Matrices that are made at once: a launch for each would wait for its last tiles. */
enum { AT_ONCE = 24 };
struct mask_batch {
    int count;
    uint32_t ends[AT_ONCE]; /* tiles of each and of those before it */
    s24_device_train_mask_args jobs[AT_ONCE];
};

template <class T, int STAYS>
__global__ void __launch_bounds__(THREADS, A_PROCESSOR)
    mask_kernel(const __grid_constant__ mask_batch batch)
{
    const uint32_t tiles = batch.ends[batch.count - 1];
    mask_sums sums = {};
    uint32_t begin = 0;
    int which = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < tiles; i += gridDim.x * THREADS) {
        while (i >= batch.ends[which])
            begin = batch.ends[which++];
        const s24_device_train_mask_args &job = batch.jobs[which];
        const uint32_t across = (uint32_t)job.cols / 4, row = (i - begin) / across;
        tile_at at = {(int64_t)row * 4, (int64_t)(i - begin - row * across) * 4, 4};
        if (job.rows - at.row < 4) at.rows = (int)(job.rows - at.row);
        make_tile<T, STAYS>(sums, job, at);
    }
    const s24_device_train_mask_args &job = batch.jobs[0];
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
    const unsigned blocks = train_blocks(device, threads, THREADS, A_PROCESSOR);
    return dim3(blocks < S24_DEVICE_TRAIN_PARTS ? blocks : S24_DEVICE_TRAIN_PARTS);
}

/* As many as one launch takes; what is left. */
static const s24_device_train_mask_args *take(mask_batch &batch,
                                              const s24_device_train_mask_args *job)
{
    const int64_t most = 1u << 31;
    int64_t tiles = 0;
    batch.count = 0;
    for (; job && batch.count < AT_ONCE; job = job->next) {
        const int64_t more = (job->rows + 3) / 4 * (job->cols / 4);
        if (batch.count && tiles + more > most) break;
        tiles += more;
        batch.jobs[batch.count] = *job;
        batch.ends[batch.count++] = (uint32_t)tiles;
    }
    return job;
}

TRAIN_ENQUEUE(mask, s24_device_train_mask_args)
{
    mask_batch batch;
    device_launch launch = {"launching masks",
                            job->dtype == S24_BF16 ? mask_of<__nv_bfloat16>(job->stays)
                                                   : mask_of<__half>(job->stays),
                            dim3(1),
                            THREADS,
                            0,
                            true};
    void *args[] = {&batch};
    s24_status status = S24_OK;
    while (job && status == S24_OK) {
        job = take(batch, job);
        launch.grid = part_blocks(device, batch.ends[batch.count - 1]);
        status = device_launch_kernel(error, &launch, args, stream);
    }
    return status;
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
