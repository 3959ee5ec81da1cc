// SPDX-License-Identifier: Apache-2.0
/* Losses that pull vectors to a teacher's: hidden states by their squared distance, pooled vectors
   by their angle. */
#include "cuda/plugin/train.cuh"
#include "cuda/row/pooled.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, AHEAD = 2 /* pieces of 256 columns */ };

/* ---- squared distances: a warp a row --------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(THREADS)
    squared_kernel(const __grid_constant__ s24_device_train_squared_args job)
{
    const float factor = 2.0f * (float)job.weight * job.gradient_scale;
    double loss = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < job.rows;
         r += (int64_t)gridDim.x * WARPS) {
        if (job.mask && !job.mask[r]) continue;
        const T *x = static_cast<const T *>(job.x) + r * job.width;
        const T *y = static_cast<const T *>(job.y) + r * job.width;
        T *dx = static_cast<T *>(job.dx) + r * job.width;
        float squares = 0;
#pragma unroll AHEAD
        for (int c = threadIdx.x % 32 * 8; c < job.width; c += 256) {
            float v[8], w[8], d[8];
            load_narrow<T>(v, x + c);
            load_narrow<T>(w, y + c);
            load_narrow<T>(d, dx + c);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float apart = v[i] - w[i];
                squares += apart * apart;
                d[i] += factor * apart;
            }
            store_narrow<T>(dx + c, d);
        }
        loss += (double)squares;
    }
    loss = block_total<WARPS>(loss);
    if (threadIdx.x == 0) static_cast<double *>(job.work)[blockIdx.x] = loss;
}

TRAIN_ENQUEUE(squared, s24_device_train_squared_args)
{
    s24_device_train_squared_args args_of = *job;
    const device_launch launch = {"launching squared distances",
                                  job->dtype == S24_BF16
                                      ? (const void *)squared_kernel<__nv_bfloat16>
                                      : (const void *)squared_kernel<__half>,
                                  dim3(train_blocks(device, job->rows, WARPS, 8)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK) return status;
    const total_parts sum = {static_cast<const double *>(job->work), (int)launch.grid.x, job->loss,
                             job->weight, 1};
    return total_parts_enqueue(device, &sum, stream, error);
}

/* ---- angles: some blocks a text, which share its tokens -------------------------------------- */

static __device__ float block_sum(float v)
{
    __shared__ float shared[WARPS];
    v = warp_sum(v);
    __syncthreads(); /* the sum before may still be read */
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        all += shared[w];
    return all;
}

/* A block's text: its tokens, those of them that count, and the slope to_z·z + to_e·e that they
   share: d cos/de = (z/|z| − cos·e/|e|)/|e|. */
struct angle {
    const float *e, *z;
    const uint8_t *mask;
    int first, end;
    float tokens, to_z, to_e;

    /* For the whole block; the first one of a text leaves its loss. */
    __device__ explicit angle(const s24_device_train_cosine_args &job)
        : e(job.vectors + blockIdx.x * job.width), z(job.teacher + blockIdx.x * job.width),
          mask(job.pooling == S24I_POOL_CLS ? nullptr : job.mask)
    {
        const pooled_span at(job, blockIdx.x);
        first = at.first;
        end = at.end;
        float ee = 0, zz = 0, ez = 0, count = 0;
        for (int c = threadIdx.x; c < job.width; c += THREADS) {
            ee += e[c] * e[c];
            zz += z[c] * z[c];
            ez += e[c] * z[c];
        }
        for (int t = first + threadIdx.x; t < end; t += THREADS)
            count += counts(t);
        const float square = block_sum(ee), other_square = block_sum(zz), product = block_sum(ez);
        tokens = block_sum(count);
        /* A NaN stays one. */
        const float length = square < 1e-24f ? 1e-12f : sqrtf(square);
        const float other = other_square < 1e-24f ? 1e-12f : sqrtf(other_square);
        const float cosine = product / (length * other);
        if (threadIdx.x == 0 && blockIdx.y == 0)
            static_cast<double *>(job.work)[blockIdx.x] = tokens > 0 ? 1.0 - (double)cosine : 0.0;
        const float shares = job.pooling == S24I_POOL_MAX ? 1.0f : tokens;
        const float share = -(float)job.weight * job.gradient_scale / (length * shares);
        to_z = share / other;
        to_e = -share * cosine / length;
    }
    __device__ bool counts(int t) const
    {
        return !mask || mask[t];
    }
};

/* Every token of a mean gets its share. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    cosine_kernel(const __grid_constant__ s24_device_train_cosine_args job)
{
    dependents_may_start();
    wait_for_predecessors();
    const angle a(job);
    if (!(a.tokens > 0)) return;
    for (int c = threadIdx.x % 32 * 8; c < (int)job.width; c += 256) {
        float v[8], w[8];
        load_wide(v, a.e + c);
        load_wide(w, a.z + c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = a.to_z * w[i] + a.to_e * v[i];
#pragma unroll 4
        for (int t = a.first + blockIdx.y * WARPS + threadIdx.x / 32; t < a.end;
             t += WARPS * gridDim.y) {
            if (!a.counts(t)) continue;
            T *dx = static_cast<T *>(job.dx) + t * job.width + c;
            load_narrow<T>(w, dx);
#pragma unroll
            for (int i = 0; i < 8; i++)
                w[i] += v[i];
            store_narrow<T>(dx, w);
        }
    }
}

/* Of a maximum each column's share goes to the first token that has it: a block has 256 columns,
   its warps look for them by turns. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    cosine_most_kernel(const __grid_constant__ s24_device_train_cosine_args job)
{
    __shared__ int found[WARPS][256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, base = (int)blockIdx.y * 256;
    const int column = base + lane * 8;
    dependents_may_start();
    wait_for_predecessors();
    const angle a(job);
    if (!(a.tokens > 0)) return;
    int at[8];
    float e[8] = {}, v[8];
#pragma unroll
    for (int &place : at)
        place = a.end;
    if (column < job.width) load_wide(e, a.e + column);
#pragma unroll 4
    for (int t = a.first + warp; t < a.end && column < job.width; t += WARPS) {
        if (!a.counts(t)) continue;
        load_narrow<T>(v, static_cast<const T *>(job.x) + t * job.width + column);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (v[i] == e[i]) at[i] = min(at[i], t);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        found[warp][lane * 8 + i] = at[i];
    __syncthreads();
    const int c = base + (int)threadIdx.x;
    int first = a.end;
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        first = min(first, found[w][threadIdx.x]);
    if (c >= job.width || first == a.end) return; /* a NaN is nowhere */
    T *dx = static_cast<T *>(job.dx) + first * job.width + c;
    *dx = (T)((float)*dx + a.to_z * a.z[c] + a.to_e * a.e[c]);
}

TRAIN_ENQUEUE(cosine, s24_device_train_cosine_args)
{
    s24_device_train_cosine_args args_of = *job;
    /* Four tokens per warp in a text of the mean length. */
    const int64_t mean = job->tokens / job->texts, shares = mean / (4 * WARPS) + 1;
    const bool most = job->pooling == S24I_POOL_MAX;
    static const void *const kernels[2][2] = {
        {(const void *)cosine_kernel<__nv_bfloat16>,
         (const void *)cosine_most_kernel<__nv_bfloat16>},
        {(const void *)cosine_kernel<__half>, (const void *)cosine_most_kernel<__half>}};
    const int64_t blocks = most ? (job->width + 255) / 256 : shares < 64 ? shares : 64;
    const device_launch launch = {"launching the angles of vectors",
                                  kernels[job->dtype == S24_F16][most],
                                  dim3((unsigned)job->texts, (unsigned)blocks),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    if (status != S24_OK) return status;
    const total_parts sum = {static_cast<const double *>(job->work), (int)job->texts, job->loss,
                             job->weight, 1};
    return total_parts_enqueue(device, &sum, stream, error);
}
