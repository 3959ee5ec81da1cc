// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx2.h for 8-bit integers: slots [16] of 16 rows, a byte each.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_W8_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_W8_AVX2_H

#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/kernel.h"

enum { VALUES = SLOTS * ROWS };

#include "kernel/cpu/x86/linear_quant_avx2.h"

static inline void put_value(uint8_t *values, int64_t lane, int64_t group, int64_t slot, int8_t q)
{
    values[(2 * group + slot) * ROWS + lane] = (uint8_t)q;
}

AVX2_INLINE __m256 values_of(const uint8_t *group, int slot)
{
    const __m128i eight = _mm_loadl_epi64((const void *)(group + slot * ROWS));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
}

#endif
