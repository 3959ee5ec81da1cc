// SPDX-License-Identifier: Apache-2.0
/*
 * Products with rows of square bf16 blocks on AVX-512 with bf16 dots: a lane multiplies two columns
 * at once. Tokens lie in the lanes, x turned once into tiles [k / 2][tokens of the tile] of pairs;
 * eight outputs of a block are summed in registers over all of a line's blocks. For few tokens the
 * lanes are sixteen rows of a block instead.
 */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/x86/sparse_squares.h"
#include "kernel/ref/linear_finish.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

enum { LANES = 16, VECS = 3, OUTS = 8, ROWS = 16, FEW = 4 };

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    const int64_t tokens = m <= FEW ? m : (m + LANES - 1) / LANES * LANES;
    (void)n;
    (void)threads;
    return (size_t)(tokens * k) * sizeof(uint16_t);
}

/* ---- x in pairs ------------------------------------------------------------------------------ */

/* Columns 2·pair and the next one of a token. */
static inline uint32_t pair_of(const s24i_linear_job *job, int64_t m, int64_t pair)
{
    const int64_t at = m * job->x_stride_m + 2 * pair * job->x_stride_k;
    if (job->x_dtype == S24_BF16) {
        const uint16_t *x = (const uint16_t *)job->x + at;
        return x[0] | (uint32_t)x[job->x_stride_k] << 16;
    }
    const float *x = (const float *)job->x + at;
    return s24i_f32_to_bf16(x[0]) | (uint32_t)s24i_f32_to_bf16(x[job->x_stride_k]) << 16;
}

/* Sixteen pairs of a token whose columns lie together. */
TARGET static inline __m512i pairs_of(const s24i_linear_job *job, int64_t m, int64_t pair)
{
    const int64_t at = m * job->x_stride_m + 2 * pair;
    if (job->x_dtype == S24_BF16) return _mm512_loadu_si512((const uint16_t *)job->x + at);
    const float *x = (const float *)job->x + at;
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + LANES), _mm512_loadu_ps(x));
}

/* Sixteen pairs of sixteen tokens, a pair's `width` after those of the one before. */
TARGET static void square_of_pairs(uint32_t *to, int64_t width, const s24i_linear_job *job,
                                   int64_t m, int64_t pair)
{
    const int64_t at = m * job->x_stride_m + 2 * pair;
    _Alignas(64) uint32_t pairs[LANES][LANES];
    __m512 r[LANES];
    if (job->x_dtype == S24_BF16) {
        load_transposed(r, (const uint16_t *)job->x + at, 2 * job->x_stride_m);
    } else {
        for (int t = 0; t < LANES; t++)
            _mm512_store_si512(pairs[t], pairs_of(job, m + t, pair));
        load_transposed(r, pairs, sizeof pairs[0]);
    }
    UNROLL for (int i = 0; i < LANES; i++)
    {
        _mm512_storeu_ps(to + i * width, r[i]);
    }
}

/* The columns begin … end, counted in eights, of `width` tokens from m on; lanes after the last
   token are zeros. */
TARGET static void turn(uint32_t *to, const s24i_linear_job *job, int64_t m, int64_t width,
                        int64_t begin, int64_t end)
{
    for (int64_t lane = 0; lane < width; lane += LANES) {
        const int64_t lanes = width - lane < LANES ? width - lane : LANES;
        const int is_full = job->x_stride_k == 1 && m + lane + LANES <= job->m;
        int64_t pair = 4 * begin;
        for (; is_full && lanes == LANES && pair + LANES <= 4 * end; pair += LANES)
            square_of_pairs(to + pair * width + lane, width, job, m + lane, pair);
        for (; job->m == 1 && job->x_stride_k == 1 && pair + LANES <= 4 * end; pair += LANES)
            _mm512_storeu_si512(to + pair, pairs_of(job, 0, pair));
        for (; pair < 4 * end; pair++)
            for (int64_t i = lane; i < lane + lanes; i++)
                to[pair * width + i] = m + i < job->m ? pair_of(job, m + i, pair) : 0;
    }
}

/* Tokens in tiles of vectors as equal as can be. */
static inline int64_t vectors_before(int64_t m, int64_t tile)
{
    const int64_t vectors = (m + LANES - 1) / LANES, tiles = (vectors + VECS - 1) / VECS;
    return tile * vectors / tiles;
}

static void turn_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    (void)thread;
    if (job->m <= FEW) {
        turn(job->work, job, 0, job->m, begin, end);
        return;
    }
    for (int64_t tile = 0; vectors_before(job->m, tile) * LANES < job->m; tile++) {
        const int64_t first = vectors_before(job->m, tile) * LANES;
        const int64_t width = vectors_before(job->m, tile + 1) * LANES - first;
        turn((uint32_t *)job->work + first * (job->k / 2), job, first, width, begin, end);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Takes the sums of the few tokens to y. */
static void finish_few(const s24i_linear_job *job, float sums[FEW][LANES], int64_t n, int outs)
{
    for (int64_t t = 0; t < job->m; t++)
        for (int o = 0; o < outs; o++) {
            const float y = linear_finish(job, t, n + o, sums[t][o]);
            const int64_t at = t * job->y_stride_m + (n + o) * job->y_stride_n;
            if (job->y_dtype == S24_F32)
                ((float *)job->y)[at] = y;
            else
                ((uint16_t *)job->y)[at] = s24i_f32_to_bf16(y);
        }
}

#define BLOCKS(V)                                                                                  \
    TARGET static void blocks_##V(const s24i_sparse_weight *w, const uint32_t *x, int64_t line,    \
                                  int64_t part, float *sums)                                       \
    {                                                                                              \
        const int64_t block = w->rows;                                                             \
        __m512 acc[OUTS][V];                                                                       \
        UNROLL for (int o = 0; o < OUTS; o++)                                                      \
        {                                                                                          \
            UNROLL for (int v = 0; v < V; v++) acc[o][v] = _mm512_setzero_ps();                    \
        }                                                                                          \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const uint32_t *values = w->pairs + i * block * block / 2 + part;                      \
            const uint32_t *from = x + (int64_t)w->index[i] / 2 * (V * LANES);                     \
            for (int64_t c = 0; c < block / 2; c++, values += block, from += V * LANES) {          \
                __m512bh tokens[V];                                                                \
                UNROLL for (int v = 0; v < V; v++) tokens[v] =                                     \
                    (__m512bh)_mm512_loadu_si512(from + v * LANES);                                \
                UNROLL for (int o = 0; o < OUTS; o++)                                              \
                {                                                                                  \
                    const __m512bh both = (__m512bh)_mm512_set1_epi32((int)values[o]);             \
                    UNROLL for (int v = 0; v < V; v++) acc[o][v] =                                 \
                        _mm512_dpbf16_ps(acc[o][v], tokens[v], both);                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        memcpy(sums, acc, sizeof acc);                                                             \
    }
BLOCKS(1)
BLOCKS(2)
BLOCKS(3)

TARGET static void run_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    static void (*const tables[VECS])(const s24i_sparse_weight *, const uint32_t *, int64_t,
                                      int64_t, float *) = {blocks_1, blocks_2, blocks_3};
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    _Alignas(64) float sums[ROWS * VECS * LANES] = {0};
    (void)thread;
    for (int64_t tile = 0; vectors_before(job->m, tile) * LANES < job->m; tile++) {
        const int64_t first = vectors_before(job->m, tile);
        const int64_t vectors = vectors_before(job->m, tile + 1) - first;
        const uint32_t *x = (const uint32_t *)job->work + first * LANES * (job->k / 2);
        const int64_t block = w->rows, width = vectors * LANES, m = first * LANES;
        for (int64_t n = begin * block; n < end * block; n += ROWS) {
            const int64_t outs = end * block - n < ROWS ? end * block - n : ROWS;
            for (int64_t o = 0; o < outs; o += OUTS)
                tables[vectors - 1](w, x, (n + o) / block, (n + o) % block, sums + o * width);
            for (int64_t t = 0; t < width && m + t < job->m; t += LANES)
                square_out(job, m + t, n, (int)outs, sums + t, width);
        }
    }
}

/* ---- few tokens ------------------------------------------------------------------------------ */

/* Up to sixteen rows of a line of blocks from row `part` on, for all of the M tokens. */
#define FEW_ROWS(M)                                                                                \
    TARGET static void few_rows_##M(const s24i_linear_job *job, int64_t line, int64_t part)        \
    {                                                                                              \
        const s24i_sparse_weight *w = job->w;                                                      \
        const int64_t block = w->rows;                                                             \
        const int rows = block < LANES ? (int)block : LANES;                                       \
        const __mmask16 mask = (__mmask16)((1u << rows) - 1);                                      \
        __m512 acc[4][M];                                                                          \
        float sums[FEW][LANES];                                                                    \
        memset(acc, 0, sizeof acc);                                                                \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i++) {                          \
            const uint32_t *values = w->pairs + i * block * block / 2 + part;                      \
            const uint32_t *x = (const uint32_t *)job->work + (int64_t)w->index[i] / 2 * M;        \
            for (int64_t c = 0; c < block / 2; c += 4, values += 4 * block, x += 4 * M)            \
                UNROLL for (int h = 0; h < 4; h++)                                                 \
                {                                                                                  \
                    const __m512i both = _mm512_maskz_loadu_epi32(mask, values + h * block);       \
                    UNROLL for (int t = 0; t < M; t++) acc[h][t] =                                 \
                        _mm512_dpbf16_ps(acc[h][t], (__m512bh)both,                                \
                                         (__m512bh)_mm512_set1_epi32((int)x[h * M + t]));          \
                }                                                                                  \
        }                                                                                          \
        for (int t = 0; t < M; t++)                                                                \
            _mm512_storeu_ps(sums[t], _mm512_add_ps(_mm512_add_ps(acc[0][t], acc[1][t]),           \
                                                    _mm512_add_ps(acc[2][t], acc[3][t])));         \
        finish_few(job, sums, line *block + part, rows);                                           \
    }
FEW_ROWS(1)
FEW_ROWS(2)
FEW_ROWS(3)
FEW_ROWS(4)

static void run_few(void *arg, int64_t begin, int64_t end, int thread)
{
    static void (*const tables[FEW])(const s24i_linear_job *, int64_t,
                                     int64_t) = {few_rows_1, few_rows_2, few_rows_3, few_rows_4};
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    (void)thread;
    for (int64_t line = begin; line < end; line++)
        for (int64_t part = 0; part < w->rows; part += LANES)
            tables[job->m - 1](job, line, part);
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    const s24i_sparse_weight *w = job->w;
    const s24i_parallel *p = &job->parallel;
    p->run(p->pool, job->k / 8, turn_columns, &copy);
    p->run(p->pool, w->lines, job->m <= FEW ? run_few : run_lines, &copy);
}

const s24i_sparse_kernel s24i_sparse_bsr_bf16 = {{.name = "sparse_bsr_bf16_avx512bf16",
                                                  .dtype = S24_BF16,
                                                  .cpu = S24_CPU_AVX512 | S24_CPU_AVX512BF16,
                                                  .rank = 2 * LANES,
                                                  .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
                                                  .work_bytes = work_bytes,
                                                  .run = run},
                                                 S24I_SPARSE_SQUARES};
#endif
