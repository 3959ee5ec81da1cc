// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products of up to 16 tokens, in which all that counts is how the weight streams in. A block
 * has eight outputs, and its warps take pieces of k by turns: eight rows by 256 elements of the
 * weight, straight to registers, the first of them before the kernels before this one are done. The
 * products are mma's, tokens by outputs; a thread's 16 bytes of a row are four of its operands, in
 * an order of k that weight and tokens share. Sums are added up in the order of warps.
 */
#include "cuda/linear/dense.cuh"
#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/row/rows.cuh"

enum {
    MOST_TOKENS = 16,
    FEW_WARPS = 8,
    FEW_OUTPUTS = 8, /* of a block */
    FEW_LOADS = 8,   /* of a thread, on their way together */
    FEW_LOAD = 32,   /* elements of a row that four threads load */
    FEW_PIECE = FEW_LOADS * FEW_LOAD
};

struct few_product {
    const void *x, *w, *bias;
    void *y;
    int64_t x_ld, y_ld;
    int m, n, k, activation;
    bool wide; /* y is f32 */
};

/* A piece of the weight, which is read once. */
static __device__ __forceinline__ void piece_in(uint4 (&w)[FEW_LOADS], const uint16_t *row, int at,
                                                int k)
{
#pragma unroll
    for (int i = 0; i < FEW_LOADS; i++) {
        w[i] = make_uint4(0, 0, 0, 0);
        if (row && at + i * FEW_LOAD < k)
            asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[i].x), "=r"(w[i].y), "=r"(w[i].z), "=r"(w[i].w)
                         : "l"(row + at + i * FEW_LOAD));
    }
}

/* Sums of a piece: TOKENS is 8 or 16. */
template <class T, int TOKENS>
static __device__ __forceinline__ void piece_add(float (&sums)[4], const uint4 (&w)[FEW_LOADS],
                                                 const few_product &p, int at)
{
    const int token = threadIdx.x % 32 / 4;
    const uint16_t *x = static_cast<const uint16_t *>(p.x) + token * p.x_ld + at;
#pragma unroll
    for (int i = 0; i < FEW_LOADS; i++) {
        uint4 low = make_uint4(0, 0, 0, 0), high = low;
        const bool inside = at + i * FEW_LOAD < p.k;
        if (inside && token < p.m) low = *reinterpret_cast<const uint4 *>(x + i * FEW_LOAD);
        if (TOKENS > 8 && inside && token + 8 < p.m)
            high = *reinterpret_cast<const uint4 *>(x + 8 * p.x_ld + i * FEW_LOAD);
        mma<T>::add(sums, {low.x, high.x, low.y, high.y}, w[i].x, w[i].y);
        mma<T>::add(sums, {low.z, high.z, low.w, high.w}, w[i].z, w[i].w);
    }
}

/* A token's eight outputs, from the sums of all warps. */
template <class T>
static __device__ __forceinline__ void few_out(const float (&parts)[FEW_WARPS][16][FEW_OUTPUTS],
                                               const few_product &p, int token, int first)
{
    float v[FEW_OUTPUTS];
#pragma unroll
    for (int i = 0; i < FEW_OUTPUTS; i++) {
        v[i] = 0;
#pragma unroll
        for (int warp = 0; warp < FEW_WARPS; warp++)
            v[i] += parts[warp][token][i];
        if (p.bias && first + i < p.n) v[i] += (float)static_cast<const T *>(p.bias)[first + i];
    }
    activate(v, p.activation);
    const int64_t at = token * p.y_ld + first;
    for (int i = 0; i < FEW_OUTPUTS && first + i < p.n; i++)
        if (p.wide)
            static_cast<float *>(p.y)[at + i] = v[i];
        else
            static_cast<T *>(p.y)[at + i] = (T)v[i];
}

template <class T, int TOKENS>
__global__ void __launch_bounds__(32 * FEW_WARPS, 2)
    dense_few_kernel(const __grid_constant__ few_product p)
{
    __shared__ float parts[FEW_WARPS][16][FEW_OUTPUTS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4;
    const int first = blockIdx.x * FEW_OUTPUTS;
    const uint16_t *row = first + quad < p.n
                              ? static_cast<const uint16_t *>(p.w) + (int64_t)(first + quad) * p.k
                              : nullptr;
    int piece = warp * FEW_PIECE;
    const int mine = lane % 4 * 8;
    float sums[4] = {};
    uint4 w[2][FEW_LOADS];
    dependents_may_start();
    piece_in(w[0], row, piece + mine, p.k);
    wait_for_predecessors();
    constexpr int step = FEW_WARPS * FEW_PIECE;
    for (; piece < p.k; piece += 2 * step) {
        piece_in(w[1], row, piece + step + mine, p.k);
        piece_add<T, TOKENS>(sums, w[0], p, piece + mine);
        if (piece + step >= p.k) break;
        piece_in(w[0], row, piece + 2 * step + mine, p.k);
        piece_add<T, TOKENS>(sums, w[1], p, piece + step + mine);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        parts[warp][quad + i / 2 * 8][lane % 4 * 2 + i % 2] = sums[i];
    __syncthreads();
    if ((int)threadIdx.x < p.m) few_out<T>(parts, p, threadIdx.x, first);
}

bool dense_few_takes(const s24_device_dense_args *job)
{
    return job->few && job->x->rows <= MOST_TOKENS && !job->residual;
}

s24_status dense_few_enqueue(const s24_device_dense_args *job, void *stream,
                             s24i_device_error *error)
{
    few_product p = {};
    p.x = job->x->data;
    p.w = job->w->data;
    p.bias = job->bias;
    p.y = job->y->data;
    p.x_ld = ld_of(job->x);
    p.y_ld = ld_of(job->y);
    p.m = (int)job->x->rows;
    p.n = (int)job->w->rows;
    p.k = (int)job->w->cols;
    p.activation = job->activation;
    p.wide = job->y->dtype == S24_F32;
    const bool is_bf16 = job->x->dtype == S24_BF16, more = p.m > 8;
    const void *kernel = is_bf16 ? more ? (const void *)dense_few_kernel<__nv_bfloat16, 16>
                                        : (const void *)dense_few_kernel<__nv_bfloat16, 8>
                         : more ? (const void *)dense_few_kernel<__half, 16>
                                 : (const void *)dense_few_kernel<__half, 8>;
    const device_launch launch = {"launching a dense product of few tokens",
                                  kernel,
                                  dim3((unsigned)((p.n + FEW_OUTPUTS - 1) / FEW_OUTPUTS)),
                                  32 * FEW_WARPS,
                                  0,
                                  true};
    void *args[] = {&p};
    return device_launch_kernel(error, &launch, args, stream);
}
