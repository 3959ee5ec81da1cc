// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx2.h for 8-bit integers: slots [16] of 16 rows, a byte each.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_W8_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_W8_AVX2_H

#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/kernel.h"

#define LAYOUT s24i_layout_rows16_i8
enum { VALUES = SLOTS * ROWS };

#include "kernel/cpu/x86/linear_quant_avx2.h"

AVX2_INLINE __m256 values_of(const uint8_t *group, int slot)
{
    const __m128i eight = _mm_loadl_epi64((const void *)(group + slot * ROWS));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
}

#endif
