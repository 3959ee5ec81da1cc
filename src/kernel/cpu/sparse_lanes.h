// SPDX-License-Identifier: Apache-2.0
/*
 * Products with sparse weights in f32, for an instruction set that the including file names: LANES
 * floats in a vector, VECS vectors of tokens in a tile, TARGET, and OUTS, how many outputs of a
 * block a tile's sums are kept of in registers; vec, strip and eight, vectors of LANES, four and
 * eight floats, and add_product, strip_product and eight_product, which add a vector times a number
 * to one, fused: in ISO C a compiler makes nothing fused of * and +. With SQUARES also square_in
 * and square_out, which turn x and the sums sixteen by sixteen; with GATHERS gather_sums, which
 * sums rows' entries for one token.
 *
 * Tokens lie in the lanes: x is turned once into tiles [k][tokens of the tile], so that an entry's
 * column is a few whole vectors and its values are broadcast. A few outputs of a block, four of a
 * strip, or one of CSR, are summed in registers over all of a line's entries, sixteen before they
 * go to y. For few tokens the lanes are a block's rows instead, or a row's entries, whose x are
 * gathered.
 */
#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/ref/linear_finish.h"
#include "kernel/sparse_kernel.h"

enum { ROWS = 16, FEW = LANES / 4 }; /* FEW: so many tokens are not in the lanes */

/* Tokens in tiles of vectors as equal as can be. */
typedef struct tiling {
    int64_t vectors, tiles;
} tiling;

static inline tiling tiling_of(int64_t m)
{
    const int64_t vectors = (m + LANES - 1) / LANES;
    return (tiling){vectors, (vectors + VECS - 1) / VECS};
}

/* The first vector of a tile. */
static inline int64_t first_of(const tiling *t, int64_t tile)
{
    return tile * t->vectors / t->tiles;
}

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)n;
    (void)threads;
    return m <= FEW ? 0 : (size_t)((m + LANES - 1) / LANES * LANES * k) * sizeof(float);
}

/* ---- x in tiles ------------------------------------------------------------------------------ */

/* Columns begin … end of a vector of tokens. */
TARGET static void turn_lanes(float *to, const s24i_linear_job *job, int64_t m, int64_t width,
                              int64_t begin, int64_t end)
{
#ifdef SQUARES
    for (; job->x_stride_k == 1 && m + LANES <= job->m && begin + LANES <= end; begin += LANES)
        square_in(to + begin * width, width, job, m, begin);
#endif
    for (int64_t lane = 0; lane < LANES; lane++) {
        const float *x = (const float *)job->x + (m + lane) * job->x_stride_m;
        for (int64_t c = begin; c < end; c++)
            to[c * width + lane] = m + lane < job->m ? x[c * job->x_stride_k] : 0;
    }
}

/* Columns begin … end of all tiles. */
static void turn_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const tiling t = tiling_of(job->m);
    (void)thread;
    for (int64_t tile = 0; tile < t.tiles; tile++) {
        const int64_t first = first_of(&t, tile), width = (first_of(&t, tile + 1) - first) * LANES;
        float *to = (float *)job->work + first * LANES * job->k;
        for (int64_t lane = 0; lane < width; lane += LANES)
            turn_lanes(to + lane, job, first * LANES + lane, width, begin, end);
    }
}

/* ---- many tokens ----------------------------------------------------------------------------- */

/* Takes sums [outs][tokens] of a tile to y. */
TARGET static void finish_sums(const s24i_linear_job *job, const float *sums, int64_t n, int outs,
                               int64_t m, int64_t width)
{
    const int64_t tokens = job->m - m < width ? job->m - m : width;
#ifdef SQUARES
    for (int64_t t = 0; t < tokens && width >= LANES; t += LANES)
        square_out(job, m + t, n, outs, sums + t, width);
    if (width >= LANES) return;
#endif
    float *y = (float *)job->y + m * job->y_stride_m + n * job->y_stride_n;
    const int is_plain = !job->activation && !job->gate && !job->residual && job->alpha == 1;
    for (int64_t t = 0; t < tokens; t++)
        for (int o = 0; o < outs; o++) {
            const float sum = sums[o * width + t];
            y[t * job->y_stride_m + o * job->y_stride_n] =
                is_plain ? sum + (job->bias ? job->bias[n + o] : 0)
                         : linear_finish(job, m + t, n + o, sum);
        }
}

/* Adds a column's products: a value of each output times V vectors of tokens. */
#define ADD_COLUMN(V, COUNT)                                                                       \
    {                                                                                              \
        vec tokens[V];                                                                             \
        UNROLL for (int v = 0; v < V; v++) tokens[v] = from[v];                                    \
        UNROLL for (int o = 0; o < COUNT; o++)                                                     \
        {                                                                                          \
            UNROLL for (int v = 0; v < V; v++) acc[o][v] =                                         \
                add_product(acc[o][v], tokens[v], values[o]);                                      \
        }                                                                                          \
    }

/* OUTS outputs of a line of blocks, from row `part` of its blocks on. */
#define BLOCKS(V)                                                                                  \
    TARGET static void blocks_##V(const s24i_linear_job *job, const float *x, int64_t line,        \
                                  int64_t part, float *sums)                                       \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        const int64_t block = w->rows;                                                             \
        vec acc[OUTS][V];                                                                          \
        memset(acc, 0, sizeof acc);                                                                \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const float *values = w->values + i * block * block + part;                            \
            const vec *from = (const vec *)(x + (int64_t)w->index[i] * (V * LANES));               \
            for (int64_t c = 0; c < block; c++, values += block, from += V) {                      \
                ADD_COLUMN(V, OUTS)                                                                \
            }                                                                                      \
        }                                                                                          \
        memcpy(sums, acc, sizeof acc);                                                             \
    }

/* Four outputs of a line of strips, whose columns stand in `index` or in `near`. */
#define STRIPS(V, INDEX)                                                                           \
    TARGET static void strips_##INDEX##_##V(const s24i_linear_job *job, const float *x,            \
                                            int64_t line, int64_t part, float *sums)               \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        vec acc[S24I_STRIP][V];                                                                    \
        (void)part;                                                                                \
        memset(acc, 0, sizeof acc);                                                                \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const float *values = w->values + i * S24I_STRIP;                                      \
            const vec *from = (const vec *)(x + (int64_t)w->INDEX[i] * (V * LANES));               \
            ADD_COLUMN(V, S24I_STRIP)                                                              \
        }                                                                                          \
        memcpy(sums, acc, sizeof acc);                                                             \
    }

/* One output of CSR. */
#define ENTRIES(V, INDEX)                                                                          \
    TARGET static void entries_##INDEX##_##V(const s24i_linear_job *job, const float *x,           \
                                             int64_t line, int64_t part, float *sums)              \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        vec acc[2][V];                                                                             \
        int64_t i = w->starts[line];                                                               \
        const int64_t end = w->starts[line + 1];                                                   \
        (void)part;                                                                                \
        memset(acc, 0, sizeof acc);                                                                \
        for (; i + 2 <= end; i += 2) {                                                             \
            UNROLL for (int e = 0; e < 2; e++)                                                     \
            {                                                                                      \
                const vec *from = (const vec *)(x + (int64_t)w->INDEX[i + e] * (V * LANES));       \
                UNROLL for (int v = 0; v < V; v++) acc[e][v] =                                     \
                    add_product(acc[e][v], from[v], w->values[i + e]);                             \
            }                                                                                      \
        }                                                                                          \
        if (i < end) {                                                                             \
            const vec *from = (const vec *)(x + (int64_t)w->INDEX[i] * (V * LANES));               \
            UNROLL for (int v = 0; v < V; v++) acc[0][v] =                                         \
                add_product(acc[0][v], from[v], w->values[i]);                                     \
        }                                                                                          \
        UNROLL for (int v = 0; v < V; v++)((vec *)sums)[v] = acc[0][v] + acc[1][v];                \
    }

BLOCKS(1)
BLOCKS(2)
BLOCKS(3)
STRIPS(1, near)
STRIPS(2, near)
STRIPS(3, near)
STRIPS(1, index)
STRIPS(2, index)
STRIPS(3, index)
ENTRIES(1, near)
ENTRIES(2, near)
ENTRIES(3, near)
ENTRIES(1, index)
ENTRIES(2, index)
ENTRIES(3, index)

typedef void (*sum_tile)(const s24i_linear_job *job, const float *x, int64_t line, int64_t part,
                         float *sums);

/* How a tile of so many vectors is summed, and how many outputs at once. */
static sum_tile sum_of(const s24i_sparse_weight *w, int64_t vectors, int64_t *outs)
{
    static const sum_tile blocks[VECS] = {blocks_1, blocks_2, blocks_3};
    static const sum_tile strips[2][VECS] = {{strips_index_1, strips_index_2, strips_index_3},
                                             {strips_near_1, strips_near_2, strips_near_3}};
    static const sum_tile entries[2][VECS] = {{entries_index_1, entries_index_2, entries_index_3},
                                              {entries_near_1, entries_near_2, entries_near_3}};
    const int is_near = w->near != NULL;
    *outs = w->rows == w->cols && w->rows > 1 ? OUTS : w->rows;
    if (w->rows == 1) return entries[is_near][vectors - 1];
    return w->cols == 1 ? strips[is_near][vectors - 1] : blocks[vectors - 1];
}

static void run_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    const tiling t = tiling_of(job->m);
    const int64_t rows = w->rows;
    _Alignas(64) float sums[ROWS * VECS * LANES] = {0};
    (void)thread;
    for (int64_t tile = 0; tile < t.tiles; tile++) {
        const int64_t first = first_of(&t, tile), vectors = first_of(&t, tile + 1) - first;
        const float *x = (const float *)job->work + first * LANES * job->k;
        const int64_t width = vectors * LANES;
        int64_t step;
        const sum_tile sum = sum_of(w, vectors, &step);
        for (int64_t n = begin * rows; n < end * rows; n += ROWS) {
            const int64_t outs = end * rows - n < ROWS ? end * rows - n : ROWS;
            for (int64_t o = 0; o < outs; o += step)
                sum(job, x, (n + o) / rows, (n + o) % rows, sums + o * width);
            finish_sums(job, sums, n, (int)outs, first * LANES, width);
        }
    }
}

/* ---- few tokens ------------------------------------------------------------------------------ */

/* 8·P outputs of a line of blocks, from row `part` on, for one token. */
enum { EIGHT = 8 };
#define FEW_BLOCKS(P)                                                                              \
    TARGET static void few_blocks_##P(const s24i_linear_job *job, int64_t m, int64_t line,         \
                                      int64_t part)                                                \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        const int64_t block = w->rows, step = job->x_stride_k;                                     \
        const float *x = (const float *)job->x + m * job->x_stride_m;                              \
        eight sums[4][P];                                                                          \
        memset(sums, 0, sizeof sums);                                                              \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const float *values = w->values + i * block * block + part;                            \
            const float *from = x + (int64_t)w->index[i] * step;                                   \
            for (int64_t c = 0; c < block; c += 4, values += 4 * block, from += 4 * step)          \
                UNROLL for (int j = 0; j < 4; j++)                                                 \
                {                                                                                  \
                    UNROLL for (int p = 0; p < P; p++) sums[j][p] = eight_product(                 \
                        sums[j][p], ((const eight *)(values + j * block))[p], from[j * step]);     \
                }                                                                                  \
        }                                                                                          \
        UNROLL for (int p = 0; p < P; p++) sums[0][p] =                                            \
            (sums[0][p] + sums[1][p]) + (sums[2][p] + sums[3][p]);                                 \
        finish_sums(job, (const float *)sums, line *block + part, EIGHT * P, m, 1);                \
    }
FEW_BLOCKS(1)
FEW_BLOCKS(2)

/* Sixteen rows' entries, of any stride of x; `outs` of them are there. */
TARGET static void add_entries(float sums[ROWS], const s24i_linear_job *job, int64_t m,
                               int64_t line, int outs)
{
    const s24i_sparse_weight *w = job->w;
    const float *x = (const float *)job->x + m * job->x_stride_m;
    for (int o = 0; o < outs; o++) {
        float part[4] = {0};
        int64_t i = w->starts[line + o];
        const int64_t end = w->starts[line + o + 1];
        for (; i + 4 <= end; i += 4)
            UNROLL for (int j = 0; j < 4; j++) part[j] = __builtin_fmaf(
                w->values[i + j], x[s24i_sparse_column(w, i + j) * job->x_stride_k], part[j]);
        for (; i < end; i++)
            part[0] = __builtin_fmaf(w->values[i], x[s24i_sparse_column(w, i) * job->x_stride_k],
                                     part[0]);
        sums[o] = (part[0] + part[1]) + (part[2] + part[3]);
    }
}

static void few_entries(const s24i_linear_job *job, int64_t begin, int64_t end)
{
    for (int64_t line = begin; line < end; line += ROWS) {
        const int outs = (int)(end - line < ROWS ? end - line : ROWS);
        _Alignas(64) float sums[ROWS];
        for (int64_t m = 0; m < job->m; m++) {
#ifdef GATHERS
            if (job->x_stride_k == 1)
                gather_sums(sums, job->w, (const float *)job->x + m * job->x_stride_m, line, outs);
            else
#endif
                add_entries(sums, job, m, line, outs);
            finish_sums(job, sums, line, outs, m, 1);
        }
    }
}

enum { STRIPS_AHEAD = 128 }; /* entries that are asked of memory before they are needed */
TARGET static void few_strips(const s24i_linear_job *job, int64_t m, int64_t line)
{
    const s24i_sparse_weight *w = job->w;
    const int64_t end = w->starts[line + 1], step = job->x_stride_k;
    const float *x = (const float *)job->x + m * job->x_stride_m;
    const strip *values = (const strip *)w->values;
    strip sums[4] = {{0}};
    int64_t i = w->starts[line];
    for (; i + 4 <= end; i += 4) {
        __builtin_prefetch(values + i + STRIPS_AHEAD);
        UNROLL for (int j = 0; j < 4; j++) sums[j] =
            strip_product(sums[j], values[i + j], x[s24i_sparse_column(w, i + j) * step]);
    }
    for (; i < end; i++)
        sums[0] = strip_product(sums[0], values[i], x[s24i_sparse_column(w, i) * step]);
    sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    finish_sums(job, (const float *)sums, line * S24I_STRIP, S24I_STRIP, m, 1);
}

static void run_few(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    (void)thread;
    if (w->rows == 1) {
        few_entries(job, begin, end);
        return;
    }
    for (int64_t line = begin; line < end; line++)
        for (int64_t m = 0; m < job->m; m++) {
            if (w->rows == S24I_STRIP) few_strips(job, m, line);
            if (w->rows == EIGHT) few_blocks_1(job, m, line, 0);
            for (int64_t part = 0; w->rows > EIGHT && part < w->rows; part += 2 * EIGHT)
                few_blocks_2(job, m, line, part);
        }
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    const s24i_sparse_weight *w = job->w;
    const s24i_parallel *p = &job->parallel;
    if (job->m <= FEW) {
        p->run(p->pool, w->lines, run_few, &copy);
        return;
    }
    p->run(p->pool, job->k, turn_columns, &copy);
    p->run(p->pool, w->lines, run_lines, &copy);
}

/* A kind of core that a row is for, before those for all. */
#ifndef CORE
#define CORE 0
#endif
#define ROW(symbol, label, of)                                                                     \
    const s24i_sparse_kernel symbol = {{.name = label,                                             \
                                        .dtype = S24_F32,                                          \
                                        .cpu = CPU,                                                \
                                        .core = CORE,                                              \
                                        .rank = LANES + (CORE != 0),                               \
                                        .x_dtypes = 1u << S24_F32,                                 \
                                        .work_bytes = work_bytes,                                  \
                                        .run = run},                                               \
                                       of};
