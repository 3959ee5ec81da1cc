// SPDX-License-Identifier: Apache-2.0
/* What the NEON linear rows share: vectors of f32 or bf16 that lie in memory with a stride,
   activations, and the epilogue. */
#ifndef S24_KERNEL_CPU_ARM_LINEAR_FINISH_NEON_H
#define S24_KERNEL_CPU_ARM_LINEAR_FINISH_NEON_H

#include "base/base.h"
#include "kernel/cpu/arm/neon.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/gelu.h"
#include "kernel/kernel.h"

/* 4 lanes from element `at` on, `stride` elements apart, of which `lanes` exist; the others are
   zero. */
NEON_INLINE float32x4_t load_lanes(const void *p, s24_dtype dtype, int64_t at, int64_t stride,
                                   int64_t lanes)
{
    const float *wide = p;
    const uint16_t *narrow = p;
    float part[4] = {0};
    if (stride == 1 && lanes >= 4)
        return dtype == S24_F32 ? vld1q_f32(wide + at)
                                : vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(narrow + at), 16));
    for (int i = 0; i < 4 && i < lanes; i++, at += stride)
        part[i] = dtype == S24_F32 ? wide[at] : s24i_bf16_to_f32(narrow[at]);
    return vld1q_f32(part);
}

/* To nearest even, NaN to a quiet NaN, as s24i_f32_to_bf16 does it. */
NEON_INLINE uint16x4_t to_bf16(float32x4_t v)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16);
}

NEON_INLINE void store_lanes(void *p, s24_dtype dtype, int64_t at, int64_t stride, int64_t lanes,
                             float32x4_t v)
{
    float *wide = p;
    uint16_t *narrow = p, halves[4];
    float part[4];
    if (stride == 1 && lanes >= 4) {
        if (dtype == S24_F32)
            vst1q_f32(wide + at, v);
        else
            vst1_u16(narrow + at, to_bf16(v));
        return;
    }
    vst1q_f32(part, v), vst1_u16(halves, to_bf16(v));
    for (int i = 0; i < 4 && i < lanes; i++, at += stride) {
        if (dtype == S24_F32)
            wide[at] = part[i];
        else
            narrow[at] = halves[i];
    }
}

/* z·p(z²)/q(z²), clamped to where it reaches ±1 (see gelu.h). NaN stays NaN: of NaN and a number
   both min and max are NaN. */
NEON_INLINE float32x4_t sigmoid_like(float32x4_t z, const s24i_rational *f)
{
    z = vmaxq_f32(vdupq_n_f32(-f->limit), vminq_f32(vdupq_n_f32(f->limit), z));
    const float32x4_t u = vmulq_f32(z, z);
    float32x4_t p = vdupq_n_f32(f->p[S24I_RATIONAL_P - 1]);
    float32x4_t q = vdupq_n_f32(f->q[S24I_RATIONAL_Q - 1]);
    for (int i = S24I_RATIONAL_P - 2; i >= 0; i--)
        p = vfmaq_f32(vdupq_n_f32(f->p[i]), p, u);
    for (int i = S24I_RATIONAL_Q - 2; i >= 0; i--)
        q = vfmaq_f32(vdupq_n_f32(f->q[i]), q, u);
    z = vdivq_f32(vmulq_f32(z, p), q);
    return vmaxq_f32(vdupq_n_f32(-1), vminq_f32(vdupq_n_f32(1), z));
}

NEON_INLINE float32x4_t activate(float32x4_t x, s24_activation activation)
{
    const float32x4_t half = vmulq_n_f32(x, 0.5f);
    float32x4_t s;
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return vmaxq_f32(vdupq_n_f32(0), x);
    case S24_ACTIVATION_GELU:
        return vfmaq_f32(half, half, sigmoid_like(vmulq_n_f32(x, GELU_SQRT_HALF), &s24i_erf));
    case S24_ACTIVATION_GELU_TANH:
        s = vmulq_n_f32(vmulq_f32(x, x), GELU_CUBIC);
        s = vmulq_n_f32(vfmaq_f32(x, s, x), GELU_SQRT_2_PI);
        return vfmaq_f32(half, half, sigmoid_like(s, &s24i_tanh));
    case S24_ACTIVATION_SILU: /* x/2·(1 + tanh(x/2)) */
        return vfmaq_f32(half, half, sigmoid_like(half, &s24i_tanh));
    case S24_ACTIVATION_GELU_QUICK:
        return vfmaq_f32(half, half, sigmoid_like(vmulq_n_f32(half, GELU_QUICK), &s24i_tanh));
    default:
        return x;
    }
}

/* activation(alpha·v + bias)·gate + beta·residual of four outputs along n or along m. */
static void finish(const s24i_linear_job *job, int64_t m, int64_t n, int along_n, float32x4_t v,
                   float32x4_t bias)
{
    const int64_t lanes = along_n ? job->n - n : job->m - m;
    const s24_dtype dtype = job->y_dtype;
    v = activate(vfmaq_n_f32(bias, v, job->alpha), job->activation);
    if (job->gate) {
        const int64_t sm = job->gate_stride_m, sn = job->gate_stride_n;
        v = vmulq_f32(v, load_lanes(job->gate, dtype, m * sm + n * sn, along_n ? sn : sm, lanes));
    }
    if (job->residual && job->beta != 0) {
        const int64_t sm = job->residual_stride_m, sn = job->residual_stride_n;
        v = vfmaq_n_f32(v,
                        load_lanes(job->residual, dtype, m * sm + n * sn, along_n ? sn : sm, lanes),
                        job->beta);
    }
    store_lanes(job->y, dtype, m * job->y_stride_m + n * job->y_stride_n,
                along_n ? job->y_stride_n : job->y_stride_m, lanes, v);
}

NEON_INLINE float32x4_t load_bias(const s24i_linear_job *job, int64_t n)
{
    return job->bias ? load_lanes(job->bias, S24_F32, n, 1, job->n - n) : vdupq_n_f32(0);
}

#endif
