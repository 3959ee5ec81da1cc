// SPDX-License-Identifier: Apache-2.0
/* What a transformer ends in, f32 from rows of 16 bits: pooling, and heads of a few outputs.
   Bound by memory, as rows.cu. */
#include "cuda/plugin/device.cuh"
#include "cuda/row/pooled.cuh"
#include "cuda/row/rows.cuh"

/* ---- pooling: a cluster of blocks a text, each with a slice of its columns ------------------- */

enum { POOL_THREADS = 1024, MOST_SLICES = 8 };

/* Pooling as its kernel has it: the caller's arguments, and where x is. */
struct pool_job : s24_device_pool_args {
    const void *x;
    int64_t width;

    explicit pool_job(const s24_device_pool_args &a)
        : s24_device_pool_args(a), x(a.x->data), width(a.x->cols)
    {
    }
};

/* A thread's part of a slice: eight columns of every step-th token. Returns how many they were. */
template <class T>
static __device__ int pool_tokens(float (&sum)[8], const pool_job &job, int column, int first,
                                  int end, int step)
{
    const bool most = job.pooling == S24I_POOL_MAX;
    const uint8_t *mask = job.pooling == S24I_POOL_CLS ? nullptr : job.mask;
    int count = 0;
#pragma unroll
    for (float &s : sum)
        s = most ? -INFINITY : 0;
#pragma unroll 4
    for (int t = first; t < end; t += step) {
        if (mask && !mask[t]) continue;
        float v[8];
        load_narrow<T>(v, static_cast<const T *>(job.x) + (int64_t)t * job.width + column);
#pragma unroll
        for (int i = 0; i < 8; i++) /* a NaN stays one */
            sum[i] = !most ? sum[i] + v[i] : v[i] > sum[i] || v[i] != v[i] ? v[i] : sum[i];
        count++;
    }
    return count;
}

/* What blocks of a cluster say to each other; before Hopper a cluster is one block. */
static __device__ inline void pool_arrive()
{
#if __CUDA_ARCH__ >= 900
    cluster_arrive();
#endif
}
/* v to `place` of the block of that rank, when all have begun. */
static __device__ inline void pool_send(float *place, int rank, float v)
{
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_place(shared_address(place), rank)), "f"(v)
        : "memory");
#else
    *place = v;
#endif
}
static __device__ inline void pool_wait()
{
#if __CUDA_ARCH__ >= 900
    cluster_wait();
#endif
}
static __device__ inline void pool_sync()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#else
    __syncthreads();
#endif
}

/* 1 / the length of a vector of which each thread of the cluster has some squares. */
static __device__ float pool_factor(float squares, int slices)
{
    __shared__ float warps[32], blocks[MOST_SLICES];
    const int lane = threadIdx.x % 32;
    squares = warp_sum(squares);
    if (lane == 0) warps[threadIdx.x / 32] = squares;
    __syncthreads();
    pool_wait();
    if (threadIdx.x < 32) {
        squares = warp_sum(lane < POOL_THREADS / 32 ? warps[lane] : 0);
        if (lane < slices) pool_send(&blocks[blockIdx.x % slices], lane, squares);
    }
    pool_sync();
    float norm = 0;
    for (int i = 0; i < slices; i++)
        norm += blocks[i];
    norm = sqrtf(norm);
    return 1.0f / (norm > 1e-12f || norm != norm ? norm : 1e-12f);
}

/* Threads of a group have the slice's pieces of eight elements; groups take tokens by turns. */
template <class T>
__global__ void __launch_bounds__(POOL_THREADS)
    pool_kernel(const __grid_constant__ pool_job job, int slices, int most_columns)
{
    extern __shared__ float partial[]; /* [groups][columns] */
    __shared__ int counts[POOL_THREADS];
    const int text = blockIdx.x / slices, column = (int)blockIdx.x % slices * most_columns;
    const int columns = min(most_columns, (int)job.width - column), pieces = columns / 8;
    const int groups = POOL_THREADS / pieces;
    const int group = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const bool most = job.pooling == S24I_POOL_MAX;
    pool_arrive();
    dependents_may_start();
    wait_for_predecessors();
    const pooled_span at(job, text);
    if (group < groups) {
        float sum[8];
        const int count =
            pool_tokens<T>(sum, job, column + piece * 8, at.first + group, at.end, groups);
#pragma unroll
        for (int i = 0; i < 8; i++)
            partial[group * columns + piece * 8 + i] = sum[i];
        if (piece == 0) counts[group] = count;
    }
    __syncthreads();
    int tokens = 0;
    for (int g = 0; g < groups; g++)
        tokens += counts[g];
    float squares = 0;
    for (int c = threadIdx.x; c < columns; c += POOL_THREADS) {
        float v = partial[c];
        for (int g = 1; g < groups; g++) {
            const float other = partial[g * columns + c];
            v = !most ? v + other : other > v || other != other ? other : v;
        }
        if (!tokens) v = 0;
        if (job.pooling == S24I_POOL_MEAN && tokens) v *= 1.0f / (float)tokens;
        partial[c] = v;
        squares += v * v;
    }
    const float factor = pool_factor(job.normalise ? squares : 1, slices);
    for (int c = threadIdx.x; c < columns; c += POOL_THREADS)
        job.y[(int64_t)text * job.width + column + c] =
            partial[c] * (job.normalise ? factor : 1.0f);
}

s24_status pool_enqueue(s24i_device *device, const s24_device_pool_args *args, void *stream,
                        s24i_device_error *error)
{
    const int most = device->capability == HOPPER ? MOST_SLICES : 1;
    pool_job job(*args);
    const int pieces = (int)(job.width / 8), each = (pieces + most - 1) / most;
    int slices = (pieces + each - 1) / each, columns = 8 * each;
    const device_launch launch = {"launching pooling",
                                  args->x->dtype == S24_BF16
                                      ? (const void *)pool_kernel<__nv_bfloat16>
                                      : (const void *)pool_kernel<__half>,
                                  dim3((unsigned)(job.texts * slices)),
                                  POOL_THREADS,
                                  POOL_THREADS * 8 * (int)sizeof(float),
                                  true,
                                  slices};
    void *parameters[] = {&job, &slices, &columns};
    return device_launch_kernel(error, &launch, parameters, stream);
}

/* ---- rows to f32: of a head of a few outputs, or themselves ---------------------------------- */

enum {
    WARPS = 4,        /* of a block */
    BLOCKS = 8,       /* that a processor has room for */
    HEAD_OUTPUTS = 8, /* of a warp and row */
    HEAD_CHUNKS = 4   /* pieces of a row that a lane has at a time */
};

/* A head as its kernel has it: the caller's arguments, and where their operands are. */
struct head_job : s24_device_head_args {
    int64_t rows, width, outputs, ldx;
    const void *x, *w;

    explicit head_job(const s24_device_head_args &a)
        : s24_device_head_args(a), rows(a.x->rows), width(a.x->cols), outputs(a.w ? a.w->rows : 0),
          ldx(ld_of(a.x)), x(a.x->data), w(data_of(a.w))
    {
    }
};

/* Elements from `first` on, of which a row has `width`. */
template <class T>
static __device__ __forceinline__ void head_span(float (&sums)[HEAD_OUTPUTS], const uint4 *x,
                                                 const T *w, int width, int first, int outputs)
{
#pragma unroll
    for (int o = 0; o < HEAD_OUTPUTS; o++) {
        if (o >= outputs) break;
#pragma unroll
        for (int c = 0; c < HEAD_CHUNKS; c++) {
            const int at = first + c * 256;
            float v[8], factors[8];
            if (at >= width) break;
            unpack<T>(v, x[c]);
            load_narrow<T>(factors, w + (int64_t)o * width + at);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sums[o] += v[i] * factors[i];
        }
    }
}

template <class T>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    head_kernel(const __grid_constant__ head_job job)
{
    const int lane = threadIdx.x % 32, width = (int)job.width;
    dependents_may_start();
    wait_for_predecessors();
    const int64_t groups = job.outputs ? (job.outputs + HEAD_OUTPUTS - 1) / HEAD_OUTPUTS : 1;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; i < job.rows * groups;
         i += (int64_t)gridDim.x * WARPS) {
        const int64_t r = i / groups, o_first = i % groups * HEAD_OUTPUTS;
        const int outputs = (int)min(job.outputs - o_first, (int64_t)HEAD_OUTPUTS);
        const T *x = static_cast<const T *>(job.x) + r * job.ldx;
        float sums[HEAD_OUTPUTS] = {};
        for (int first = lane * 8; first < width; first += HEAD_CHUNKS * 256) {
            uint4 bits[HEAD_CHUNKS];
#pragma unroll
            for (int c = 0; c < HEAD_CHUNKS; c++)
                if (first + c * 256 < width)
                    bits[c] = *reinterpret_cast<const uint4 *>(x + first + c * 256);
            if (job.outputs) {
                head_span(sums, bits, static_cast<const T *>(job.w) + o_first * width, width, first,
                          outputs);
                continue;
            }
#pragma unroll
            for (int c = 0; c < HEAD_CHUNKS; c++) {
                float v[8];
                if (first + c * 256 >= width) break;
                unpack<T>(v, bits[c]);
#pragma unroll
                for (int i = 0; i < 8; i++) /* y may be anywhere */
                    job.y[r * width + first + c * 256 + i] = v[i];
            }
        }
        for (int o = 0; o < outputs; o++) {
            float sum = 0;
#pragma unroll
            for (int each = 0; each < HEAD_OUTPUTS; each++) /* which is a register */
                if (each == o) sum = sums[each];
            sum = warp_sum(sum);
            const int64_t at = o_first + o;
            if (lane == 0)
                job.y[job.rows_first ? r * job.outputs + at : at * job.rows + r] =
                    sum + job.bias[at];
        }
    }
}

s24_status head_enqueue(s24i_device *device, const s24_device_head_args *args, void *stream,
                        s24i_device_error *error)
{
    head_job job(*args);
    const int64_t groups = job.outputs ? (job.outputs + HEAD_OUTPUTS - 1) / HEAD_OUTPUTS : 1;
    const int64_t blocks = (job.rows * groups + WARPS - 1) / WARPS,
                  most = (int64_t)device->processors * BLOCKS;
    const device_launch launch = {"launching a head",
                                  args->x->dtype == S24_BF16
                                      ? (const void *)head_kernel<__nv_bfloat16>
                                      : (const void *)head_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  32 * WARPS,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
