// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4, AVX2: the broadcast design of linear_avx512.h with 8 tokens per vector,
 *      panel -> group of 4 k -> C vectors -> [4 k][8 tokens]      (k's offset is index * 32 B)
 * for more than LANES_M tokens (up to those: linear_few_avx2.h). Tile 2 rows x 6 vectors: 12 sums,
 * a pair of values and one of them spread; 13 loads for 12 multiply-adds. Narrow m narrows the tile
 * and adds rows.
 *
 * The including file defines VALUE (bytes of a value) and LOAD_VALUES(p): 8 of them as f32, or what
 * linear_driver.h asks of a row with OWN_LAYOUT.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_AVX2_H

#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx2.h"

#define TARGET AVX2
#define WIDEN  (VALUE != 4)
#if !OWN_LAYOUT
#define HAS_LANES 1

enum {
    GROUP_BYTES = 2 * ROWS * VALUE,
    HALF_BYTES = 8 * VALUE,
    FEW_BLOCK = CODES + SLOTS * ROWS * VALUE
};

#include "kernel/cpu/x86/linear_few_avx2.h"

static const float scales_of_floats[ROWS]
    __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static stream stream_of(const s24i_linear_job *job, int64_t b)
{
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * FEW_BLOCK;
    return (stream){w, scales_of_floats, job->k};
}

AVX2_INLINE __m256 values_of(const uint8_t *group, int slot)
{
    return LOAD_VALUES(group + slot * ROWS * VALUE);
}
#endif

enum {
    LANE = 8,  /* tokens of a vector */
    MAX_C = 6, /* vectors of tokens in a panel */
    FIT_C = 6,
    BEST_C = 6,
    CHUNK = 32,                 /* row blocks whose sums are kept between passes over k */
    NEAR = 128 << 10,           /* bytes of panels that share a visit to w */
    MAX_BLOCKS = 8,             /* k blocks of a pass */
    PANEL = COLUMNS * LANE * 4, /* bytes of a packed k block of a vector of tokens */
    PANEL_SLACK = 0,
    BLOCK = CODES + SLOTS * ROWS * VALUE, /* bytes of a stored k block */
    TILE_BLOCK = CODES + SLOTS * ROWS * 4 /* and of one the tile reads */
};

/* ---- the tile: 16 rows, C*8 tokens, some k blocks (32 columns) ------------------------------- */

/* R rows of C vectors of tokens, on their way along k. */
typedef struct rows {
    const uint8_t *w, *following; /* the k block; where rows have their next code words */
    const float *x;
    uint32_t code[8];
    __m256 acc[8][MAX_C];
} rows;

/* The compiler knows nothing of what the assembly reads; tiles start with a memory clobber. */
AVX2_INLINE void multiply_add(__m256 *acc, __m256 w, const float *x, uint64_t offset, int disp)
{
    __asm__("vfmadd231ps %c1(%2,%3),%4,%0" : "+x"(*acc) : "i"(disp), "r"(x), "r"(offset), "x"(w));
}

/* Lane `lane` of every four, to all of them; in assembly because clang wants a literal where the
   intrinsic takes the lane. */
AVX2_INLINE __m256 spread_lane(__m256 four, int lane)
{
    __m256 value;
    __asm__("vpermilps %2,%1,%0" : "=x"(value) : "x"(four), "i"(0x55 * lane));
    return value;
}

/* A row's C vectors. No loop, of which gcc 12 makes more copies of registers. */
AVX2_INLINE void multiply_row(__m256 *acc, __m256 w, const float *x, uint64_t offset, int disp,
                              const int C)
{
    multiply_add(acc, w, x, offset, disp);
    if (C > 1) multiply_add(acc + 1, w, x, offset, disp + 128);
    if (C > 2) multiply_add(acc + 2, w, x, offset, disp + 256);
    if (C > 3) multiply_add(acc + 3, w, x, offset, disp + 384);
    if (C > 4) multiply_add(acc + 4, w, x, offset, disp + 512);
    if (C > 5) multiply_add(acc + 5, w, x, offset, disp + 640);
}

static inline uint32_t code_at(const uint8_t *w, int i)
{
    return *(const uint32_t *)(const void *)(w + 4 * i);
}

AVX2_INLINE void load_codes(rows *r, const uint8_t *w, const int R)
{
    UNROLL for (int i = 0; i < R; i++)
    {
        r->code[i] = code_at(w, i);
    }
}

/* The values of a slot of four rows from i on, or of two, and again. */
AVX2_INLINE __m256 values_at(const uint8_t *w, int slot, int i, const int R)
{
    const void *at = w + CODES + (slot * ROWS + i) * 4;
    return R % 4 == 0 ? _mm256_broadcast_ps(at) : _mm256_castpd_ps(_mm256_broadcast_sd(at));
}

/* One slot of R rows: values of four (or two) rows come as one load, each then spread by a shuffle;
   a row's next code word is asked for as soon as the last of this one is used. */
AVX2_INLINE void slot_of(rows *r, int slot, const int R, const int C)
{
    const int together = R % 4 == 0 ? 4 : 2;
    __m256 four = _mm256_setzero_ps();
    UNROLL for (int i = 0; i < R; i++)
    {
        const uint64_t offset =
            (slot <= 2 ? r->code[i] << (5 - 2 * slot) : r->code[i] >> (2 * slot - 5)) & 96u;
        if (slot == SLOTS - 1) r->code[i] = code_at(r->following, i);
        if (i % together == 0) four = values_at(r->w, slot, i, R);
        const __m256 value = spread_lane(four, i % together);
        multiply_row(r->acc[i], value, r->x, offset, slot / 2 * C * 128, C);
    }
}

AVX2_INLINE void four_slots(rows *r, int slot, const int R, const int C)
{
    slot_of(r, slot, R, C);
    slot_of(r, slot + 1, R, C);
    slot_of(r, slot + 2, R, C);
    slot_of(r, slot + 3, R, C);
}

/* Multiplies 16 rows by C vectors of tokens, R rows at a time; both are constants. */
AVX2_INLINE void rows_tile(const tile *t, const int R, const int C)
{
    const int LINES = TILE_BLOCK * R / ROWS / 64;
    rows r;
    __asm__ volatile("" ::: "memory");
    load_codes(&r, t->w, R);
    for (int row = 0; row < ROWS; row += R) {
        float *sums = t->sums + row * C * 8;
        r.w = t->w + 4 * row, r.x = t->x;
        const uint8_t *next = r.w + row * (TILE_BLOCK / ROWS - 4) + t->ahead;
        UNROLL for (int i = 0; i < R * C; i++)
        {
            r.acc[i / C][i % C] = t->first ? _mm256_setzero_ps() : _mm256_load_ps(sums + i * 8);
        }
        for (int64_t q = t->blocks; q > 0; q--) {
            const int64_t groups = q > 1 ? GROUPS : t->groups;
            r.following = q > 1 ? r.w + TILE_BLOCK : t->w + (4 * row + 4 * R) % 64;
            UNROLL for (int i = 0; i < LINES; i++)
            {
                _mm_prefetch((const char *)next + 64 * i, _MM_HINT_T0);
            }
            four_slots(&r, 0, R, C);
            four_slots(&r, 4, R, C);
            if (groups <= 4) break;
            four_slots(&r, 8, R, C);
            four_slots(&r, 12, R, C);
            r.x += COLUMNS * C * 8, r.w += TILE_BLOCK, next += TILE_BLOCK;
        }
        if (t->groups <= GROUPS / 2) load_codes(&r, t->w + (4 * row + 4 * R) % 64, R);
        UNROLL for (int i = 0; i < R * C; i++)
        {
            _mm256_store_ps(sums + i * 8, r.acc[i / C][i % C]);
        }
    }
}

#define TILE(R, C)                                                                                 \
    AVX2 static void tile_##C(const tile *t)                                                       \
    {                                                                                              \
        rows_tile(t, R, C);                                                                        \
    }
TILE(8, 1)
TILE(4, 2)
TILE(4, 3)
TILE(2, 4)
TILE(2, 5)
TILE(2, 6)

/* By C: the tile, and how many k blocks make one pass (16..18 KiB of L1). */
static const struct {
    void (*run)(const tile *t);
    int blocks;
} tiles[MAX_C + 1] = {{NULL, 0},   {tile_1, 8}, {tile_2, 8}, {tile_3, 6},
                      {tile_4, 4}, {tile_5, 3}, {tile_6, 3}};

#if WIDEN && !OWN_LAYOUT
/* The tile's weights of this pass, as f32, and where they are found. */
AVX2 static void widen(uint8_t *block, tile *t)
{
    const uint8_t *from = t->w;
    uint8_t *to = block;
    for (int64_t q = 0; q < t->blocks; q++, from += BLOCK, to += TILE_BLOCK) {
        memcpy(to, from, CODES);
        for (int s = 0; s < SLOTS * ROWS; s += 8)
            _mm256_store_ps((float *)(void *)(to + CODES) + s,
                            LOAD_VALUES(from + CODES + s * VALUE));
    }
    t->w = block, t->ahead = 0;
}
#endif

/* ---- packing and the epilogue ---------------------------------------------------------------- */

/* r[i] lane j <-> r[j] lane i. */
AVX2_INLINE void transpose8(__m256 r[8])
{
    __m256 t[8];
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    UNROLL for (int i = 0; i < 8; i++)
    {
        r[i] = t[i];
    }
}

/* 8 tokens x 16 columns, from either orientation of x. */
AVX2_INLINE void pack_square(float *out, int64_t c_vectors, const s24i_linear_job *job, int64_t m,
                             int64_t k)
{
    for (int64_t part = 0; part < 16; part += 8) {
        const float *x = (const float *)job->x + m * job->x_stride_m + (k + part) * job->x_stride_k;
        const int64_t tokens = job->m - m, columns = job->k - k - part;
        __m256 r[8];
        for (int i = 0; i < 8; i++) {
            r[i] = _mm256_setzero_ps();
            if (job->x_stride_k == 1 && i < tokens && columns > 0)
                r[i] = load_lanes(x + i * job->x_stride_m, 1, columns);
            else if (job->x_stride_k != 1 && i < columns)
                r[i] = load_lanes(x + i * job->x_stride_k, job->x_stride_m, tokens);
        }
        if (job->x_stride_k == 1) transpose8(r);
        for (int i = 0; i < 8; i++)
            _mm256_store_ps(out + (part + i) / 4 * c_vectors * 32 + i % 4 * 8, r[i]);
    }
}

/* 8 tokens x 32 columns into their part of a panel of c vectors. */
AVX2_INLINE void pack_block(uint8_t *out, int64_t c, const s24i_linear_job *job, int64_t m,
                            int64_t k)
{
    for (int64_t part = 0; part < COLUMNS && k + part < job->k; part += 16)
        pack_square((float *)(void *)(out + part / 4 * c * (PANEL / GROUPS)), c, job, m, k + part);
}

/* 16 outputs x 8 tokens from sums with tokens in the lanes, rows `pitch` floats apart. */
AVX2_INLINE void finish_square(const s24i_linear_job *job, int64_t m, int64_t n, const float *sums,
                               int64_t pitch)
{
    for (int64_t part = 0; part < 16 && n + part < job->n; part += 8) {
        const int64_t tokens = job->m - m, outputs = job->n - n - part;
        __m256 r[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm256_load_ps(sums + (part + i) * pitch);
        if (job->y_stride_n != 1) {
            for (int i = 0; i < 8 && i < outputs; i++) {
                const float bias = job->bias ? job->bias[n + part + i] : 0;
                finish(job, m, n + part + i, tokens, 0, r[i], _mm256_set1_ps(bias));
            }
            continue;
        }
        const __m256 bias =
            job->bias ? load_lanes(job->bias + n + part, 1, outputs) : _mm256_setzero_ps();
        transpose8(r);
        for (int i = 0; i < 8 && i < tokens; i++)
            finish(job, m + i, n + part, outputs, 1, r[i], bias);
    }
}

#include "kernel/cpu/linear_driver.h"

#endif
