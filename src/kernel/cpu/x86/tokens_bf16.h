// SPDX-License-Identifier: Apache-2.0
/* Holds how tokens become bf16, for the rows that multiply in it: included by a row's file after
   its TARGET_INLINE and avx512.h. */
#ifndef S24_KERNEL_CPU_X86_TOKENS_BF16_H
#define S24_KERNEL_CPU_X86_TOKENS_BF16_H

#include "kernel/cpu/rows16.h"

static uint16_t element_bf16(const s24i_linear_job *job, int64_t m, int64_t k)
{
    const int64_t at = m * job->x_stride_m + k * job->x_stride_k;
    return job->x_dtype == S24_F32 ? s24i_f32_to_bf16(((const float *)job->x)[at])
                                   : ((const uint16_t *)job->x)[at];
}

/* 32 columns of a token, zeros where there are none. */
TARGET_INLINE __m512i load_columns(const s24i_linear_job *job, int64_t m, int64_t k)
{
    const int64_t columns = job->k - k, at = m * job->x_stride_m + k;
    const __mmask32 mask = columns >= COLUMNS ? 0xffffffffu : (1u << columns) - 1;
    uint16_t part[COLUMNS] = {0};
    if (job->x_stride_k != 1) {
        for (int64_t i = 0; i < COLUMNS && i < columns; i++)
            part[i] = element_bf16(job, m, k + i);
        return _mm512_loadu_si512(part);
    }
    if (job->x_dtype != S24_F32)
        return _mm512_maskz_loadu_epi16(mask, (const uint16_t *)job->x + at);
    const float *x = (const float *)job->x + at;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16),
                                        _mm512_maskz_loadu_ps((__mmask16)mask, x));
}

#endif
