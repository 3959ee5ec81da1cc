// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in bf16, on vdpbf16ps: x is rounded to bf16 unless it is bf16, sums are f32. A
 * group's two kept values lie together in w (rows16.h) and meet their two columns of x in one dot.
 *
 * "mixed": x is packed in panels of so many vectors of 16 tokens. Of most of them tokens lie
 * in the lanes, and of each group of 4 k all six pairs of columns are laid out,
 *      6 lines of [16 tokens][2 columns]
 * so that a row's group is one broadcast of its pair and a dot a vector, straight from panel +
 * offset. The offset is the code times 64 B: the six legal codes 4 8 9 12 13 14 differ modulo 7, so
 * blocks of seven lines that reach over each other hold them without a clash and the code needs no
 * decoding; a block's seventh line is never touched. The last two vectors of four or five are
 * fours,
 *      [4][4 tokens][8 k]
 * four rows and four tokens per vector: two groups of x are loaded at once, vpshufb picks the rows'
 * pairs, and what it picks by is made from the code words once a k block for all vectors.
 *
 * What limits it (Zen 5): two loads of 64 bytes per cycle, of which a dot with the table takes one;
 * a dot with fours takes one shuffle, of which there are two per cycle on ports of which the dots
 * want one. Tables alone reach 0.82 of the dots' peak hot in L1, three table vectors and two of
 * fours 0.85, 0.82 with w and sums in L2; whole calls 0.71 to 0.74. With fours a panel takes as
 * much of L1 as 48 tokens of tables did and serves 80.
 *
 * "lanes", for few tokens: rows in the lanes, linear_bf16_few_avx512.h. It has VBMI and GFNI too,
 * which of the CPUs with bf16 dots Cooper Lake alone lacks.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_AVX512BF16_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_AVX512BF16_H

#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,gfni,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline
#ifndef HALVES
#define HALVES 0 /* 1: for cores that do 512 bits as two halves */
#endif
#define HAS_LANES  1
#define FEW_GROUPS 3
#define FEW_REST   (HALVES ? 11 : 0)
#define WIDEN      0
#define PAIRS      1
#define LAYOUT     s24i_layout_rows16_bf16_pairs

enum {
    LANE = 16,                        /* tokens of a vector */
    MAX_C = 5,                        /* vectors of tokens in a panel: at most, */
    FIT_C = 5,                        /* in a panel alone, */
    BEST_C = 5,                       /* and else */
    LANES_M = 16,                     /* tokens of the lanes design */
    CHUNK = 48,                       /* row blocks whose sums are kept between passes over k */
    NEAR = 400 << 10,                 /* bytes of panels that share a visit to w */
    PART = 7 * 64,                    /* bytes of a group and vector of tokens in a panel */
    PANEL = GROUPS * PART,            /* and of a k block */
    PANEL_SLACK = 4 * 64,             /* the last block's lines reach over its seven */
    FIRST_LINE = 4 * 64,              /* the least offset that a code makes */
    BLOCK = CODES + GROUPS * ROWS * 4 /* bytes of a stored k block */
};

/*
 * Of a panel's c vectors the last ones are fours. Two groups and all vectors are a unit of so many
 * bytes: first a group's parts, C tables and the fours, then the other's C tables. The lines 1 to 3
 * of a part are those that the table before it reaches over to.
 */
#define FOURS(c)     ((c) < 4 ? 0 : 2)
#define UNIT(c)      ((2 * (c)-FOURS(c)) * PART)
#define KBLOCK(c)    (GROUPS / 2 * UNIT(c))
#define FOUR_LINE(j) ((j) == 0 ? 0 : 64 * ((j) + 3))

/* ---- the tile: 16 rows, C*16 tokens, some k blocks (32 columns) ------------------------------ */

/* R rows of some vectors of tokens, on their way along k: C vectors have a sum for each row in acc,
   the others for each four rows and tokens in quad. */
typedef struct mixed {
    const uint8_t *following, *x; /* where rows have their next code words; the panel */
    const float *pairs;           /* the rows' values */
    uint8_t *picks;               /* what they take of the four-token form */
    uint64_t code[4];             /* of two rows each */
    __m512 acc[8][3], quad[2][8];
} mixed;

/* The compiler knows nothing of what the assembly reads; tiles start with a memory clobber. */
TARGET_INLINE void add_dot(__m512 *acc, __m512 w, const uint8_t *x, uint64_t offset, int disp)
{
    __asm__("vdpbf16ps %c1(%2,%3),%4,%0" : "+v"(*acc) : "i"(disp), "r"(x), "r"(offset), "v"(w));
}

/* A row's C vectors of tables. No loop: clang 14 does not see through it. */
TARGET_INLINE void dot_row(__m512 *acc, __m512 w, const uint8_t *x, uint64_t offset, int disp,
                           const int C)
{
    add_dot(acc, w, x, offset, disp);
    if (C > 1) add_dot(acc + 1, w, x, offset, disp + PART);
    if (C > 2) add_dot(acc + 2, w, x, offset, disp + 2 * PART);
}

/* The offset that a code word's four bits from `bit` on make. */
TARGET_INLINE uint64_t offset_at(uint64_t code, int bit)
{
    return (bit <= 6 ? code << (6 - bit) : code >> (bit - 6)) & 960u;
}

/* 128 bits, to every 128. */
#define FOUR_PAIRS(p) _mm512_broadcast_f32x4(_mm_load_ps(p))
#define FOUR_WORDS(p) _mm512_broadcast_i32x4(_mm_load_si128((const void *)(p)))

/*
 * What four rows take of the four-token form, as bytes for vpshufb: of each row's code word the two
 * columns of the groups first .. first + 3, one group in each 128 bits; of two groups that share
 * their 16 bytes of a token the second has the upper eight.
 */
TARGET_INLINE __m512i picks_of(__m512i codes, int first)
{
    const int a = (4 * first + 31) % 32, b = 4 * first + 3, c = b + 4, d = c + 4;
    const __m512i turn = _mm512_set_epi32(d, d, d, d, c, c, c, c, b, b, b, b, a, a, a, a);
    const __m512i spread = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    const __m512i second = _mm512_set1_epi32(0x00020000), column = _mm512_set1_epi8(6);
    const __m512i bytes = _mm512_mask_blend_epi32(0xf0f0, _mm512_set1_epi32(0x01000100),
                                                  _mm512_set1_epi32(0x09080908));
    codes = _mm512_shuffle_epi8(_mm512_rorv_epi32(codes, turn), spread);
    return _mm512_ternarylogic_epi32(_mm512_srlv_epi16(codes, second), column, bytes, 0xea);
}

/* Of R rows and all groups of a k block; stored long before they are loaded, 128 bits at a time. */
TARGET_INLINE void make_picks(uint8_t *to, const uint8_t *from, const int R)
{
    UNROLL for (int i = 0; i < R; i += 4)
    {
        const __m512i codes = FOUR_WORDS(from + 4 * i);
        _mm512_store_si512(to + 32 * i, picks_of(codes, 0));
        _mm512_store_si512(to + 32 * i + 64, picks_of(codes, 4));
    }
}

/* Groups 2u and 2u + 1 of the rows i .. i + 3: of each row and group C dots with the table, and
   between them the vectors of the other form, Q of them. A row's next code word is asked for as
   soon as the last of this one is used: every load of x waits for its offset, and a load that comes
   late is never made up for. */
TARGET_INLINE void four_rows(mixed *m, int u, int i, const int C, const int Q)
{
    const int VECTORS = C + Q / 4, unit = u * UNIT(VECTORS);
    const __m512 four0 = FOUR_PAIRS(m->pairs + 2 * u * ROWS + i);
    const __m512 four1 = FOUR_PAIRS(m->pairs + (2 * u + 1) * ROWS + i);
    __m512i picks0 = _mm512_setzero_si512(), picks1 = picks0;
    if (Q > 0) {
        picks0 = FOUR_WORDS(m->picks + 32 * i + 32 * u);
        picks1 = FOUR_WORDS(m->picks + 32 * i + 32 * u + 16);
    }
    UNROLL for (int s = 0; s < 8; s++)
    {
        const int row = i + s % 4;
        const uint64_t offset = offset_at(m->code[row / 2], 4 * (2 * u + s / 4) + row % 2 * 32);
        if (u == 3 && s > 4 && s % 2) m->code[row / 2] = codes_at(m->following, row / 2);
        const __m512 value = spread_lane(s < 4 ? four0 : four1, s % 4);
        dot_row(m->acc[row], value, m->x, offset, unit + s / 4 * VECTORS * PART - FIRST_LINE, C);
        if ((s + 1) * Q / 8 > s * Q / 8) {
            const int j = s * Q / 8;
            __m512i eight = _mm512_load_si512(m->x + unit + (C + j / 4) * PART + FOUR_LINE(j % 4));
            KEEP(eight);
            __m512 *sum = &m->quad[i / 4][j];
            *sum = _mm512_dpbf16_ps(*sum, (__m512bh)four0,
                                    (__m512bh)_mm512_shuffle_epi8(eight, picks0));
            *sum = _mm512_dpbf16_ps(*sum, (__m512bh)four1,
                                    (__m512bh)_mm512_shuffle_epi8(eight, picks1));
        }
    }
}

TARGET_INLINE void two_groups(mixed *m, int u, const int R, const int C, const int Q)
{
    four_rows(m, u, 0, C, Q);
    if (R == 8) four_rows(m, u, 4, C, Q);
}

/* The sum of row i and vector c, which quad has for four tokens of each of four rows. */
TARGET_INLINE __m512 *sum_of(mixed *m, int i, int c, const int C)
{
    return c < C ? &m->acc[i][c] : &m->quad[i / 4][(c - C) * 4 + i % 4];
}

/* Multiplies 16 rows by VECTORS of tokens, R rows at a time; both are constants. */
TARGET_INLINE void mixed_tile(const tile *t, uintptr_t self, const int R, const int VECTORS)
{
    const int Q = 4 * FOURS(VECTORS), C = VECTORS - Q / 4;
    const int LINES = (BLOCK * R / ROWS + 63) / 64;
    mixed m;
    _Alignas(64) uint8_t picks_of_two[2][32 * 8];
    uint8_t *picks_after = picks_of_two[1];
    m.picks = picks_of_two[0];
    __asm__ volatile("" : "+r"(m.picks), "+r"(picks_after)::"memory");
    UNROLL for (int i = 0; i < R / 2; i++)
    {
        m.code[i] = codes_at(t->w, i);
    }
    if (Q > 0) make_picks(m.picks, t->w, R);
    for (int row = 0; row < ROWS; row += R) {
        float *sums = t->sums + row * VECTORS * LANE;
        const uint8_t *w = t->w, *next = w + row * (BLOCK / ROWS) + t->ahead;
        m.x = t->x;
        UNROLL for (int i = 0; i < R * VECTORS; i++)
        {
            *sum_of(&m, i / VECTORS, i % VECTORS, C) =
                t->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * LANE);
        }
        for (int64_t q = t->blocks; q > 0; q--) {
            m.following = q > 1 ? w + BLOCK + 4 * row : t->w + (4 * row + 4 * R) % 64;
            m.pairs = (const float *)(const void *)(w + CODES) + row;
            if (Q > 0) make_picks(picks_after, m.following, R);
            _mm_prefetch(line_of_code(self, (uintptr_t)next / 8, TILE_CODE), _MM_HINT_T1);
            if (t->cold) {
                UNROLL for (int i = 0; i < LINES; i++)
                {
                    _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);
                }
            }
            two_groups(&m, 0, R, C, Q);
            two_groups(&m, 1, R, C, Q);
            two_groups(&m, 2, R, C, Q);
            two_groups(&m, 3, R, C, Q);
            m.x += KBLOCK(VECTORS), w += BLOCK, next += BLOCK;
            uint8_t *const used = m.picks;
            m.picks = picks_after, picks_after = used;
        }
        UNROLL for (int i = 0; i < R * VECTORS; i++)
        {
            _mm512_store_ps(sums + i * LANE, *sum_of(&m, i / VECTORS, i % VECTORS, C));
        }
    }
}

#define TILE(R, VECTORS)                                                                           \
    TARGET static void tile_##VECTORS(const tile *t)                                               \
    {                                                                                              \
        mixed_tile(t, (uintptr_t)tile_##VECTORS, R, VECTORS);                                      \
    }
TILE(8, 2)
TILE(8, 3)
TILE(4, 4)
TILE(4, 5)

/* By C: the tile, and how many k blocks make one pass (the panel's share of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {{NULL, 0}, {NULL, 0}, {tile_2, 4}, {tile_3, 3}, {tile_4, 4}, {tile_5, 3}};

/* ---- x in bf16 ------------------------------------------------------------------------------- */

#include "kernel/cpu/x86/tokens_bf16.h"

/* 16 tokens x 32 columns: r[i] lane t = columns k + 2i and k + 2i + 1 of token m + t, or (fours)
   r[4 * u + j] quarter q = columns k + 8u and on of token m + 4q + j. */
TARGET_INLINE void load_pairs(__m512 r[16], const s24i_linear_job *job, int64_t m, int64_t k,
                              int fours)
{
    const int64_t tokens = job->m - m, columns = job->k - k, stride = job->x_stride_m;
    if (job->x_stride_k == 1 && tokens >= 16 && columns >= COLUMNS) {
        if (job->x_dtype != S24_F32) {
            const uint16_t *x = (const uint16_t *)job->x + m * stride + k;
            for (int i = 0; i < 16 && columns > 64; i++)
                _mm_prefetch((const char *)(x + i * stride + 64), _MM_HINT_T0);
            load_fours(r, x, 2 * stride);
            if (!fours) transpose_fours(r);
            return;
        }
        const float *x = (const float *)job->x + m * stride + k;
        UNROLL for (int i = 0; i < 16; i++)
        {
            const float *row = x + i * stride;
            _mm_prefetch((const char *)(row + (columns > 64 ? 64 : 0)), _MM_HINT_T0);
            _mm_prefetch((const char *)(row + (columns > 96 ? 80 : 0)), _MM_HINT_T0);
            r[i] = (__m512)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(row + 16), _mm512_loadu_ps(row));
        }
    } else {
        for (int i = 0; i < 16; i++)
            r[i] =
                i < tokens ? _mm512_castsi512_ps(load_columns(job, m + i, k)) : _mm512_setzero_ps();
    }
    if (!fours) {
        transpose16(r);
        return;
    }
    UNROLL for (int j = 0; j < 4; j++)
    {
        exchange_quarters(r + j, 4);
    }
}

/* 16 tokens x 32 columns as pairs into their part of a panel of c vectors. */
TARGET static void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m,
                              int64_t k, int fours)
{
    const __mmask32 second = 0xaaaaaaaau;
    __m512 r[16];
    if (fours) {
        load_pairs(r, job, m, k, 1);
        UNROLL for (int u = 0; u < GROUPS / 2; u++, out += UNIT(c))
        {
            UNROLL for (int j = 0; j < 4; j++)
            {
                _mm512_store_ps(out + FOUR_LINE(j), r[4 * u + j]);
            }
        }
        return;
    }
    load_pairs(r, job, m, k, 0);
    UNROLL for (int g = 0; g < GROUPS; g++)
    {
        uint8_t *to = out + g / 2 * UNIT(c) + g % 2 * c * PART;
        const __m512i x01 = _mm512_castps_si512(r[2 * g]), x10 = _mm512_rol_epi32(x01, 16);
        const __m512i x23 = _mm512_castps_si512(r[2 * g + 1]), x32 = _mm512_rol_epi32(x23, 16);
        _mm512_store_si512(to, x01); /* code 4, less the least one */
        _mm512_store_si512(to + 4 * 64, _mm512_mask_blend_epi16(second, x01, x32)); /* 0 2: 8 */
        _mm512_store_si512(to + 5 * 64, _mm512_mask_blend_epi16(second, x10, x32)); /* 1 2: 9 */
        _mm512_store_si512(to + 8 * 64, _mm512_mask_blend_epi16(second, x01, x23)); /* 0 3: 12 */
        _mm512_store_si512(to + 9 * 64, _mm512_mask_blend_epi16(second, x10, x23)); /* 1 3: 13 */
        _mm512_store_si512(to + 10 * 64, x23);                                      /* 2 3: 14 */
    }
}

#include "kernel/cpu/x86/linear_finish_bf16.h"

#include "kernel/cpu/x86/linear_bf16_few_avx512.h"

#define FETCH_PRODUCTS 440
#include "kernel/cpu/linear_driver.h"

#endif
