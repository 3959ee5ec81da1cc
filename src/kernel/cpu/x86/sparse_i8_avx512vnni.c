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
MIX(mix_16, __m128i, _mm, si128)

INLINE __m512i dot_64(__m512i sum, __m512i x, int32_t four)
{
    return _mm512_dpbusd_epi32(sum, x, _mm512_set1_epi32(four));
}

INLINE void order_64(__m512i s[4])
{
    const __m512i a = _mm512_shuffle_i32x4(s[0], s[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(s[2], s[3], 0x44);
    const __m512i c = _mm512_shuffle_i32x4(s[0], s[1], 0xee);
    const __m512i d = _mm512_shuffle_i32x4(s[2], s[3], 0xee);
    s[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    s[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    s[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    s[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

INLINE __m128i dot_16(__m128i sum, __m128i x, int32_t four)
{
    return _mm_dpbusd_epi32(sum, x, _mm_set1_epi32(four));
}

INLINE void order_16(__m128i s[4])
{
    (void)s;
}

SUM_TILE(sum_64, __m512i, mix_64, dot_64, order_64, 4)
SUM_TILE(sum_16, __m128i, mix_16, dot_16, order_16, 4)

static const tile_kind tiles[] = {{16, sum_16}, {64, sum_64}};
enum { TILES = 2 };

TARGET static void finish_tile(const s24i_linear_job *job, int64_t m, int64_t n, int outs,
                               const float *sums, int64_t pitch)
{
    for (int64_t t = 0; t < pitch && m + t < job->m; t += 16)
        square_out(job, m + t, n, outs, sums + t, pitch);
}

#include "kernel/cpu/sparse_i8_driver.h"

ROW(s24i_sparse_i8_avx512vnni, "sparse_4x1_i8_avx512vnni", S24_CPU_AVX512 | S24_CPU_AVX512VNNI, 64)
#endif
