// SPDX-License-Identifier: Apache-2.0
/*
 * What a transformer does row by row between its products: embeddings, patches of images, layer
 * norms, activations after dense products. All of it is bound by memory: 16 bytes per thread and
 * access, sums in f32, one rounding at the end.
 */
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/plugin/device.cuh"
#include "cuda/row/quantise.cuh"

enum {
    WARPS = 8,       /* of a block */
    BLOCKS = 4,      /* that a processor has room for */
    MOST_CHUNKS = 8, /* of 256 elements of a row */
};

/* ---- norms and embeddings: a warp a row ------------------------------------------------------ */

/* A lane's parts of a row, as they stand in memory. */
template <int CHUNKS>
static __device__ __forceinline__ void load_parts(uint4 (&bits)[CHUNKS], const void *row, int lane,
                                                  int width)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        bits[c] = make_uint4(0, 0, 0, 0);
        if (c * 256 + lane * 8 < width) bits[c] = static_cast<const uint4 *>(row)[c * 32 + lane];
    }
}

template <class T, int CHUNKS>
static __device__ __forceinline__ void add_parts(float (&v)[CHUNKS][8], const uint4 (&bits)[CHUNKS])
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        float w[8];
        unpack<T>(w, bits[c]);
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[c][i] += w[i];
    }
}

/* A norm as its kernel has it: the caller's arguments, and where their operands are. */
struct norm_job : s24_device_norm_args {
    s24_dtype dtype, narrow_dtype;
    int64_t rows, width;
    const void *x, *residual;
    void *y, *sum, *narrow;

    explicit norm_job(const s24_device_norm_args &a)
        : s24_device_norm_args(a), x(data_of(a.x)), residual(data_of(a.residual)), y(data_of(a.y)),
          sum(data_of(a.sum)), narrow(data_of(a.narrow))
    {
        const s24_dense *out = a.y ? a.y : a.sum;
        dtype = out->dtype;
        narrow_dtype = a.narrow ? a.narrow->dtype : S24_DTYPE_NONE;
        rows = out->rows;
        width = out->cols;
    }
};

/* Row r before its norm, zeros beyond its end. The two that are long are asked for together,
   since what is on its way at a time decides the speed. */
template <class T, int CHUNKS>
static __device__ __forceinline__ void norm_load(float (&v)[CHUNKS][8], const norm_job &job,
                                                 int64_t r, int lane)
{
    const int width = (int)job.width;
    const T *position = static_cast<const T *>(job.position_rows);
    const T *x = job.ids ? static_cast<const T *>(job.words) + job.ids[r] * job.width
                         : static_cast<const T *>(job.x) + r * job.width;
    const T *residual = static_cast<const T *>(job.residual);
    if (position) position += job.positions[r] * job.width;
    const T *second = residual ? residual + r * job.width : position;
    uint4 bits[CHUNKS], more[CHUNKS];
    load_parts(bits, x, lane, width);
    if (second) load_parts(more, second, lane, width);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        unpack<T>(v[c], bits[c]);
    if (second) add_parts<T>(v, more);
    if (residual && position) {
        load_parts(bits, position, lane, width);
        add_parts<T>(v, bits);
    }
    if (job.type_rows) {
        const T *rows = static_cast<const T *>(job.type_rows);
        load_parts(bits, rows + (job.types ? job.types[r] : 0) * job.width, lane, width);
        add_parts<T>(v, bits);
    }
}

template <class T, int CHUNKS>
static __device__ __forceinline__ void store_parts(void *row, const float (&v)[CHUNKS][8], int lane,
                                                   int width)
{
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * 256 + lane * 8 < width)
            store_narrow<T>(static_cast<T *>(row) + c * 256 + lane * 8, v[c]);
}

/* A warp has one row: warps that come and go overlap better than those that stay. */
template <class T, int CHUNKS>
__global__ void __launch_bounds__(32 * WARPS, CHUNKS <= 4 ? BLOCKS : BLOCKS / 2)
    norm_kernel(const __grid_constant__ norm_job job)
{
    const int lane = threadIdx.x % 32, width = (int)job.width;
    float v[CHUNKS][8], sum = 0, squares = 0;
    dependents_may_start();
    wait_for_predecessors();
    /* The product before wrote the last rows last: they may still be in L2. */
    const int64_t r = job.rows - 1 - ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32);
    if (r < 0) return;
    norm_load<T>(v, job, r, lane);
    if (job.sum) store_parts<T>(static_cast<T *>(job.sum) + r * job.width, v, lane, width);
    if (!job.y) return; /* the sums are all that is wanted */
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (float x : v[c])
            sum += x;
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
    }
    store_parts<T>(static_cast<T *>(job.y) + r * job.width, v, lane, width);
    if (!job.narrow) return;
    quantiser q(job.narrow_dtype, job.narrow_fixed);
    if (!(job.narrow_fixed > 0)) {
        float most = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (c * 256 + lane * 8 < width) most = largest_of(most, v[c]);
        q = quantiser(warp_largest(most), job.narrow_dtype);
    }
    if (lane == 0) job.narrow_scale[r] = q.scale;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * 256 + lane * 8 < width)
            q.store_8(static_cast<uint8_t *>(job.narrow) + r * width + c * 256 + lane * 8, v[c]);
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

s24_status norm_enqueue(s24i_device *device, const s24_device_norm_args *args, void *stream,
                        s24i_device_error *error)
{
    norm_job job(*args);
    const int chunks = (int)((job.width + 255) / 256);
    const device_launch launch = {"launching a norm",
                                  job.dtype == S24_BF16 ? norm_kernel_of<__nv_bfloat16>(chunks)
                                                        : norm_kernel_of<__half>(chunks),
                                  dim3((unsigned)((job.rows + WARPS - 1) / WARPS)),
                                  32 * WARPS,
                                  0,
                                  job.rows * job.width <= EARLY_NORM};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
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

s24_status activation_enqueue(s24i_device *device, const s24_device_dense_args *job, void *stream,
                              s24i_device_error *error)
{
    void *y = job->y->data;
    int64_t ld = ld_of(job->y), rows = job->y->rows;
    int pieces = (int)(job->y->cols / 8), activation = job->activation;
    const int64_t blocks = (rows * pieces + 255) / 256, most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching an activation",
                                  job->y->dtype == S24_BF16
                                      ? (const void *)activation_kernel<__nv_bfloat16>
                                      : (const void *)activation_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  256,
                                  0,
                                  true};
    void *args[] = {&y, &ld, &rows, &pieces, &activation};
    return device_launch_kernel(error, &launch, args, stream);
}

/* ---- patches of images: a thread eight elements of a row ------------------------------------- */

/* Patches as their kernel has them: the caller's arguments, and where y is. */
struct unfold_job : s24_device_unfold_args {
    void *y;
    int64_t row;

    explicit unfold_job(const s24_device_unfold_args &a)
        : s24_device_unfold_args(a), y(a.y->data), row(a.y->cols)
    {
    }
};

/* Reads element c of a patch, 0 past its last. */
static __device__ inline float patch_at(const unfold_job &job, const float *corner, int c)
{
    const int n = (int)job.patch, square = n * n;
    if (c >= job.channels * square) return 0;
    return corner[(c / square * job.image + c % square / n) * job.image + c % n];
}

template <class T>
__global__ void __launch_bounds__(256) unfold_kernel(const __grid_constant__ unfold_job job)
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

s24_status unfold_enqueue(s24i_device *device, const s24_device_unfold_args *args, void *stream,
                          s24i_device_error *error)
{
    unfold_job job(*args);
    const int64_t side = job.image / job.patch;
    const int64_t all = job.images * (job.first + side * side) * (job.row / 8);
    const int64_t blocks = (all + 255) / 256, most = (int64_t)device->processors * 8;
    const device_launch launch = {"launching the unfolding of images",
                                  args->y->dtype == S24_BF16
                                      ? (const void *)unfold_kernel<__nv_bfloat16>
                                      : (const void *)unfold_kernel<__half>,
                                  dim3((unsigned)(blocks < most ? blocks : most)),
                                  256,
                                  0,
                                  true};
    void *parameters[] = {&job};
    return device_launch_kernel(error, &launch, parameters, stream);
}
