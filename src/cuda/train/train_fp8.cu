// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices in 8 bits, and their transposes, for products of training. The largest magnitude is
 * found first, as an integer, so that the order of blocks is no matter; the CPU's rounding is the
 * same (device/device_fp8.h).
 */
#include "cuda/plugin/train.cuh"
#include "cuda/row/quantise.cuh"
#include "cuda/train/train_sums.cuh"

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    TILE_ROWS = 128,
    TILE_COLS = 64,
    CHUNK = 8, /* columns of a thread */
    DEEP = 4   /* and rows */
};

/* scale[1] becomes the largest magnitude, a NaN where there is one. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    largest_kernel(const __grid_constant__ s24_device_train_fp8_args job)
{
    const int64_t across = job.cols / CHUNK;
    float most = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < job.rows * across;
         i += (int64_t)gridDim.x * THREADS) {
        float v[CHUNK];
        load_narrow<T>(v,
                       static_cast<const T *>(job.from) + i / across * job.ld + i % across * CHUNK);
        most = largest_of(most, v);
    }
    most = warp_largest(most);
    if (threadIdx.x % 32 == 0)
        atomicMax(reinterpret_cast<unsigned *>(job.scale + 1), __float_as_uint(most));
}

/* Four rows of eight columns, two bytes a pair of columns. */
template <class T, __nv_fp8_interpretation_t KIND>
static __device__ inline void narrow_patch(uint32_t pairs[DEEP][CHUNK / 2],
                                           const s24_device_train_fp8_args &job, int64_t row,
                                           int64_t col, int e)
{
    const float factor = s24i_fp8_power(e);
    for (int r = 0; r < DEEP; r++) {
        float v[CHUNK] = {};
        if (row + r < job.rows && col < job.cols)
            load_narrow<T>(v, static_cast<const T *>(job.from) + (row + r) * job.ld + col);
        for (int i = 0; i < CHUNK; i++)
            v[i] = isinf(v[i]) ? __uint_as_float(0x7fffffffu) : factor * v[i];
        for (int i = 0; i < CHUNK / 2; i++)
            pairs[r][i] =
                __nv_cvt_float2_to_fp8x2(make_float2(v[2 * i], v[2 * i + 1]), __NV_SATFINITE, KIND);
    }
}

/* A block has a tile; a thread a patch of it, whose columns it leaves as words of four rows. */
template <class T, __nv_fp8_interpretation_t KIND>
__global__ void __launch_bounds__(THREADS)
    fp8_kernel(const __grid_constant__ s24_device_train_fp8_args job)
{
    __shared__ uint32_t words[TILE_COLS][TILE_ROWS / DEEP + 1];
    const int across = threadIdx.x % (TILE_COLS / CHUNK), down = threadIdx.x / (TILE_COLS / CHUNK);
    const int64_t first = (int64_t)blockIdx.x * TILE_ROWS, left = (int64_t)blockIdx.y * TILE_COLS;
    const int64_t row = first + down * DEEP, col = left + across * CHUNK;
    const int64_t wide = (job.rows + 15) / 16 * 16;
    uint32_t pairs[DEEP][CHUNK / 2];
    dependents_may_start();
    wait_for_predecessors();
    const int e = s24i_fp8_exponent(__float_as_uint(job.scale[1]), KIND == __NV_E5M2);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) job.scale[0] = s24i_fp8_power(-e);
    if (job.each && blockIdx.y == 0 && across < DEEP && row + across < job.rows)
        job.each[row + across] = s24i_fp8_power(-e);
    narrow_patch<T, KIND>(pairs, job, row, col, e);
    for (int r = 0; r < DEEP && job.to; r++)
        if (row + r < job.rows && col < job.cols)
            *reinterpret_cast<uint2 *>(static_cast<char *>(job.to) + (row + r) * job.cols + col) =
                make_uint2(pairs[r][0] | pairs[r][1] << 16, pairs[r][2] | pairs[r][3] << 16);
    if (!job.turned) return;
    for (int i = 0; i < CHUNK / 2; i++) {
        const uint32_t upper = pairs[0][i] | pairs[1][i] << 16;
        const uint32_t lower = pairs[2][i] | pairs[3][i] << 16;
        words[across * CHUNK + 2 * i][down] = __byte_perm(upper, lower, 0x6420);
        words[across * CHUNK + 2 * i + 1][down] = __byte_perm(upper, lower, 0x7531);
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int c = threadIdx.x / 32; c < TILE_COLS; c += WARPS)
        if (left + c < job.cols && first + lane * DEEP < wide)
            *reinterpret_cast<uint32_t *>(static_cast<char *>(job.turned) + (left + c) * wide +
                                          first + lane * DEEP) = words[c][lane];
}

template <class T> static const void *fp8_of(s24_dtype to)
{
    return to == S24_E4M3 ? (const void *)fp8_kernel<T, __NV_E4M3>
                          : (const void *)fp8_kernel<T, __NV_E5M2>;
}

/* Before the first kernel its number becomes 0. With `each` the last one begins when all before it
   is done: what comes next may read a weight that was packed just before. */
static s24_status find_largest(s24i_device *device, s24_device_train_fp8_args *job, void *stream,
                               s24i_device_error *error)
{
    const device_launch launch = {
        "finding the largest magnitude",
        job->dtype == S24_BF16 ? (const void *)largest_kernel<__nv_bfloat16>
                               : (const void *)largest_kernel<__half>,
        dim3(train_blocks(device, job->rows * job->cols / CHUNK, THREADS, 8)),
        THREADS,
        0,
        false};
    void *args[] = {job};
    CUDA_TRY(
        error, "clearing the largest magnitude",
        cudaMemsetAsync(job->scale, 0, 2 * sizeof *job->scale, static_cast<cudaStream_t>(stream)));
    return device_launch_kernel(error, &launch, args, stream);
}

TRAIN_ENQUEUE(fp8, s24_device_train_fp8_args)
{
    s24_device_train_fp8_args args_of = *job;
    const dim3 tiles((unsigned)((job->rows + TILE_ROWS - 1) / TILE_ROWS),
                     (unsigned)((job->cols + TILE_COLS - 1) / TILE_COLS));
    const device_launch launch = {"launching 8 bits",
                                  job->dtype == S24_BF16 ? fp8_of<__nv_bfloat16>(job->to_dtype)
                                                         : fp8_of<__half>(job->to_dtype),
                                  tiles,
                                  THREADS,
                                  0,
                                  !job->each};
    void *args[] = {&args_of};
    if (!job->known) {
        const s24_status status = find_largest(device, &args_of, stream, error);
        if (status != S24_OK) return status;
    }
    return device_launch_kernel(error, &launch, args, stream);
}
