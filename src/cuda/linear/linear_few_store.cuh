// SPDX-License-Identifier: Apache-2.0
/*
 * The quick way of few tokens' sums to Y: a bias, one rounding to 16 bits, and out of the
 * registers, without shared memory and its barriers. Nothing else runs meanwhile, so what it needs
 * is asked for before the sums of other blocks are there: a product's parameters come from far
 * away, too.
 */
#ifndef S24_CUDA_LINEAR_LINEAR_FEW_STORE_CUH
#define S24_CUDA_LINEAR_LINEAR_FEW_STORE_CUH

#include "cuda/linear/linear_tile.cuh"

static __device__ constexpr s24_dtype output_dtype(const __half *)
{
    return S24_F16;
}
static __device__ constexpr s24_dtype output_dtype(const __nv_bfloat16 *)
{
    return S24_BF16;
}

template <class T> struct few_way {
    using output = typename element_of<T>::output;
    output *y;        /* this lane's first token and outputs */
    long long stride; /* eight tokens on */
    int tokens;       /* this lane's are there if they come before */
    bool quick, low_here, high_here;
    float low, high; /* biases of outputs lane/4 and eight on */

    /* 16 outputs from n on, tokens from m on, before `end`. */
    __device__ few_way(const linear_params &p, int m, int end, int n, int lane)
        : y(static_cast<output *>(p.y) + (size_t)(m + lane / 4) * p.y_ld + n + lane % 4 * 2),
          stride(8 * p.y_ld), tokens(end - m - lane / 4),
          quick(p.y_dtype == output_dtype((output *)nullptr) && !p.activation && !p.residual &&
                !p.x_scale && !p.w_scale && p.shape.n % 2 == 0),
          low_here(n + lane % 4 * 2 < p.shape.n), high_here(n + lane % 4 * 2 + 8 < p.shape.n),
          low(0), high(0)
    {
        const output *bias = static_cast<const output *>(p.bias);
        if (!quick || !bias) return;
        if (n + lane / 4 < p.shape.n) low = (float)bias[n + lane / 4];
        if (n + lane / 4 + 8 < p.shape.n) high = (float)bias[n + lane / 4 + 8];
    }
    /* Eight tokens, of which a thread has two sums of output lane/4 and two of eight outputs on. */
    template <class SUM> __device__ __forceinline__ void store(const SUM (&s)[4], int eight) const
    {
        uint32_t rows[2] = {pair_of<output>::pack((float)s[0] + low, (float)s[1] + low),
                            pair_of<output>::pack((float)s[2] + high, (float)s[3] + high)};
        output *to = y + eight * stride;
#pragma unroll
        for (uint32_t &row : rows)
            asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(row));
        if (eight * 8 >= tokens) return;
        if (low_here) *reinterpret_cast<uint32_t *>(to) = rows[0];
        if (high_here) *reinterpret_cast<uint32_t *>(to + 8) = rows[1];
    }
};

#endif
