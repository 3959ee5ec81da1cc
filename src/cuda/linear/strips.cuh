// SPDX-License-Identifier: Apache-2.0
/*
 * What products with integers share: the order of their weight as a lane reads it (docs/format.md,
 * strips), their parameters, and the end, in which a block adds up the sums of parts of k and
 * stores outputs.
 */
#ifndef S24_CUDA_LINEAR_STRIPS_CUH
#define S24_CUDA_LINEAR_STRIPS_CUH

#include <type_traits>

#include "cuda/linear/linear_store_full.cuh"
#include "cuda/ptx/widen.cuh"

struct strips_params {
    const uint8_t *w;
    const float *row_scales; /* [n], of a weight with a scale per row */
    const void *x, *bias, *residual;
    void *y;
    long long x_ld, residual_ld, y_ld; /* x_ld: for kernels without a tensor map */
    int m, n, k, k_blocks, slabs;
    int turn;  /* tokens of a tile, of whose columns the others are not used */
    int tiles; /* of outputs, of a product of many tokens */
    int turns; /* of tokens, of the same */
    int share; /* blocks of a cluster that share an output's k */
    int activation;
    s24_dtype y_dtype;
};

/* Strips of 16 rows by 128 columns; GROUP 0: a scale per row. A step is what one instruction takes
   of k, and has one word per lane of 4 bits an integer, two of 8. */
template <class T, int BITS, bool SPARSE, int GROUP> struct strips_order {
    using type = T;
    static constexpr int bits = BITS, group = GROUP;
    static constexpr bool sparse = SPARSE;
    static constexpr int steps = SPARSE ? 4 : 8, words = steps * (BITS / 4);
    static constexpr int scales = GROUP ? 128 / GROUP : 0;
    static constexpr int codes_at = words * 128, scales_at = codes_at + (SPARSE ? 256 : 0);
    static constexpr int strip = scales_at + scales * 64, block = 4 * strip;
};

static __device__ __forceinline__ void shared_words_4(uint32_t *v, uint32_t at)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}
static __device__ __forceinline__ void shared_words_2(uint32_t *v, uint32_t at)
{
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(at) : "memory");
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Sums of a part of k lie by eight rows, in each by eight tokens, in these two of each lane: row
   lane/4, tokens lane%4·2 and the next one. */
static __device__ __forceinline__ int strips_sum_at(int row, int token, int eights)
{
    return ((row / 8 * eights + token / 8) * 32 + row % 8 * 4 + token % 8 / 2) * 2 + token % 2;
}

static __device__ __forceinline__ void strips_finish(const strips_params &p, float sum, int token,
                                                     int row)
{
    float v[8] = {p.row_scales ? sum * p.row_scales[row] : sum}; /* of which one is computed */
    if (p.bias) v[0] += read_float(p.bias, p.y_dtype, row);
    activate(v, p.activation);
    if (p.residual) v[0] += read_float(p.residual, p.y_dtype, (size_t)token * p.residual_ld + row);
    const size_t at = (size_t)token * p.y_ld + row;
    if (p.y_dtype == S24_F32)
        static_cast<float *>(p.y)[at] = v[0];
    else
        static_cast<uint16_t *>(p.y)[at] = (uint16_t)bits_of(v[0], p.y_dtype);
}

/* `parts` lie in shared memory one after the other, each of `rows` (a power of two) by TOKENS, and
   are added in that order; `row` and `token` are the first. */
template <int TOKENS>
static __device__ void strips_store(const strips_params &p, const float *sums, int parts, int rows,
                                    int row, int token, int threads)
{
    const int shift = __ffs(rows) - 1;
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * TOKENS; i += threads) {
        const int r = i & (rows - 1), t = i >> shift, at = strips_sum_at(r, t, TOKENS / 8);
        float sum = 0;
        if (t >= p.turn || token + t >= p.m) break;
        for (int part = 0; part < parts; part++)
            sum += sums[part * rows * TOKENS + at];
        if (row + r < p.n) strips_finish(p, sum, token + t, row + r);
    }
}

/* f(std::integral_constant) for 0 to N - 1. */
template <int N> struct strips_steps {
    template <class F> static __device__ __forceinline__ void run(F f)
    {
        strips_steps<N - 1>::run(f);
        f(std::integral_constant<int, N - 1>());
    }
};
template <> struct strips_steps<0> {
    template <class F> static __device__ __forceinline__ void run(F)
    {
    }
};

#endif
