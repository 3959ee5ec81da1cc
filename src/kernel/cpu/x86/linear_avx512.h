// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4, AVX-512: both designs read the one layout of rows16.h.
 *
 * "mixed" (m > 16): x is packed in panels of so many vectors of 16 tokens,
 *      panel -> group of 4 k -> vectors -> [4 k][16 tokens]           tokens in the lanes, or
 *                                          [4][4 tokens][4 k]         (the last one or two) fours
 * Of the first form a non-zero costs one broadcast of its value and a fused multiply-add a vector,
 * straight from panel + offset: a shift and an `and` make the offset, and the multiply-adds take it
 * as an index register, which splits them in two at rename on Intel; that is free, while an add
 * would compete for their ports. Of the second, four rows and four tokens share a vector: their
 * group of x is loaded once for both slots and vpermilps picks from it by the rows' codes.
 *
 * What limits it (Zen 5): a multiply-add takes half a cycle, and its load of 64 bytes 0.54 to 0.6,
 * whatever the addresses (two loads a cycle are reached only while something else holds them back),
 * so a tile of loads alone ends at 0.83 to 0.87 of the peak. The shuffles of the second form go to
 * ports that are free. With a third of the multiply-adds so, 21 loads for 24 multiply-adds, a tile
 * hot in L1 reaches 0.93, with sums and weights in L2 0.89; whole calls reach 0.77 to 0.81: weights
 * that come from L3, y and packing. Code words are loaded a slot before they are used, since each
 * load of x waits for one, and prefetches of weights cost more than they give unless those come from
 * far (linear_driver.h): else the next row block's first lines are enough, hardware follows.
 *
 * "lanes" (m <= 16): rows in the lanes, every weight read once, in one sequential stream. A group of a
 * token's x is 16 bytes, loaded as they are, from which vpermps picks by the code bits: a permutation
 * and a multiply-add want three ports, of which the two instructions together take 0.7 cycle alone
 * and 0.72 to 0.74 in whole calls.
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
    MAX_C = 6,                  /* vectors of tokens in a panel: at most, */
    FIT_C = 6,                  /* in a panel alone, */
    BEST_C = 4,                 /* and else */
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

/* The compiler knows nothing of what the assembly reads; TILE starts with a memory clobber. */
#define MULTIPLY_ADD(acc, w, x, offset, disp)                                                      \
    __asm__("vfmadd231ps %c1(%2,%3),%4,%0" : "+v"(acc) : "i"(disp), "r"(x), "r"(offset), "v"(w))

/* Holds a loaded vector in its register: left to itself gcc loads it again for its second use. */
#define KEEP(vector) __asm__("" : "+v"(vector))

/* Lane `lane` of every four, to all of them; in assembly because clang wants a literal where the
   intrinsic takes the lane. */
#define SPREAD_LANE(value, four, lane)                                                             \
    __asm__("vpermilps %2,%1,%0" : "=v"(value) : "v"(four), "i"(0x55 * (lane)))

#define CODES_AT(w, i)        (*(const uint64_t *)(const void *)((w) + 8 * (i))) /* two rows */
#define VALUES_AT(w, slot, i) ((const void *)((w) + CODES + ((slot)*ROWS + (i)) * 4))
#define FOUR_VALUES(w, slot, i)                                                                    \
    _mm512_broadcast_f32x4(_mm_load_ps((const float *)VALUES_AT(w, slot, i)))
/* A bit pair of a code word, as the offset of its k in a group of the panel. */
#define OFFSET_AT(code, bit) (((bit) <= 6 ? (code) << (6 - (bit)) : (code) >> ((bit)-6)) & 192u)

/* A group, four rows i and on: of each row two slots of C broadcast multiply-adds, and between them
   the vectors of the other form, Q of them. A row's next code word is asked for as soon as the last
   of this one is used: every load of x waits for its index, and a load that comes late is never
   made up for. */
#define MIXED_FOUR(g, i)                                                                           \
    {                                                                                              \
        const __m512 four0 = FOUR_VALUES(w, 2 * (g), i), four1 = FOUR_VALUES(w, 2 * (g) + 1, i);   \
        const __m512i picks0 = _mm512_srli_epi32(picks[(i) / 4], 4 * (g));                         \
        const __m512i picks1 = _mm512_srli_epi32(picks[(i) / 4], 4 * (g) + 2);                     \
        UNROLL for (int s = 0; s < 8; s++)                                                         \
        {                                                                                          \
            const int row_ = (i) + s % 4;                                                          \
            const uint64_t offset =                                                                \
                OFFSET_AT(code[row_ / 2], 4 * (g) + s / 4 * 2 + row_ % 2 * 32);                    \
            __m512 value;                                                                          \
            if ((g) == GROUPS - 1 && s > 4 && s % 2)                                               \
                code[row_ / 2] = CODES_AT(following, row_ / 2);                                    \
            SPREAD_LANE(value, s < 4 ? four0 : four1, s % 4);                                      \
            UNROLL for (int c = 0; c < C; c++)                                                     \
            {                                                                                      \
                MULTIPLY_ADD(acc[row_][c], value, x, offset, ((g) * (4 * C + Q) + 4 * c) * 64);    \
            }                                                                                      \
            if ((s + 1) * Q / 8 > s * Q / 8) {                                                     \
                const int j = s * Q / 8;                                                           \
                __m512 group = _mm512_load_ps(x + ((g) * (4 * C + Q) + 4 * C + j) * 16);           \
                __m512 *sum = &quad[(i) / 4][j];                                                   \
                KEEP(group);                                                                       \
                *sum = _mm512_fmadd_ps(_mm512_permutevar_ps(group, picks0), four0, *sum);          \
                *sum = _mm512_fmadd_ps(_mm512_permutevar_ps(group, picks1), four1, *sum);          \
            }                                                                                      \
        }                                                                                          \
    }
#define MIXED_GROUP(g)                                                                             \
    UNROLL for (int i = 0; i < R; i += 4)                                                          \
    {                                                                                              \
        MIXED_FOUR(g, i)                                                                           \
    }

/* R rows at a time of C vectors that are broadcast to and Q / 4 of the other form. */
#define TILE(R_, C_, Q_, VECTORS)                                                                  \
    AVX512 static void tile_##VECTORS(const tile *t)                                               \
    {                                                                                              \
        enum { R = R_, C = C_, Q = Q_, LINES = TILE_BLOCK * R / ROWS / 64 };                       \
        uint64_t code[R / 2];                                                                      \
        __asm__ volatile("" ::: "memory");                                                         \
        UNROLL for (int i = 0; i < R / 2; i++)                                                     \
        {                                                                                          \
            code[i] = CODES_AT(t->w, i);                                                           \
        }                                                                                          \
        for (int row = 0; row < ROWS; row += R) {                                                  \
            float *sums = t->sums + row * VECTORS * 16;                                            \
            const uint8_t *w = t->w + 4 * row;                                                     \
            const uint8_t *next = w + row * (TILE_BLOCK / ROWS - 4) + t->ahead;                    \
            const float *x = t->x;                                                                 \
            __m512 acc[R][C], quad[R / 4][Q + 1];                                                  \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < VECTORS; c++)                                           \
                {                                                                                  \
                    const __m512 sum = t->first ? _mm512_setzero_ps()                              \
                                                : _mm512_load_ps(sums + (i * VECTORS + c) * 16);   \
                    if (c < C)                                                                     \
                        acc[i][c] = sum;                                                           \
                    else                                                                           \
                        quad[i / 4][(c - C) * 4 + i % 4] = sum;                                    \
                }                                                                                  \
            }                                                                                      \
            for (int64_t q = t->blocks; q > 0; q--) {                                              \
                const uint8_t *following = q > 1 ? w + TILE_BLOCK : t->w + (4 * row + 4 * R) % 64; \
                __m512i picks[R / 4];                                                              \
                UNROLL for (int i = 0; i < R / 4; i++)                                             \
                {                                                                                  \
                    picks[i] = _mm512_broadcast_i32x4(_mm_load_si128((const void *)(w + 16 * i))); \
                }                                                                                  \
                if (t->cold || (row == 0 && q == t->blocks)) {                                     \
                    UNROLL for (int i = 0; i < LINES; i++)                                         \
                    {                                                                              \
                        _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);                    \
                    }                                                                              \
                }                                                                                  \
                MIXED_GROUP(0)                                                                     \
                MIXED_GROUP(1)                                                                     \
                MIXED_GROUP(2)                                                                     \
                MIXED_GROUP(3)                                                                     \
                MIXED_GROUP(4)                                                                     \
                MIXED_GROUP(5)                                                                     \
                MIXED_GROUP(6) MIXED_GROUP(7) x += COLUMNS * VECTORS * 16;                         \
                w += TILE_BLOCK;                                                                   \
                next += TILE_BLOCK;                                                                \
            }                                                                                      \
            UNROLL for (int i = 0; i < R; i++)                                                     \
            {                                                                                      \
                UNROLL for (int c = 0; c < VECTORS; c++)                                           \
                {                                                                                  \
                    _mm512_store_ps(sums + (i * VECTORS + c) * 16,                                 \
                                    c < C ? acc[i][c] : quad[i / 4][(c - C) * 4 + i % 4]);         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

#if !HAS_LANES
TILE(8, 1, 0, 1)
#else
#define tile_1 NULL
#endif
TILE(8, 1, 4, 2)
TILE(8, 2, 4, 3)
TILE(4, 3, 4, 4)
TILE(4, 4, 4, 5)
TILE(4, 4, 8, 6)

#define FOURS(c) ((c) == 1 ? 0 : (c) < 6 ? 1 : 2)

/* By C: the tile, and how many k blocks make one pass (the panel's share of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {
    {NULL, 0}, {tile_1, 8}, {tile_2, 4}, {tile_3, 5}, {tile_4, 4}, {tile_5, 3}, {tile_6, 3},
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

/* 16 tokens x 32 columns into their part of a panel of c vectors. */
AVX512 static void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m,
                              int64_t k, int fours)
{
    float *to = (float *)(void *)out;
    for (int64_t part = 0; part < COLUMNS; part += 16, to += c * 256) {
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

/* ---- lanes design ---------------------------------------------------------------------------- */

#if HAS_LANES
/* One token's loads are spread to every 128 bits, whose picks need no mask: memory is what it waits
   for, and a group costs two instructions less. Nor does it ask for weights: in large pages the
   hardware alone is ahead of it. */
AVX512_INLINE __m512 load_group(const float *x, int spread)
{
    const __m128 group = _mm_loadu_ps(x);
    return spread ? _mm512_broadcast_f32x4(group) : _mm512_castps128_ps512(group);
}

AVX512_INLINE __m512i pick_of(__m512i code, int spread)
{
    return spread ? code : _mm512_and_si512(code, _mm512_set1_epi32(3));
}

AVX512_INLINE __m512 picked(__m512 group, __m512i pick, int spread)
{
    return spread ? _mm512_permutevar_ps(group, pick) : _mm512_permutexvar_ps(pick, group);
}

/* Row block b, T tokens, fewer than eight. */
#define LANES_FEW(T_)                                                                              \
    AVX512 static void lanes_##T_(const s24i_linear_job *job, const float *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, S = 2, SPREAD = T == 1 };                                                   \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        __m512 acc[T][S];                                                                          \
        (void)stride;                                                                              \
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
            for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE, x += 4 * T) {     \
                const __m512i low = pick_of(code, SPREAD);                                         \
                const __m512i high = pick_of(_mm512_srli_epi32(code, 2), SPREAD);                  \
                const __m512 w0 = LOAD_VALUES(values);                                             \
                const __m512 w1 = LOAD_VALUES(values + ROWS * VALUE);                              \
                if (T > 1) {                                                                       \
                    _mm_prefetch((const char *)values + 8192, _MM_HINT_NTA);                       \
                    _mm_prefetch((const char *)values + 8256, _MM_HINT_NTA);                       \
                }                                                                                  \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    const __m512 group = load_group(x + 4 * t, SPREAD);                            \
                    acc[t][0] = _mm512_fmadd_ps(picked(group, low, SPREAD), w0, acc[t][0]);        \
                    acc[t][1] = _mm512_fmadd_ps(picked(group, high, SPREAD), w1, acc[t][1]);       \
                }                                                                                  \
                code = _mm512_srli_epi32(code, 4);                                                 \
            }                                                                                      \
        }                                                                                          \
        _Alignas(64) float sums[T][ROWS];                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_ps(sums[t], _mm512_add_ps(acc[t][0], acc[t][1]));                         \
        }                                                                                          \
        finish_lanes(job, b *ROWS, T, (const float(*)[ROWS])sums);                                 \
    }

/* The picks of token t for both slots of a group, and its multiply-adds, which come LATE tokens
   later. In assembly for the order. */
#define PICK(t, i)                                                                                 \
    __asm__ volatile("vmovups %c4(%5),%x0\n\tvpermps %0,%2,%1\n\tvpermps %0,%3,%0"                 \
                     : "=&v"(picked1[(t) % 8]), "=&v"(picked0[(t) % 8])                            \
                     : "v"(low), "v"(high), "i"(16 * (i)), "r"(x))
#define MULTIPLY(t, i)                                                                             \
    __asm__ volatile("vfmadd231ps %1,%3,%0\n\tvfmadd231ps %2,%4,%0"                                \
                     : "+v"(acc[i])                                                                \
                     : "v"(picked0[(t) % 8]), "v"(picked1[(t) % 8]), "v"(w0), "v"(w1))
#define IS_TOKEN(t) ((t) >= 0 && (t) < T)
#define TOKEN(t)                                                                                   \
    if (IS_TOKEN(t)) PICK(t, IS_TOKEN(t) ? (t) : 0);                                               \
    if (IS_TOKEN((t)-LATE)) MULTIPLY((t)-LATE + 8, IS_TOKEN((t)-LATE) ? (t)-LATE : 0);
#define TOKENS(t) TOKEN(t) TOKEN(t + 1) TOKEN(t + 2) TOKEN(t + 3)

/* Holds a vector in its place between the tokens: what is made for later in one clump stops them. */
#define PLACE(vector) __asm__ volatile("" : "+v"(vector))

/* A group, and what the next one picks by. */
#define LANES_GROUP                                                                                \
    {                                                                                              \
        const __m512 w0 = LOAD_VALUES(values), w1 = LOAD_VALUES(values + ROWS * VALUE);            \
        __m512 picked0[8], picked1[8];                                                             \
        _mm_prefetch((const char *)values + 8192, _MM_HINT_NTA);                                   \
        _mm_prefetch((const char *)values + 8256, _MM_HINT_NTA);                                   \
        TOKENS(0)                                                                                  \
        PLACE(low);                                                                                \
        __m512i next_low = _mm512_srli_epi32(low, 4);                                              \
        PLACE(next_low);                                                                           \
        TOKENS(4)                                                                                  \
        PLACE(high);                                                                               \
        __m512i next_high = _mm512_srli_epi32(high, 4);                                            \
        PLACE(next_high);                                                                          \
        TOKENS(8)                                                                                  \
        TOKENS(12)                                                                                 \
        TOKENS(16)                                                                                 \
        low = next_low, high = next_high;                                                          \
    }

/* Row block b, T tokens, eight and more. A pick looks at four bits: of each group's code two are
   left. A group at a time, not a k block: the hardware that asks for x ahead of its use follows a
   load better that comes again soon. */
#define LANES(T_)                                                                                  \
    AVX512 static void lanes_##T_(const s24i_linear_job *job, const float *x, int64_t stride,      \
                                  int64_t b)                                                       \
    {                                                                                              \
        enum { T = T_, LATE = 4 };                                                                 \
        const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;          \
        const __m512i slot = _mm512_set1_epi32(0x33333333);                                        \
        __m512 acc[T];                                                                             \
        (void)stride;                                                                              \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            acc[t] = _mm512_setzero_ps();                                                          \
        }                                                                                          \
        __asm__ volatile("" ::: "memory");                                                         \
        for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {                                \
            const __m512i code = _mm512_load_si512(w);                                             \
            __m512i low = _mm512_and_si512(code, slot);                                            \
            __m512i high = _mm512_and_si512(_mm512_srli_epi32(code, 2), slot);                     \
            const uint8_t *values = w + CODES;                                                     \
            const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;                   \
            for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE, x += 4 * T)       \
                LANES_GROUP                                                                        \
        }                                                                                          \
        if (job->y_dtype == S24_F32 && is_plain(job, b * ROWS)) {                                  \
            const __m512 alpha = _mm512_set1_ps(job->alpha);                                       \
            const __m512 bias =                                                                    \
                job->bias ? _mm512_loadu_ps(job->bias + b * ROWS) : _mm512_setzero_ps();           \
            const int64_t y_step = job->y_stride_m;                                                \
            float *y = (float *)job->y + b * ROWS;                                                 \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                _mm512_storeu_ps(y + t * y_step, _mm512_fmadd_ps(acc[t], alpha, bias));            \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        _Alignas(64) float sums[T][ROWS];                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm512_store_ps(sums[t], acc[t]);                                                      \
        }                                                                                          \
        finish_lanes(job, b *ROWS, T, (const float(*)[ROWS])sums);                                 \
    }

LANES_FEW(1)
LANES_FEW(2)
LANES_FEW(3)
LANES_FEW(4)
LANES_FEW(5)
LANES_FEW(6)
LANES_FEW(7)
LANES(8)
LANES(9)
LANES(10)
LANES(11)
LANES(12)
LANES(13)
LANES(14)
LANES(15)
LANES(16)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {
    NULL,    lanes_1,  lanes_2,  lanes_3,  lanes_4,  lanes_5,  lanes_6,  lanes_7, lanes_8,
    lanes_9, lanes_10, lanes_11, lanes_12, lanes_13, lanes_14, lanes_15, lanes_16};

static void few_rows(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b)
{
    lanes[job->m](job, x, stride, b);
}

/* The tokens as the lanes design takes them: group -> [m][4 columns]. */
typedef float few_t;

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->m == 1 && job->x_stride_k == 1 && job->x_dtype == S24_F32;
}

AVX512 static void gather_few(few_t *to, int64_t stride, const s24i_linear_job *job)
{
    int64_t m = 0;
    (void)stride;
    if (job->x_stride_k == 1 && job->x_dtype == S24_F32)
        for (; m + 4 <= job->m; m += 4) {
            const float *x = (const float *)job->x + m * job->x_stride_m;
            for (int64_t k = 0; k < job->k; k += 4)
                _mm512_storeu_ps(to + k * job->m + 4 * m,
                                 load_quarters((const char *)(x + k), 4 * job->x_stride_m));
        }
    for (; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k += 16) {
            float part[16];
            _mm512_storeu_ps(part,
                             load_lanes(element_of(job->x, job->x_dtype,
                                                   m * job->x_stride_m + k * job->x_stride_k),
                                        job->x_dtype, job->x_stride_k, lane_mask(job->k - k)));
            for (int64_t i = 0; i < 16 && k + i < job->k; i += 4)
                memcpy(to + (k + i) * job->m + 4 * m, part + i, 16);
        }
}
#endif

#include "kernel/cpu/linear_driver.h"

#endif
