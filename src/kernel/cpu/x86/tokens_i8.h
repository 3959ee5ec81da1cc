// SPDX-License-Identifier: Apache-2.0
/* Holds how tokens are quantised on AVX-512, for the rows with int8 activations: included by a
   row's file after its TARGET_INLINE and avx512.h. */
#ifndef S24_KERNEL_CPU_X86_TOKENS_I8_H
#define S24_KERNEL_CPU_X86_TOKENS_I8_H

#include "base/token_scale.h"

/* 16 columns of a token from k on; `whole`: all are there, and together. */
TARGET_INLINE __m512 token_columns(const s24i_linear_job *job, s24_dtype dtype, int whole,
                                   int64_t m, int64_t k)
{
    const void *x =
        element_of(job->x, dtype, m * job->x_stride_m + k * (whole ? 1 : job->x_stride_k));
    if (!whole) return load_lanes(x, dtype, job->x_stride_k, lane_mask(job->k - k));
    return dtype == S24_F32 ? _mm512_loadu_ps(x)
                            : widen_bf16(_mm256_loadu_si256((const __m256i *)x));
}

/* Takes the magnitudes of 64 columns of token m from k on into `largest`. */
TARGET_INLINE void enlarge(__m512i largest[4], const s24i_linear_job *job, s24_dtype dtype,
                           int whole, int64_t m, int64_t k)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m512 x = token_columns(job, dtype, whole, m, k + 16 * i);
        largest[i] =
            _mm512_max_epu32(largest[i], _mm512_and_si512(_mm512_castps_si512(x), magnitude));
    }
}

TARGET_INLINE uint32_t largest_of(const __m512i largest[4])
{
    return _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(largest[0], largest[1]),
                                                    _mm512_max_epu32(largest[2], largest[3])));
}

TARGET_INLINE uint32_t largest_magnitude(const s24i_linear_job *job, s24_dtype dtype, int64_t whole,
                                         int64_t m)
{
    __m512i largest[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        largest[i] = _mm512_setzero_si512();
    }
    for (int64_t k = 0; k < job->k; k += 64)
        enlarge(largest, job, dtype, k < whole, m, k);
    return largest_of(largest);
}

/* 64 columns as signed bytes. The packing instructions work within 128 bits, so that four vectors
   of 16 come out as a 4 x 4 square of groups, turned. */
TARGET_INLINE __m512i quantise_64(const s24i_linear_job *job, s24_dtype dtype, int whole, int64_t m,
                                  int64_t k, __m512 inverse)
{
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i q[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m512 x = token_columns(job, dtype, whole, m, k + 16 * i);
        q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    }
    const __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
    return _mm512_permutexvar_epi32(turn, bytes);
}

#endif
