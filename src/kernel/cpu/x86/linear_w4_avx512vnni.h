// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_avx512vnni.h for 4-bit integers. A k block's values are a dword a row
 * for each two pairs of groups: byte j is value j of the first pair in its high four bits, which is
 * times 16, and of the second in its low four.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_W4_AVX512VNNI_H
#define S24_KERNEL_CPU_X86_LINEAR_W4_AVX512VNNI_H

#include <stdatomic.h>
#include <string.h>

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

#define LAYOUT s24i_layout_rows64_i4
enum { VALUES = 2 * ROWS * 4, VALUE_BITS = 4 };

#include "kernel/cpu/x86/linear_quant_avx512vnni.h"

AVX512_INLINE __m512i pair_values(const uint8_t *values, int pair)
{
    const __m512i v = _mm512_load_si512(values + pair / 2 * 64);
    return _mm512_and_si512(pair & 1 ? _mm512_slli_epi32(v, 4) : v, _mm512_set1_epi8((char)0xf0));
}

AVX512_INLINE void widen_values(float *to, const uint8_t *from, __m512 scale)
{
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    for (int h = 0; h < 2; h++) {
        const __m512i v = _mm512_load_si512(from + 64 * h);
        _mm_prefetch((const char *)from + 4 * QUANT_BLOCK + 64 * h, _MM_HINT_T0);
        UNROLL for (int j = 0; j < 8; j++) /* group 4h + j / 2, slot j % 2 */
        {
            const __m512 q = _mm512_permutexvar_ps(
                _mm512_srli_epi32(v, (unsigned)(8 * (j & 3) + (j < 4 ? 4 : 0))), table);
            _mm512_store_ps(to + (8 * h + j) * ROWS, _mm512_mul_ps(q, scale));
        }
    }
}

#endif
