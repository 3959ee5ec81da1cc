// SPDX-License-Identifier: Apache-2.0
/* Sums of sparse products to y, sixteen outputs by sixteen tokens, with AVX-512. */
#ifndef S24_KERNEL_CPU_X86_SPARSE_SQUARES_H
#define S24_KERNEL_CPU_X86_SPARSE_SQUARES_H

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/x86/avx512.h"

/* Sixteen columns of sixteen tokens, a column `width` floats after the one before. */
AVX512_INLINE void square_in(float *to, int64_t width, const s24i_linear_job *job, int64_t m,
                             int64_t column)
{
    __m512 r[16];
    load_transposed(r, (const float *)job->x + m * job->x_stride_m + column,
                    job->x_stride_m * (int64_t)sizeof(float));
    UNROLL for (int i = 0; i < 16; i++)
    {
        _mm512_storeu_ps(to + i * width, r[i]);
    }
}

/* sums: rows of outputs, `pitch` floats apart and aligned; outputs from n on, sixteen at most. */
AVX512_INLINE void square_out(const s24i_linear_job *job, int64_t m, int64_t n, int outs,
                              const float *sums, int64_t pitch)
{
    s24i_linear_job some = *job;
    some.n = n + outs;
    finish_square(&some, m, n, sums, pitch, 0);
}

#endif
