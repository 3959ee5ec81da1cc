// SPDX-License-Identifier: Apache-2.0
/* Products of 8-bit weights in blocks of 4x1 with AVX-512's dots of four bytes, of which one
   operand is unsigned: sums begin without the offset of the tokens, which comes off at the end. */
#include "kernel/sparse_i8.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET   __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#define X_OFFSET 128
#define INLINE   TARGET __attribute__((always_inline)) static inline

#include "kernel/cpu/sparse_i8_tile.h"
#include "kernel/cpu/x86/sparse_i8_mix.h"
#include "kernel/cpu/x86/sparse_squares.h"

MIX(mix_64, __m512i, _mm512, si512)

/* Four columns of words of four tokens, as they are to lie: a word of each column in 128 bits; then
   its bytes, token by token. */
INLINE __m512i mix_words(__m512i ab, __m512i cd, __m512i places)
{
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_shuffle_epi8(_mm512_permutex2var_epi32(ab, places, cd), bytes);
}

INLINE void mix_32(__m512i r[2], const uint8_t *x, const int32_t *index)
{
    __m256i c[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        c[i] = _mm256_loadu_si256((const __m256i *)(x + (int64_t)index[i] * 32));
    }
    const __m512i ab = _mm512_inserti64x4(_mm512_castsi256_si512(c[0]), c[1], 1);
    const __m512i cd = _mm512_inserti64x4(_mm512_castsi256_si512(c[2]), c[3], 1);
    const __m512i places =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    r[0] = mix_words(ab, cd, places);
    r[1] = mix_words(ab, cd, _mm512_add_epi32(places, _mm512_set1_epi32(4)));
}

INLINE void mix_16(__m512i r[1], const uint8_t *x, const int32_t *index)
{
    __m128i c[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        c[i] = _mm_loadu_si128((const __m128i *)(x + (int64_t)index[i] * 16));
    }
    const __m256i ab = _mm256_inserti128_si256(_mm256_castsi128_si256(c[0]), c[1], 1);
    const __m256i cd = _mm256_inserti128_si256(_mm256_castsi128_si256(c[2]), c[3], 1);
    r[0] = mix_words(_mm512_castsi256_si512(ab), _mm512_castsi256_si512(cd),
                     _mm512_setr_epi32(0, 4, 16, 20, 1, 5, 17, 21, 2, 6, 18, 22, 3, 7, 19, 23));
}

/* The instruction itself: of the intrinsic gcc copies every sum in every step, and spills some. */
INLINE __m512i dot(__m512i sum, __m512i x, int32_t four)
{
    __asm__("vpdpbusd %2,%1,%0" : "+v"(sum) : "v"(x), "v"(_mm512_set1_epi32(four)));
    return sum;
}

INLINE __m512i start(int32_t n)
{
    return _mm512_set1_epi32(n);
}

INLINE void put(float *to, __m512i sum, float scale, const float *own)
{
    const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(scale));
    _mm512_store_ps(to, _mm512_mul_ps(scaled, _mm512_load_ps(own)));
}

SUM_TILE(sum_64, __m512i, 4, start, mix_64, dot, put, 4)
SUM_TILE(sum_32, __m512i, 2, start, mix_32, dot, put, 4)
SUM_TILE(sum_16, __m512i, 1, start, mix_16, dot, put, 4)

static const tile_kind tiles[] = {{16, 1, sum_16}, {32, 1, sum_32}, {64, 4, sum_64}};
enum { TILES = 3 };

TARGET static void finish_tile(const s24i_linear_job *job, int64_t m, int64_t n, int outs,
                               const float *sums, int64_t pitch)
{
    for (int64_t t = 0; t < pitch && m + t < job->m; t += 16)
        square_out(job, m + t, n, outs, sums + t, pitch);
}

#include "kernel/cpu/sparse_i8_driver.h"

ROW(s24i_sparse_i8_avx512vnni, "sparse_4x1_i8_avx512vnni", S24_CPU_AVX512 | S24_CPU_AVX512VNNI, 64)
#endif
