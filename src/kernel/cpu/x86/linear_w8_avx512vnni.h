// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx512vnni.h for 8-bit integers. A k block's values are a dword a row
 * for each pair of groups, byte j value j.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_W8_AVX512VNNI_H
#define S24_KERNEL_CPU_X86_LINEAR_W8_AVX512VNNI_H

#include <stdatomic.h>
#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

#define LAYOUT s24i_layout_rows64_i8
enum { VALUES = SLOTS * ROWS, VALUE_BITS = 0 };

#include "kernel/cpu/x86/linear_quant_avx512vnni.h"

AVX512_INLINE __m512i pair_values(const uint8_t *values, int pair)
{
    return _mm512_load_si512(values + 64 * pair);
}

AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale)
{
    UNROLL for (int s = 0; s < SLOTS; s++)
    {
        const __m512i v = _mm512_load_si512(from + s / 4 * 64);
        const __m512i q = _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - s % 4 * 8)), 24);
        _mm512_store_ps(to + s * ROWS, _mm512_mul_ps(_mm512_cvtepi32_ps(q), scale));
    }
}

#endif
