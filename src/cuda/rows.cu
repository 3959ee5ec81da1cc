// SPDX-License-Identifier: Apache-2.0
/*
 * What a transformer does row by row between its products: embeddings, patches of images, layer
 * norms, activations behind dense products, pooling, logits. All of it is bound by memory: 16 bytes a
 * thread and access, sums in f32, one rounding at the end.
 */
#include "device.cuh"
#include "linear_store_full.cuh"
#include "quantise.cuh"

enum {
    WARPS = 4,       /* of a block */
    BLOCKS = 8,      /* that a processor has room for */
    MOST_CHUNKS = 8, /* of 256 elements of a row */
};

/* ---- norms and embeddings: a warp a row ------------------------------------------------------ */

template <class T> static __device__ inline void add_8(float (&v)[8], const void *from)
{
    float w[8];
    load_narrow<T>(w, from);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] += w[i];
}

/* Row r before its norm, elements `at` to at + 7. */
template <class T>
static __device__ inline void norm_load(float (&v)[8], const s24i_device_norm &job, int64_t r,
                                        int at)
{
    const int64_t here = r * job.width + at;
    if (job.ids)
        load_narrow<T>(v, static_cast<const T *>(job.words) + job.ids[r] * job.width + at);
    else
        load_narrow<T>(v, static_cast<const T *>(job.x) + here);
    if (job.residual) add_8<T>(v, static_cast<const T *>(job.residual) + here);
    if (job.position_rows)
        add_8<T>(v, static_cast<const T *>(job.position_rows) + job.positions[r] * job.width + at);
    if (job.type_rows)
        add_8<T>(v, static_cast<const T *>(job.type_rows) +
                        (job.types ? job.types[r] : 0) * job.width + at);
    if (job.sum) store_narrow<T>(static_cast<T *>(job.sum) + here, v);
}

template <class T, int CHUNKS>
__global__ void __launch_bounds__(32 * WARPS, CHUNKS <= 4 ? BLOCKS : BLOCKS / 2)
    norm_kernel(const __grid_constant__ s24i_device_norm job)
{
    const int lane = threadIdx.x % 32, width = (int)job.width;
    dependents_may_start();
    wait_for_predecessors();
    /* The product before wrote the last rows last: they may still be in L2. */
    for (int64_t r = job.rows - 1 - ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32); r >= 0;
         r -= (int64_t)gridDim.x * WARPS) {
        float v[CHUNKS][8], sum = 0, squares = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = c * 256 + lane * 8;
#pragma unroll
            for (float &x : v[c])
                x = 0;
            if (at < width) norm_load<T>(v[c], job, r, at);
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (float x : v[c])
                sum += x;
        if (!job.y) continue; /* the sums are all that is wanted */
        const float mean = warp_sum(sum) / (float)width;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c * 256 + lane * 8 < width)
#pragma unroll
                for (float &x : v[c]) {
                    x -= mean;
                    squares += x * x;
                }
        const float inverse = rsqrtf(warp_sum(squares) / (float)width + job.eps);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = c * 256 + lane * 8;
            if (at >= width) continue;
            float gamma[8], beta[8];
            load_narrow<T>(gamma, static_cast<const T *>(job.gamma) + at);
            load_narrow<T>(beta, static_cast<const T *>(job.beta) + at);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[c][i] = v[c][i] * inverse * gamma[i] + beta[i];
            store_narrow<T>(static_cast<T *>(job.y) + r * job.width + at, v[c]);
        }
        if (!job.narrow) continue;
        float most = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c * 256 + lane * 8 < width) most = largest_of(most, v[c]);
        const quantiser q(warp_largest(most), job.narrow_dtype);
        if (lane == 0) job.scales[r] = q.scale;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c * 256 + lane * 8 < width)
                q.store_8(static_cast<uint8_t *>(job.narrow) + r * width + c * 256 + lane * 8,
                          v[c]);
    }
}

template <class T> static const void *norm_kernel_of(int chunks)
{
    static const void *const kernels[MOST_CHUNKS] = {
        (const void *)norm_kernel<T, 1>, (const void *)norm_kernel<T, 2>,
        (const void *)norm_kernel<T, 3>, (const void *)norm_kernel<T, 4>,
        (const void *)norm_kernel<T, 5>, (const void *)norm_kernel<T, 6>,
        (const void *)norm_kernel<T, 7>, (const void *)norm_kernel<T, 8>};
    return kernels[chunks - 1];
}

static unsigned blocks_of(const s24i_device *device, int64_t rows, int a_processor)
{
    const int64_t blocks = (rows + WARPS - 1) / WARPS,
                  most = (int64_t)device->processors * a_processor;
    return (unsigned)(blocks < most ? blocks : most);
}

s24_status norm_enqueue(s24i_device *device, const s24i_device_norm *job, void *stream,
                        s24i_device_error *error)
{
    const int chunks = (int)((job->width + 255) / 256);
    s24i_device_norm args_of = *job;
    const device_launch launch = {
        "launching a norm",
        job->dtype == S24_BF16 ? norm_kernel_of<__nv_bfloat16>(chunks)
                               : norm_kernel_of<__half>(chunks),
        dim3(blocks_of(device, job->rows, chunks <= 4 ? BLOCKS : BLOCKS / 2)),
        32 * WARPS,
        0,
        true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- activations ----------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(256)
    activation_kernel(T *y, int64_t ld, int64_t rows, int pieces, int activation)
{
    dependents_may_start();
    wait_for_predecessors();
    const int64_t all = rows * pieces;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * 256) {
        T *at = y + i / pieces * ld + i % pieces * 8;
        float v[8];
        load_narrow<T>(v, at);
        activate(v, activation);
        store_narrow<T>(at, v);
    }
}

s24_status activation_enqueue(s24i_device *device, const s24i_device_dense *job, void *stream,
                              s24i_device_error *error)
{
    void *y = job->y;
    int64_t ld = job->ldy, rows = job->m;
    int pieces = (int)(job->n / 8), activation = job->activation;
    const int64_t blocks = (rows * pieces + 255) / 256, most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching an activation",
                                  job->dtype == S24_BF16
                                      ? (const void *)activation_kernel<__nv_bfloat16>
                                      : (const void *)activation_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  256,
                                  0,
                                  true};
    void *args[] = {&y, &ld, &rows, &pieces, &activation};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- pooling: a cluster of blocks a text, each with a slice of its columns ------------------- */

enum { POOL_THREADS = 1024, MOST_SLICES = 8 };

/* A thread's part of a slice: eight columns of every step-th token. Returns how many they were. */
template <class T>
static __device__ int pool_tokens(float (&sum)[8], const s24i_device_pool &job, int column,
                                  int first, int end, int step)
{
    const bool most = job.pooling == S24I_DEVICE_POOL_MAX;
    const uint8_t *mask = job.pooling == S24I_DEVICE_POOL_FIRST ? nullptr : job.mask;
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
    pool_kernel(const __grid_constant__ s24i_device_pool job, int slices, int most_columns)
{
    extern __shared__ float partial[]; /* [groups][columns] */
    __shared__ int counts[POOL_THREADS];
    const int text = blockIdx.x / slices, column = (int)blockIdx.x % slices * most_columns;
    const int columns = min(most_columns, (int)job.width - column), pieces = columns / 8;
    const int groups = POOL_THREADS / pieces;
    const int group = threadIdx.x / pieces, piece = threadIdx.x % pieces;
    const bool most = job.pooling == S24I_DEVICE_POOL_MAX;
    pool_arrive();
    dependents_may_start();
    wait_for_predecessors();
    const int first = job.offsets[text];
    const int end = job.pooling == S24I_DEVICE_POOL_FIRST ? first + 1 : job.offsets[text + 1];
    if (group < groups) {
        float sum[8];
        const int count = pool_tokens<T>(sum, job, column + piece * 8, first + group, end, groups);
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
        if (job.pooling == S24I_DEVICE_POOL_MEAN && tokens) v *= 1.0f / (float)tokens;
        partial[c] = v;
        squares += v * v;
    }
    const float factor = pool_factor(job.normalise ? squares : 1, slices);
    for (int c = threadIdx.x; c < columns; c += POOL_THREADS)
        job.y[(int64_t)text * job.width + column + c] =
            partial[c] * (job.normalise ? factor : 1.0f);
}

s24_status pool_enqueue(s24i_device *device, const s24i_device_pool *job, void *stream,
                        s24i_device_error *error)
{
    const int most = device->capability == HOPPER ? MOST_SLICES : 1;
    const int pieces = (int)(job->width / 8), each = (pieces + most - 1) / most;
    int slices = (pieces + each - 1) / each, columns = 8 * each;
    s24i_device_pool args_of = *job;
    const device_launch launch = {"launching pooling",
                                  job->dtype == S24_BF16 ? (const void *)pool_kernel<__nv_bfloat16>
                                                         : (const void *)pool_kernel<__half>,
                                  dim3((unsigned)(job->texts * slices)),
                                  POOL_THREADS,
                                  POOL_THREADS * 8 * (int)sizeof(float),
                                  true,
                                  slices};
    void *args[] = {&args_of, &slices, &columns};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- rows to f32: of a head of a few outputs, or themselves ---------------------------------- */

enum { HEAD_OUTPUTS = 8 }; /* of a warp and row */

template <class T>
__global__ void __launch_bounds__(32 * WARPS)
    head_kernel(const __grid_constant__ s24i_device_head job)
{
    const int lane = threadIdx.x % 32, width = (int)job.width;
    dependents_may_start();
    wait_for_predecessors();
    const int64_t groups = job.outputs ? (job.outputs + HEAD_OUTPUTS - 1) / HEAD_OUTPUTS : 1;
    for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; i < job.rows * groups;
         i += (int64_t)gridDim.x * WARPS) {
        const int64_t r = i / groups, o_first = i % groups * HEAD_OUTPUTS;
        const int64_t o_end = min(job.outputs, o_first + HEAD_OUTPUTS);
        const T *x = static_cast<const T *>(job.x) + r * job.ldx;
        if (!job.outputs)
            for (int at = lane * 8; at < width; at += 256) {
                float v[8];
                load_narrow<T>(v, x + at);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    job.y[r * job.width + at + i] = v[i];
            }
        for (int64_t o = o_first; o < o_end; o++) {
            float sum = 0;
            for (int at = lane * 8; at < width; at += 256) {
                float v[8], w[8];
                load_narrow<T>(v, x + at);
                load_narrow<T>(w, static_cast<const T *>(job.w) + o * job.width + at);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    sum += v[i] * w[i];
            }
            sum = warp_sum(sum);
            if (lane == 0)
                job.y[job.rows_first ? r * job.outputs + o : o * job.rows + r] = sum + job.bias[o];
        }
    }
}

s24_status head_enqueue(s24i_device *device, const s24i_device_head *job, void *stream,
                        s24i_device_error *error)
{
    s24i_device_head args_of = *job;
    const int64_t groups = job->outputs ? (job->outputs + HEAD_OUTPUTS - 1) / HEAD_OUTPUTS : 1;
    const device_launch launch = {"launching a head",
                                  job->dtype == S24_BF16 ? (const void *)head_kernel<__nv_bfloat16>
                                                         : (const void *)head_kernel<__half>,
                                  dim3(blocks_of(device, job->rows * groups, 16)),
                                  32 * WARPS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- patches of images: a thread eight elements of a row ------------------------------------- */

/* Element c of a patch, 0 behind its last. */
static __device__ inline float patch_at(const s24i_device_unfold &job, const float *corner, int c)
{
    const int n = (int)job.patch, square = n * n;
    if (c >= job.channels * square) return 0;
    return corner[(c / square * job.image + c % square / n) * job.image + c % n];
}

template <class T>
__global__ void __launch_bounds__(256) unfold_kernel(const __grid_constant__ s24i_device_unfold job)
{
    const int n = (int)job.patch, side = (int)(job.image / n), pieces = (int)(job.row / 8);
    const int positions = (int)job.first + side * side;
    /* Whole pieces of a patch's lines can be read at once. */
    const bool wide = n % 8 == 0 && job.image % 4 == 0;
    dependents_may_start();
    wait_for_predecessors();
    const int64_t all = job.images * positions * pieces;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < all;
         i += (int64_t)gridDim.x * 256) {
        const int64_t t = i / pieces;
        const int c = (int)(i - t * pieces) * 8, at = (int)(t % positions) - (int)job.first;
        const float *corner = job.pixels + t / positions * job.channels * job.image * job.image +
                              (int64_t)(at / side) * n * job.image + at % side * n;
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (at >= 0 && wide && c < job.channels * n * n) {
            const int square = n * n;
            const float4 *line = reinterpret_cast<const float4 *>(
                corner + (c / square * job.image + c % square / n) * job.image + c % n);
            const float4 a = line[0], b = line[1];
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
            v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else if (at >= 0) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = patch_at(job, corner, c + j);
        }
        store_narrow<T>(static_cast<T *>(job.y) + t * job.row + c, v);
    }
}

s24_status unfold_enqueue(s24i_device *device, const s24i_device_unfold *job, void *stream,
                          s24i_device_error *error)
{
    s24i_device_unfold args_of = *job;
    const int64_t side = job->image / job->patch;
    const int64_t all = job->images * (job->first + side * side) * (job->row / 8);
    const int64_t blocks = (all + 255) / 256, most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching the unfolding of images",
                                  job->dtype == S24_BF16
                                      ? (const void *)unfold_kernel<__nv_bfloat16>
                                      : (const void *)unfold_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  256,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
