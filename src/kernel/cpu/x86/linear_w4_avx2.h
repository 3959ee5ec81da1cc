// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx2.h for 4-bit integers: groups [8] of 16 rows, a byte each, the
 * first value in the low half.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_W4_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_W4_AVX2_H

#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/kernel.h"

#define LAYOUT s24i_layout_rows16_i4
enum { VALUES = GROUPS * ROWS };

#include "kernel/cpu/x86/linear_quant_avx2.h"

/* The first by logic and a subtraction, 2^23 + 8 + q less 2^23 + 8, because shifts and
   conversions have the same two ports, which one token fills. */
AVX2_INLINE __m256 values_of(const uint8_t *group, int slot)
{
    __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)group));
    if (slot) return _mm256_cvtepi32_ps(_mm256_srai_epi32(v, 4));
    v = _mm256_xor_si256(_mm256_and_si256(v, _mm256_set1_epi32(15)), _mm256_set1_epi32(0x4b000008));
    return _mm256_sub_ps(_mm256_castsi256_ps(v), _mm256_set1_ps(0x1p23f + 8));
}

#endif
