// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4, NEON: the two designs of x86/linear_avx512.h. A vector of tokens is two
 * registers of four, because one instruction loads both. x and y are f32 or bf16: widened when
 * tokens are packed or gathered, rounded when outputs are stored.
 *
 * More than LANES_M tokens, the tokens in the lanes:
 *      panel -> group of 4 k -> C vectors -> [4 k][8 tokens]      (k's offset is index * 32 B)
 * A multiply-add takes its weight from a lane of a register, so that a slot's values of R rows are
 * one load and nothing is spread. Tile 2 rows x 6 vectors: 24 sums.
 *
 * Up to LANES_M tokens, 4 rows in the lanes: a group's four columns of a token are one register,
 * out of which a table look-up takes the column of each row.
 *
 * The including file defines VALUE (bytes of a value) and LOAD_VALUES(p): 4 of them as f32, or what
 * linear_driver.h asks of a row with OWN_LAYOUT, and HAS_LANES 0.
 */
#ifndef S24_KERNEL_CPU_ARM_LINEAR_NEON_H
#define S24_KERNEL_CPU_ARM_LINEAR_NEON_H

#include "base/base.h"
#include "kernel/cpu/arm/linear_finish_neon.h"
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/kernel.h"

#define TARGET
#define WIDEN                (VALUE != 4)
#define PREFETCH_TO_WRITE(p) __builtin_prefetch(p, 1)
#ifndef HAS_LANES
#define HAS_LANES 1
#endif

enum {
    LANE = 8,  /* tokens of a vector */
    MAX_C = 6, /* vectors of tokens in a panel */
    FIT_C = 6,
    BEST_C = 6,
    LANES_M = 4,                /* tokens of the lanes design */
    CHUNK = 32,                 /* row blocks whose sums are kept between passes over k */
    NEAR = 128 << 10,           /* bytes of panels that share a visit to w */
    MAX_BLOCKS = 8,             /* k blocks of a pass */
    PANEL = COLUMNS * LANE * 4, /* bytes of a packed k block of a vector of tokens */
    PANEL_SLACK = 0,
    BLOCK = CODES + SLOTS * ROWS * VALUE, /* bytes of a stored k block */
    TILE_BLOCK = CODES + SLOTS * ROWS * 4 /* and of one the tile reads */
};

/* ---- the tile: 16 rows, C*8 tokens, some k blocks (32 columns) ------------------------------- */

/* R rows of C vectors of tokens, on their way along k: a slot's values of the rows and x of its
   group are next. */
typedef struct rows {
    const float *w, *x;
    uint32_t code[8];
    float32x4_t acc[8][MAX_C][2];
} rows;

/* A vector of tokens times a lane of four. */
NEON_INLINE void multiply_add(float32x4_t acc[2], float32x4_t four, int lane, const float *x)
{
    const float32x4_t low = vld1q_f32(x), high = vld1q_f32(x + 4);
    acc[0] = vfmaq_n_f32(acc[0], low, four[lane]);
    acc[1] = vfmaq_n_f32(acc[1], high, four[lane]);
}

/* One slot of R rows. */
NEON_INLINE void slot_of(rows *r, int slot, const int R, const int C)
{
    float32x4_t four[2];
    UNROLL for (int i = 0; i < R; i += R == 2 ? 2 : 4)
    {
        four[i / 4] = R == 2 ? vcombine_f32(vld1_f32(r->w), vdup_n_f32(0)) : vld1q_f32(r->w + i);
    }
    UNROLL for (int i = 0; i < R; i++)
    {
        const float *picked = r->x + (r->code[i] >> slot & 3) * LANE;
        const float32x4_t w = four[i / 4];
        IN_ORDER;
        multiply_add(r->acc[i][0], w, i % 4, picked);
        if (C > 1) multiply_add(r->acc[i][1], w, i % 4, picked + 4 * LANE);
        if (C > 2) multiply_add(r->acc[i][2], w, i % 4, picked + 8 * LANE);
        if (C > 3) IN_ORDER;
        if (C > 3) multiply_add(r->acc[i][3], w, i % 4, picked + 12 * LANE);
        if (C > 4) multiply_add(r->acc[i][4], w, i % 4, picked + 16 * LANE);
        if (C > 5) multiply_add(r->acc[i][5], w, i % 4, picked + 20 * LANE);
    }
    r->w += ROWS;
}

NEON_INLINE void group_of(rows *r, int g, const int R, const int C)
{
    slot_of(r, 4 * g, R, C);
    slot_of(r, 4 * g + 2, R, C);
    r->x += C * 4 * LANE;
}

/* Multiplies 16 rows by C vectors of tokens, R rows at a time; both are constants. */
NEON_INLINE void rows_tile(const tile *t, const int R, const int C)
{
    const int LINES = TILE_BLOCK * R / ROWS / 64;
    for (int row = 0; row < ROWS; row += R) {
        float *sums = t->sums + row * C * LANE;
        const uint8_t *block = t->w;
        const uint8_t *next = t->w + row * (TILE_BLOCK / ROWS) + t->ahead;
        rows r;
        r.x = t->x;
        UNROLL for (int i = 0; i < R * C * 2; i++)
        {
            r.acc[i / 2 / C][i / 2 % C][i % 2] =
                t->first ? vdupq_n_f32(0) : vld1q_f32(sums + i * 4);
        }
        for (int64_t q = t->blocks; q > 0; q--, block += TILE_BLOCK, next += TILE_BLOCK) {
            r.w = (const float *)(const void *)(block + CODES) + row;
            UNROLL for (int i = 0; i < R; i++)
            {
                r.code[i] = *(const uint32_t *)(const void *)(block + 4 * (row + i));
            }
            UNROLL for (int i = 0; i < LINES; i++)
            {
                __builtin_prefetch(next + 64 * i);
            }
            group_of(&r, 0, R, C);
            group_of(&r, 1, R, C);
            group_of(&r, 2, R, C);
            group_of(&r, 3, R, C);
            group_of(&r, 4, R, C);
            group_of(&r, 5, R, C);
            group_of(&r, 6, R, C);
            group_of(&r, 7, R, C);
        }
        UNROLL for (int i = 0; i < R * C * 2; i++)
        {
            vst1q_f32(sums + i * 4, r.acc[i / 2 / C][i / 2 % C][i % 2]);
        }
    }
}

#define TILE(R, C)                                                                                 \
    static void tile_##C(const tile *t)                                                            \
    {                                                                                              \
        rows_tile(t, R, C);                                                                        \
    }
TILE(8, 1)
TILE(4, 2)
TILE(4, 3)
TILE(2, 4)
TILE(2, 5)
TILE(2, 6)

/* By C: the tile, and how many k blocks make one pass (16..24 KiB of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {{NULL, 0},   {tile_1, 8}, {tile_2, 8}, {tile_3, 6},
                      {tile_4, 4}, {tile_5, 3}, {tile_6, 3}};

#if WIDEN && !OWN_LAYOUT
/* The tile's weights of this pass, as f32, and where they are found. */
static void widen(uint8_t *block, tile *t)
{
    const uint8_t *from = t->w;
    uint8_t *to = block;
    for (int64_t q = 0; q < t->blocks; q++, from += BLOCK, to += TILE_BLOCK) {
        memcpy(to, from, CODES);
        for (int s = 0; s < SLOTS * ROWS; s += 4)
            vst1q_f32((float *)(void *)(to + CODES) + s, LOAD_VALUES(from + CODES + s * VALUE));
    }
    t->w = block, t->ahead = 0;
}
#endif

/* ---- packing and the epilogue ---------------------------------------------------------------- */

/* r[i] lane j <-> r[j] lane i. */
NEON_INLINE void transpose4(float32x4_t r[4])
{
    const float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

/* 4 columns of 4 tokens, from either orientation of x; out: 4 times 4 tokens, LANE floats apart. */
NEON_INLINE void pack_square(float *out, const s24i_linear_job *job, int64_t m, int64_t k)
{
    const int64_t tokens = job->m - m, sm = job->x_stride_m, sk = job->x_stride_k;
    float32x4_t r[4];
    for (int i = 0; i < 4; i++) {
        r[i] = vdupq_n_f32(0);
        if (k >= job->k) continue; /* k is a multiple of 4 */
        if (sk != 1)
            r[i] = load_lanes(job->x, job->x_dtype, m * sm + (k + i) * sk, sm, tokens);
        else if (i < tokens)
            r[i] = load_lanes(job->x, job->x_dtype, (m + i) * sm + k, 1, 4);
    }
    if (sk == 1) transpose4(r);
    for (int i = 0; i < 4; i++)
        vst1q_f32(out + i * LANE, r[i]);
}

/* 8 tokens x 32 columns into their part of a panel of c vectors. */
static void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m, int64_t k)
{
    for (int g = 0; g < GROUPS; g++, out += c * (PANEL / GROUPS))
        for (int half = 0; half < LANE; half += 4)
            pack_square((float *)(void *)out + half, job, m + half, k + 4 * g);
}

/* 4 outputs of 4 tokens from sums with tokens in the lanes, rows `pitch` floats apart. */
static void finish_four(const s24i_linear_job *job, int64_t m, int64_t n, const float *sums,
                        int64_t pitch)
{
    float32x4_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vld1q_f32(sums + i * pitch);
    if (job->y_stride_n != 1) {
        for (int i = 0; i < 4 && n + i < job->n; i++)
            finish(job, m, n + i, 0, r[i], vdupq_n_f32(job->bias ? job->bias[n + i] : 0));
        return;
    }
    const float32x4_t bias = load_bias(job, n);
    transpose4(r);
    for (int i = 0; i < 4 && m + i < job->m; i++)
        finish(job, m + i, n, 1, r[i], bias);
}

/* 16 outputs of 8 tokens. */
static void finish_square(const s24i_linear_job *job, int64_t m, int64_t n, const float *sums,
                          int64_t pitch)
{
    for (int64_t half = 0; half < LANE && m + half < job->m; half += 4)
        for (int64_t part = 0; part < ROWS && n + part < job->n; part += 4)
            finish_four(job, m + half, n + part, sums + part * pitch + half, pitch);
}

#if HAS_LANES
/* ---- lanes design ---------------------------------------------------------------------------- */

/* Of a token's four columns those at the lowest two bits of each row's code. */
NEON_INLINE uint8x16_t places(uint32x4_t code)
{
    const uint32x4_t index = vandq_u32(code, vdupq_n_u32(3));
    return vreinterpretq_u8_u32(vmlaq_u32(vdupq_n_u32(0x03020100), index, vdupq_n_u32(0x04040404)));
}

NEON_INLINE float32x4_t pick(float32x4_t four, uint8x16_t at)
{
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(four), at));
}

/* Multiplies row block b by T tokens, a constant, whose columns lie together in x. */
NEON_INLINE void lanes_few(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b,
                           const int T)
{
    enum { QUARTERS = ROWS / 4 };
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * BLOCK;
    float32x4_t acc[LANES_M][QUARTERS];
    UNROLL for (int i = 0; i < T * QUARTERS; i++)
    {
        acc[i / QUARTERS][i % QUARTERS] = vdupq_n_f32(0);
    }
    for (int64_t k = 0; k < job->k; k += COLUMNS, w += BLOCK) {
        const uint8_t *values = w + CODES;
        const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;
        uint32x4_t code[QUARTERS];
        UNROLL for (int r = 0; r < QUARTERS; r++)
        {
            code[r] = vld1q_u32((const uint32_t *)(const void *)w + 4 * r);
        }
        for (int64_t g = 0; g < columns; g += 4, values += 2 * ROWS * VALUE) {
            UNROLL for (int r = 0; r < QUARTERS; r++)
            {
                const uint8x16_t first = places(code[r]);
                const uint8x16_t second = places(vshrq_n_u32(code[r], 2));
                const float32x4_t w0 = LOAD_VALUES(values + 4 * r * VALUE);
                const float32x4_t w1 = LOAD_VALUES(values + (ROWS + 4 * r) * VALUE);
                UNROLL for (int t = 0; t < T; t++)
                {
                    const float32x4_t four = vld1q_f32(x + t * stride + k + g);
                    acc[t][r] = vfmaq_f32(acc[t][r], pick(four, first), w0);
                    acc[t][r] = vfmaq_f32(acc[t][r], pick(four, second), w1);
                }
                code[r] = vshrq_n_u32(code[r], 4);
            }
        }
    }
    for (int64_t r = 0; r < QUARTERS && b * ROWS + 4 * r < job->n; r++)
        for (int64_t t = 0; t < T; t++)
            finish(job, t, b * ROWS + 4 * r, 1, acc[t][r], load_bias(job, b * ROWS + 4 * r));
}

#define LANES(T)                                                                                   \
    static void lanes_##T(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b)   \
    {                                                                                              \
        lanes_few(job, x, stride, b, T);                                                           \
    }
LANES(1)
LANES(2)
LANES(3)
LANES(4)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const float *, int64_t,
                                        int64_t) = {NULL, lanes_1, lanes_2, lanes_3, lanes_4};

static int64_t few_rows(const s24i_linear_job *job, const float *x, int64_t stride, int64_t b,
                        int64_t end)
{
    (void)end;
    lanes[job->m](job, x, stride, b);
    return 1;
}

typedef float few_t;

static int few_as_they_are(const s24i_linear_job *job)
{
    return job->x_dtype == S24_F32 && job->x_stride_k == 1;
}

/* Few tokens whose columns do not lie together, or in bf16. */
static void gather_few(float *to, int64_t stride, const s24i_linear_job *job)
{
    const float *wide = job->x;
    const uint16_t *narrow = job->x;
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t k = 0; k < job->k; k++) {
            const int64_t at = m * job->x_stride_m + k * job->x_stride_k;
            to[m * stride + k] = job->x_dtype == S24_F32 ? wide[at] : s24i_bf16_to_f32(narrow[at]);
        }
}
#endif

#include "kernel/cpu/linear_driver.h"

#endif
