// SPDX-License-Identifier: Apache-2.0
/*
 * Products with sparse weights in f32, for an instruction set that the including file names: LANES
 * floats in a vector, VECS vectors of tokens in a tile, TARGET; with SQUARES also square_in and
 * square_out, which turn x and the sums sixteen by sixteen.
 *
 * Tokens lie in the lanes: x is turned once into tiles [k][tokens of the tile], so that an entry's
 * column is a few whole vectors and its values are broadcast. Eight outputs of a block, or one of
 * CSR, are summed in registers over all of a line's entries, sixteen before they go to y. For few
 * tokens the lanes are a block's rows instead, or a row's entries, whose x are gathered.
 */
#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/ref/linear_finish.h"
#include "kernel/sparse_kernel.h"

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
enum { OUTS = 8, ROWS = 16, FEW = LANES / 4 }; /* FEW: so many tokens are not in the lanes */

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

/* Eight outputs of a line of blocks, from row `part` of its blocks on. */
#define BLOCKS(V)                                                                                  \
    TARGET static void blocks_##V(const s24i_linear_job *job, const float *x, int64_t line,        \
                                  int64_t part, float *sums)                                       \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        const int64_t block = w->block;                                                            \
        vec acc[OUTS][V];                                                                          \
        memset(acc, 0, sizeof acc);                                                                \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const float *values = w->values + i * block * block + part;                            \
            const float *from = x + (int64_t)w->index[i] * (V * LANES);                            \
            for (int64_t c = 0; c < block; c++, values += block, from += V * LANES) {              \
                vec tokens[V];                                                                     \
                UNROLL for (int v = 0; v < V; v++) tokens[v] = ((const vec *)from)[v];             \
                UNROLL for (int o = 0; o < OUTS; o++)                                              \
                {                                                                                  \
                    UNROLL for (int v = 0; v < V; v++) acc[o][v] += tokens[v] * values[o];         \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        memcpy(sums, acc, sizeof acc);                                                             \
    }

/* One output of CSR. */
#define ENTRIES(V)                                                                                 \
    TARGET static void entries_##V(const s24i_linear_job *job, const float *x, int64_t line,       \
                                   int64_t part, float *sums)                                      \
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
                const vec *from = (const vec *)(x + (int64_t)w->index[i + e] * (V * LANES));       \
                UNROLL for (int v = 0; v < V; v++) acc[e][v] += from[v] * w->values[i + e];        \
            }                                                                                      \
        }                                                                                          \
        if (i < end) {                                                                             \
            const vec *from = (const vec *)(x + (int64_t)w->index[i] * (V * LANES));               \
            UNROLL for (int v = 0; v < V; v++) acc[0][v] += from[v] * w->values[i];                \
        }                                                                                          \
        UNROLL for (int v = 0; v < V; v++)((vec *)sums)[v] = acc[0][v] + acc[1][v];                \
    }

BLOCKS(1)
BLOCKS(2)
BLOCKS(3)
ENTRIES(1)
ENTRIES(2)
ENTRIES(3)

typedef void (*sum_tile)(const s24i_linear_job *job, const float *x, int64_t line, int64_t part,
                         float *sums);

static void run_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    static const sum_tile tables[2][VECS] = {{blocks_1, blocks_2, blocks_3},
                                             {entries_1, entries_2, entries_3}};
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    const tiling t = tiling_of(job->m);
    const int64_t block = w->block, step = block == 1 ? 1 : OUTS;
    _Alignas(64) float sums[ROWS * VECS * LANES] = {0};
    (void)thread;
    for (int64_t tile = 0; tile < t.tiles; tile++) {
        const int64_t first = first_of(&t, tile), vectors = first_of(&t, tile + 1) - first;
        const float *x = (const float *)job->work + first * LANES * job->k;
        const int64_t width = vectors * LANES;
        const sum_tile sum = tables[block == 1][vectors - 1];
        for (int64_t n = begin * block; n < end * block; n += ROWS) {
            const int64_t outs = end * block - n < ROWS ? end * block - n : ROWS;
            for (int64_t o = 0; o < outs; o += step)
                sum(job, x, (n + o) / block, (n + o) % block, sums + o * width);
            finish_sums(job, sums, n, (int)outs, first * LANES, width);
        }
    }
}

/* ---- few tokens ------------------------------------------------------------------------------ */

/* 8·P outputs of a line of blocks, from row `part` on, for one token. */
typedef float eight __attribute__((vector_size(4 * OUTS), aligned(4), may_alias));
#define FEW_BLOCKS(P)                                                                              \
    TARGET static void few_blocks_##P(const s24i_linear_job *job, int64_t m, int64_t line,         \
                                      int64_t part)                                                \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        const int64_t block = w->block, step = job->x_stride_k;                                    \
        const float *x = (const float *)job->x + m * job->x_stride_m;                              \
        eight sums[4][P];                                                                          \
        memset(sums, 0, sizeof sums);                                                              \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const float *values = w->values + i * block * block + part;                            \
            const float *from = x + (int64_t)w->index[i] * step;                                   \
            for (int64_t c = 0; c < block; c += 4, values += 4 * block, from += 4 * step)          \
                UNROLL for (int j = 0; j < 4; j++)                                                 \
                {                                                                                  \
                    UNROLL for (int p = 0; p < P; p++) sums[j][p] +=                               \
                        ((const eight *)(values + j * block))[p] * from[j * step];                 \
                }                                                                                  \
        }                                                                                          \
        UNROLL for (int p = 0; p < P; p++) sums[0][p] =                                            \
            (sums[0][p] + sums[1][p]) + (sums[2][p] + sums[3][p]);                                 \
        finish_sums(job, (const float *)sums, line *block + part, OUTS * P, m, 1);                 \
    }
FEW_BLOCKS(1)
FEW_BLOCKS(2)

TARGET static void few_entries(const s24i_linear_job *job, int64_t m, int64_t line)
{
    const s24i_sparse_weight *w = job->w;
    const float *x = (const float *)job->x + m * job->x_stride_m;
    const int64_t end = w->starts[line + 1];
    int64_t i = w->starts[line];
    float sum = job->x_stride_k == 1 ? gather_sum(w, x, &i, end) : 0;
    for (; i < end; i++)
        sum += w->values[i] * x[(int64_t)w->index[i] * job->x_stride_k];
    finish_sums(job, &sum, line, 1, m, 1);
}

static void run_few(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    (void)thread;
    for (int64_t line = begin; line < end; line++)
        for (int64_t m = 0; m < job->m; m++) {
            if (w->block == 1) few_entries(job, m, line);
            if (w->block == OUTS) few_blocks_1(job, m, line, 0);
            for (int64_t part = 0; w->block > OUTS && part < w->block; part += 2 * OUTS)
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

#define ROW(symbol, label, of)                                                                     \
    const s24i_sparse_kernel symbol = {{.name = label,                                             \
                                        .dtype = S24_F32,                                          \
                                        .cpu = CPU,                                                \
                                        .rank = LANES,                                             \
                                        .x_dtypes = 1u << S24_F32,                                 \
                                        .work_bytes = work_bytes,                                  \
                                        .run = run},                                               \
                                       of};
