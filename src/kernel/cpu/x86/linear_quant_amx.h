// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, x in floats that may lose what 16 bits do not hold, on
 * AMX: integers of a row become bf16, which has them all, in tiles, and its sums meet the scale;
 * integers of groups become scale·q, rounded to bf16, as f32 x is.
 * The weights lie as linear_quant_avx512vnni.h has it, whose row multiplies what may lose nothing,
 * fewer tokens than MANY, for which memory or its dots are what limits, and tokens that are not
 * finite, or so large that sums of integers might not be.
 *
 * The including file defines LAYOUT, VALUES, VALUE_BITS (a byte holds the integer times two to
 * that), pair_bytes() and OTHER_ROW.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_QUANT_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_QUANT_AMX_H

#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,"                         \
                          "avx512vbmi,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#define DOT           TILE_DOT_BF16
#define KEPT          0
#define OWN_ORDER     1

enum {
    TILE_COLUMNS = 32,
    SUMS_ARE_FLOATS = 0,
    QUARTERS = 4,
    MANY = 8, /* tokens that tiles are faster with; */
    MANY_OF_GROUPS = 12,
    TOO_LARGE = 0x6f80 /* 2^96 */
};

#include "kernel/cpu/rows16.h"
#include "kernel/cpu/rows16_scaled.h"

/* ---- where weights lie ----------------------------------------------------------------------- */

/* A quarter of a block of 64 rows from a step on: its part of the first segment, and of the last
   one, which may be shorter. */
typedef struct stored {
    const uint8_t *first, *last;
    int64_t step, segment, whole; /* of whole segments: bytes from one to the next; their number */
    int64_t head;                 /* bytes of a segment's scales */
    int shift;                    /* 2^shift k blocks are a segment */
} stored;

typedef struct packed_tile {
    const uint8_t *block;
    const float *scales; /* of its groups, or NULL */
} packed_tile;

static const uint8_t *rows64_of(const s24i_linear_job *job, const s24i_scaled *l, int64_t b)
{
    return (const uint8_t *)job->w + b / QUARTERS * l->bytes;
}

static inline stored stored_from(const s24i_linear_job *job, int64_t b, int64_t step)
{
    const s24i_scaled l = places_of(job);
    const int64_t quarter = b % QUARTERS, whole = l.k_blocks / l.per_segment;
    const uint8_t *w = rows64_of(job, &l, b);
    return (stored){.first = w + s24i_scaled_segment(&l, quarter, 0),
                    .last = w + s24i_scaled_segment(&l, quarter, whole * l.per_segment),
                    .step = step,
                    .segment = QUARTERS * (l.segment_head + l.per_segment * l.block),
                    .whole = whole,
                    .head = l.segment_head,
                    .shift = l.per_segment == 4 ? 2 : 1};
}

static inline packed_tile stored_tile(stored from, int64_t step)
{
    const int64_t q = from.step + step, i = q >> from.shift;
    const uint8_t *segment = i < from.whole ? from.first + i * from.segment : from.last;
    return (packed_tile){segment + from.head + (q - (i << from.shift)) * QUANT_BLOCK,
                         from.head ? (const float *)(const void *)segment : NULL};
}

static inline uint8_t *kept_of(const s24i_linear_job *job)
{
    (void)job;
    return NULL;
}

#include "kernel/cpu/x86/linear_amx_pairs.h"
#include "kernel/cpu/x86/linear_amx_run.h"
#include "kernel/cpu/x86/linear_amx_tokens.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* The bytes of a pair of groups, the four values of a row in a dword, times 2^VALUE_BITS. */
TARGET_INLINE __m512i pair_bytes(const uint8_t *values, const int pair);

/* Byte j of each dword as f32, of bytes plus 128: the last bits of 2^23 + byte. */
TARGET_INLINE __m512 value_of(__m512i bytes, const int j)
{
    const __m512i at = j ? _mm512_srli_epi32(bytes, (unsigned)(8 * j)) : bytes;
    const __m512i sum =
        _mm512_ternarylogic_epi32(at, _mm512_set1_epi32(0xff), _mm512_set1_epi32(0x4b000000), 0xea);
    return _mm512_sub_ps(_mm512_castsi512_ps(sum), _mm512_set1_ps(0x1p23f + 128));
}

/* Two values of a row as bf16, from the upper halves of what has no lower ones. */
TARGET_INLINE __m512i both_of(__m512i first, __m512i second)
{
    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(first, 16), second,
                                     _mm512_set1_epi32((int)0xffff0000), 0xf8); /* a | (b & c) */
}

/* scale·q to the nearest of bf16, in the upper half. */
TARGET_INLINE __m512i scaled(__m512 q, __m512 scale)
{
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_mul_ps(q, scale)),
                            _mm512_set1_epi32(0x8000));
}

/* The kept values of a pair's first or second group. */
TARGET_INLINE __m512i group_values(__m512i bytes, const int group, const float *scales)
{
    const __m512 first = value_of(bytes, 2 * group), second = value_of(bytes, 2 * group + 1);
    if (!scales) return both_of(_mm512_castps_si512(first), _mm512_castps_si512(second));
    const __m512 scale = _mm512_load_ps(scales);
    return both_of(scaled(first, scale), scaled(second, scale));
}

/* Byte j of a row's codes has the place of value j of its pairs: those of a pair's two groups go to
   the low halves of bytes 0 and 2, and from there to all four. */
TARGET_INLINE void expand(uint8_t *to, packed_tile from, const int part)
{
    const __m512i codes = _mm512_load_si512(from.block);
    const __m512i bytes =
        _mm512_xor_si512(pair_bytes(from.block + CODES, part), _mm512_set1_epi8((char)0x80));
    const __m512i places =
        _mm512_ternarylogic_epi32(part ? _mm512_srli_epi32(codes, (unsigned)(2 * part)) : codes,
                                  _mm512_srli_epi32(codes, (unsigned)(2 * part + 6)),
                                  _mm512_set1_epi32(0x03030303), 0xe4); /* c ? a : b */
    const __m512i first = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    const __m512i second = _mm512_set4_epi32(0x0e0e0e0e, 0x0a0a0a0a, 0x06060606, 0x02020202);
    to += 256 * part;
    expand_group(to, group_values(bytes, 0, from.scales),
                 even_bits(_mm512_shuffle_epi8(places, first)), 0, 4);
    expand_group(to + 128, group_values(bytes, 1, from.scales),
                 even_bits(_mm512_shuffle_epi8(places, second)), 0, 4);
}

/* ---- sums ------------------------------------------------------------------------------------ */

TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b)
{
    const s24i_scaled l = places_of(job);
    const __m512 unit = _mm512_set1_ps(1.0f / (1 << VALUE_BITS));
    if (!l.head) return unit;
    return _mm512_mul_ps(unit, _mm512_load_ps(rows64_of(job, &l, b) + b % QUARTERS * S24I_SCALES));
}

TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale)
{
    (void)x_scale;
    return _mm512_mul_ps(_mm512_load_ps(sums), w_scales);
}

/* ---- the row's entries ----------------------------------------------------------------------- */

extern const s24i_linear_kernel OTHER_ROW;

static const s24i_linear_kernel *other_row(void)
{
    return &OTHER_ROW;
}

static void run_job(const s24i_linear_job *job)
{
    if (job->rounds && job->m >= (job->group < job->k ? MANY_OF_GROUPS : MANY))
        run_tiles(job);
    else
        other_row()->run(job);
}

#endif
