// SPDX-License-Identifier: Apache-2.0
/* The vector of the AVX-512 rows: 32 registers of 16 floats. Included by a row's file, once it has
   defined TARGET; see vec_table.h. */
#ifndef S24_VEC_VEC_AVX512_H
#define S24_VEC_VEC_AVX512_H

#include <immintrin.h>

#define WIDTH 16
typedef __m512 vec;
#define V_SET(x)        _mm512_set1_ps(x)
#define V_LOAD(p)       _mm512_loadu_ps(p)
#define V_STORE(p, v)   _mm512_storeu_ps(p, v)
#define V_ADD(a, b)     _mm512_add_ps(a, b)
#define V_SUB(a, b)     _mm512_sub_ps(a, b)
#define V_MUL(a, b)     _mm512_mul_ps(a, b)
#define V_DIV(a, b)     _mm512_div_ps(a, b)
#define V_FMA(a, b, c)  _mm512_fmadd_ps(a, b, c)
#define V_FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define V_MAX(a, b)     _mm512_max_ps(a, b)
#define V_MIN(a, b)     _mm512_min_ps(a, b)
#define V_SQRT(a)       _mm512_sqrt_ps(a)
#define V_ABS(a)        _mm512_abs_ps(a)
#define V_SUM(a)        _mm512_reduce_add_ps(a)
#define V_TOP(a)        _mm512_reduce_max_ps(a)
#define V_ROUND(a)      _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* a with the sign of b, where a ≥ 0. */
#define V_SIGN(a, b) _mm512_or_ps(a, _mm512_and_ps(b, _mm512_set1_ps(-0.0f)))
/* Neighbours of bf16 as f32. */
#define V_WIDEN(p)                                                                                 \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
/* Neighbours of f16 as f32. */
#define V_WIDEN_HALF(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
/* 1 in the lanes whose bit is set, else 0. */
#define V_BITS(bits) _mm512_maskz_mov_ps((__mmask16)(bits), _mm512_set1_ps(1.0f))
/* Integers of WIDTH bytes; of 4 bits the low ones and the high ones, by a table. */
#define V_LOAD_I8(p)                                                                               \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))))
/* The nearest integers and 128 more, of which the lowest bytes are kept. */
#define V_STORE_BYTES(p, v)                                                                        \
    _mm_storeu_si128(                                                                              \
        (__m128i *)(void *)(p),                                                                    \
        _mm_xor_si128(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)), _mm_set1_epi8(-128)))
/* Differences of WIDTH integers. */
#define V_LESS(p, q)                                                                               \
    _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512((const void *)(p)),                     \
                                        _mm512_loadu_si512((const void *)(q))))
/* e4m3, of WIDTH bytes: its bits at f16's place mean 2^8 less. */
#define V_LOAD_E4M3(p) wide16(_mm_loadu_si128((const __m128i *)(const void *)(p)))
/* Words, and the n-th 4 bits of each as an integer. */
typedef __m512i word_vec;
#define V_WORDS(p) _mm512_loadu_si512((const void *)(p))
#define V_NIBBLES(w, n)                                                                            \
    _mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * (n)),                                           \
                          _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1))
#define V_SET_HALVES(low, high) _mm512_mask_blend_ps(0xff00, V_SET(low), V_SET(high))
/* m·2^n for whole n; 0 below −126. */
#define V_SCALE2(m, n)                                                                             \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), m, n)
#define V_LOOK_UP(most, y, table, numbers, codes, n)                                               \
    (numbers == 16 ? look_up_16(most, y, table, codes, n) : look_up_256(most, y, table, codes, n))
#define TILE_ROWS_WIDE 6 /* 6 rows × 4 vectors = 24 sums, 4 columns of b, one broadcast */
#define TILE_VECS_WIDE 4
#define TILE_ROWS_SLIM 12 /* 12 × 2, for the head width 32 */
#define TILE_VECS_SLIM 2
#define HAVE_AVX2      1
TARGET static inline vec wide16(__m128i bytes)
{
    const __m256i half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80))),
                         _mm512_set1_ps(256.0f));
}
TARGET static inline __m512i codes32(const uint8_t *codes)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)codes));
}
/* Stores numbers, and returns the most of these and those before without signs. */
TARGET static inline __m512i put32(uint16_t *y, __m512i numbers, __m512i most)
{
    _mm512_storeu_si512(y, numbers);
    return _mm512_max_epu16(most, _mm512_and_si512(numbers, _mm512_set1_epi16(0x7fff)));
}
TARGET static inline uint16_t most32(__m512i v)
{
    const __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    const __m128i few =
        _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(few, _mm_set1_epi16(-1)));
    return (uint16_t)~_mm_extract_epi16(least, 0);
}
TARGET static inline int64_t look_up_16(uint16_t *most, uint16_t *y, const uint16_t *table,
                                        const uint8_t *codes, int64_t n)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)table);
    const __m512i all = _mm512_broadcast_i64x4(half);
    __m512i top = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        top = put32(y + i, _mm512_permutexvar_epi16(codes32(codes + i), all), top);
    *most = most32(top);
    return i;
}
/* A pair of registers gives what a code's low six bits say; its high two choose among the pairs. */
TARGET static inline int64_t look_up_256(uint16_t *most, uint16_t *y, const uint16_t *table,
                                         const uint8_t *codes, int64_t n)
{
    __m512i part[8], pair[4], top = _mm512_setzero_si512();
    int64_t i = 0;
    for (int p = 0; p < 8; p++)
        part[p] = _mm512_loadu_si512(table + 32 * p);
    for (; i + 32 <= n; i += 32) {
        const __m512i code = codes32(codes + i);
        const __mmask32 odd = _mm512_test_epi16_mask(code, _mm512_set1_epi16(64));
        const __mmask32 high = _mm512_test_epi16_mask(code, _mm512_set1_epi16(128));
        for (int p = 0; p < 4; p++)
            pair[p] = _mm512_permutex2var_epi16(part[2 * p], code, part[2 * p + 1]);
        const __m512i low_half = _mm512_mask_mov_epi16(pair[0], odd, pair[1]);
        const __m512i high_half = _mm512_mask_mov_epi16(pair[2], odd, pair[3]);
        top = put32(y + i, _mm512_mask_mov_epi16(low_half, high, high_half), top);
    }
    *most = most32(top);
    return i;
}
#endif
