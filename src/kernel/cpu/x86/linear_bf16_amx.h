// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in bf16, on AMX: x is rounded to bf16 unless it is bf16, sums are f32. Included
 * by the rows' files, which define KEPT (linear_amx.h).
 *
 * A stored vector of rows16's pairs, the two kept values of a group in 16 rows, becomes two rows of
 * a weight tile by a byte shuffle each. What it shuffles by is made from the code bits b0 … b3
 * (i0 | i1 << 2) by a product of bits: whether column c is kept, and whether as the second value,
 * are sums of code bits modulo 2,
 *     dropped:  0: b0 + b1    1: b0 + b3    2: b1 + b2    3: b2 + b3
 *     second:   0: 0          1: 1 + b3     2: 1 + b1     3: 1
 * so vgf2p8affineqb makes the shuffle's bytes, zeroing bit included, from a byte that has the code
 * in one half and in the other what is constant: the byte's number, its lane, its column's parity.
 *
 * Tokens with an Inf or NaN go to the row of dots: a dropped weight is a zero here, and zero times
 * NaN would reach outputs that have nothing to do with it.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_AMX_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_AMX_H

#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,"                         \
                          "avx512vbmi,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#define DOT           TILE_DOT_BF16

enum {
    TILE_COLUMNS = 32,
    ROW_HEAD = 0,
    SUMS_ARE_FLOATS = 1,
    FEW =
        2, /* tokens that the row of dots is faster with, as it stores nothing on its way, up to */
    NEAR_BYTES = 4 << 20,                   /* of packed weights */
    TILE_BYTES = S24I_ROWS16_CODES + 8 * 64 /* a k block of rows16_bf16_pairs */
};

#include "kernel/cpu/x86/linear_amx_run.h"
#include "kernel/cpu/x86/tokens_bf16.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* What is constant of a byte, for the 16 lanes from the last on, from bit `c` on. */
#define REST_OF(lane, c) (int)((0x09080100u + 0x02020202u * ((lane) % 4)) << (c))
#define REST_FOUR(c)     REST_OF(3, c), REST_OF(2, c), REST_OF(1, c), REST_OF(0, c)
#define REST(c)          REST_FOUR(c), REST_FOUR(c), REST_FOUR(c), REST_FOUR(c)

/* A product of bits: output bit i is the sum of the input bits row[i]. */
#define BITS(r0, r1, r2, r3, r7)                                                                   \
    ((long long)((uint64_t)(r0) << 56 | (uint64_t)(r1) << 48 | (uint64_t)(r2) << 40 |              \
                 (uint64_t)(r3) << 32 | (uint64_t)(r7)))

/* Two rows of the tile from a group's pairs: bits has the code's, masked for each column, in one
   half of a byte, and in the other, from bit `c` on: the byte's number, its lane, "odd column". */
TARGET_INLINE void expand_group(uint8_t *to, const uint8_t *pairs, __m512i bits, const int b,
                                const int c)
{
    const __m512i low = _mm512_set1_epi64(
        BITS(1 << c, 8 << b | 8 << c, 2 << c, 4 << c, 11 << b)); /* columns 0 and 1 */
    const __m512i high =
        _mm512_set1_epi64(BITS(1 << c, 2 << b, 2 << c, 4 << c, 14 << b)); /* 2 and 3 */
    const __m512i values = _mm512_load_si512(pairs);
    _mm512_store_si512(to,
                       _mm512_shuffle_epi8(values, _mm512_gf2p8affine_epi64_epi8(bits, low, 0)));
    _mm512_store_si512(to + 64,
                       _mm512_shuffle_epi8(values, _mm512_gf2p8affine_epi64_epi8(bits, high, 2)));
}

/* Bytes of even columns keep the code bits 0, 1 and 2, of odd ones 0, 2 and 3. */
TARGET_INLINE void expand(uint8_t *to, const uint8_t *from, const int part)
{
    const __m512i even_mask = _mm512_set1_epi32(0x0d0d0707);
    const __m512i odd_mask = _mm512_set1_epi32((int)0xd0d07070);
    const __m512i even_rest = _mm512_set_epi32(REST(4)), odd_rest = _mm512_set_epi32(REST(0));
    const int j = 0x01010101 * part;
    const __m512i both =
        _mm512_shuffle_epi8(_mm512_load_si512(from),
                            _mm512_set4_epi32(0x0c0c0c0c + j, 0x08080808 + j, 0x04040404 + j, j));
    const __m512i even = _mm512_ternarylogic_epi32(both, even_mask, even_rest, 0xea);
    const __m512i odd = _mm512_ternarylogic_epi32(both, odd_mask, odd_rest, 0xea);
    from += S24I_ROWS16_CODES + 128 * part;
    expand_group(to + 256 * part, from, even, 0, 4);
    expand_group(to + 256 * part + 128, from + 64, odd, 4, 0);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* 32 columns that are all there of 16 tokens that are, too. */
TARGET_INLINE __m512i whole_columns(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                                    int64_t k)
{
    if (dtype != S24_F32)
        return _mm512_loadu_si512((const uint16_t *)job->x + m * job->x_stride_m + k);
    const float *x = (const float *)job->x + m * job->x_stride_m + k;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
}

/* 16 tokens' columns from k on as a tile; returns `largest` or their magnitudes, what is larger. */
TARGET_INLINE __m512i pack_whole(const s24i_linear_job *job, s24_dtype dtype, int64_t m, int64_t k,
                                 uint8_t *to, __m512i largest)
{
    enum { AHEAD = 128 }; /* columns */
    UNROLL for (int t = 0; t < 16; t++)
    {
        const __m512i x = whole_columns(job, dtype, m + t, k);
        const char *next = element_of(job->x, dtype, (m + t) * job->x_stride_m + k + AHEAD);
        _mm_prefetch(next, _MM_HINT_T0);
        if (dtype == S24_F32) _mm_prefetch(next + 64, _MM_HINT_T0);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
        _mm512_store_si512(to + 64 * t, x);
    }
    return largest;
}

/* The same of fewer tokens; zeros follow them in a tile of more rows. */
TARGET_INLINE __m512i pack_few(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                               int64_t tokens, int64_t k, uint8_t *to, __m512i largest)
{
    for (int64_t t = 0; t < tokens; t++) {
        const __m512i x = whole_columns(job, dtype, m + t, k);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
        _mm512_store_si512(to + 64 * t, x);
    }
    for (int64_t t = tokens; t < token_rows(job); t++)
        _mm512_store_si512(to + 64 * t, _mm512_setzero_si512());
    return largest;
}

TARGET_INLINE __m512i pack_columns(const s24i_linear_job *job, s24_dtype dtype, int64_t m,
                                   int64_t tokens, int64_t k, uint8_t *to, __m512i largest)
{
    return tokens == 16 ? pack_whole(job, dtype, m, k, to, largest)
                        : pack_few(job, dtype, m, tokens, k, to, largest);
}

TARGET static int pack_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                              int64_t step, float *scales)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / TILE_COLUMNS * TILE_COLUMNS : 0;
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i largest = _mm512_setzero_si512();
    memset(scales, 0, 16 * sizeof *scales);
    for (int64_t k = 0; k < whole; k += TILE_COLUMNS, to += step)
        largest = job->x_dtype == S24_F32 ? pack_columns(job, S24_F32, m, tokens, k, to, largest)
                                          : pack_columns(job, S24_BF16, m, tokens, k, to, largest);
    for (int64_t k = whole; k < job->k; k += TILE_COLUMNS, to += step)
        for (int64_t t = 0; t < token_rows(job); t++) {
            const __m512i x = t < tokens ? load_columns(job, m + t, k) : _mm512_setzero_si512();
            largest = _mm512_max_epu16(largest, _mm512_and_si512(x, magnitude));
            _mm512_store_si512(to + 64 * t, x);
        }
    return !_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80));
}

TARGET_INLINE __m512 scales_at(const s24i_linear_job *job, int64_t b)
{
    (void)job, (void)b;
    return _mm512_set1_ps(1);
}

TARGET_INLINE __m512 as_floats(const float *sums, __m512 w_scales, float x_scale)
{
    (void)w_scales, (void)x_scale;
    return _mm512_load_ps(sums);
}

/* ---- the row's entries ----------------------------------------------------------------------- */

extern const s24i_linear_kernel s24i_linear_bf16_avx512bf16_near;

static const s24i_linear_kernel *other_row(void)
{
    return &s24i_linear_bf16_avx512bf16_near;
}

static size_t weight_bytes(const s24i_weight *from)
{
    return packed_bytes(from->n, from->k) + kept_bytes(from->n, from->k);
}

static void weight_pack(void *w, const s24i_weight *from)
{
    other_row()->weight_pack(w, from);
    keep_tiles(w, from);
}

static void run_job(const s24i_linear_job *job)
{
    if (job->m > FEW || packed_bytes(job->n, job->k) > NEAR_BYTES)
        run_tiles(job);
    else
        other_row()->run(job);
}

#endif
