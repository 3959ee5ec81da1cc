// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens as tiles of bf16, included by a row's file after linear_amx_run.h. It defines TOO_LARGE,
 * the bf16 from which on a magnitude needs the other row.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_TOKENS_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_TOKENS_H

#include "kernel/cpu/x86/tokens_bf16.h"

/* 32 columns that are all there of 16 tokens that are, too. */
TARGET_INLINE __m512i whole_columns(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                                    int64_t k)
{
    if (dtype != S24_F32)
        return _mm512_loadu_si512((const uint16_t *)job->x + m * job->x_stride_m + k);
    const float *x = (const float *)job->x + m * job->x_stride_m + k;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
}

/* 16 tokens' columns from k on as a tile; returns `largest` or their magnitudes, what is larger. */
TARGET_INLINE __m512i pack_whole(const s24i_linear_job *job, s24_dtype dtype, int64_t m, int64_t k,
                                 uint8_t *to, __m512i largest)
{
    enum { AHEAD = 128 }; /* columns */
    UNROLL for (int t = 0; t < 16; t++)
    {
        const __m512i x = whole_columns(job, dtype, m + t, k);
        const char *next = element_of(job->x, dtype, (m + t) * job->x_stride_m + k + AHEAD);
        _mm_prefetch(next, _MM_HINT_T0);
        if (dtype == S24_F32) _mm_prefetch(next + 64, _MM_HINT_T0);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
        _mm512_store_si512(to + 64 * t, x);
    }
    return largest;
}

/* The same of fewer tokens; zeros follow them in a tile of more rows. */
TARGET_INLINE __m512i pack_few(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                               int64_t tokens, int64_t k, uint8_t *to, __m512i largest)
{
    for (int64_t t = 0; t < tokens; t++) {
        const __m512i x = whole_columns(job, dtype, m + t, k);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
        _mm512_store_si512(to + 64 * t, x);
    }
    for (int64_t t = tokens; t < token_rows(job); t++)
        _mm512_store_si512(to + 64 * t, _mm512_setzero_si512());
    return largest;
}

TARGET_INLINE __m512i pack_columns(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                                   int64_t tokens, int64_t k, uint8_t *to, __m512i largest)
{
    return tokens == 16 ? pack_whole(job, dtype, m, k, to, largest)
                        : pack_few(job, dtype, m, tokens, k, to, largest);
}

TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              int64_t step, float *scales)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / TILE_COLUMNS * TILE_COLUMNS : 0;
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i largest = _mm512_setzero_si512();
    memset(scales, 0, 16 * sizeof *scales);
    for (int64_t k = 0; k < whole; k += TILE_COLUMNS, to += step)
        largest = job->x_dtype == S24_F32 ? pack_columns(job, S24_F32, m, tokens, k, to, largest)
                                          : pack_columns(job, S24_BF16, m, tokens, k, to, largest);
    for (int64_t k = whole; k < job->k; k += TILE_COLUMNS, to += step)
        for (int64_t t = 0; t < token_rows(job); t++) {
            const __m512i x = t < tokens ? load_columns(job, m + t, k) : _mm512_setzero_si512();
            largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
            _mm512_store_si512(to + 64 * t, x);
        }
    return !_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(TOO_LARGE));
}

#endif
