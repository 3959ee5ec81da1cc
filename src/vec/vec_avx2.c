// SPDX-License-Identifier: Apache-2.0
/* Vector operations for AVX2 with FMA: 16 registers of 8 floats. See vec_table.h. */
#include "vec/vec.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET     __attribute__((target("avx2,fma,f16c")))
#define TABLE      s24i_vec_avx2
#define TABLE_NAME "avx2"
#define TABLE_CPU  S24_CPU_AVX2

#define WIDTH 8
typedef __m256 vec;
#define V_SET(x)        _mm256_set1_ps(x)
#define V_LOAD(p)       _mm256_loadu_ps(p)
#define V_STORE(p, v)   _mm256_storeu_ps(p, v)
#define V_ADD(a, b)     _mm256_add_ps(a, b)
#define V_SUB(a, b)     _mm256_sub_ps(a, b)
#define V_MUL(a, b)     _mm256_mul_ps(a, b)
#define V_DIV(a, b)     _mm256_div_ps(a, b)
#define V_FMA(a, b, c)  _mm256_fmadd_ps(a, b, c)
#define V_FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define V_MAX(a, b)     _mm256_max_ps(a, b)
#define V_MIN(a, b)     _mm256_min_ps(a, b)
#define V_SQRT(a)       _mm256_sqrt_ps(a)
#define V_ABS(a)        _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a)
#define V_SUM(a)        sum8(a)
#define V_TOP(a)        top8(a)
#define V_ROUND(a)      _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* a with the sign of b, where a ≥ 0. */
#define V_SIGN(a, b)   _mm256_or_ps(a, _mm256_and_ps(b, _mm256_set1_ps(-0.0f)))
#define V_SCALE2(m, n) scale2(m, n)
/* Neighbours of bf16 as f32. */
#define V_WIDEN(p)                                                                                 \
    _mm256_castsi256_ps(_mm256_slli_epi32(                                                         \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
/* Neighbours of f16 as f32. */
#define V_WIDEN_HALF(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
/* 1 in the lanes whose bit is set, else 0. */
#define V_BITS(bits) bits8(bits)
/* Integers of WIDTH bytes. */
#define V_LOAD_I8(p)                                                                               \
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p))))
/* The nearest integers, −128 to 127, and 128 more. */
#define V_STORE_BYTES(p, v) store_bytes8(p, v)
/* Differences of WIDTH integers. */
#define V_LESS(p, q)                                                                               \
    _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p)),    \
                                        _mm256_loadu_si256((const __m256i *)(const void *)(q))))
/* e4m3, of WIDTH bytes: its bits at f16's place mean 2^8 less. */
#define V_LOAD_E4M3(p) wide8(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
/* Words, and the n-th 4 bits of each as an integer. */
typedef __m256i word_vec;
#define V_WORDS(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define V_NIBBLES(w, n)                                                                            \
    _mm256_cvtepi32_ps(_mm256_srai_epi32((n) == 7 ? w : _mm256_slli_epi32(w, 28 - 4 * (n)), 28))
#define TILE_ROWS_WIDE 6 /* 6 rows × 2 vectors = 12 sums, 2 columns of b, one broadcast */
#define TILE_VECS_WIDE 2
#define TILE_ROWS_SLIM 12 /* 12 × 1 */
#define TILE_VECS_SLIM 1
#define HAVE_AVX2      1
/* None: a table is in memory. */
#define V_LOOK_UP(most, y, table, numbers, codes, n) ((void)(numbers), 0)

TARGET static inline float sum8(vec a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
TARGET static inline float top8(vec a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
TARGET static inline vec wide8(__m128i bytes)
{
    const __m128i half = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_and_si128(half, _mm_set1_epi16((short)0xbf80))),
                         _mm256_set1_ps(256.0f));
}
TARGET static inline void store_bytes8(uint8_t *p, vec a)
{
    const __m256i words = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(128));
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(halves, halves));
}
TARGET static inline vec bits8(uint32_t bits)
{
    const __m256i lane = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32((int)bits), lane);
    const __m256i on = _mm256_cmpeq_epi32(set, lane);
    return _mm256_and_ps(_mm256_castsi256_ps(on), _mm256_set1_ps(1.0f));
}
/* m·2^n for whole n up to 127; 0 below −126. */
TARGET static inline vec scale2(vec m, vec n)
{
    const __m256i power =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const vec normal = _mm256_cmp_ps(n, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm256_and_ps(_mm256_mul_ps(m, _mm256_castsi256_ps(power)), normal);
}

#include "vec/vec_table.h"
#endif
