// SPDX-License-Identifier: Apache-2.0
/* What the AVX-512 kernels share: a 16 x 16 transposition, the activations, and the epilogue. */
#ifndef S24_KERNEL_X86_AVX512_H
#define S24_KERNEL_X86_AVX512_H

#include "kernel/cpu/x86/gelu.h"
#include "kernel/cpu/x86/x86.h"
#include "kernel/kernel.h"

AVX512_INLINE __mmask16 lane_mask(int64_t lanes)
{
    if (lanes >= 16) return 0xffff;
    if (lanes <= 0) return 0;
    return (__mmask16)((1u << lanes) - 1);
}

/* r[i] lane j <-> r[j] lane i: two rounds inside the 128-bit lanes, two between them. */
AVX512_INLINE void transpose16(__m512 r[16])
{
    __m512 t[16];
    UNROLL for (int i = 0; i < 16; i += 2)
    {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* Four times 128 bits that lie `step` floats apart. The inserts from memory go to two ports, the
   shuffles of transpose16's second half to one: a square loaded so takes two thirds of the time. */
AVX512_INLINE __m512 load_quarters(const float *p, int64_t step)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + step), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * step), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * step), 3);
}

/* r[j] lane i = p[i * stride + j]. */
AVX512_INLINE void load_transposed(__m512 r[16], const float *p, int64_t stride)
{
    UNROLL for (int q = 0; q < 4; q++)
    {
        const __m512 a = load_quarters(p + 4 * q, 4 * stride);
        const __m512 b = load_quarters(p + 4 * q + stride, 4 * stride);
        const __m512 c = load_quarters(p + 4 * q + 2 * stride, 4 * stride);
        const __m512 d = load_quarters(p + 4 * q + 3 * stride, 4 * stride);
        const __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        const __m512d AB = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        const __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
        const __m512d CD = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
        r[4 * q] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        r[4 * q + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        r[4 * q + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(AB, CD));
        r[4 * q + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(AB, CD));
    }
}

/* z·p(z²)/q(z²), clamped to where it reaches ±1 (see gelu.h). NaN stays NaN: min and max return
   their second operand when either is NaN. */
AVX512_INLINE __m512 sigmoid_like(__m512 z, const s24i_rational *f)
{
    const __m512 limit = _mm512_set1_ps(f->limit), one = _mm512_set1_ps(1);
    const __m512 minus = _mm512_set1_ps(-f->limit);
    z = _mm512_max_ps(minus, _mm512_min_ps(limit, z));
    __m512 u = _mm512_mul_ps(z, z);
    __m512 p = _mm512_set1_ps(f->p[S24I_RATIONAL_P - 1]);
    __m512 q = _mm512_set1_ps(f->q[S24I_RATIONAL_Q - 1]);
    UNROLL for (int i = S24I_RATIONAL_P - 2; i >= 0; i--)
    {
        p = _mm512_fmadd_ps(p, u, _mm512_set1_ps(f->p[i]));
    }
    UNROLL for (int i = S24I_RATIONAL_Q - 2; i >= 0; i--)
    {
        q = _mm512_fmadd_ps(q, u, _mm512_set1_ps(f->q[i]));
    }
    /* q is between 1 and 500: a reciprocal of 14 bits and one step of Newton's give 27, in a
       third of a division's time. */
    __m512 inverse = _mm512_rcp14_ps(q);
    inverse = _mm512_mul_ps(inverse, _mm512_fnmadd_ps(q, inverse, _mm512_set1_ps(2)));
    z = _mm512_mul_ps(_mm512_mul_ps(z, p), inverse);
    return _mm512_max_ps(_mm512_set1_ps(-1), _mm512_min_ps(one, z));
}

AVX512_INLINE __m512 activate(__m512 x, s24_activation activation)
{
    __m512 half = _mm512_mul_ps(x, _mm512_set1_ps(0.5f)), s;
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return _mm512_max_ps(_mm512_setzero_ps(), x);
    case S24_ACTIVATION_GELU:
        s = sigmoid_like(_mm512_mul_ps(x, _mm512_set1_ps(GELU_SQRT_HALF)), &s24i_erf);
        return _mm512_fmadd_ps(half, s, half);
    case S24_ACTIVATION_GELU_TANH:
        s = _mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(GELU_CUBIC));
        s = _mm512_mul_ps(_mm512_fmadd_ps(s, x, x), _mm512_set1_ps(GELU_SQRT_2_PI));
        s = sigmoid_like(s, &s24i_tanh);
        return _mm512_fmadd_ps(half, s, half);
    default:
        return x;
    }
}

/* Lanes of a vector that lies in memory with a stride. */
AVX512_INLINE __m512 load_lanes(const float *p, int64_t stride, __mmask16 mask)
{
    float lanes[16] = {0};
    if (stride == 1) return _mm512_maskz_loadu_ps(mask, p);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) lanes[i] = p[i * stride];
    return _mm512_loadu_ps(lanes);
}

AVX512_INLINE void store_lanes(float *p, int64_t stride, __mmask16 mask, __m512 v)
{
    float lanes[16];
    if (stride == 1) {
        _mm512_mask_storeu_ps(p, mask, v);
        return;
    }
    _mm512_storeu_ps(lanes, v);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i * stride] = lanes[i];
}

/* activation(alpha·v + bias) + beta·residual for outputs n..n+15 of token m. */
AVX512_INLINE void finish_token(const s24i_linear_job *job, int64_t m, int64_t n, __mmask16 mask,
                                __m512 v, __m512 bias)
{
    v = activate(_mm512_fmadd_ps(v, _mm512_set1_ps(job->alpha), bias), job->activation);
    if (job->residual && job->beta != 0) {
        const float *r = job->residual + m * job->residual_stride_m + n * job->residual_stride_n;
        v = _mm512_fmadd_ps(load_lanes(r, job->residual_stride_n, mask), _mm512_set1_ps(job->beta),
                            v);
    }
    store_lanes(job->y + m * job->y_stride_m + n * job->y_stride_n, job->y_stride_n, mask, v);
}

/* The same for tokens m..m+15 of output n. */
AVX512_INLINE void finish_row(const s24i_linear_job *job, int64_t m, int64_t n, __mmask16 mask,
                              __m512 v)
{
    __m512 bias = _mm512_set1_ps(job->bias ? job->bias[n] : 0);
    v = activate(_mm512_fmadd_ps(v, _mm512_set1_ps(job->alpha), bias), job->activation);
    if (job->residual && job->beta != 0) {
        const float *r = job->residual + m * job->residual_stride_m + n * job->residual_stride_n;
        v = _mm512_fmadd_ps(load_lanes(r, job->residual_stride_m, mask), _mm512_set1_ps(job->beta),
                            v);
    }
    store_lanes(job->y + m * job->y_stride_m + n * job->y_stride_n, job->y_stride_m, mask, v);
}

/* 16 outputs x 16 tokens from sums with tokens in the lanes, rows `pitch` floats apart. */
AVX512_INLINE void finish_square(const s24i_linear_job *job, int64_t m, int64_t n,
                                 const float *sums, int64_t pitch)
{
    const __mmask16 tokens = lane_mask(job->m - m), outputs = lane_mask(job->n - n);
    if (job->y_stride_n != 1) {
        for (int i = 0; i < 16 && n + i < job->n; i++)
            finish_row(job, m, n + i, tokens, _mm512_load_ps(sums + i * pitch));
        return;
    }
    __m512 r[16];
    __m512 bias = job->bias ? _mm512_maskz_loadu_ps(outputs, job->bias + n) : _mm512_setzero_ps();
    UNROLL for (int i = 0; i < 16; i++)
    {
        r[i] = _mm512_load_ps(sums + i * pitch);
    }
    transpose16(r);
    if (outputs == 0xffff && tokens == 0xffff && job->activation == S24_ACTIVATION_NONE &&
        job->alpha == 1 && !(job->residual && job->beta != 0)) {
        float *y = job->y + m * job->y_stride_m + n;
        UNROLL for (int i = 0; i < 16; i++)
        {
            _mm512_storeu_ps(y + i * job->y_stride_m, _mm512_add_ps(r[i], bias));
        }
        return;
    }
    float square[16][16];
    UNROLL for (int i = 0; i < 16; i++)
    {
        _mm512_storeu_ps(square[i], r[i]);
    }
    for (int i = 0; i < 16 && m + i < job->m; i++)
        finish_token(job, m + i, n, outputs, _mm512_loadu_ps(square[i]), bias);
}

#endif
