// SPDX-License-Identifier: Apache-2.0
/* What the AVX2 linear rows share: vectors that lie in memory with a stride, activations, and the
   epilogue. */
#ifndef S24_KERNEL_CPU_X86_AVX2_H
#define S24_KERNEL_CPU_X86_AVX2_H

#include "base/base.h"
#include "kernel/cpu/gelu.h"
#include "kernel/cpu/x86/x86.h"
#include "kernel/kernel.h"

/* 8 lanes `stride` floats apart, of which `lanes` exist; the others are zero. */
AVX2_INLINE __m256 load_lanes(const float *p, int64_t stride, int64_t lanes)
{
    float part[8] = {0};
    if (stride == 1 && lanes >= 8) return _mm256_loadu_ps(p);
    for (int i = 0; i < 8 && i < lanes; i++)
        part[i] = p[i * stride];
    return _mm256_loadu_ps(part);
}

AVX2_INLINE void store_lanes(float *p, int64_t stride, int64_t lanes, __m256 v)
{
    float part[8];
    if (stride == 1 && lanes >= 8) {
        _mm256_storeu_ps(p, v);
        return;
    }
    _mm256_storeu_ps(part, v);
    for (int i = 0; i < 8 && i < lanes; i++)
        p[i * stride] = part[i];
}

/* The same for f32 or bf16. */
AVX2_INLINE __m256 load_either(const void *p, s24_dtype dtype, int64_t stride, int64_t lanes)
{
    const uint16_t *narrow = p;
    float part[8] = {0};
    if (dtype == S24_F32) return load_lanes(p, stride, lanes);
    if (stride == 1 && lanes >= 8)
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
    for (int i = 0; i < 8 && i < lanes; i++)
        part[i] = s24i_bf16_to_f32(narrow[i * stride]);
    return _mm256_loadu_ps(part);
}

AVX2_INLINE void store_either(void *p, s24_dtype dtype, int64_t stride, int64_t lanes, __m256 v)
{
    uint16_t *narrow = p;
    float part[8];
    if (dtype == S24_F32) {
        store_lanes(p, stride, lanes, v);
        return;
    }
    _mm256_storeu_ps(part, v);
    for (int i = 0; i < 8 && i < lanes; i++)
        narrow[i * stride] = s24i_f32_to_bf16(part[i]);
}

/* z·p(z²)/q(z²), clamped to where it reaches ±1 (see gelu.h). NaN stays NaN: min and max return
   their second operand when either is NaN. */
AVX2_INLINE __m256 sigmoid_like(__m256 z, const s24i_rational *f)
{
    z = _mm256_min_ps(_mm256_set1_ps(f->limit), z);
    z = _mm256_max_ps(_mm256_set1_ps(-f->limit), z);
    __m256 u = _mm256_mul_ps(z, z);
    __m256 p = _mm256_set1_ps(f->p[S24I_RATIONAL_P - 1]);
    __m256 q = _mm256_set1_ps(f->q[S24I_RATIONAL_Q - 1]);
    for (int i = S24I_RATIONAL_P - 2; i >= 0; i--)
        p = _mm256_fmadd_ps(p, u, _mm256_set1_ps(f->p[i]));
    for (int i = S24I_RATIONAL_Q - 2; i >= 0; i--)
        q = _mm256_fmadd_ps(q, u, _mm256_set1_ps(f->q[i]));
    z = _mm256_div_ps(_mm256_mul_ps(z, p), q);
    return _mm256_max_ps(_mm256_set1_ps(-1), _mm256_min_ps(_mm256_set1_ps(1), z));
}

AVX2_INLINE __m256 activate(__m256 x, s24_activation activation)
{
    __m256 half = _mm256_mul_ps(x, _mm256_set1_ps(0.5f)), s;
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return _mm256_max_ps(_mm256_setzero_ps(), x);
    case S24_ACTIVATION_GELU:
        s = sigmoid_like(_mm256_mul_ps(x, _mm256_set1_ps(GELU_SQRT_HALF)), &s24i_erf);
        return _mm256_fmadd_ps(half, s, half);
    case S24_ACTIVATION_GELU_TANH:
        s = _mm256_mul_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(GELU_CUBIC));
        s = _mm256_mul_ps(_mm256_fmadd_ps(s, x, x), _mm256_set1_ps(GELU_SQRT_2_PI));
        s = sigmoid_like(s, &s24i_tanh);
        return _mm256_fmadd_ps(half, s, half);
    case S24_ACTIVATION_SILU: /* x/2·(1 + tanh(x/2)) */
        return _mm256_fmadd_ps(half, sigmoid_like(half, &s24i_tanh), half);
    case S24_ACTIVATION_GELU_QUICK:
        s = sigmoid_like(_mm256_mul_ps(half, _mm256_set1_ps(GELU_QUICK)), &s24i_tanh);
        return _mm256_fmadd_ps(half, s, half);
    default:
        return x;
    }
}

/* activation(alpha·v + bias)·gate + beta·residual of one vector of outputs along `stride`s. */
AVX2_INLINE void finish(const s24i_linear_job *job, int64_t m, int64_t n, int64_t lanes,
                        int along_n, __m256 v, __m256 bias)
{
    const s24_dtype dtype = job->y_dtype;
    v = activate(_mm256_fmadd_ps(v, _mm256_set1_ps(job->alpha), bias), job->activation);
    if (job->gate) {
        const int64_t sm = job->gate_stride_m, sn = job->gate_stride_n;
        v = _mm256_mul_ps(v, load_either(element_of(job->gate, dtype, m * sm + n * sn), dtype,
                                         along_n ? sn : sm, lanes));
    }
    if (job->residual && job->beta != 0) {
        const int64_t sm = job->residual_stride_m, sn = job->residual_stride_n;
        v = _mm256_fmadd_ps(load_either(element_of(job->residual, dtype, m * sm + n * sn), dtype,
                                        along_n ? sn : sm, lanes),
                            _mm256_set1_ps(job->beta), v);
    }
    store_either(element_to(job->y, dtype, m * job->y_stride_m + n * job->y_stride_n), dtype,
                 along_n ? job->y_stride_n : job->y_stride_m, lanes, v);
}

#endif
