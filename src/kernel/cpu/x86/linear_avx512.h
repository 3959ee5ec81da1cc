// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4, AVX-512: both designs read the one layout of rows16.h.
 *
 * "broadcast" (m > 12): tokens in the lanes. x is packed K-major in panels of C*16 tokens,
 *      panel -> group of 4 k -> C vectors -> [4 k][16 tokens]     (so k's offset is index * 64 B)
 * and a non-zero costs one broadcast of its value and C fused multiply-adds straight from
 * panel + offset. The row tile R x C sits in registers. Nothing but the code word is decoded:
 * a shift and an `and` make the offset, and the multiply-adds take it as an index register, which
 * splits them in two at rename on Intel; that is free, while an add would compete for their ports.
 * Code words are loaded a slot before they are used: the tile is bound by its loads, 25 for 24
 * multiply-adds, and each waits for its index, so that a code word that comes late costs the time
 * in which nothing could be loaded (Zen 5, C = 6 hot in L1: 0.82 of the peak, 0.875 with).
 *
 * What limits it (Golden Cove, one core): the peak is two multiply-adds a cycle, each with a load of
 * 64 bytes. Measured, a non-zero costs about 0.57 cycle for each of its C multiply-adds and 0.6 for
 * broadcast and decoding, whichever port the broadcast uses; so a tile with x and sums in L1
 * reaches 0.71 (C = 4) to 0.78 (C = 8) of the peak, and whole calls 0.62 to 0.66. Panels of x must
 * leave room in L1 for the sums that stream through: 16..24 KiB (32 KiB costs 10 %).
 *
 * "lanes" (m <= 12): rows in the lanes. Each group of a token's x is broadcast as four floats and
 * vpermilps picks by the code bits; every weight is read once, in one sequential stream.
 *
 * Values of two bytes are widened: in registers in the lanes design; a pass's block at a time into
 * L1 in the broadcast design, a few percent of a pass.
 *
 * The including file defines VALUE (bytes of a value) and LOAD_VALUES(p): 16 of them as f32.
 */
#ifndef S24_KERNEL_X86_LINEAR_AVX512_H
#define S24_KERNEL_X86_LINEAR_AVX512_H

#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx512.h"

#define TARGET AVX512
#define WIDEN  (VALUE != 4)
#ifndef OWN_LAYOUT
#define OWN_LAYOUT 0
#define HAS_LANES  1
#endif

enum {
    LANE = 16,                  /* tokens of a vector */
    MAX_C = 8,                  /* vectors of tokens in a panel: at most, */
    FIT_C = 8,                  /* in a panel alone (8 beats 4 + 4), */
    BEST_C = 6,                 /* and else */
    LANES_M = 12,               /* tokens of the lanes design */
    CHUNK = 32,                 /* row blocks whose sums are kept between passes over k */
    MAX_BLOCKS = 8,             /* k blocks of a pass */
    ITEMS = 2,                  /* values of a group, each by itself */
    ITEM = VALUE,               /* of so many bytes */
    PANEL = COLUMNS * LANE * 4, /* bytes of a packed k block of a vector of tokens */
    PANEL_SLACK = 0,
    BLOCK = CODES + SLOTS * ROWS * VALUE, /* bytes of a stored k block */
    TILE_BLOCK = CODES + SLOTS * ROWS * 4 /* and of one the tile reads */
};

/* ---- the tile: 16 rows, C*16 tokens, some k blocks (32 columns) ------------------------------ */

/* The compiler knows nothing of what the assembly reads; TILE starts with a memory clobber. */
#define MULTIPLY_ADD(acc, w, x, offset, disp)                                                      \
    __asm__("vfmadd231ps %c1(%2,%3),%4,%0" : "+v"(acc) : "i"(disp), "r"(x), "r"(offset), "v"(w))

/* Lane `lane` of every four, to all of them; in assembly because clang wants a literal where the
   intrinsic takes the lane. */
#define SPREAD_LANE(value, four, lane)                                                             \
    __asm__("vpermilps %2,%1,%0" : "=v"(value) : "v"(four), "i"(0x55 * (lane)))

#define CODE_AT(w, i)         (*(const uint32_t *)(const void *)((w) + 4 * (i)))
#define VALUES_AT(w, slot, i) ((const void *)((w) + CODES + ((slot)*ROWS + (i)) * 4))
#define FOUR_VALUES(w, slot, i)                                                                    \
    _mm512_broadcast_f32x4(_mm_load_ps((const float *)VALUES_AT(w, slot, i)))
/* Of the slot's k in its group of the panel. */
#define OFFSET(code, slot)                                                                         \
    (((slot) <= 3 ? (code) << (6 - 2 * (slot)) : (code) >> (2 * (slot)-6)) & 192u)

/* One slot of R rows. Values of four rows (of two, where R is 2) come as one load, each then spread
   by a shuffle. A row's next code word is asked for as soon as the last of this one is used: every
   load of x waits for its index, and a load that comes late is never made up for. */
#define SLOT(slot)                                                                                 \
    {                                                                                              \
        __m512 four = _mm512_setzero_ps(), value;                                                  \
        UNROLL for (int i = 0; i < R; i++)                                                         \
        {                                                                                          \
            const uint64_t offset = OFFSET(code[i], slot);                                         \
            if ((slot) == SLOTS - 1) code[i] = CODE_AT(following, i);                              \
            if (R % 4 == 0 && i % 4 == 0)                                                          \
                four = FOUR_VALUES(w, slot, i);                                                    \
            else if (R % 4 != 0 && i % 2 == 0)                                                     \
                four = _mm512_castpd_ps(_mm512_set1_pd(*(const double *)VALUES_AT(w, slot, i)));   \
            SPREAD_LANE(value, four, i % (R % 4 == 0 ? 4 : 2));                                    \
            UNROLL for (int c = 0; c < C; c++)                                                     \
            {                                                                                      \
                MULTIPLY_ADD(acc[i][c], value, x, offset, (slot) / 2 * C * 256 + c * 256);         \
            }                                                                                      \
        }                                                                                          \
    }
#define SLOTS4(slot) SLOT(slot) SLOT(slot + 1) SLOT(slot + 2) SLOT(slot + 3)

/* R rows at a time. */
#define TILE(R_, C_)                                                                               \
    AVX512 static void tile_##C_(const tile *t)                                                    \
    {                                                                                              \
        enum { R = R_, C = C_, LINES = TILE_BLOCK * R / ROWS / 64 };                               \
        uint32_t code[R];                                                                          \
        __asm__ volatile("" ::: "memory");                                                         \
        UNROLL for (int i = 0; i < R; i++)                                                         \
        {                                                                                          \
            code[i] = CODE_AT(t->w, i);                                                            \
        }                                                                                          \
        for (int row = 0; row < ROWS; row += R) {                                                  \
            float *sums = t->sums + row * C * 16;                                                  \
            const uint8_t *w = t->w + 4 * row;                                                     \
            const uint8_t *next = w + row * (TILE_BLOCK / ROWS - 4) + t->ahead;                    \
            const float *x = t->x;                                                                 \
            __m512 acc[R][C];                                                                      \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < C; c++)                                                 \
                {                                                                                  \
                    acc[i][c] =                                                                    \
                        t->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + (i * C + c) * 16);  \
                }                                                                                  \
            }                                                                                      \
            for (int64_t q = t->blocks; q > 0; q--) {                                              \
                const uint8_t *following = q > 1 ? w + TILE_BLOCK : t->w + (4 * row + 4 * R) % 64; \
                UNROLL for (int i = 0; i < LINES; i++)                                             \
                {                                                                                  \
                    _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);                        \
                }                                                                                  \
                SLOTS4(0) SLOTS4(4) SLOTS4(8) SLOTS4(12) x += COLUMNS * C * 16;                    \
                w += TILE_BLOCK;                                                                   \
                next += TILE_BLOCK;                                                                \
            }                                                                                      \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < C; c++)                                                 \
                {                                                                                  \
                    _mm512_store_ps(sums + (i * C + c) * 16, acc[i][c]);                           \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

TILE(8, 2)
TILE(8, 3)
TILE(4, 4)
TILE(4, 5)
TILE(4, 6)
TILE(4, 7)
TILE(2, 8)

/*
 * One vector of tokens: a broadcast serves a single multiply-add, so what is loaded limits the tile.
 * Half of the rows therefore go another way: four rows and four tokens a vector, their group of x in
 * registers (transposed from the panel), picked from by vpermilps with the rows' codes. All 16 rows
 * in one visit and all of k in one pass leave the weights one sequential stream, which is what a
 * whole call waits for; they are asked for into L2 only, since L1 runs out of places for misses.
 */
enum {
    SINGLES = 8,                  /* rows that broadcast */
    QUADS = (ROWS - SINGLES) / 4, /* fours of rows that do not */
    STREAM_AHEAD = 8192           /* bytes from the weights at work to those asked for */
};

#define MIXED_SLOT(slot)                                                                           \
    {                                                                                              \
        if ((slot) % 2 == 0) {                                                                     \
            UNROLL for (int j = 0; j < 4; j++)                                                     \
            {                                                                                      \
                group[j] = _mm512_load_ps(x + (slot) / 2 * 64 + j * 16);                           \
            }                                                                                      \
            transpose_quarters(group);                                                             \
        }                                                                                          \
        __m512 four = _mm512_setzero_ps(), value;                                                  \
        UNROLL for (int i = 0; i < SINGLES; i++)                                                   \
        {                                                                                          \
            const uint64_t offset = OFFSET(code[i], slot);                                         \
            if ((slot) == SLOTS - 1) code[i] = CODE_AT(following, i);                              \
            if (i % 4 == 0) four = FOUR_VALUES(w, slot, i);                                        \
            SPREAD_LANE(value, four, i % 4);                                                       \
            MULTIPLY_ADD(acc[i], value, x, offset, (slot) / 2 * 256);                              \
        }                                                                                          \
        UNROLL for (int p = 0; p < QUADS; p++)                                                     \
        {                                                                                          \
            four = FOUR_VALUES(w, slot, SINGLES + 4 * p);                                          \
            UNROLL for (int j = 0; j < 4; j++)                                                     \
            {                                                                                      \
                const __m512 picked = _mm512_permutevar_ps(group[j], picks[p]);                    \
                quad[p][j] = _mm512_fmadd_ps(picked, four, quad[p][j]);                            \
            }                                                                                      \
            if ((slot) < SLOTS - 1) picks[p] = _mm512_srli_epi32(picks[p], 2);                     \
        }                                                                                          \
    }
#define MIXED_SLOTS4(slot)                                                                         \
    MIXED_SLOT(slot) MIXED_SLOT(slot + 1) MIXED_SLOT(slot + 2) MIXED_SLOT(slot + 3)

AVX512 static void tile_1(const tile *t)
{
    const uint8_t *w = t->w;
    const float *x = t->x;
    float *quad_sums = t->sums + SINGLES * LANE;
    uint32_t code[SINGLES];
    __m512 acc[SINGLES], quad[QUADS][4], group[4];
    __m512i picks[QUADS];
    __asm__ volatile("" ::: "memory");
    UNROLL for (int i = 0; i < SINGLES; i++)
    {
        code[i] = CODE_AT(w, i);
        acc[i] = t->first ? _mm512_setzero_ps() : _mm512_load_ps(t->sums + i * LANE);
    }
    UNROLL for (int p = 0; p < QUADS; p++)
    {
        UNROLL for (int j = 0; j < 4; j++)
        {
            quad[p][j] =
                t->first ? _mm512_setzero_ps() : _mm512_load_ps(quad_sums + (4 * p + j) * LANE);
        }
        transpose_quarters(quad[p]);
    }
    for (int64_t q = t->blocks; q > 0; q--) {
        const uint8_t *following = q > 1 ? w + TILE_BLOCK : w;
        UNROLL for (int i = 0; i < TILE_BLOCK / 64 && !WIDEN; i++)
        {
            _mm_prefetch((const char *)w + STREAM_AHEAD + 64 * i, _MM_HINT_T1);
        }
        UNROLL for (int p = 0; p < QUADS; p++)
        {
            picks[p] =
                _mm512_broadcast_i32x4(_mm_load_si128((const void *)(w + 4 * (SINGLES + 4 * p))));
        }
        MIXED_SLOTS4(0) MIXED_SLOTS4(4) MIXED_SLOTS4(8) MIXED_SLOTS4(12) x += COLUMNS * LANE;
        w += TILE_BLOCK;
    }
    UNROLL for (int i = 0; i < SINGLES; i++)
    {
        _mm512_store_ps(t->sums + i * LANE, acc[i]);
    }
    UNROLL for (int p = 0; p < QUADS; p++)
    {
        transpose_quarters(quad[p]);
        UNROLL for (int j = 0; j < 4; j++)
        {
            _mm512_store_ps(quad_sums + (4 * p + j) * LANE, quad[p][j]);
        }
    }
}

/* By C: the tile, and how many k blocks make one pass (the panel's share of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {
    {NULL, 0},   {tile_1, WIDEN ? MAX_BLOCKS : 1 << 20},
    {tile_2, 4}, {tile_3, 3},
    {tile_4, 2}, {tile_5, 2},
    {tile_6, 2}, {tile_7, 2},
    {tile_8, 2},
};

/* ---- packing --------------------------------------------------------------------------------- */

/* 16 tokens x 16 columns, from either orientation of x. */
AVX512_INLINE void pack_square(float *out, int64_t c_vectors, const s24i_linear_job *job, int64_t m,
                               int64_t k)
{
    const s24_dtype dtype = job->x_dtype;
    const float *x = element_of(job->x, dtype, m * job->x_stride_m + k * job->x_stride_k);
    const int64_t tokens = job->m - m, columns = job->k - k;
    __m512 r[16];
    if (dtype != S24_F32) {
        const int by_token = job->x_stride_k == 1;
        const int64_t step = by_token ? job->x_stride_m : job->x_stride_k;
        const __mmask16 mask = lane_mask(by_token ? columns : tokens);
        for (int i = 0; i < 16; i++)
            r[i] = i < (by_token ? tokens : columns)
                       ? load_lanes(element_of(x, dtype, i * step), dtype, 1, mask)
                       : _mm512_setzero_ps();
        if (by_token) transpose16(r);
    } else if (job->x_stride_k == 1) {
        const __mmask16 mask = lane_mask(columns);
        /* Sixteen rows of x are more streams than the hardware follows in time. */
        for (int i = 0; i < 16 && i < tokens && columns > 64; i++)
            _mm_prefetch((const char *)(x + i * job->x_stride_m + 64), _MM_HINT_T0);
        if (tokens >= 16 && columns >= 16)
            load_transposed(r, x, 4 * job->x_stride_m);
        else
            for (int i = 0; i < 16; i++)
                r[i] = i < tokens ? _mm512_maskz_loadu_ps(mask, x + i * job->x_stride_m)
                                  : _mm512_setzero_ps();
        if (tokens < 16 || columns < 16) transpose16(r);
    } else {
        const __mmask16 mask = lane_mask(tokens);
        for (int i = 0; i < 16; i++)
            r[i] = i < columns ? load_lanes(x + i * job->x_stride_k, S24_F32, job->x_stride_m, mask)
                               : _mm512_setzero_ps();
    }
    UNROLL for (int i = 0; i < 16; i++)
    {
        _mm512_store_ps(out + i / 4 * c_vectors * 64 + i % 4 * 16, r[i]);
    }
}

/* 16 tokens x 32 columns into their part of a panel of c vectors. */
AVX512_INLINE void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m,
                              int64_t k)
{
    for (int64_t part = 0; part < COLUMNS; part += 16)
        pack_square((float *)(void *)(out + part / 4 * c * (PANEL / GROUPS)), c, job, m, k + part);
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

/* ---- lanes design ---------------------------------------------------------------------------- */

#if HAS_LANES
/* Row block b, T tokens; x has its columns together. */
#define LANES(T_)                                                                                  \
    AVX512 static void lanes_##T_(const s24i_linear_job *job, const float *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, S = T < 4 ? 2 : 1 };                                                        \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        __m512 acc[T][S];                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            UNROLL for (int s = 0; s < S; s++)                                                     \
            {                                                                                      \
                acc[t][s] = _mm512_setzero_ps();                                                   \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {                                \
            __m512i code = _mm512_load_si512(w);                                                   \
            const uint8_t *values = w + CODES;                                                     \
            const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;                   \
            for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE) {                 \
                const __m512i high = _mm512_srli_epi32(code, 2);                                   \
                const __m512 w0 = LOAD_VALUES(values);                                             \
                const __m512 w1 = LOAD_VALUES(values + ROWS * VALUE);                              \
                _mm_prefetch((const char *)values + 4096, _MM_HINT_T0);                            \
                _mm_prefetch((const char *)values + 4160, _MM_HINT_T0);                            \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    const __m512 four =                                                            \
                        _mm512_broadcast_f32x4(_mm_loadu_ps(x + t * stride + k + g));              \
                    acc[t][0] = _mm512_fmadd_ps(_mm512_permutevar_ps(four, code), w0, acc[t][0]);  \
                    acc[t][S - 1] =                                                                \
                        _mm512_fmadd_ps(_mm512_permutevar_ps(four, high), w1, acc[t][S - 1]);      \
                }                                                                                  \
                code = _mm512_srli_epi32(code, 4);                                                 \
            }                                                                                      \
        }                                                                                          \
        const __mmask16 mask = lane_mask(job->n - b * ROWS);                                       \
        const __m512 bias =                                                                        \
            job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + b * ROWS) : _mm512_setzero_ps();   \
        for (int t = 0; t < T; t++) {                                                              \
            __m512 sum = S == 2 ? _mm512_add_ps(acc[t][0], acc[t][S - 1]) : acc[t][0];             \
            finish(job, t, b *ROWS, 1, mask, sum, bias);                                           \
        }                                                                                          \
    }

LANES(1)
LANES(2)
LANES(3)
LANES(4)
LANES(5)
LANES(6)
LANES(7)
LANES(8)
LANES(9)
LANES(10)
LANES(11)
LANES(12)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {NULL,     lanes_1,  lanes_2, lanes_3, lanes_4,
                                                    lanes_5,  lanes_6,  lanes_7, lanes_8, lanes_9,
                                                    lanes_10, lanes_11, lanes_12};

#include "kernel/cpu/linear_few_f32.h"
#endif

#include "kernel/cpu/linear_driver.h"

#endif
