// SPDX-License-Identifier: Apache-2.0
/* Sums over rows, and the ends of every sum that blocks leave in parts. */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* ---- columns: a warp has 32 of them, its neighbours other parts ------------------------------ */

__global__ void __launch_bounds__(THREADS)
    column_parts_kernel(const __grid_constant__ column_parts job)
{
    __shared__ float shared[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane;
    const int vector = blockIdx.y;
    float *to = job.to[vector];
    if (!to) return;
    dependents_may_start();
    wait_for_predecessors();
    float sum = 0;
    if (c < job.cols) {
        const float *from = job.parts + vector * job.ld + c;
#pragma unroll 8
        for (int p = warp; p < job.count; p += WARPS)
            sum += from[p * job.part_elems];
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp || c >= job.cols) return;
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        all += shared[w][lane];
    to[c] += all;
}

s24_status column_parts_enqueue(s24i_device *device, const column_parts *job, void *stream,
                                s24i_device_error *error)
{
    (void)device;
    int vectors = MOST_SUMS;
    while (vectors && !job->to[vectors - 1])
        vectors--;
    if (!vectors) return S24_OK;
    column_parts args_of = *job;
    const device_launch launch = {"launching the end of column sums",
                                  (const void *)column_parts_kernel,
                                  dim3((unsigned)((job->cols + 31) / 32), (unsigned)vectors),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- totals: one block ----------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS)
    total_parts_kernel(const __grid_constant__ total_parts job)
{
    dependents_may_start();
    wait_for_predecessors();
    double sum = 0;
    for (int p = threadIdx.x; p < job.count; p += THREADS)
        sum += job.parts[p];
    sum = block_total<WARPS>(sum);
    if (threadIdx.x == 0) *job.to = job.factor * sum + (job.add ? *job.to : 0);
}

s24_status total_parts_enqueue(s24i_device *device, const total_parts *job, void *stream,
                               s24i_device_error *error)
{
    (void)device;
    total_parts args_of = *job;
    const device_launch launch = {
        "launching the end of a sum", (const void *)total_parts_kernel, dim3(1), THREADS, 0, true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- sums of rows, of all or of those of a kind ---------------------------------------------- */

/* A block has 256 columns, its warps take rows by turns. */
template <class T, bool KINDS>
__global__ void __launch_bounds__(THREADS) row_sums_kernel(const __grid_constant__ row_sums job)
{
    __shared__ __align__(16) float shared[WARPS][256];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kind = blockIdx.z;
    const int64_t c = (int64_t)blockIdx.x * 256 + lane * 8;
    const int64_t step = (int64_t)gridDim.y * WARPS;
    dependents_may_start();
    wait_for_predecessors();
    float sums[8] = {};
    if (c < job.cols) {
        const T *from = static_cast<const T *>(job.x) + c;
#pragma unroll 8
        for (int64_t r = (int64_t)blockIdx.y * WARPS + warp; r < job.rows; r += step) {
            if (KINDS && job.kinds[r] != kind) continue;
            float v[8];
            load_narrow<T>(v, from + r * job.ld);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sums[i] += v[i];
        }
    }
    store_wide(&shared[warp][lane * 8], sums);
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        all += shared[w][threadIdx.x];
    float *part = static_cast<float *>(job.work) + (blockIdx.y * gridDim.z + kind) * job.padded;
    part[blockIdx.x * 256 + threadIdx.x] = all;
}

s24_status row_sums_enqueue(s24i_device *device, const row_sums *job, void *stream,
                            s24i_device_error *error)
{
    const int64_t columns = (job->cols + 255) / 256;
    const unsigned parts =
        train_blocks(device, job->rows, 4 * WARPS, (int)(columns >= 4 ? 1 : 4 / columns));
    row_sums args_of = *job;
    args_of.padded = columns * 256;
    static const void *const kernels[2][2] = {{(const void *)row_sums_kernel<__nv_bfloat16, false>,
                                               (const void *)row_sums_kernel<__nv_bfloat16, true>},
                                              {(const void *)row_sums_kernel<__half, false>,
                                               (const void *)row_sums_kernel<__half, true>}};
    const device_launch launch = {"launching sums of rows",
                                  kernels[job->dtype == S24_F16][job->kinds != nullptr],
                                  dim3((unsigned)columns, parts, (unsigned)job->kind_count),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    s24_status status = device_launch_kernel(error, &launch, args, stream);
    for (int kind = 0; kind < job->kind_count && status == S24_OK; kind++) {
        const column_parts ends = {static_cast<const float *>(job->work) + kind * args_of.padded,
                                   job->kind_count * args_of.padded,
                                   0,
                                   job->cols,
                                   (int)parts,
                                   {job->sums + kind * job->cols}};
        status = column_parts_enqueue(device, &ends, stream, error);
    }
    return status;
}

TRAIN_ENQUEUE(sums, s24_device_train_sums_args)
{
    const row_sums sums = {.dtype = job->dtype,
                           .rows = job->rows,
                           .cols = job->cols,
                           .ld = job->ld,
                           .x = job->x,
                           .kinds = nullptr,
                           .kind_count = 1,
                           .sums = job->sums,
                           .work = job->work};
    return row_sums_enqueue(device, &sums, stream, error);
}
