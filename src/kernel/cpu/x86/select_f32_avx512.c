// SPDX-License-Identifier: Apache-2.0
/*
 * Magnitude 2:4 selection in f32, AVX-512: four groups a vector, no shuffle of the result.
 *
 * Each element is compared with the three others of its group (in-lane rotations of |w| as
 * integers, which order like magnitudes; NaN saturates above Inf): it is kept if at most one beats
 * it. An element at a higher column wins a tie, so the comparison with a rotation is > or >= by the
 * lane, folded into one comparison by adding a bit: 2|w| + 1 for the side that wins.
 * The kept ones of a vector are one compress; their codes come from a table by the group's mask.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/avx512.h"

/* Floats between what is read and what is asked for early: 6.9 -> 10.4 GB/s from memory. */
enum { AHEAD = 512 };

/* Which lanes of four groups are kept. */
AVX512_INLINE __mmask16 kept(__m512 w)
{
    const __m512i no_sign = _mm512_set1_epi32(0x7fffffff), nan = _mm512_set1_epi32(0x7f800001);
    __m512i size = _mm512_and_si512(_mm512_castps_si512(w), no_sign);
    size = _mm512_add_epi32(_mm512_min_epu32(size, nan), _mm512_min_epu32(size, nan));
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i by1 = _mm512_shuffle_epi32(size, (_MM_PERM_ENUM)0x39); /* lane i sees i + 1 */
    const __m512i by2 = _mm512_shuffle_epi32(size, (_MM_PERM_ENUM)0x4e);
    const __m512i by3 = _mm512_shuffle_epi32(size, (_MM_PERM_ENUM)0x93);
    /* The other wins a tie where its column is higher: lanes 0..2, 0..1 and 0. */
    const __m512i o1 = _mm512_mask_add_epi32(by1, 0x7777, by1, one);
    const __m512i o2 = _mm512_mask_add_epi32(by2, 0x3333, by2, one);
    const __m512i o3 = _mm512_mask_add_epi32(by3, 0x1111, by3, one);
    const __mmask16 b1 = _mm512_cmpgt_epu32_mask(o1, size), b2 = _mm512_cmpgt_epu32_mask(o2, size);
    const __mmask16 b3 = _mm512_cmpgt_epu32_mask(o3, size);
    /* At most one of three. */
    return (__mmask16) ~((b1 & b2) | (b1 & b3) | (b2 & b3));
}

AVX512 static void mask(uint8_t *out, const void *w, int64_t count)
{
    const float *values = w;
    for (int64_t i = 0; i < count; i += 16) {
        const __mmask16 part = lane_mask(count - i);
        const __mmask16 keep = kept(_mm512_maskz_loadu_ps(part, values + i));
        const __m128i bytes = _mm_maskz_set1_epi8(keep, 1);
        _mm_mask_storeu_epi8(out + i, part, bytes);
    }
}

AVX512 static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t k)
{
    const float *row = w;
    float *out = values;
    __mmask16 finite = 0xffff;
    for (int64_t i = 0; i < k; i += 16) {
        const __mmask16 part = lane_mask(k - i);
        const __m512 v = _mm512_maskz_loadu_ps(part, row + i);
        const __mmask16 keep = kept(v);
        _mm_prefetch((const char *)(row + i + AHEAD), _MM_HINT_T0);
        PREFETCH_TO_WRITE(out + i / 2 + AHEAD / 2);
        const __mmask16 two = lane_mask((k - i) / 2 < 8 ? (k - i) / 2 : 8);
        /* 0x99: quiet and signalling NaN, both infinities. */
        finite = (__mmask16)(finite & ~_mm512_fpclass_ps_mask(v, 0x99));
        _mm512_mask_storeu_ps(out + i / 2, two, _mm512_maskz_compress_ps(keep, v));
        uint8_t *code = indices + i / 8;
        const unsigned bits = keep;
        code[0] = code_of_kept[bits & 15];
        if (k - i > 4) code[0] |= (uint8_t)(code_of_kept[bits >> 4 & 15] << 4);
        if (k - i > 8) code[1] = code_of_kept[bits >> 8 & 15];
        if (k - i > 12) code[1] |= (uint8_t)(code_of_kept[bits >> 12] << 4);
    }
    return finite == 0xffff;
}

const s24i_select_kernel s24i_select_f32_avx512 = {
    .name = "select_f32_avx512",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX512,
    .rank = 20,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
