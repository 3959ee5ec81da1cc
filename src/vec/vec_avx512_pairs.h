// SPDX-License-Identifier: Apache-2.0
/* The vector of the AVX-512 rows where pairs of bf16 are multiplied. Included by a row's file
   before vec_table.h. */
#ifndef S24_VEC_VEC_AVX512_PAIRS_H
#define S24_VEC_VEC_AVX512_PAIRS_H

#define TARGET     __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define HAVE_PAIRS 1
#include "vec/vec_avx512.h"

/* One pair to all lanes; c + a·b by pairs, summed in f32. */
#define V_SET_PAIR(p)   _mm512_castsi512_ps(_mm512_set1_epi32(*(p)))
#define V_DOT2(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define V_STORE_BF16(p, v)                                                                         \
    _mm256_storeu_si256((__m256i *)(void *)(p), (__m256i)_mm512_cvtneps_pbh(v))
/* Words of 16 neighbours of two rows. */
#define V_ZIP(p, q)                                                                                \
    _mm512_castsi512_ps(_mm512_or_si512(                                                           \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))),             \
        _mm512_slli_epi32(                                                                         \
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(q))), 16)))
/* m·2^n for whole n, subnormal results too. */
#define V_SCALEF(m, n) _mm512_scalef_ps(m, n)
#endif
