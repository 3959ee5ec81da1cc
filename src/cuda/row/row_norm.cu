// SPDX-License-Identifier: Apache-2.0
/*
 * Norms of rows of any width, with the addition to the sums before them, and what they give added
 * elsewhere: a block has a row, a thread eight or sixteen elements of it. Few rows are a matter of
 * latency: gammas are asked for before the kernels before this one are done.
 */
#include "cuda/plugin/device.cuh"
#include "cuda/row/quantise.cuh"

enum { MOST_WARPS = 32 };

struct row_norm_job : s24_device_row_norm_args {
    void *narrow_rows;
    s24_dtype narrow_dtype;
};

/* The sum, or the largest, of what all warps have. */
template <class F> static __device__ float over_block(float (&parts)[MOST_WARPS], float mine, F add)
{
    const int warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    float all = parts[0];
    for (int w = 1; w < warps; w++)
        all = add(all, parts[w]);
    return all;
}

/* A thread's elements of a row: PIECES of eight, a block's width apart. */
template <int PIECES> using row_share = float[PIECES][8];

/* Takes the row's mean off its elements. */
template <int PIECES>
static __device__ void centre(row_share<PIECES> &v, float (&parts)[MOST_WARPS], int width)
{
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        for (float x : v[p])
            sum += x;
    sum = over_block(parts, warp_sum(sum), [](float a, float b) { return a + b; });
    const float mean = sum / (float)width;
#pragma unroll
    for (int p = 0; p < PIECES; p++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[p][i] -= (int)(threadIdx.x + p * blockDim.x) * 8 < width ? mean : 0;
}

/* y = v, or y += v. */
template <class T, int PIECES>
static __device__ void norm_out(const row_norm_job &job, row_share<PIECES> &v)
{
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const int at = (int)(threadIdx.x + p * blockDim.x) * 8;
        if (at >= job.width) continue;
        T *y = static_cast<T *>(job.y) + blockIdx.x * job.width + at;
        if (job.adds) {
            float before[8];
            load_narrow<T>(before, y);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[p][i] += before[i];
        }
        store_narrow<T>(y, v[p]);
    }
}

/* 2 pieces for rows beyond 8192. */
template <class T, int PIECES>
__global__ void __launch_bounds__(32 * MOST_WARPS)
    row_norm_kernel(const __grid_constant__ row_norm_job job)
{
    __shared__ float sums[MOST_WARPS], largest[MOST_WARPS];
    row_share<PIECES> gamma, beta = {}, v = {};
    float squares = 0, most = 0;
    const int step = (int)blockDim.x * 8;
    dependents_may_start();
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const int at = (int)threadIdx.x * 8 + p * step;
#pragma unroll
        for (float &x : gamma[p])
            x = 1;
        if (at < job.width && job.gamma) load_wide(gamma[p], job.gamma + at);
        if (at < job.width && job.beta) load_wide(beta[p], job.beta + at);
    }
    wait_for_predecessors();
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const int at = (int)threadIdx.x * 8 + p * step;
        const int64_t place = blockIdx.x * job.width + at;
        if (at >= job.width) continue;
        T *sum = static_cast<T *>(job.sum) + place;
        load_narrow<T>(v[p], sum);
        if (!job.x) continue;
        float x[8];
        load_narrow<T>(x, static_cast<const T *>(job.x) + place);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[p][i] = (float)(T)(v[p][i] + x[i]);
        store_narrow<T>(sum, v[p]);
    }
    if (job.centred) centre<PIECES>(v, largest, (int)job.width);
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        for (float x : v[p])
            squares += x * x;
    squares = over_block(sums, warp_sum(squares), [](float a, float b) { return a + b; });
    const float inverse = job.bare ? 1.0f : 1.0f / sqrtf(squares / (float)job.width + job.eps);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[p][i] *= inverse * gamma[p][i];
        if (job.beta) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[p][i] += beta[p][i];
        }
        most = largest_of(most, v[p]);
    }
    norm_out<T, PIECES>(job, v);
    if (!job.narrow_rows) return;
    most = over_block(largest, warp_largest(most), larger);
    const quantiser q(most, job.narrow_dtype);
    if (threadIdx.x == 0) job.narrow_scale[blockIdx.x] = q.scale;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const int at = (int)threadIdx.x * 8 + p * step;
        if (at < job.width)
            q.store_8(static_cast<uint8_t *>(job.narrow_rows) + blockIdx.x * job.width + at, v[p]);
    }
}

template <class T> static const void *kernel_of(int pieces)
{
    return pieces == 1 ? (const void *)row_norm_kernel<T, 1> : (const void *)row_norm_kernel<T, 2>;
}

s24_status row_norm_enqueue(s24i_device *device, const s24_device_row_norm_args *args, void *stream,
                            s24i_device_error *error)
{
    (void)device;
    row_norm_job job = {*args, data_of(args->narrow),
                        args->narrow ? args->narrow->dtype : S24_DTYPE_NONE};
    const int pieces = job.width > 32 * MOST_WARPS * 8 ? 2 : 1;
    const device_launch launch = {"launching a norm",
                                  job.dtype == S24_BF16 ? kernel_of<__nv_bfloat16>(pieces)
                                                        : kernel_of<__half>(pieces),
                                  dim3((unsigned)job.rows),
                                  (int)(job.width + 256 * pieces - 1) / (256 * pieces) * 32,
                                  0,
                                  job.rows * job.width <= EARLY_NORM};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
