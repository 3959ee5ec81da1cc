// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4, AVX-512: this tile and that of few tokens read the one layout of rows16.h.
 *
 * "mixed": x is packed in panels of so many vectors of 16 tokens,
 *      panel -> group of 4 k -> vectors -> [4 k][16 tokens]           tokens in the lanes, or
 *                                          [4][4 tokens][4 k]         (the last one or two) fours
 * Of the first form a non-zero costs one broadcast of its value and a fused multiply-add a vector,
 * straight from panel + offset: a shift and an `and` make the offset, and the multiply-adds take it
 * as an index register, which splits them in two at rename on Intel; that is free, while an add
 * would compete for their ports. Of the second, four rows and four tokens share a vector: their
 * group of x is loaded once for both slots and vpermilps picks from it by the rows' codes.
 *
 * What limits it (Zen 5): a multiply-add takes half a cycle, and its load of 64 bytes 0.54 to 0.6,
 * whatever the addresses (two loads per cycle are reached only while something else holds them
 * back), so a tile of loads alone ends at 0.83 to 0.87 of the peak. The shuffles of the second form
 * go to ports that are free. With a third of the multiply-adds so, 21 loads for 24 multiply-adds, a
 * tile hot in L1 reaches 0.93, with sums and weights in L2 0.89; whole calls reach 0.77 to 0.81:
 * weights that come from L3, y and packing. What passes through L2 pushes the tile's code out, so
 * that each few rows ask for a line of it. Code words are loaded a slot before they are used, since
 * each load of x waits for one, and prefetches of weights cost more than they give unless those
 * come from far (linear_driver.h): else the next row block's first lines are enough, hardware
 * follows.
 *
 * "broadcast" is the same tile without fours, for cores whose shuffles of 512 bits have one port,
 * which multiplies too (Intel's port 5; S24_CPU_PORT5): a shuffle for each multiply-add would halve
 * the peak there. Left are those that spread a value, one for all multiply-adds of a row, so that
 * more vectors should share them: six are 6 multiply-adds, 6.25 loads and a shuffle. Measured on a
 * Golden Cove with all in L1, by vectors from 2 on: 0.59 0.69 0.71 0.73 0.76 0.75 of the peak; with
 * 24 KiB of x a pass and weights always asked for (docs/designs/033-port-5.md).
 *
 * Few tokens go the way of linear_few_avx512.h, rows in the lanes.
 *
 * Values of two bytes are widened: in registers in the lanes design; a pass's block at a time into
 * L1 in the broadcast design, a few percent of a pass.
 *
 * The including file defines VALUE (bytes of a value), LOAD_VALUES(p), 16 of them as f32, and
 * BROADCAST 1 for that design.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AVX512_H
#define S24_KERNEL_CPU_X86_LINEAR_AVX512_H

#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

#define TARGET AVX512
#define WIDEN  (VALUE != 4)
#ifndef BROADCAST
#define BROADCAST 0
#endif
#ifndef OWN_LAYOUT
#define OWN_LAYOUT 0
#define HAS_LANES  1
#endif

enum {
    LANE = 16,                  /* tokens of a vector */
    MAX_C = BROADCAST ? 7 : 6,  /* vectors of tokens in a panel: at most, */
    FIT_C = MAX_C,              /* in a panel alone, */
    BEST_C = BROADCAST ? 6 : 4, /* and else */
    LANES_M = 16,               /* tokens of the lanes design */
    CHUNK = 48,                 /* row blocks whose sums are kept between passes over k */
    NEAR = 400 << 10,           /* bytes of panels that share a visit to w */
    MAX_BLOCKS = 8,             /* k blocks of a pass */
    PANEL = COLUMNS * LANE * 4, /* bytes of a packed k block of a vector of tokens */
    PANEL_SLACK = 0,
    BLOCK = CODES + SLOTS * ROWS * VALUE, /* bytes of a stored k block */
    TILE_BLOCK = CODES + SLOTS * ROWS * 4 /* and of one the tile reads */
};

/* ---- the tile: 16 rows, C*16 tokens, some k blocks (32 columns) ------------------------------ */

/* R rows of some vectors of tokens, on their way along k: C vectors have a sum for each row in acc,
   the others for each four rows and tokens in quad. */
typedef struct mixed {
    const uint8_t *w, *following; /* the k block; where rows have their next code words */
    const float *x;
    uint64_t code[4]; /* of two rows each */
    __m512i picks[2]; /* the codes of four rows, to each four lanes */
    __m512 acc[8][MAX_C], quad[2][8];
} mixed;

/* The compiler knows nothing of what the assembly reads; tiles start with a memory clobber. */
AVX512_INLINE void multiply_add(__m512 *acc, __m512 w, const float *x, uint64_t offset, int disp)
{
    __asm__("vfmadd231ps %c1(%2,%3),%4,%0" : "+v"(*acc) : "i"(disp), "r"(x), "r"(offset), "v"(w));
}

/* A row's C vectors. No loop, of which gcc 12 makes more copies of registers. */
AVX512_INLINE void multiply_row(__m512 *acc, __m512 w, const float *x, uint64_t offset, int disp,
                                const int C)
{
    multiply_add(acc, w, x, offset, disp);
    if (C > 1) multiply_add(acc + 1, w, x, offset, disp + 256);
    if (C > 2) multiply_add(acc + 2, w, x, offset, disp + 512);
    if (C > 3) multiply_add(acc + 3, w, x, offset, disp + 768);
    if (C > 4) multiply_add(acc + 4, w, x, offset, disp + 1024);
    if (C > 5) multiply_add(acc + 5, w, x, offset, disp + 1280);
    if (C > 6) multiply_add(acc + 6, w, x, offset, disp + 1536);
}

AVX512_INLINE __m512 four_values(const uint8_t *w, int slot, int i)
{
    const uint8_t *at = w + CODES + (slot * ROWS + i) * 4;
    return _mm512_broadcast_f32x4(_mm_load_ps((const float *)(const void *)at));
}

/* A bit pair of a code word, as the offset of its k in a group of the panel. */
AVX512_INLINE uint64_t offset_at(uint64_t code, int bit)
{
    return (bit <= 6 ? code << (6 - bit) : code >> (bit - 6)) & 192u;
}

/* Those of R rows. */
AVX512_INLINE void load_codes(mixed *m, const uint8_t *w, const int R)
{
    UNROLL for (int i = 0; i < R / 2; i++)
    {
        m->code[i] = codes_at(w, i);
    }
}

/* The codes of R rows of the k block, to each four lanes. */
AVX512_INLINE void load_picks(mixed *m, const int R)
{
    UNROLL for (int i = 0; i < R / 4; i++)
    {
        m->picks[i] = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(m->w + 16 * i)));
    }
}

/* What the rows i and on pick by, at a bit of their codes; nothing where no vector is fours. */
AVX512_INLINE __m512i pick_by(const mixed *m, int i, unsigned bit, const int Q)
{
    return Q ? _mm512_srli_epi32(m->picks[i / 4], bit) : _mm512_setzero_si512();
}

/* Group g, four rows i and on: of each row two slots of C broadcast multiply-adds, and between them
   the vectors of the other form, Q of them. A row's next code word is asked for as soon as the last
   of this one is used: every load of x waits for its index, and a load that comes late is never
   made up for. */
AVX512_INLINE void mixed_four(mixed *m, unsigned g, int i, const int C, const int Q)
{
    const int slot = 2 * (int)g, line = (int)g * (4 * C + Q);
    const __m512 four0 = four_values(m->w, slot, i), four1 = four_values(m->w, slot + 1, i);
    const __m512i picks0 = pick_by(m, i, 4 * g, Q), picks1 = pick_by(m, i, 4 * g + 2, Q);
    UNROLL for (int s = 0; s < 8; s++)
    {
        const int row = i + s % 4;
        const uint64_t offset = offset_at(m->code[row / 2], 2 * slot + s / 4 * 2 + row % 2 * 32);
        if (g == GROUPS - 1 && s > 4 && s % 2) m->code[row / 2] = codes_at(m->following, row / 2);
        const __m512 value = spread_lane(s < 4 ? four0 : four1, s % 4);
        multiply_row(m->acc[row], value, m->x, offset, line * 64, C);
        if ((s + 1) * Q / 8 > s * Q / 8) {
            const int j = s * Q / 8;
            __m512 group = _mm512_load_ps(m->x + (line + 4 * C + j) * 16);
            __m512 *sum = &m->quad[i / 4][j];
            KEEP(group);
            *sum = _mm512_fmadd_ps(_mm512_permutevar_ps(group, picks0), four0, *sum);
            *sum = _mm512_fmadd_ps(_mm512_permutevar_ps(group, picks1), four1, *sum);
        }
    }
}

AVX512_INLINE void mixed_group(mixed *m, unsigned g, const int R, const int C, const int Q)
{
    mixed_four(m, g, 0, C, Q);
    if (R == 8) mixed_four(m, g, 4, C, Q);
}

/* The sum of row i and vector c, which quad has for four tokens of each of four rows. */
AVX512_INLINE __m512 *mixed_sum(mixed *m, int i, int c, const int C)
{
    return c < C ? &m->acc[i][c] : &m->quad[i / 4][(c - C) * 4 + i % 4];
}

/* Multiplies 16 rows by C vectors that are broadcast to and Q / 4 of the other form, R rows at a
   time; all three are constants. */
AVX512_INLINE void mixed_tile(const tile *t, uintptr_t self, const int R, const int C, const int Q)
{
    const int VECTORS = C + Q / 4, LINES = TILE_BLOCK * R / ROWS / 64;
    mixed m;
    __asm__ volatile("" ::: "memory");
    load_codes(&m, t->w, R);
    for (int row = 0; row < ROWS; row += R) {
        float *sums = t->sums + row * VECTORS * 16;
        m.w = t->w + 4 * row, m.x = t->x;
        const uint8_t *next = m.w + row * (TILE_BLOCK / ROWS - 4) + t->ahead;
        UNROLL for (int i = 0; i < R * VECTORS; i++)
        {
            *mixed_sum(&m, i / VECTORS, i % VECTORS, C) =
                t->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * 16);
        }
        for (int64_t q = t->blocks; q > 0; q--) {
            const int64_t groups = q > 1 ? GROUPS : t->groups;
            m.following = q > 1 ? m.w + TILE_BLOCK : t->w + (4 * row + 4 * R) % 64;
            if (Q) load_picks(&m, R);
            if (BROADCAST || t->cold || (row == 0 && q == t->blocks)) {
                UNROLL for (int i = 0; i < LINES; i++)
                {
                    _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);
                }
            }
            mixed_group(&m, 0, R, C, Q);
            mixed_group(&m, 1, R, C, Q);
            if (groups <= 2) break;
            mixed_group(&m, 2, R, C, Q);
            mixed_group(&m, 3, R, C, Q);
            if (groups <= 4) break;
            mixed_group(&m, 4, R, C, Q);
            mixed_group(&m, 5, R, C, Q);
            if (groups <= 6) break;
            mixed_group(&m, 6, R, C, Q);
            mixed_group(&m, 7, R, C, Q);
            m.x += COLUMNS * VECTORS * 16, m.w += TILE_BLOCK, next += TILE_BLOCK;
        }
        if (t->groups <= GROUPS - 2) load_codes(&m, t->w + (4 * row + 4 * R) % 64, R);
        _mm_prefetch(line_of_code(self, (uintptr_t)sums / 16, TILE_CODE), _MM_HINT_T1);
        UNROLL for (int i = 0; i < R * VECTORS; i++)
        {
            _mm512_store_ps(sums + i * 16, *mixed_sum(&m, i / VECTORS, i % VECTORS, C));
        }
    }
}

#define TILE(R, C, Q, VECTORS)                                                                     \
    AVX512 static void tile_##VECTORS(const tile *t)                                               \
    {                                                                                              \
        mixed_tile(t, (uintptr_t)tile_##VECTORS, R, C, Q);                                         \
    }
#if !HAS_LANES
TILE(8, 1, 0, 1)
#else
#define tile_1 NULL
#endif
#if BROADCAST
TILE(8, 2, 0, 2)
TILE(8, 3, 0, 3)
TILE(4, 4, 0, 4)
TILE(4, 5, 0, 5)
TILE(4, 6, 0, 6)
TILE(4, 7, 0, 7)
#define FOURS(c) ((c)*0)
#else
TILE(8, 1, 4, 2)
TILE(8, 2, 4, 3)
TILE(4, 3, 4, 4)
TILE(4, 4, 4, 5)
TILE(4, 4, 8, 6)
#define FOURS(c) ((c) == 1 ? 0 : (c) < 6 ? 1 : 2)
#endif

/* By C: the tile, and how many k blocks make one pass (the panel's share of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {
#if BROADCAST
    {NULL, 0},   {tile_1, 8}, {tile_2, 4}, {tile_3, 4},
    {tile_4, 3}, {tile_5, 2}, {tile_6, 2}, {tile_7, 2},
#else
    {NULL, 0}, {tile_1, 8}, {tile_2, 4}, {tile_3, 5}, {tile_4, 4}, {tile_5, 3}, {tile_6, 3},
#endif
};

/* ---- packing --------------------------------------------------------------------------------- */

/* 16 tokens x 16 columns, from either orientation of x: r[i] = column i of the tokens, or (fours)
   r[4 * g + j] = columns 4g and on of the tokens j, 4 + j, 8 + j and 12 + j. */
AVX512_INLINE void load_square(__m512 r[16], const s24i_linear_job *job, int64_t m, int64_t k,
                               int fours)
{
    const s24_dtype dtype = job->x_dtype;
    const char *x = element_of(job->x, dtype, m * job->x_stride_m + k * job->x_stride_k);
    const int64_t tokens = job->m - m, columns = job->k - k;
    const int by_token = job->x_stride_k == 1;
    const int64_t step = by_token ? job->x_stride_m : job->x_stride_k;
    const __mmask16 mask = lane_mask(by_token ? columns : tokens);
    if (by_token && dtype == S24_F32) {
        /* Sixteen rows of x are more streams than the hardware follows in time. */
        for (int i = 0; i < 16 && i < tokens && columns > 64; i++)
            _mm_prefetch(x + 4 * (i * step + 64), _MM_HINT_T0);
        if (tokens >= 16 && columns >= 16) {
            load_fours(r, x, 4 * step);
            if (!fours) transpose_fours(r);
            return;
        }
    }
    for (int i = 0; i < 16; i++)
        r[i] = i < (by_token ? tokens : columns)
                   ? load_lanes(element_of(x, dtype, i * step), dtype, 1, mask)
                   : _mm512_setzero_ps();
    if (by_token) transpose16(r);
    if (fours) transpose_fours(r);
}

/* 16 tokens x 32 columns of bf16, each `stride` columns from the next, into a panel of c vectors:
   turned as pairs of columns, which are widened as they are stored. */
AVX512_INLINE void pack_narrow(float *to, int64_t c, const uint16_t *x, int64_t stride, int fours)
{
    const __m512i zero = _mm512_setzero_si512(), high = _mm512_set1_epi32((int)0xffff0000);
    __m512 r[16];
    load_fours(r, x, 2 * stride);
    if (!fours) transpose_fours(r);
    UNROLL for (int i = 0; i < 16; i++)
    {
        const __m512i two = _mm512_castps_si512(r[i]);
        const int column = fours ? i / 4 * 8 + i % 4 : 2 * i, next = fours ? column + 4 : 2 * i + 1;
        float *low_to = to + column / 4 * c * 64 + column % 4 * 16;
        float *high_to = to + next / 4 * c * 64 + next % 4 * 16;
        _mm512_store_si512(low_to,
                           fours ? _mm512_unpacklo_epi16(zero, two) : _mm512_slli_epi32(two, 16));
        _mm512_store_si512(high_to,
                           fours ? _mm512_unpackhi_epi16(zero, two) : _mm512_and_si512(two, high));
    }
}

/* The same where a row's tokens all exist; 0: they do not, and nothing was done. */
AVX512_INLINE int pack_narrow_block(float *to, int64_t c, const s24i_linear_job *job, int64_t m,
                                    int64_t k, int fours)
{
    const int64_t stride = job->x_stride_m;
    if (job->x_dtype != S24_BF16 || job->x_stride_k != 1) return 0;
    if (job->m - m < LANE || job->k - k < COLUMNS) return 0;
    const uint16_t *x = (const uint16_t *)job->x + m * stride + k;
    for (int i = 0; i < LANE && job->k - k > 2 * COLUMNS; i++)
        _mm_prefetch((const char *)(x + i * stride + 2 * COLUMNS), _MM_HINT_T0);
    if (fours)
        pack_narrow(to, c, x, stride, 1);
    else
        pack_narrow(to, c, x, stride, 0);
    return 1;
}

/* 16 tokens x 32 columns into their part of a panel of c vectors. */
AVX512 static void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m,
                              int64_t k, int fours)
{
    float *to = (float *)(void *)out;
    if (pack_narrow_block(to, c, job, m, k, fours)) return;
    for (int64_t part = 0; part < COLUMNS && k + part < job->k; part += 16, to += c * 256) {
        __m512 r[16];
        if (fours)
            load_square(r, job, m, k + part, 1);
        else
            load_square(r, job, m, k + part, 0);
        UNROLL for (int i = 0; i < 16; i++)
        {
            _mm512_store_ps(to + i / 4 * c * 64 + i % 4 * 16, r[i]);
        }
    }
}

#if WIDEN && !OWN_LAYOUT
/* The tile's weights of this pass, as f32, and where they are found. */
AVX512 static void widen(uint8_t *block, tile *t)
{
    const uint8_t *from = t->w;
    uint8_t *to = block;
    for (int64_t q = 0; q < t->blocks; q++, from += BLOCK, to += TILE_BLOCK) {
        _mm512_store_si512(to, _mm512_load_si512(from));
        for (int s = 0; s < SLOTS; s++) {
            _mm_prefetch((const char *)from + t->ahead + s * ROWS * VALUE, _MM_HINT_T0);
            _mm512_store_ps(to + CODES + s * ROWS * 4,
                            LOAD_VALUES(from + CODES + s * ROWS * VALUE));
        }
    }
    t->w = block, t->ahead = 0;
}
#endif

#if HAS_LANES
#include "kernel/cpu/x86/linear_few_avx512.h"
#endif

#include "kernel/cpu/linear_driver.h"

#endif
