// SPDX-License-Identifier: Apache-2.0
/* Products of 8-bit weights in blocks of 4x1 with AVX2: the products of two bytes stay within 16
   bits, for a token's are at most 127, so that magnitudes of weights times tokens with the
   weights' signs are exact. */
#include "kernel/sparse_i8.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET   __attribute__((target("avx2,fma")))
#define X_OFFSET 0
#define INLINE   TARGET __attribute__((always_inline)) static inline

#include "kernel/cpu/sparse_i8_finish.h"
#include "kernel/cpu/sparse_i8_tile.h"
#include "kernel/cpu/x86/sparse_i8_mix.h"

MIX(mix_32, __m256i, _mm256, si256)

INLINE __m256i dot_32(__m256i sum, __m256i x, int32_t four)
{
    const __m256i w = _mm256_set1_epi32(four);
    const __m256i two = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
}

INLINE __m256i start(int32_t n)
{
    return _mm256_set1_epi32(n);
}

INLINE void put(float *to, __m256i sum, float scale, const float *own)
{
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_set1_ps(scale));
    _mm256_store_ps(to, _mm256_mul_ps(scaled, _mm256_load_ps(own)));
}

SUM_TILE(sum_32, __m256i, 4, start, mix_32, dot_32, put, 2)

static const tile_kind tiles[] = {{32, 2, sum_32}};
enum { TILES = 1 };

#include "kernel/cpu/sparse_i8_driver.h"

ROW(s24i_sparse_i8_avx2, "sparse_4x1_i8_avx2", S24_CPU_AVX2, 32)
#endif
