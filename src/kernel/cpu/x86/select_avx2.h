// SPDX-License-Identifier: Apache-2.0
/*
 * Magnitude 2:4 selection, AVX2, for elements of 4 or 2 bytes: the comparisons of select_avx512.h,
 * all six of a group twice, by vectors of two or four groups; what is kept is moved one by one.
 *
 * The including file defines ELEMENT (an unsigned integer type of VALUE bytes), NO_SIGN, NONFINITE
 * and NANS as for select_avx512.h.
 */
#ifndef S24_KERNEL_CPU_X86_SELECT_AVX2_H
#define S24_KERNEL_CPU_X86_SELECT_AVX2_H

#include <string.h>

#include "kernel/cpu/x86/x86.h"

enum { LANES = 32 / VALUE }; /* elements of a vector */

#if VALUE == 4
#define SPLAT(x)           _mm256_set1_epi32(x)
#define MIN(a, b)          _mm256_min_epu32(a, b)
#define SUB(a, b)          _mm256_sub_epi32(a, b)
#define BEATS(a, b)        _mm256_cmpgt_epi32(a, b)
#define NEXT(v)            _mm256_shuffle_epi32(v, 0x39)
#define AFTER_NEXT(v)      _mm256_shuffle_epi32(v, 0x4e)
#define BEFORE(v)          _mm256_shuffle_epi32(v, 0x93)
#define PLACES(a, b, c, d) _mm256_setr_epi32(a, b, c, d, a, b, c, d)
#define BITS(v)            (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(v))
#else
#define SPLAT(x)           _mm256_set1_epi16(x)
#define MIN(a, b)          _mm256_min_epu16(a, b)
#define SUB(a, b)          _mm256_sub_epi16(a, b)
#define BEATS(a, b)        _mm256_cmpgt_epi16(a, b)
#define NEXT(v)            _mm256_or_si256(_mm256_srli_epi64(v, 16), _mm256_slli_epi64(v, 48))
#define AFTER_NEXT(v)      _mm256_shuffle_epi32(v, 0xb1)
#define BEFORE(v)          _mm256_or_si256(_mm256_slli_epi64(v, 16), _mm256_srli_epi64(v, 48))
#define PLACES(a, b, c, d) _mm256_set1_epi64x((a) | (b) << 16 | (c) << 32 | (long long)(d) << 48)
#define BITS(v)                                                                                    \
    (unsigned)_mm_movemask_epi8(                                                                   \
        _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)))
#endif

/* A bit for each element: it is kept. `finite` stays all ones while all are. */
AVX2_INLINE unsigned kept(__m256i v, __m256i *finite)
{
    const __m256i size = MIN(_mm256_and_si256(v, SPLAT(NO_SIGN)), SPLAT(NANS));
    *finite = _mm256_and_si256(*finite, BEATS(SPLAT(NONFINITE), size));
    /* The other wins a tie where its column is higher: then it need only reach one less. */
    const __m256i a = BEATS(NEXT(size), SUB(size, PLACES(1ll, 1ll, 1ll, 0)));
    const __m256i b = BEATS(AFTER_NEXT(size), SUB(size, PLACES(1ll, 1ll, 0ll, 0)));
    const __m256i c = BEATS(BEFORE(size), SUB(size, PLACES(1ll, 0ll, 0ll, 0)));
    const __m256i twice =
        _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)));
    return ~BITS(twice);
}

/* Up to a vector of elements; whoever calls with fewer never reads beyond them. */
AVX2_INLINE __m256i load_part(const ELEMENT *w, int64_t count)
{
    ELEMENT part[LANES] = {0};
    if (count >= LANES) return _mm256_loadu_si256((const __m256i *)(const void *)w);
    memcpy(part, w, (size_t)count * VALUE);
    return _mm256_loadu_si256((const __m256i *)(const void *)part);
}

AVX2 static void mask(uint8_t *out, const void *w, int64_t count)
{
    const ELEMENT *from = w;
    __m256i finite = _mm256_set1_epi8(-1);
    for (int64_t i = 0; i < count; i += LANES) {
        const unsigned keep = kept(load_part(from + i, count - i), &finite);
        for (int64_t j = 0; j < LANES && j < count - i; j++)
            out[i + j] = keep >> j & 1;
    }
}

AVX2 static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t count)
{
    const ELEMENT *from = w;
    ELEMENT *to = values;
    __m256i finite = _mm256_set1_epi8(-1);
    for (int64_t i = 0; i < count; i += LANES) {
        const unsigned keep = kept(load_part(from + i, count - i), &finite);
        for (int64_t j = 0; j < LANES && j < count - i; j += 4, to += 2) {
            const unsigned code = code_of_kept[keep >> j & 15];
            to[0] = from[i + j + (code & 3)];
            to[1] = from[i + j + (code >> 2)];
            if (j & 4)
                indices[(i + j) / 8] |= (uint8_t)(code << 4);
            else
                indices[(i + j) / 8] = (uint8_t)code;
        }
    }
    return _mm256_movemask_epi8(finite) == -1;
}

#endif
