// SPDX-License-Identifier: Apache-2.0
/*
 * Norms in training: a sum's dropout, bias and residual in front of one, and the pass back through it
 * with the gradients of its parameters. A row of up to 1024 elements is a warp's, a wider one a
 * block's; it is read once and stays in registers.
 */
#include "rows.cuh"
#include "train.cuh"
#include "train_dropout.cuh"
#include "train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, MOST_CHUNKS = 4 /* of a warp, 256 elements each */ };

/* Which rows and columns a warp has: CHUNKS pieces of 256 columns. */
template <int CHUNKS, int ROW_WARPS> struct row_place {
    static constexpr int block_rows = WARPS / ROW_WARPS;

    static __device__ int64_t first()
    {
        return (int64_t)blockIdx.x * block_rows + (ROW_WARPS == 1 ? threadIdx.x / 32 : 0);
    }
    static __device__ int64_t step()
    {
        return (int64_t)gridDim.x * block_rows;
    }
    /* The first column of the warp's piece c. */
    static __device__ int piece(int c)
    {
        return (ROW_WARPS == 1 ? c : c * WARPS + (int)threadIdx.x / 32) * 256;
    }
    static __device__ int column(int c)
    {
        return piece(c) + (int)threadIdx.x % 32 * 8;
    }
    /* Over the row. `turn` counts these calls: a place is used again only after the next sum, which
       nobody has without having read this one. */
    static __device__ float sum(float v, unsigned &turn)
    {
        v = warp_sum(v);
        if (ROW_WARPS == 1) return v;
        __shared__ float parts[2][WARPS];
        float *part = parts[turn++ % 2];
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        float all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            all += part[w];
        return all;
    }
};

template <class T> static __device__ inline uint4 bits_at(const void *from, int64_t at)
{
    return *reinterpret_cast<const uint4 *>(static_cast<const T *>(from) + at);
}

/* What 16 bits make of it. */
template <class T> static __device__ inline float rounded(float v)
{
    return (float)(T)v;
}

/* ---- forward --------------------------------------------------------------------------------- */

template <class T, int CHUNKS, int ROW_WARPS>
__global__ void __launch_bounds__(THREADS)
    add_norm_kernel(const __grid_constant__ s24_device_train_add_norm_args job)
{
    using place = row_place<CHUNKS, ROW_WARPS>;
    const int width = (int)job.width;
    const dropper drop(job.drop);
    unsigned turn = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = place::first(); r < job.rows; r += place::step()) {
        uint4 own[CHUNKS], residual[CHUNKS];
        float v[CHUNKS][8], sum = 0, squares = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = r * job.width + place::column(c);
            const bool inside = place::column(c) < width;
            own[c] = residual[c] = make_uint4(0, 0, 0, 0);
            if (inside) own[c] = bits_at<T>(job.z ? job.z : job.s, at);
            if (inside && job.residual) residual[c] = bits_at<T>(job.residual, at);
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = place::column(c);
            unpack_8<T>(v[c], own[c]);
            if (!job.z) continue;
            float other[8];
            if (job.bias && at < width) {
                load_8_wide(other, job.bias + at);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    v[c][i] += other[i];
            }
            if (drop.limit) drop.apply(v[c], r, place::piece(c));
            unpack_8<T>(other, residual[c]);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[c][i] = rounded<T>(v[c][i] + other[i]);
            if (at < width) store_8<T>(static_cast<T *>(job.s) + r * job.width + at, v[c]);
        }
        float mean = 0;
        if (!job.rms) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                if (place::column(c) < width)
#pragma unroll
                    for (float x : v[c])
                        sum += x;
            mean = place::sum(sum, turn) / (float)width;
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (place::column(c) < width)
#pragma unroll
                for (float &x : v[c]) {
                    x -= mean;
                    squares += x * x;
                }
        const float inverse = 1.0f / sqrtf(place::sum(squares, turn) / (float)width + job.eps);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = place::column(c);
            if (at >= width) continue;
            float gamma[8], beta[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            load_8_wide(gamma, job.gamma + at);
            if (job.beta) load_8_wide(beta, job.beta + at);
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[c][i] = v[c][i] * inverse * gamma[i] + beta[i];
            store_8<T>(static_cast<T *>(job.y) + r * job.width + at, v[c]);
        }
        if (place::column(0) == 0)
            reinterpret_cast<float2 *>(job.stats)[r] = make_float2(mean, inverse);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A block's column sums to its part of the work memory: [MOST_SUMS][width]. */
template <int CHUNKS, int ROW_WARPS>
static __device__ void leave_sums(float *part, int width, const float (&sums)[CHUNKS][8])
{
    using place = row_place<CHUNKS, ROW_WARPS>;
    if constexpr (ROW_WARPS > 1) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (place::column(c) < width) store_8_wide(part + place::column(c), sums[c]);
    } else {
        __shared__ __align__(16) float shared[WARPS][256];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            __syncthreads();
            store_8_wide(&shared[threadIdx.x / 32][threadIdx.x % 32 * 8], sums[c]);
            __syncthreads();
            float all = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                all += shared[w][threadIdx.x];
            if (c * 256 + (int)threadIdx.x < width) part[c * 256 + threadIdx.x] = all;
        }
    }
}

/* What a row is made of, on its way to the thread that asked for it: STAGES rows ahead, each thread its
   own 16 bytes of every matrix and chunk, so that nobody waits for anybody. */
enum { STAGES = 3 };
enum { ROW_DY, ROW_S, ROW_DY2, ROW_DS, ROW_MATRICES };

template <int CHUNKS> struct row_ring {
    uint32_t base; /* this thread's first place in shared memory */

    __device__ uint32_t place(int stage, int matrix, int c) const
    {
        return base + (uint32_t)(((stage * ROW_MATRICES + matrix) * CHUNKS + c) * THREADS * 16);
    }
    __device__ void ask(int stage, int matrix, int c, const void *from) const
    {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(stage, matrix, c)),
                     "l"(from)
                     : "memory");
    }
    template <class T> __device__ void read(float (&v)[8], int stage, int matrix, int c) const
    {
        uint4 bits;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                     : "r"(place(stage, matrix, c))
                     : "memory");
        unpack_8<T>(v, bits);
    }
};

/* With h = (s − mean)·inverse and g = dy·gamma: ds = inverse·(g − mean(g) − h·mean(g·h)). */
template <class T, int CHUNKS, int ROW_WARPS>
__global__ void __launch_bounds__(THREADS, CHUNKS <= 2 ? 2 : 1)
    norm_back_kernel(const __grid_constant__ s24_device_train_norm_back_args job)
{
    using place = row_place<CHUNKS, ROW_WARPS>;
    extern __shared__ uint4 ring_memory[];
    const int width = (int)job.width;
    const dropper drop(job.drop), drop_z(job.drop_z);
    const row_ring<CHUNKS> ring = {(uint32_t)__cvta_generic_to_shared(ring_memory + threadIdx.x)};
    float dgamma[CHUNKS][8] = {}, dbeta[CHUNKS][8] = {}, dbias[CHUNKS][8] = {};
    float2 ahead[STAGES - 1]; /* statistics */
    unsigned turn = 0;
    dependents_may_start();
    wait_for_predecessors();
    const auto ask = [&](int64_t r, int stage) -> float2 {
        const bool there = r < job.rows;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = r * job.width + place::column(c);
            if (!there || place::column(c) >= width) continue;
            ring.ask(stage, ROW_DY, c, static_cast<const T *>(job.dy) + at);
            ring.ask(stage, ROW_S, c, static_cast<const T *>(job.s) + at);
            if (job.dy2) ring.ask(stage, ROW_DY2, c, static_cast<const T *>(job.dy2) + at);
            if (job.add) ring.ask(stage, ROW_DS, c, static_cast<const T *>(job.ds) + at);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        return there ? reinterpret_cast<const float2 *>(job.stats)[r] : make_float2(0, 0);
    };
    int64_t r = place::first();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        ahead[i] = ask(r + i * place::step(), i);
    for (int stage = 0; r < job.rows; r += place::step(), stage = (stage + 1) % STAGES) {
        float g[CHUNKS][8], h[CHUNKS][8], sum = 0, product = 0;
        const float2 stats = ahead[0],
                     last = ask(r + (STAGES - 1) * place::step(), (stage + STAGES - 1) % STAGES);
#pragma unroll
        for (int i = 0; i < STAGES - 2; i++)
            ahead[i] = ahead[i + 1];
        ahead[STAGES - 2] = last;
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                g[c][i] = h[c][i] = 0;
            if (place::column(c) >= width) continue;
            ring.template read<T>(g[c], stage, ROW_DY, c);
            ring.template read<T>(h[c], stage, ROW_S, c);
            if (!job.dy2) continue;
            float other[8];
            ring.template read<T>(other, stage, ROW_DY2, c);
#pragma unroll
            for (int i = 0; i < 8; i++)
                g[c][i] += other[i];
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (drop.limit) drop.apply(g[c], r, place::piece(c));
            if (place::column(c) >= width) continue;
            float gamma[8];
            load_8_wide(gamma, job.gamma + place::column(c));
#pragma unroll
            for (int i = 0; i < 8; i++) {
                h[c][i] = (h[c][i] - stats.x) * stats.y;
                dgamma[c][i] += g[c][i] * h[c][i];
                dbeta[c][i] += g[c][i];
                g[c][i] *= gamma[i];
                sum += g[c][i];
                product += g[c][i] * h[c][i];
            }
        }
        const float shift = job.rms ? 0 : place::sum(sum, turn) / (float)width;
        const float slope = place::sum(product, turn) / (float)width;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = r * job.width + place::column(c);
            const bool inside = place::column(c) < width;
            float other[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (job.add && inside) ring.template read<T>(other, stage, ROW_DS, c);
#pragma unroll
            for (int i = 0; i < 8; i++)
                g[c][i] = other[i] + stats.y * (g[c][i] - shift - h[c][i] * slope);
            if (inside) store_8<T>(static_cast<T *>(job.ds) + at, g[c]);
            if (drop_z.limit) drop_z.apply(g[c], r, place::piece(c));
            if (job.dz && inside) store_8<T>(static_cast<T *>(job.dz) + at, g[c]);
            if (job.dbias && inside)
#pragma unroll
                for (int i = 0; i < 8; i++)
                    dbias[c][i] += g[c][i];
        }
    }
    float *part = static_cast<float *>(job.work) + (int64_t)blockIdx.x * MOST_SUMS * job.width;
    leave_sums<CHUNKS, ROW_WARPS>(part, width, dgamma);
    if (job.dbeta) leave_sums<CHUNKS, ROW_WARPS>(part + width, width, dbeta);
    if (job.dbias) leave_sums<CHUNKS, ROW_WARPS>(part + 2 * width, width, dbias);
}

/* ---- dropout alone --------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(THREADS)
    dropout_kernel(const __grid_constant__ s24_device_train_dropout_args job)
{
    const dropper drop(job.drop);
    enum { AHEAD = 2 };
    const int width = (int)job.width, lane = threadIdx.x % 32;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < job.rows;
         r += (int64_t)gridDim.x * WARPS)
        for (int p = 0; p < width; p += 256 * AHEAD) {
            const int64_t at = r * job.width + p + lane * 8;
            uint4 bits[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (p + k * 256 + lane * 8 < width) bits[k] = bits_at<T>(job.x, at + k * 256);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                float v[8];
                unpack_8<T>(v, bits[k]);
                if (drop.limit) drop.apply(v, r, p + k * 256);
                if (p + k * 256 + lane * 8 < width)
                    store_8<T>(static_cast<T *>(job.y) + at + k * 256, v);
            }
        }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The kernels of a width: warps of a row and chunks of a warp. */
#define NORM_KERNELS(kernel, T)                                                                    \
    {                                                                                              \
        {(const void *)kernel<T, 1, 1>, (const void *)kernel<T, 2, 1>,                             \
         (const void *)kernel<T, 3, 1>, (const void *)kernel<T, 4, 1>},                            \
        {                                                                                          \
            (const void *)kernel<T, 1, WARPS>, (const void *)kernel<T, 2, WARPS>,                  \
                (const void *)kernel<T, 3, WARPS>, (const void *)kernel<T, 4, WARPS>               \
        }                                                                                          \
    }

static int norm_chunks(int64_t width)
{
    const int columns = width > 256 * MOST_CHUNKS ? 256 * WARPS : 256;
    return (int)((width + columns - 1) / columns);
}

static const void *norm_choose(const void *const (&kernels)[2][2][MOST_CHUNKS], s24_dtype dtype,
                               int64_t width)
{
    return kernels[dtype == S24_F16][width > 256 * MOST_CHUNKS][norm_chunks(width) - 1];
}

static unsigned norm_blocks(const s24i_device *device, int64_t rows, int64_t width, int most)
{
    return train_blocks(device, rows, width > 256 * MOST_CHUNKS ? 1 : WARPS, most);
}

TRAIN_ENQUEUE(add_norm, s24_device_train_add_norm_args)
{
    static const void *const kernels[2][2][MOST_CHUNKS] = {
        NORM_KERNELS(add_norm_kernel, __nv_bfloat16), NORM_KERNELS(add_norm_kernel, __half)};
    s24_device_train_add_norm_args args_of = *job;
    const device_launch launch = {"launching a sum and its norm",
                                  norm_choose(kernels, job->dtype, job->width),
                                  dim3(norm_blocks(device, job->rows, job->width, 1 << 16)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}

TRAIN_ENQUEUE(norm_back, s24_device_train_norm_back_args)
{
    static const void *const kernels[2][2][MOST_CHUNKS] = {
        NORM_KERNELS(norm_back_kernel, __nv_bfloat16), NORM_KERNELS(norm_back_kernel, __half)};
    s24_device_train_norm_back_args args_of = *job;
    const int chunks = norm_chunks(job->width);
    const int shared = STAGES * ROW_MATRICES * chunks * THREADS * 16;
    const void *kernel = norm_choose(kernels, job->dtype, job->width);
    const unsigned blocks = norm_blocks(device, job->rows, job->width, chunks <= 2 ? 2 : 1);
    const device_launch launch = {
        "launching the gradient of a norm", kernel, dim3(blocks), THREADS, shared, true};
    CUDA_TRY(error, "asking for shared memory",
             cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    const column_parts sums = {static_cast<const float *>(job->work),
                               MOST_SUMS * job->width,
                               job->width,
                               job->width,
                               (int)blocks,
                               {job->dgamma, job->dbeta, job->dbias}};
    void *args[] = {&args_of};
    const s24_status status = device_launch_kernel(error, &launch, args, stream);
    return status == S24_OK ? column_parts_enqueue(device, &sums, stream, error) : status;
}

TRAIN_ENQUEUE(dropout, s24_device_train_dropout_args)
{
    s24_device_train_dropout_args args_of = *job;
    const device_launch launch = {"launching dropout",
                                  job->dtype == S24_BF16
                                      ? (const void *)dropout_kernel<__nv_bfloat16>
                                      : (const void *)dropout_kernel<__half>,
                                  dim3(train_blocks(device, job->rows, WARPS, 1 << 16)),
                                  THREADS,
                                  0,
                                  true};
    void *args[] = {&args_of};
    return device_launch_kernel(error, &launch, args, stream);
}
