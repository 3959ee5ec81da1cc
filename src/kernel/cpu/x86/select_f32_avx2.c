// SPDX-License-Identifier: Apache-2.0
/*
 * Magnitude 2:4 selection in f32, AVX2 at its 128 bits: one group a vector, by the comparisons of
 * select_f32_avx512.c.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <string.h>

#include "kernel/cpu/x86/x86.h"

/* Which elements of one group are kept, and whether all four are finite. */
AVX2_INLINE int kept(__m128 w, int *finite)
{
    const __m128i no_sign = _mm_set1_epi32(0x7fffffff), nan = _mm_set1_epi32(0x7f800001);
    __m128i size = _mm_and_si128(_mm_castps_si128(w), no_sign);
    size = _mm_min_epu32(size, nan);
    *finite &= _mm_movemask_epi8(_mm_cmpgt_epi32(_mm_set1_epi32(0x7f800000), size)) == 0xffff;
    const __m128i by1 = _mm_shuffle_epi32(size, 0x39), by2 = _mm_shuffle_epi32(size, 0x4e);
    const __m128i by3 = _mm_shuffle_epi32(size, 0x93);
    /* The other wins a tie where its column is higher: then it counts for one more. */
    const __m128i b1 = _mm_cmpgt_epi32(_mm_add_epi32(by1, _mm_setr_epi32(1, 1, 1, 0)), size);
    const __m128i b2 = _mm_cmpgt_epi32(_mm_add_epi32(by2, _mm_setr_epi32(1, 1, 0, 0)), size);
    const __m128i b3 = _mm_cmpgt_epi32(_mm_add_epi32(by3, _mm_setr_epi32(1, 0, 0, 0)), size);
    const __m128i beaten = _mm_add_epi32(_mm_add_epi32(b1, b2), b3); /* minus how often */
    return _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(beaten, _mm_set1_epi32(-2))));
}

AVX2 static void mask(uint8_t *out, const void *w, int64_t count)
{
    const float *values = w;
    int finite = 1;
    for (int64_t i = 0; i < count; i += 4) {
        const unsigned keep = (unsigned)kept(_mm_loadu_ps(values + i), &finite);
        /* Bit j of keep to byte j: the products do not overlap. */
        const uint32_t bytes = keep * 0x00204081u & 0x01010101u;
        memcpy(out + i, &bytes, 4);
    }
}

AVX2 static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t k)
{
    const float *row = w;
    float *out = values;
    int finite = 1;
    for (int64_t g = 0; g < k / 4; g++) {
        const unsigned code = code_of_kept[kept(_mm_loadu_ps(row + 4 * g), &finite) & 15];
        out[2 * g] = row[4 * g + (code & 3)];
        out[2 * g + 1] = row[4 * g + (code >> 2)];
        if (g & 1)
            indices[g / 2] |= (uint8_t)(code << 4);
        else
            indices[g / 2] = (uint8_t)code;
    }
    return finite;
}

const s24i_select_kernel s24i_select_f32_avx2 = {
    .name = "select_f32_avx2",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX2,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
