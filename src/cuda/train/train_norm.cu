// SPDX-License-Identifier: Apache-2.0
/*
 * Norms in training: a sum's dropout, bias and residual in front of one, and the pass back through
 * it with the gradients of its parameters. A row of up to 1024 elements is a warp's, a wider one a
 * block's; it is read once and stays in registers.
 */
#include "cuda/plugin/train.cuh"
#include "cuda/row/rows.cuh"
#include "cuda/train/train_dropout.cuh"
#include "cuda/train/train_largest.cuh"
#include "cuda/train/train_sums.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* Which rows and columns a warp has: CHUNKS pieces of N columns per thread. STAGES: how many rows
   are on their way, or at work, in the pass back. */
template <int N_, int CHUNKS_, int ROW_WARPS, int STAGES_ = 3> struct row_place {
    static constexpr int N = N_, CHUNKS = CHUNKS_, row_warps = ROW_WARPS, STAGES = STAGES_;
    static constexpr int block_rows = WARPS / ROW_WARPS;
    using bits = typename row_bits<N>::type;
    using values = float[CHUNKS][N];

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
        return (ROW_WARPS == 1 ? c : c * WARPS + (int)threadIdx.x / 32) * (32 * N);
    }
    static __device__ int column(int c)
    {
        return piece(c) + (int)threadIdx.x % 32 * N;
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

/* What 16 bits make of it. */
template <class T> static __device__ inline float rounded(float v)
{
    return (float)(T)v;
}

/* Where row r begins: rows stand end to end, or are heads of wider rows. */
template <class JOB> static __device__ inline int64_t row_at(const JOB &job, int64_t r)
{
    return job.heads ? r / job.heads * job.ld + r % job.heads * job.width : r * job.width;
}

/* ---- forward --------------------------------------------------------------------------------- */

template <class T, class PLACE>
__global__ void __launch_bounds__(THREADS)
    add_norm_kernel(const __grid_constant__ s24_device_train_add_norm_args job)
{
    using place = PLACE;
    using bits = typename place::bits;
    constexpr int CHUNKS = place::CHUNKS, N = place::N;
    const auto bits_at = [](const void *from, int64_t at) {
        return *reinterpret_cast<const bits *>(static_cast<const T *>(from) + at);
    };
    const int width = (int)job.width;
    const dropper drop(job.drop);
    uint32_t most = 0;
    unsigned turn = 0;
    dependents_may_start();
    wait_for_predecessors();
    for (int64_t r = place::first(); r < job.rows; r += place::step()) {
        const int64_t row = row_at(job, r);
        bits own[CHUNKS], residual[CHUNKS];
        typename place::values v;
        float sum = 0, squares = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = row + place::column(c);
            const bool inside = place::column(c) < width;
            own[c] = residual[c] = bits();
            if (inside) own[c] = bits_at(job.z ? job.z : job.s, at);
            if (inside && job.residual) residual[c] = bits_at(job.residual, at);
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int at = place::column(c);
            unpack<T>(v[c], own[c]);
            if (!job.z) continue;
            float other[N];
            if (job.bias && at < width) {
                load_wide(other, job.bias + at);
#pragma unroll
                for (int i = 0; i < N; i++)
                    v[c][i] += other[i];
            }
            if (drop.limit) drop.apply(v[c], r, place::piece(c));
            unpack<T>(other, residual[c]);
#pragma unroll
            for (int i = 0; i < N; i++)
                v[c][i] = rounded<T>(v[c][i] + other[i]);
            if (at < width) store_narrow<T>(static_cast<T *>(job.s) + row + at, v[c]);
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
            float gamma[N], beta[N] = {};
            load_wide(gamma, job.gamma + at);
            if (job.beta) load_wide(beta, job.beta + at);
#pragma unroll
            for (int i = 0; i < N; i++)
                v[c][i] = v[c][i] * inverse * gamma[i] + beta[i];
            store_narrow<T>(static_cast<T *>(job.y) + row + at, v[c]);
            most = larger_of(most, v[c]);
        }
        if (place::column(0) == 0)
            reinterpret_cast<float2 *>(job.stats)[r] = make_float2(mean, inverse);
    }
    if (job.scale) leave_largest<T>(job.scale, most);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A block's column sums to its part of the work memory: [MOST_SUMS][width]. */
template <class PLACE>
static __device__ void leave_sums(float *part, int width, const typename PLACE::values &sums)
{
    using place = PLACE;
    constexpr int columns = 32 * place::N;
    if constexpr (place::row_warps > 1) {
#pragma unroll
        for (int c = 0; c < place::CHUNKS; c++)
            if (place::column(c) < width) store_wide(part + place::column(c), sums[c]);
    } else {
        __shared__ __align__(16) float shared[WARPS][columns];
#pragma unroll
        for (int c = 0; c < place::CHUNKS; c++) {
            const int at = c * columns + (int)threadIdx.x;
            __syncthreads();
            store_wide(&shared[threadIdx.x / 32][threadIdx.x % 32 * place::N], sums[c]);
            __syncthreads();
            if ((int)threadIdx.x >= columns || at >= width) continue;
            float all = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                all += shared[w][threadIdx.x];
            part[at] = all;
        }
    }
}

/* What a row is made of, on its way to the thread that asked for it: STAGES rows, each thread its
   own bytes of every matrix and chunk, so that nobody waits for anybody. */
enum { ROW_DY, ROW_S, ROW_DY2, ROW_DS, ROW_MATRICES };

template <class PLACE> struct row_ring {
    static constexpr int each = 2 * PLACE::N; /* bytes */
    uint32_t base;                            /* this thread's first place in shared memory */

    __device__ uint32_t place(int stage, int matrix, int c) const
    {
        return base +
               (uint32_t)(((stage * ROW_MATRICES + matrix) * PLACE::CHUNKS + c) * THREADS * each);
    }
    __device__ void ask(int stage, int matrix, int c, const void *from) const
    {
        if constexpr (each == 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(stage, matrix, c)),
                         "l"(from)
                         : "memory");
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(place(stage, matrix, c)),
                         "l"(from)
                         : "memory");
    }
    template <class T>
    __device__ void read(float (&v)[PLACE::N], int stage, int matrix, int c) const
    {
        typename PLACE::bits bits;
        if constexpr (each == 16)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                         : "r"(place(stage, matrix, c))
                         : "memory");
        else
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(bits.x), "=r"(bits.y)
                         : "r"(place(stage, matrix, c))
                         : "memory");
        unpack<T>(v, bits);
    }
};

/* With h = (s − mean)·inverse and g = dy·gamma: ds = inverse·(g − mean(g) − h·mean(g·h)). */
template <class T, class PLACE>
__global__ void __launch_bounds__(THREADS, PLACE::CHUNKS *PLACE::N <= 16 ? 2 : 1)
    norm_back_kernel(const __grid_constant__ s24_device_train_norm_back_args job)
{
    using place = PLACE;
    constexpr int CHUNKS = place::CHUNKS, N = place::N, STAGES = place::STAGES;
    extern __shared__ uint4 ring_memory[];
    const int width = (int)job.width;
    const dropper drop(job.drop), drop_z(job.drop_z);
    const row_ring<place> ring = {(uint32_t)__cvta_generic_to_shared(
        reinterpret_cast<typename place::bits *>(ring_memory) + threadIdx.x)};
    typename place::values dgamma = {}, dbeta = {}, dbias = {};
    float2 ahead[STAGES]; /* statistics */
    uint32_t most = 0;
    unsigned turn = 0;
    dependents_may_start();
    wait_for_predecessors();
    const auto ask = [&](int64_t r, int stage) -> float2 {
        const bool there = r < job.rows;
        const int64_t row = row_at(job, r);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = row + place::column(c);
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
        typename place::values g, h;
        float sum = 0, product = 0;
        ahead[STAGES - 1] = ask(r + (STAGES - 1) * place::step(), (stage + STAGES - 1) % STAGES);
        const float2 stats = ahead[0];
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++)
            ahead[i] = ahead[i + 1];
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
            for (int i = 0; i < N; i++)
                g[c][i] = h[c][i] = 0;
            if (place::column(c) >= width) continue;
            ring.template read<T>(g[c], stage, ROW_DY, c);
            ring.template read<T>(h[c], stage, ROW_S, c);
            if (!job.dy2) continue;
            float other[N];
            ring.template read<T>(other, stage, ROW_DY2, c);
#pragma unroll
            for (int i = 0; i < N; i++)
                g[c][i] += other[i];
        }
        if (drop.limit) drop.apply(g, r, place::piece);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (place::column(c) >= width) continue;
            float gamma[N];
            load_wide(gamma, job.gamma + place::column(c));
#pragma unroll
            for (int i = 0; i < N; i++) {
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
        const int64_t row = row_at(job, r);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = row + place::column(c);
            const bool inside = place::column(c) < width;
            float other[N] = {};
            if (job.add && inside) ring.template read<T>(other, stage, ROW_DS, c);
#pragma unroll
            for (int i = 0; i < N; i++)
                g[c][i] = other[i] + stats.y * (g[c][i] - shift - h[c][i] * slope);
            if (inside) store_narrow<T>(static_cast<T *>(job.ds) + at, g[c]);
        }
        if (drop_z.limit) drop_z.apply(g, r, place::piece);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int64_t at = r * job.width + place::column(c);
            if (place::column(c) >= width) continue;
            if (job.dz) store_narrow<T>(static_cast<T *>(job.dz) + at, g[c]);
            most = larger_of(most, g[c]);
            if (!job.dbias) continue;
#pragma unroll
            for (int i = 0; i < N; i++)
                dbias[c][i] += g[c][i];
        }
    }
    if (job.scale) leave_largest<T>(job.scale, most);
    float *part = static_cast<float *>(job.work) + (int64_t)blockIdx.x * MOST_SUMS * job.width;
    leave_sums<place>(part, width, dgamma);
    if (job.dbeta) leave_sums<place>(part + width, width, dbeta);
    if (job.dbias) leave_sums<place>(part + 2 * width, width, dbias);
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
                if (p + k * 256 + lane * 8 < width)
                    bits[k] = *reinterpret_cast<const uint4 *>(static_cast<const T *>(job.x) + at +
                                                               k * 256);
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                float v[8];
                unpack<T>(v, bits[k]);
                if (drop.limit) drop.apply(v, r, p + k * 256);
                if (p + k * 256 + lane * 8 < width)
                    store_narrow<T>(static_cast<T *>(job.y) + at + k * 256, v);
            }
        }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The places by width: a warp per row, then a block per row; of the pass back alone, rows of 384
   elements without idle lanes, and the longest ones where shared memory is little. */
enum { PLACES = 8, NARROW = PLACES, ONE_STAGE, BACK_PLACES };
#define NORM_KERNELS(kernel, T)                                                                    \
    (const void *)kernel<T, row_place<8, 1, 1>>, (const void *)kernel<T, row_place<8, 2, 1>>,      \
        (const void *)kernel<T, row_place<8, 3, 1>>, (const void *)kernel<T, row_place<8, 4, 1>>,  \
        (const void *)kernel<T, row_place<8, 1, WARPS>>,                                           \
        (const void *)kernel<T, row_place<8, 2, WARPS>>,                                           \
        (const void *)kernel<T, row_place<8, 3, WARPS>>,                                           \
        (const void *)kernel<T, row_place<8, 4, WARPS>>
#define NORM_BACK_KERNELS(T)                                                                       \
    NORM_KERNELS(norm_back_kernel, T), (const void *)norm_back_kernel<T, row_place<4, 3, 1>>,      \
        (const void *)norm_back_kernel<T, row_place<8, 4, WARPS, 1>>
static const struct {
    int most;  /* columns */
    int elems; /* of a thread */
    int rows;  /* of a block */
    int stages;
} places[BACK_PLACES] = {{256, 8, WARPS, 3},   {512, 16, WARPS, 3}, {768, 24, WARPS, 3},
                         {1024, 32, WARPS, 3}, {2048, 8, 1, 3},     {4096, 16, 1, 3},
                         {6144, 24, 1, 3},     {8192, 32, 1, 3},    {384, 12, WARPS, 3},
                         {8192, 32, 1, 1}};

static int norm_place(int64_t width)
{
    int at = 0;
    while (at < PLACES - 1 && places[at].most < width)
        at++;
    return at;
}

static int place_bytes(int place)
{
    return places[place].stages * places[place].elems * ROW_MATRICES * THREADS * 2;
}

/* One that takes no more shared memory than there is. */
static int norm_back_place(int64_t width, int room)
{
    int at = norm_place(width);
    if (width > places[0].most && width <= places[NARROW].most) return NARROW;
    while (at < PLACES && place_bytes(at) > room)
        at++;
    return at < PLACES ? at : ONE_STAGE;
}

TRAIN_ENQUEUE(add_norm, s24_device_train_add_norm_args)
{
    static const void *const kernels[2][PLACES] = {{NORM_KERNELS(add_norm_kernel, __nv_bfloat16)},
                                                   {NORM_KERNELS(add_norm_kernel, __half)}};
    s24_device_train_add_norm_args args_of = *job;
    const int place = norm_place(job->width);
    const device_launch launch = {
        "launching a sum and its norm",
        kernels[job->dtype == S24_F16][place],
        dim3(train_blocks(device, job->rows, places[place].rows, 1 << 16)),
        THREADS,
        0,
        true};
    void *args[] = {&args_of};
    const s24_status status = clear_largest(job->scale, stream, error);
    return status == S24_OK ? device_launch_kernel(error, &launch, args, stream) : status;
}

TRAIN_ENQUEUE(norm_back, s24_device_train_norm_back_args)
{
    static const void *const kernels[2][BACK_PLACES] = {{NORM_BACK_KERNELS(__nv_bfloat16)},
                                                        {NORM_BACK_KERNELS(__half)}};
    s24_device_train_norm_back_args args_of = *job;
    int room = 0;
    CUDA_TRY(error, "asking for a device's shared memory",
             cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->index));
    const int place = norm_back_place(job->width, room), shared = place_bytes(place);
    const void *kernel = kernels[job->dtype == S24_F16][place];
    const unsigned blocks =
        train_blocks(device, job->rows, places[place].rows, places[place].elems <= 16 ? 2 : 1);
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
    s24_status status = clear_largest(job->scale, stream, error);
    if (status == S24_OK) status = device_launch_kernel(error, &launch, args, stream);
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
