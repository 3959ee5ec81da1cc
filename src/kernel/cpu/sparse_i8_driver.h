// SPDX-License-Identifier: Apache-2.0
/*
 * Products of 8-bit weights in blocks of 4x1 by tokens quantised as they come, included after what
 * the including file defines for its instruction set: TARGET; X_OFFSET, which is added to the
 * tokens' integers; `tiles` (sparse_i8_tile.h), the narrowest first, with their number TILES; and
 * finish_tile, which takes sums [outs][pitch] of a tile to y.
 *
 * Tokens lie in the lanes: x is quantised and turned once into tiles [k][tokens of the tile] of
 * bytes. Four columns of a line are then interleaved in registers, so that each 32 bits hold a
 * token's four, and multiplied by the same four of each of the line's outputs.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/token_scale.h"
#include "kernel/cpu/cpu.h"
#include "kernel/cpu/sparse_i8_tile.h"

enum { COLUMNS = 64, SQUARE = 16, ROWS = 16 };

/* The tile that begins at token m: the widest, or the narrowest that has all tokens left. */
static inline const tile_kind *tile_at(int64_t m, int64_t end)
{
    int kind = 0;
    while (kind + 1 < TILES && tiles[kind].tokens < end - m)
        kind++;
    return &tiles[kind];
}

/* A token's scale, and 127 over its largest magnitude. */
typedef struct token_scale {
    float scale, inverse;
} token_scale;

static inline size_t scales_bytes(int64_t m)
{
    return ((size_t)m * sizeof(token_scale) + 63) / 64 * 64;
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    int64_t tokens = 0;
    (void)n, (void)threads;
    while (tokens < m)
        tokens += tile_at(tokens, m)->tokens;
    return scales_bytes(m) + (size_t)(tokens * k);
}

/* ---- x --------------------------------------------------------------------------------------- */

/* `count` columns of a token from k on as floats: where they lie, or in room. */
TARGET static const float *columns_of(float room[COLUMNS], const s24i_linear_job *job, int64_t m,
                                      int64_t k, int64_t count)
{
    const int64_t at = m * job->x_stride_m + k * job->x_stride_k;
    if (job->x_stride_k == 1 && job->x_dtype == S24_F32) return (const float *)job->x + at;
    for (int64_t i = 0; i < count; i++)
        room[i] = s24i_load_f32(job->x, job->x_dtype, at + i * job->x_stride_k);
    return room;
}

/* The larger of `largest` and the magnitudes of so many floats, as bits of f32. */
TARGET static uint32_t largest_of(const float *x, int64_t count, uint32_t largest)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

TARGET static void scale_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const int is_plain = job->x_stride_k == 1 && job->x_dtype == S24_F32;
    token_scale *scales = job->work;
    (void)thread;
    for (int64_t m = begin; m < end; m++) {
        float room[COLUMNS];
        uint32_t largest = 0;
        if (is_plain) largest = largest_of((const float *)job->x + m * job->x_stride_m, job->k, 0);
        for (int64_t k = 0; k < job->k && !is_plain; k += COLUMNS) {
            const int64_t count = job->k - k < COLUMNS ? job->k - k : COLUMNS;
            largest = largest_of(columns_of(room, job, m, k, count), count, largest);
        }
        scales[m].scale = s24i_token_scale(largest, &scales[m].inverse);
    }
}

/* COLUMNS of a token from k on; zeros after the last column, and of a token that is not there. */
TARGET static void quantise(uint8_t to[COLUMNS], const s24i_linear_job *job, int64_t m, int64_t k)
{
    const token_scale *scale = (const token_scale *)job->work + m;
    const int64_t count = job->k - k < COLUMNS ? job->k - k : COLUMNS;
    float room[COLUMNS];
    memset(to, X_OFFSET, COLUMNS);
    if (m >= job->m || !(scale->scale > 0)) return;
    const float *x = columns_of(room, job, m, k, count);
    if (count == COLUMNS)
        for (int i = 0; i < COLUMNS; i++)
            to[i] = (uint8_t)((int)rintf(x[i] * scale->inverse) + X_OFFSET);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (uint8_t)((int)rintf(x[i] * scale->inverse) + X_OFFSET);
}

typedef uint8_t bytes16 __attribute__((vector_size(16), aligned(1), may_alias));

/* Sixteen columns of sixteen tokens, `pitch` bytes apart: rounds of a perfect shuffle. */
TARGET static void turn_square(uint8_t *to, int64_t pitch, const uint8_t (*from)[COLUMNS])
{
    bytes16 r[SQUARE], t[SQUARE];
    UNROLL for (int i = 0; i < SQUARE; i++)
    {
        r[i] = *(const bytes16 *)(const void *)from[i];
    }
    UNROLL for (int round = 0; round < 4; round++)
    {
        UNROLL for (int i = 0; i < SQUARE / 2; i++)
        {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                               21, 6, 22, 7, 23);
            t[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(r, t, sizeof r);
    }
    UNROLL for (int i = 0; i < SQUARE; i++)
    {
        *(bytes16 *)(void *)(to + i * pitch) = r[i];
    }
}

/* Columns of all tiles, counted in COLUMNS. */
TARGET static void turn_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    uint8_t *x = (uint8_t *)job->work + scales_bytes(job->m);
    uint8_t bytes[SQUARE][COLUMNS];
    (void)thread;
    for (int64_t m = 0; m < job->m; m += tile_at(m, job->m)->tokens) {
        const tile_kind *tile = tile_at(m, job->m);
        const int64_t width = tile->tokens;
        for (int64_t k = begin * COLUMNS; k < end * COLUMNS; k += COLUMNS)
            for (int64_t t = 0; t < width; t += SQUARE) {
                for (int i = 0; i < SQUARE; i++)
                    quantise(bytes[i], job, m + token_at(tile, t + i), k);
                for (int64_t c = 0; c < COLUMNS && k + c < job->k; c += SQUARE) {
                    uint8_t *to = x + m * job->k + (k + c) * width + t;
                    const uint8_t(*from)[COLUMNS] = (const uint8_t(*)[COLUMNS])(&bytes[0][c]);
                    if (k + c + SQUARE <= job->k) turn_square(to, width, from);
                    for (int64_t i = 0; k + c + SQUARE > job->k && k + c + i < job->k; i++)
                        for (int j = 0; j < SQUARE; j++)
                            to[i * width + j] = bytes[j][c + i];
                }
            }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* The scales of a tile's tokens; those after the last have none. */
static void find_scales(float own[COLUMNS], const s24i_linear_job *job, int64_t m, int width)
{
    const token_scale *scales = (const token_scale *)job->work + m;
    for (int t = 0; t < width; t++)
        own[t] = m + t < job->m ? scales[t].scale : 0;
}

static void run_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const uint8_t *x = (const uint8_t *)job->work + scales_bytes(job->m);
    _Alignas(64) float sums[ROWS * COLUMNS] = {0}, own[COLUMNS];
    (void)thread;
    for (int64_t m = 0; m < job->m; m += tile_at(m, job->m)->tokens) {
        const tile_kind *tile = tile_at(m, job->m);
        find_scales(own, job, m, tile->tokens);
        for (int64_t line = begin; line < end; line += ROWS / OUTS) {
            const int64_t last = line + ROWS / OUTS < end ? line + ROWS / OUTS : end;
            for (int64_t l = line; l < last; l++)
                tile->sum(job->w, x + m * job->k, l, own, sums + (l - line) * OUTS * tile->tokens);
            finish_tile(job, m, line * OUTS, (int)(last - line) * OUTS, sums, tile->tokens);
        }
    }
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    const s24i_parallel *p = &job->parallel;
    p->run(p->pool, job->m, scale_tokens, &copy);
    p->run(p->pool, (job->k + COLUMNS - 1) / COLUMNS, turn_columns, &copy);
    p->run(p->pool, ((const s24i_sparse_i8 *)job->w)->lines, run_lines, &copy);
}

#define ROW(symbol, label, needs, order)                                                           \
    const s24i_sparse_kernel symbol = {{.name = label,                                             \
                                        .dtype = S24_I8,                                           \
                                        .bits = 8,                                                 \
                                        .activations = S24_I8,                                     \
                                        .cpu = needs,                                              \
                                        .rank = order,                                             \
                                        .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,                \
                                        .work_bytes = work_bytes,                                  \
                                        .run = run},                                               \
                                       S24I_SPARSE_STRIPS};
