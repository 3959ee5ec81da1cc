// SPDX-License-Identifier: Apache-2.0
/* The epilogue of two row blocks at once for y in bf16, on AVX-512 with bf16 conversions: included
   by a row's file after its TARGET, TARGET_INLINE, LANE and avx512.h. */
#ifndef S24_KERNEL_CPU_X86_LINEAR_FINISH_BF16_H
#define S24_KERNEL_CPU_X86_LINEAR_FINISH_BF16_H

/* Row r of 32, with its bias, or (fours) four rows' biases; without a bias it is as it lies
   there. */
TARGET_INLINE __m512 biased(const float *sums, const float *bias, __m512 alpha, int r, int fours)
{
    if (!bias) return _mm512_load_ps(sums);
    const __m512 add =
        fours ? _mm512_broadcast_f32x4(_mm_loadu_ps(bias + r / 4 * 4)) : _mm512_set1_ps(bias[r]);
    return _mm512_fmadd_ps(_mm512_load_ps(sums), alpha, add);
}

/*
 * finish_square for two row blocks whose y has bf16 and neither gate nor residual: narrowed before
 * the transposition, which then moves two outputs at once, and stored by whole lines. Returns 0,
 * having done nothing, for another job and where an output is subnormal: the conversion makes them
 * zeros.
 */
TARGET_INLINE int finish_pair_of(const s24i_linear_job *job, int64_t m, int64_t n,
                                 const float *sums, int64_t next, int64_t pitch, int fours)
{
    static const float none[2 * ROWS];
    _Alignas(64) float activated[2 * ROWS * LANE];
    const float *bias = job->bias ? job->bias + n : none;
    const __m512 alpha = _mm512_set1_ps(job->alpha);
    __m512 r[16];
    __mmask16 tiny = 0;
    if (job->activation != S24_ACTIVATION_NONE) {
        for (int i = 0; i < 2 * ROWS; i++)
            _mm512_store_ps(
                activated + i * LANE,
                activate(biased(sums + i / ROWS * next + i % ROWS * pitch, bias, alpha, i, fours),
                         job->activation));
        sums = activated, next = ROWS * LANE, pitch = LANE;
        bias = NULL;
    }
    UNROLL for (int i = 0; i < 16; i++)
    {
        const int low = fours ? i / 4 * 8 + i % 4 : 2 * i, high = low + (fours ? 4 : 1);
        const __m512 a =
            biased(sums + low / ROWS * next + low % ROWS * pitch, bias, alpha, low, fours);
        const __m512 b =
            biased(sums + high / ROWS * next + high % ROWS * pitch, bias, alpha, high, fours);
        tiny |= _mm512_fpclass_ps_mask(a, 0x20) | _mm512_fpclass_ps_mask(b, 0x20);
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        r[i] = _mm512_castsi512_ps(
            fours ? _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), both)
                  : _mm512_permutexvar_epi16(
                        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0),
                        both));
    }
    if (tiny) return 0;
    if (fours) {
        UNROLL for (int j = 0; j < 4; j++)
        {
            exchange_quarters(r + j, 4);
        }
    } else {
        transpose16(r);
    }
    uint16_t *y = (uint16_t *)job->y + m * job->y_stride_m + n;
    UNROLL for (int i = 0; i < 16; i++)
    {
        if (m + i < job->m) _mm512_storeu_ps(y + i * job->y_stride_m, r[i]);
    }
    return 1;
}

TARGET static int finish_pair(const s24i_linear_job *job, int64_t m, int64_t n, const float *sums,
                              int64_t next, int64_t pitch, int fours)
{
    if (job->y_dtype != S24_BF16 || job->y_stride_n != 1 || job->n - n < 2 * ROWS || job->gate ||
        (job->residual && job->beta != 0))
        return 0;
    return fours ? finish_pair_of(job, m, n, sums, next, pitch, 1)
                 : finish_pair_of(job, m, n, sums, next, pitch, 0);
}

#endif
