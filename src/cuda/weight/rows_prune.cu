// SPDX-License-Identifier: Apache-2.0
/*
 * What pruning does to rows of a weight, a row a warp: kernel/row_rules.h, in f64. The columns at
 * hand lie in shared memory; the square of H that they share comes from the caches, where all
 * warps of a processor read it.
 */
#include "cuda/plugin/train.cuh"
#include "kernel/row_rules.h"

enum { WARP = 32, WARPS = 8, THREADS = WARP * WARPS };

template <int RULE> __global__ void __launch_bounds__(THREADS) sweep_kernel(s24i_device_sweep job)
{
    extern __shared__ double shared[];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t row = (int64_t)blockIdx.x * WARPS + warp, count = job.rows.count, k = job.rows.k;
    if (row >= job.n) return;
    double *w = shared + 2 * warp * count, *steps = w + count;
    for (int64_t c = lane; c < count; c += WARP) {
        w[c] = job.w[row * k + c];
        steps[c] = job.gradient ? job.gradient[row * k + c] : 0.0;
    }
    __syncwarp();
    const s24i_row r = {
        w,    steps, job.d ? job.d + row * k : nullptr, job.u ? job.u + row * k : nullptr, nullptr,
        lane, WARP};
    job.rows.rule = static_cast<s24i_row_rule>(RULE);
    const int moved = s24i_row_run(&job.rows, &r);
    __syncwarp();
    for (int64_t c = lane; c < count; c += WARP) {
        job.w[row * k + c] = w[c];
        job.steps[row * job.ld + c] = steps[c];
    }
    if (moved && lane == 0) *job.moved = 1.0;
}

static __global__ void __launch_bounds__(THREADS) descend_kernel(s24i_device_descent job)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, first = row * job.k;
    if (row >= job.n) return;
    const s24i_row_descent r = {job.w + first,
                                job.gradient + first,
                                job.way + first,
                                job.turn ? job.turn + first : nullptr,
                                job.left + row,
                                job.diagonal,
                                job.k,
                                (int)(threadIdx.x % WARP),
                                WARP};
    s24i_row_descend(&r);
}

static dim3 blocks_of(int64_t rows)
{
    return dim3((unsigned)((rows + WARPS - 1) / WARPS));
}

TRAIN_ENQUEUE(sweep, s24i_device_sweep)
{
    static const void *const kernels[S24I_ROW_RULES] = {
        reinterpret_cast<const void *>(sweep_kernel<S24I_ROW_RELAX>),
        reinterpret_cast<const void *>(sweep_kernel<S24I_ROW_SWAP>),
        reinterpret_cast<const void *>(sweep_kernel<S24I_ROW_DROP>),
        reinterpret_cast<const void *>(sweep_kernel<S24I_ROW_PULL>)};
    (void)device;
    s24i_device_sweep p = *job;
    const device_launch l = {"pruning rows",
                             kernels[job->rows.rule],
                             blocks_of(job->n),
                             THREADS,
                             (int)(2 * WARPS * job->rows.count * sizeof(double)),
                             false};
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}

TRAIN_ENQUEUE(descend, s24i_device_descent)
{
    (void)device;
    s24i_device_descent p = *job;
    const device_launch l = {"fitting rows",
                             reinterpret_cast<const void *>(descend_kernel),
                             blocks_of(job->n),
                             THREADS,
                             0,
                             false};
    void *args[] = {&p};
    return device_launch_kernel(error, &l, args, stream);
}
