// SPDX-License-Identifier: Apache-2.0
/*
 * Columns of tokens repeated for a lifted matrix (sparse24/lifted.h), and such a matrix put back
 * together. Numbers are of 16 bits and begin in pairs: a window of four columns is two words of 32
 * bits, at any one of the source's.
 */
#include "cuda/plugin/train.cuh"
#include "cuda/ptx/hopper.cuh"

enum { THREADS = 256, BLOCKS = 16 /* a processor */, WINDOW_WORDS = 2 };

struct lift_job {
    int64_t rows;
    uint32_t words, lifted;  /* of a row, and of a lifted one */
    uint32_t group, windows; /* words of M columns, and their windows; or */
    uint32_t dense;          /* words of D columns, group 0 */
    uint32_t *to;
    const uint32_t *from;
};

/* The first word of what a window has. */
static __device__ inline uint32_t source_of(const lift_job &job, uint32_t window)
{
    if (job.group) return window / job.windows * job.group + window % job.windows;
    if (window < job.dense) return window / 2 * WINDOW_WORDS;
    return window * WINDOW_WORDS - job.dense;
}

/* A thread has two windows, which are 16 bytes. */
__global__ void __launch_bounds__(THREADS) lift_kernel(const __grid_constant__ lift_job job)
{
    dependents_may_start();
    wait_for_predecessors();
    const uint32_t pieces = job.lifted / (2 * WINDOW_WORDS);
    const int64_t all = job.rows * pieces, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        const int64_t row = i / pieces;
        const uint32_t piece = (uint32_t)(i - row * pieces);
        const uint32_t *from = job.from + row * job.words;
        const uint32_t *a = from + source_of(job, 2 * piece),
                       *b = from + source_of(job, 2 * piece + 1);
        reinterpret_cast<uint4 *>(job.to)[i] = make_uint4(a[0], a[1], b[0], b[1]);
    }
}

/* A word of the matrix is in one window or in two, of which one has no more than zeros there for
   each of its numbers: zeros of a packed weight have no sign. */
static __device__ inline uint32_t lowered(const lift_job &job, const uint32_t *from, uint32_t word)
{
    if (!job.group) {
        if (word >= job.dense) return from[word + job.dense];
        const uint32_t at = word / WINDOW_WORDS * 2 * WINDOW_WORDS + word % WINDOW_WORDS;
        return from[at] | from[at + WINDOW_WORDS];
    }
    const uint32_t place = word % job.group;
    const uint32_t *first = from + word / job.group * job.windows * WINDOW_WORDS;
    uint32_t sum = 0;
    if (place < job.windows) sum |= first[place * WINDOW_WORDS];
    if (place > 0) sum |= first[(place - 1) * WINDOW_WORDS + 1];
    return sum;
}

__global__ void __launch_bounds__(THREADS) lower_kernel(const __grid_constant__ lift_job job)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t all = job.rows * job.words, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        const int64_t row = i / job.words;
        job.to[i] = lowered(job, job.from + row * job.lifted, (uint32_t)(i - row * job.words));
    }
}

TRAIN_ENQUEUE(lift, s24_device_train_lift_args)
{
    const bool is_cut = job->lift < 0;
    const int64_t lifted =
        is_cut ? job->cols - job->lift : job->cols / job->lift * (2 * job->lift - 4);
    lift_job l = {job->rows,
                  (uint32_t)(job->cols / 2),
                  (uint32_t)(lifted / 2),
                  is_cut ? 0 : (uint32_t)job->lift / 2,
                  is_cut ? 0 : (uint32_t)job->lift / 2 - 1,
                  is_cut ? (uint32_t)-job->lift / 2 : 0,
                  static_cast<uint32_t *>(job->to),
                  static_cast<const uint32_t *>(job->from)};
    const int64_t all = job->back ? job->rows * l.words : job->rows * (l.lifted / 4);
    const int64_t blocks = (all + THREADS - 1) / THREADS,
                  most = (int64_t)device->processors * BLOCKS;
    const device_launch launch = {"lifting tokens",
                                  job->back ? (const void *)lower_kernel
                                            : (const void *)lift_kernel,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  THREADS,
                                  0,
                                  !job->back && job->rows * job->cols <= EARLY_NORM};
    void *args[] = {&l};
    return device_launch_kernel(error, &launch, args, stream);
}
