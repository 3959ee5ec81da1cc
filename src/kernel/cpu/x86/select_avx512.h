// SPDX-License-Identifier: Apache-2.0
/*
 * Magnitude 2:4 selection, AVX-512, for elements of 4, 2 or 1 bytes: 64 elements a step.
 *
 * Magnitudes are compared as integers. Of a group's six comparisons the vector makes four (each
 * element with the next one around, and with the one after that); the others are their negations.
 * An element at a higher column wins a tie, so "beats" is >=, and > for the last lane, whose next
 * is the first: there one is added. From then on the bits of all 64 elements are one word; what is
 * beaten by two is dropped. The two kept of each group move to its first two places, as they lie or
 * shifted by one or two elements, and the halves that hold them are gathered.
 *
 * From memory the reads decide: they are asked for early, past the outer caches if they are many,
 * and large outputs go around the caches, which saves reading what is only written.
 *
 * The including file defines VALUE (bytes) and for a float dtype NO_SIGN, the bits of a magnitude,
 * NONFINITE, the least one that is not finite, and NANS, what every NaN counts as; and COMPRESS 1
 * where elements of 2 or 1 bytes are gathered by VBMI2's instruction for that.
 */
#ifndef S24_KERNEL_CPU_X86_SELECT_AVX512_H
#define S24_KERNEL_CPU_X86_SELECT_AVX512_H

#include <string.h>

#include "kernel/cpu/x86/avx512.h"

#if COMPRESS
#define SELECT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,fma")))
#else
#define SELECT AVX512
#endif
#define SELECT_INLINE SELECT __attribute__((always_inline)) static inline

enum {
    STEP = 64,                     /* elements, 16 groups */
    LANES = 64 / VALUE,            /* elements of a vector */
    VECTORS = STEP / LANES,        /* of a step */
    AHEAD = 4096,                  /* bytes from what is read to what is asked for */
    STREAM_FROM = 8 << 20,         /* bytes of values from which they go around the caches */
    ALIGNED = VALUE == 1 ? 32 : 64 /* what a streamed store wants */
};

#if VALUE == 4
#define NEXT(v)         _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x39) /* lane i sees i + 1 */
#define AFTER_NEXT(v)   _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
#define ADD(a, b)       _mm512_add_epi32(a, b)
#define MAX(a, b)       _mm512_max_epu32(a, b)
#define MIN(a, b)       _mm512_min_epu32(a, b)
#define AT_LEAST(a, b)  _mm512_cmpge_epu32_mask(a, b)
#define LAST_LANE       _mm512_set4_epi32(1, 0, 0, 0)
#define SPLAT(x)        _mm512_set1_epi32(x)
#define LOAD_PART(m, p) _mm512_maskz_loadu_epi32((__mmask16)(m), p)
#elif VALUE == 2
#define NEXT(v)         _mm512_ror_epi64(v, 16)
#define AFTER_NEXT(v)   _mm512_ror_epi64(v, 32)
#define ADD(a, b)       _mm512_add_epi16(a, b)
#define MAX(a, b)       _mm512_max_epu16(a, b)
#define MIN(a, b)       _mm512_min_epu16(a, b)
#define AT_LEAST(a, b)  _mm512_cmpge_epu16_mask(a, b)
#define LAST_LANE       _mm512_set1_epi64(1ll << 48)
#define SPLAT(x)        _mm512_set1_epi16(x)
#define LOAD_PART(m, p) _mm512_maskz_loadu_epi16((__mmask32)(m), p)
#define SHIFT(v, n)     _mm512_srlv_epi64(v, n)
#define ODD_GROUPS      _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4)
#define GROUP_LANES(x)  _mm512_set1_epi64(x)
#define FIRST_PLACE     0xffff
#else
#define NEXT(v)         _mm512_ror_epi32(v, 8)
#define AFTER_NEXT(v)   _mm512_ror_epi32(v, 16)
#define ADD(a, b)       _mm512_add_epi8(a, b)
#define MAX(a, b)       _mm512_max_epu8(a, b)
#define MIN(a, b)       _mm512_min_epu8(a, b)
#define AT_LEAST(a, b)  _mm512_cmpge_epu8_mask(a, b)
#define LAST_LANE       _mm512_set1_epi32(1 << 24)
#define SPLAT(x)        _mm512_set1_epi8(x)
#define LOAD_PART(m, p) _mm512_maskz_loadu_epi8(m, p)
#define SHIFT(v, n)     _mm512_srlv_epi32(v, n)
#define ODD_GROUPS      _mm512_set1_epi64(4ll << 32)
#define GROUP_LANES(x)  _mm512_set1_epi32(x)
#define FIRST_PLACE     0xff
#endif

#ifdef NANS
#define SIZE(v) MIN(_mm512_and_si512(v, SPLAT(NO_SIGN)), SPLAT(NANS))
#else
#define SIZE(v) _mm512_abs_epi8(v)
#endif

/* Keeps the compiler from doing a word's arithmetic in mask registers, which are slow at it. */
#define IN_REGISTER(word) __asm__("" : "+r"(word))

/* In every nibble the bit for one of its four elements. */
#define EACH(nibble) (0x1111111111111111u * (nibble))

/* The kept ones of 64 elements; `largest` gathers magnitudes. */
AVX512_INLINE uint64_t kept(const __m512i v[VECTORS], __m512i *largest)
{
    uint64_t next = 0, after = 0;
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        const __m512i size = SIZE(v[i]);
        *largest = MAX(*largest, size);
        next |= (uint64_t)AT_LEAST(NEXT(size), ADD(size, LAST_LANE)) << i * (LANES & 63);
        after |= (uint64_t)AT_LEAST(AFTER_NEXT(size), size) << i * (LANES & 63);
    }
    IN_REGISTER(next);
    IN_REGISTER(after);
    /* Beaten by the one before: which is that one not being beaten by its next. */
    const uint64_t before = (~next & EACH(7u)) << 1 | (~next >> 3 & EACH(1u));
    after = (after & EACH(3u)) | (~after & EACH(3u)) << 2;
    return ~((next & after) | (next & before) | (after & before));
}

AVX512_INLINE uint64_t codes_of(uint64_t keep)
{
    const __m128i code = _mm_setr_epi8(0, 0, 0, 4, 0, 8, 9, 0, 0, 12, 13, 0, 14, 0, 0, 0);
    const __m128i low = _mm_set1_epi8(15), bits = _mm_cvtsi64_si128((long long)keep);
    const __m128i even = _mm_shuffle_epi8(code, _mm_and_si128(bits, low));
    const __m128i odd = _mm_shuffle_epi8(code, _mm_and_si128(_mm_srli_epi64(bits, 4), low));
    return (uint64_t)_mm_cvtsi128_si64(_mm_or_si128(even, _mm_slli_epi64(odd, 4)));
}

/* ---- the kept ones, in order: 32 * VALUE bytes ----------------------------------------------- */

#if VALUE == 4
SELECT_INLINE void pack_step(__m512i out[2], const __m512i v[4], uint64_t keep)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m512i kept_ones = _mm512_maskz_compress_epi32((__mmask16)(keep >> 16 * i), v[i]);
        out[i / 2] = i & 1 ? _mm512_inserti64x4(out[i / 2], _mm512_castsi512_si256(kept_ones), 1)
                           : kept_ones;
    }
}
#elif COMPRESS && VALUE == 2
SELECT_INLINE void pack_step(__m512i out[1], const __m512i v[2], uint64_t keep)
{
    const __m512i low = _mm512_maskz_compress_epi16((__mmask32)keep, v[0]);
    const __m512i high = _mm512_maskz_compress_epi16((__mmask32)(keep >> 32), v[1]);
    out[0] = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
}
#elif COMPRESS
SELECT_INLINE void pack_step(__m512i out[1], const __m512i v[1], uint64_t keep)
{
    out[0] = _mm512_maskz_compress_epi8(keep, v[0]);
}
#else
/* Sixteen counts of bits for a byte shuffle, given in elements. */
#define TABLE(...)                                                                                 \
    _mm512_broadcast_i32x4(_mm_slli_epi16(_mm_setr_epi8(__VA_ARGS__), VALUE == 2 ? 4 : 3))
/*
 * A group's first kept element moves to its first place and the second to its second, by shifts
 * that are looked up for the group: its nibble of `bits` is spread to the group's own lane.
 */
AVX512_INLINE __m512i move(__m512i v, __m512i bits, __m512i spread)
{
    const __m512i first = TABLE(0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0);
    const __m512i second = TABLE(0, 0, 0, 0, 0, 1, 1, 0, 0, 2, 2, 0, 2, 0, 0, 0);
    __m512i nibble = SHIFT(_mm512_shuffle_epi8(bits, spread), ODD_GROUPS);
    nibble = _mm512_and_si512(nibble, GROUP_LANES(15));
    const __m512i a = SHIFT(v, _mm512_shuffle_epi8(first, nibble));
    const __m512i b = SHIFT(v, _mm512_shuffle_epi8(second, nibble));
    return _mm512_ternarylogic_epi32(GROUP_LANES(FIRST_PLACE), a, b, 0xca);
}

#if VALUE == 2
SELECT_INLINE void pack_step(__m512i out[1], const __m512i v[2], uint64_t keep)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i bits = _mm512_set1_epi64((long long)keep);
    const __m512i low = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3);
    const __m512i high = _mm512_setr_epi64(4, 4, 5, 5, 6, 6, 7, 7);
    out[0] = _mm512_permutex2var_epi32(move(v[0], bits, low), even, move(v[1], bits, high));
}
#else
SELECT_INLINE void pack_step(__m512i out[1], const __m512i v[1], uint64_t keep)
{
    const __m512i spread = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i moved = move(v[0], _mm512_set1_epi64((long long)keep), spread);
    out[0] = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(moved));
}
#endif
#endif

AVX512_INLINE void store_step(uint8_t *to, const __m512i *out, int stream)
{
#if VALUE == 1
    const __m256i half = _mm512_castsi512_si256(out[0]);
    if (stream)
        _mm256_stream_si256((__m256i *)(void *)to, half);
    else
        _mm256_storeu_si256((__m256i *)(void *)to, half);
#else
    UNROLL for (int i = 0; i < VALUE / 2; i++)
    {
        if (stream)
            _mm512_stream_si512((void *)(to + 64 * i), out[i]);
        else
            _mm512_storeu_si512(to + 64 * i, out[i]);
    }
#endif
}

/* `steps` steps; the next function hands in a constant `stream`. */
SELECT_INLINE __m512i run_steps(uint8_t *values, uint8_t *indices, const uint8_t *w, int64_t steps,
                                __m512i largest, int stream)
{
    for (int64_t i = 0; i < steps; i++, w += STEP * VALUE, values += STEP / 2 * VALUE) {
        __m512i v[VECTORS], out[VECTORS];
        UNROLL for (int j = 0; j < VECTORS; j++)
        {
            v[j] = _mm512_loadu_si512(w + 64 * j);
            const char *ahead = (const char *)((uintptr_t)w + AHEAD + 64u * (unsigned)j);
            if (stream)
                _mm_prefetch(ahead, _MM_HINT_NTA);
            else
                _mm_prefetch(ahead, _MM_HINT_T0);
        }
        const uint64_t keep = kept(v, &largest), codes = codes_of(keep);
        pack_step(out, v, keep);
        store_step(values, out, stream);
        memcpy(indices + 8 * i, &codes, sizeof codes);
    }
    return largest;
}

/* Fewer than a step, through a buffer. */
SELECT_INLINE __m512i run_part(uint8_t *values, uint8_t *indices, const uint8_t *w, int64_t count,
                               __m512i largest)
{
    uint8_t from[STEP * VALUE] = {0}, to[STEP / 2 * VALUE], codes[8];
    memcpy(from, w, (size_t)count * VALUE);
    largest = run_steps(to, codes, from, 1, largest, 0);
    if (count & 4) codes[count / 8] &= 0xf;
    memcpy(values, to, (size_t)(count / 2 * VALUE));
    memcpy(indices, codes, (size_t)((count + 7) / 8));
    return largest;
}

AVX512 static void mask(uint8_t *out, const void *w, int64_t count)
{
    const uint8_t *from = w;
    __m512i largest = _mm512_setzero_si512();
    for (int64_t i = 0; i < count; i += STEP, from += STEP * VALUE) {
        __m512i v[VECTORS];
        const __mmask64 part = count - i < STEP ? (1ull << (count - i)) - 1 : ~0ull;
        UNROLL for (int j = 0; j < VECTORS; j++)
        {
            v[j] = LOAD_PART(part >> j * (LANES & 63), from + 64 * j);
        }
        _mm512_mask_storeu_epi8(out + i, part, _mm512_maskz_set1_epi8(kept(v, &largest), 1));
    }
}

SELECT static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t count)
{
    uint8_t *to = values;
    const uint8_t *from = w;
    __m512i largest = _mm512_setzero_si512();
    /* Elements before the values are aligned; streaming needs them to be whole code bytes. */
    const int64_t head = (int64_t)(-(uintptr_t)values & (ALIGNED - 1)) / VALUE * 2;
    const int stream = count / 2 * VALUE >= STREAM_FROM && head % 8 == 0;
    if (stream && head) {
        largest = run_part(to, indices, from, head, largest);
        to += head / 2 * VALUE, indices += head / 8, from += head * VALUE, count -= head;
    }
    const int64_t steps = count / STEP, done = steps * STEP;
    largest = stream ? run_steps(to, indices, from, steps, largest, 1)
                     : run_steps(to, indices, from, steps, largest, 0);
    if (done < count)
        largest = run_part(to + done / 2 * VALUE, indices + done / 8, from + done * VALUE,
                           count - done, largest);
    if (stream) _mm_sfence();
#ifdef NONFINITE
    return AT_LEAST(largest, SPLAT(NONFINITE)) == 0;
#else
    return 1;
#endif
}

#endif
