// SPDX-License-Identifier: Apache-2.0
/*
 * Products of few tokens with their experts, a row of y each by itself: all that counts is how
 * weights stream in. A block has 16 outputs of a row, and its warps take turns along k, pieces of
 * which go straight to registers in the order that the tensor cores' operands have; all eight
 * columns of tokens are the same one. Sums are added up in the order of warps.
 */
#include "cuda/experts/experts.cuh"

enum { FEW_WARPS = 4, FEW_THREADS = 32 * FEW_WARPS, FEW_ROWS = 16, FEW_STEPS = 4 };

/* What is read once. */
static __device__ __forceinline__ uint32_t stream_1(const void *from)
{
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}
static __device__ __forceinline__ void stream_4(uint32_t (&v)[4], const void *from)
{
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "l"(from));
}

/* ---- 2:4 ------------------------------------------------------------------------------------- */

/* 16 rows of a block: of each of its two steps four words of values, and one of codes. */
struct packed_piece {
    uint32_t values[2][4], meta[1];
};

static __device__ __forceinline__ void piece_in(packed_piece &w, const uint8_t *block, int row)
{
    const int lane = threadIdx.x % 32;
    const uint8_t *values = block + row / 16 * 512 + lane * 4;
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int i = 0; i < 4; i++) /* rows 0-7, rows 8-15, and both of the next 16 bytes */
            w.values[step][i] =
                stream_1(values + step * WEIGHT_STEP_VALUES + i % 2 * 256 + i / 2 * 128);
    w.meta[0] = stream_1(block + WEIGHT_VALUES + (row / 16 * 32 + lane) * 4);
}

/* 32 columns of the token; what is beyond k is zero. */
template <class T>
static __device__ __forceinline__ void token_in(uint32_t (&b)[4], const T *x, int at, int k)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int column = at + i * 8;
        b[i] =
            column < k ? *reinterpret_cast<const uint32_t *>(x + column + threadIdx.x % 4 * 2) : 0;
    }
}

template <class T>
static __device__ __forceinline__ void multiply_packed(float (&sums)[4], const experts_params &p,
                                                       const uint8_t *w, const T *x, int row)
{
    const uint8_t *blocks = w + row / 64 * p.slab_bytes();
    const int steps = p.steps();
#pragma unroll 1
    for (int first = threadIdx.x / 32; first < steps; first += FEW_WARPS * FEW_STEPS) {
        packed_piece piece[FEW_STEPS];
#pragma unroll
        for (int i = 0; i < FEW_STEPS; i++)
            if (first + i * FEW_WARPS < steps)
                piece_in(piece[i],
                         blocks + (size_t)(first + i * FEW_WARPS) * element_of<T>::weight_block,
                         row % 64);
#pragma unroll
        for (int i = 0; i < FEW_STEPS; i++) {
            const int step = first + i * FEW_WARPS;
            uint32_t b[4];
            if (step >= steps) break;
            token_in<T>(b, x, step * 64, p.k);
            mma_sp<T, 0>::run(sums, piece[i].values[0], b, piece[i].meta);
            token_in<T>(b, x, step * 64 + 32, p.k);
            mma_sp<T, 1>::run(sums, piece[i].values[1], b, piece[i].meta);
        }
    }
}

/* ---- dense ----------------------------------------------------------------------------------- */

/* A lane's 16 bytes of a row are four of its operands, in an order of k that weight and token
   share: a piece is 32 columns, and a step two of them. Rows that are not there are the last. */
template <class T>
static __device__ __forceinline__ void multiply_dense(float (&sums)[4], const experts_params &p,
                                                      const T *w, const T *x, int row)
{
    constexpr int PIECES = 2 * FEW_STEPS;
    const int lane = threadIdx.x % 32, k = lane % 4 * 8;
    const T *low = w + (size_t)min(row + lane / 4, p.n - 1) * (size_t)p.k + k;
    const T *high = w + (size_t)min(row + lane / 4 + 8, p.n - 1) * (size_t)p.k + k;
#pragma unroll 1
    for (int first = (int)threadIdx.x / 32 * 32; first < p.k; first += 32 * FEW_WARPS * PIECES) {
        uint32_t a[PIECES][2][4] = {};
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = first + i * 32 * FEW_WARPS;
            if (at + k < p.k) {
                stream_4(a[i][0], low + at);
                stream_4(a[i][1], high + at);
            }
        }
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int at = first + i * 32 * FEW_WARPS;
            uint4 bits = make_uint4(0, 0, 0, 0);
            if (at >= p.k) break;
            if (at + k < p.k) bits = *reinterpret_cast<const uint4 *>(x + at + k);
            dense_step<T>(sums, a[i][0], a[i][1], {bits.x, bits.y, bits.z, bits.w});
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <class T>
__global__ void __launch_bounds__(FEW_THREADS)
    experts_few_kernel(const __grid_constant__ experts_params p)
{
    __shared__ float parts[FEW_WARPS][FEW_ROWS];
    const int of_part = (p.n + FEW_ROWS - 1) / FEW_ROWS, part = (int)blockIdx.x / of_part;
    const int row = (int)blockIdx.x % of_part * FEW_ROWS, slot = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sums[4] = {};
    dependents_may_start();
    wait_for_predecessors();
    const s24i_device_expert expert = p.table[part * p.experts + p.chosen[slot]];
    const T *x = static_cast<const T *>(p.x) + (size_t)(slot / p.each) * (size_t)p.k;
    if (expert.packed)
        multiply_packed<T>(sums, p, static_cast<const uint8_t *>(expert.weight), x, row);
    else
        multiply_dense<T>(sums, p, static_cast<const T *>(expert.weight), x, row);
    if (lane % 4 == 0) {
        parts[warp][lane / 4] = sums[0];
        parts[warp][lane / 4 + 8] = sums[2];
    }
    __syncthreads();
    if (threadIdx.x >= FEW_ROWS || row + (int)threadIdx.x >= p.n) return;
    float sum = p.bias_of(part, p.chosen[slot], row + (int)threadIdx.x);
#pragma unroll
    for (int i = 0; i < FEW_WARPS; i++)
        sum += parts[i][threadIdx.x];
    static_cast<T *>(p.y)[((size_t)slot * (size_t)p.parts + (size_t)part) * (size_t)p.n +
                          (size_t)row + threadIdx.x] = (T)sum;
}

s24_status experts_few_enqueue(experts_params *p, s24_dtype dtype, void *stream,
                               s24i_device_error *error)
{
    const unsigned of_part = (unsigned)(p->n + FEW_ROWS - 1) / FEW_ROWS;
    const device_launch launch = {"launching products of experts with few tokens",
                                  dtype == S24_BF16
                                      ? (const void *)experts_few_kernel<__nv_bfloat16>
                                      : (const void *)experts_few_kernel<__half>,
                                  dim3(of_part * (unsigned)p->parts, (unsigned)p->rows),
                                  FEW_THREADS,
                                  0,
                                  true};
    void *parameters[] = {p};
    return device_launch_kernel(error, &launch, parameters, stream);
}
