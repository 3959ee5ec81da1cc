// SPDX-License-Identifier: Apache-2.0
/*
 * Products with bf16 weights in blocks of 4x1 on AVX-512 with bf16 dots: a lane multiplies two of a
 * line's columns at once. Tokens lie in the lanes; x is turned once into tiles of bf16
 * [k + 1][tokens of the tile], whose last column is zeros, for lines with an odd number of columns.
 * Two columns are interleaved in registers, so that each lane has a token's two. For few tokens the
 * lanes are the four rows instead, and x is in f32.
 */
#include "kernel/sparse_kernel.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/cpu/x86/sparse_squares.h"
#include "kernel/ref/linear_finish.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))

#include "kernel/cpu/x86/sparse_vectors.h"

/* PIECE: tokens whose bf16 fill a vector; a tile has one piece of them or two. */
enum { LANES = 16, PIECE = 32, PIECES = 2, ROWS = 16, FEW = 4, AHEAD = 64 };

static size_t work_bytes(int64_t m, int64_t n, int64_t k, int threads)
{
    (void)n;
    (void)threads;
    if (m <= FEW) return (size_t)(m * (k + 1)) * sizeof(float);
    return (size_t)((m + PIECE - 1) / PIECE * PIECE * (k + 1)) * sizeof(uint16_t);
}

/* ---- x --------------------------------------------------------------------------------------- */

static inline float x_at(const s24i_linear_job *job, int64_t m, int64_t column)
{
    return s24i_load_f32(job->x, job->x_dtype, m * job->x_stride_m + column * job->x_stride_k);
}

/* Sixteen columns of sixteen tokens, a column in each vector. */
TARGET static inline void square_of(__m512 r[LANES], const s24i_linear_job *job, int64_t m,
                                    int64_t column)
{
    const int64_t at = m * job->x_stride_m + column;
    _Alignas(64) float floats[LANES][LANES];
    if (job->x_dtype == S24_F32) {
        load_transposed(r, (const float *)job->x + at, job->x_stride_m * (int64_t)sizeof(float));
        return;
    }
    for (int t = 0; t < LANES; t++) {
        const uint16_t *x = (const uint16_t *)job->x + at + t * job->x_stride_m;
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
        _mm512_store_si512(floats[t], _mm512_slli_epi32(wide, 16));
    }
    load_transposed(r, floats, sizeof floats[0]);
}

/* Columns begin … end of a piece's tokens from m on; zeros after the last token. */
TARGET static void turn_piece(uint16_t *to, int64_t width, const s24i_linear_job *job, int64_t m,
                              int64_t begin, int64_t end)
{
    int64_t c = begin;
    for (; job->x_stride_k == 1 && m + PIECE <= job->m && c + LANES <= end; c += LANES) {
        __m512 low[LANES], high[LANES];
        square_of(low, job, m, c);
        square_of(high, job, m + LANES, c);
        UNROLL for (int i = 0; i < LANES; i++)
        {
            _mm512_storeu_si512(to + (c + i) * width,
                                (__m512i)_mm512_cvtne2ps_pbh(high[i], low[i]));
        }
    }
    for (; c < end; c++)
        for (int64_t t = 0; t < PIECE; t++)
            to[c * width + t] = m + t < job->m ? s24i_f32_to_bf16(x_at(job, m + t, c)) : 0;
}

/* The tokens of the tile from m on. */
static inline int64_t width_at(const s24i_linear_job *job, int64_t m)
{
    return job->m - m > PIECE ? PIECES * PIECE : PIECE;
}

/* Columns begin … end of all tiles, where column k is zeros. */
static void turn_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const int64_t last = end < job->k ? end : job->k;
    (void)thread;
    for (int64_t m = 0; m < job->m; m += width_at(job, m)) {
        const int64_t width = width_at(job, m);
        uint16_t *to = (uint16_t *)job->work + m * (job->k + 1);
        for (int64_t t = 0; t < width; t += PIECE)
            turn_piece(to + t, width, job, m + t, begin, last);
        if (end > job->k) memset(to + job->k * width, 0, (size_t)width * sizeof *to);
    }
}

static void widen_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    float *to = job->work;
    (void)thread;
    for (int64_t m = 0; m < job->m; m++, to += job->k + 1)
        for (int64_t c = begin; c < end; c++)
            to[c] = c < job->k ? x_at(job, m, c) : 0;
}

/* ---- many tokens ----------------------------------------------------------------------------- */

/* Sums [four outputs][tokens] of a line over a tile of U pieces. */
#define STRIPS(U)                                                                                  \
    TARGET static void strips_##U(const s24i_sparse_weight *w, const uint16_t *x, int64_t line,    \
                                  float *sums)                                                     \
    {                                                                                              \
        __m512 acc[S24I_STRIP][2 * U];                                                             \
        UNROLL for (int o = 0; o < S24I_STRIP; o++)                                                \
        {                                                                                          \
            UNROLL for (int v = 0; v < 2 * U; v++) acc[o][v] = _mm512_setzero_ps();                \
        }                                                                                          \
        for (int64_t i = w->starts[line]; i < w->starts[line + 1]; i += 2) {                       \
            const uint16_t *a = x + s24i_sparse_column(w, i) * (U * PIECE);                        \
            const uint16_t *b = x + s24i_sparse_column(w, i + 1) * (U * PIECE);                    \
            __m512i r[2 * U];                                                                      \
            UNROLL for (int u = 0; u < U; u++)                                                     \
            {                                                                                      \
                const __m512i first = _mm512_loadu_si512(a + u * PIECE);                           \
                const __m512i second = _mm512_loadu_si512(b + u * PIECE);                          \
                r[2 * u] = _mm512_unpacklo_epi16(first, second);                                   \
                r[2 * u + 1] = _mm512_unpackhi_epi16(first, second);                               \
            }                                                                                      \
            UNROLL for (int o = 0; o < S24I_STRIP; o++)                                            \
            {                                                                                      \
                const __m512bh both =                                                              \
                    (__m512bh)_mm512_set1_epi32((int)w->pairs[i / 2 * S24I_STRIP + o]);            \
                UNROLL for (int v = 0; v < 2 * U; v++) acc[o][v] =                                 \
                    _mm512_dpbf16_ps(acc[o][v], (__m512bh)r[v], both);                             \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int o = 0; o < S24I_STRIP; o++)                                                \
        {                                                                                          \
            UNROLL for (int u = 0; u < U; u++)                                                     \
                put_in_order(sums + (o * U + u) * PIECE, acc[o][2 * u], acc[o][2 * u + 1]);        \
        }                                                                                          \
    }

/* Interleaving takes four of each eight tokens to the first vector, four to the second. */
TARGET static inline void put_in_order(float *to, __m512 low, __m512 high)
{
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    _mm512_store_ps(to, _mm512_permutex2var_ps(low, first, high));
    _mm512_store_ps(to + LANES, _mm512_permutex2var_ps(low, second, high));
}
STRIPS(1)
STRIPS(2)

TARGET static void run_lines(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    const s24i_sparse_weight *w = job->w;
    _Alignas(64) float sums[ROWS * PIECES * PIECE] = {0};
    (void)thread;
    for (int64_t m = 0; m < job->m; m += width_at(job, m)) {
        const int64_t width = width_at(job, m);
        const uint16_t *x = (const uint16_t *)job->work + m * (job->k + 1);
        for (int64_t line = begin; line < end; line += ROWS / S24I_STRIP) {
            const int64_t lines = end - line < ROWS / S24I_STRIP ? end - line : ROWS / S24I_STRIP;
            for (int64_t i = 0; i < lines; i++)
                (width == PIECE ? strips_1 : strips_2)(w, x, line + i,
                                                       sums + i * S24I_STRIP * width);
            for (int64_t t = 0; t < width && m + t < job->m; t += LANES)
                square_out(job, m + t, line * S24I_STRIP, (int)lines * S24I_STRIP, sums + t, width);
        }
    }
}

/* ---- few tokens ------------------------------------------------------------------------------ */

typedef uint32_t strip_bits __attribute__((vector_size(4 * S24I_STRIP), aligned(4), may_alias));

/* A pair's products, of two columns. */
TARGET static inline void add_pair(strip sums[2], const s24i_sparse_weight *w, const float *x,
                                   int64_t i)
{
    const strip_bits both = *(const strip_bits *)(w->pairs + i / 2 * S24I_STRIP);
    sums[0] = strip_product(sums[0], (strip)(both << 16), x[s24i_sparse_column(w, i)]);
    sums[1] = strip_product(sums[1], (strip)(both & 0xffff0000u), x[s24i_sparse_column(w, i + 1)]);
}

TARGET static void few_strips(const s24i_linear_job *job, int64_t m, int64_t line)
{
    const s24i_sparse_weight *w = job->w;
    const float *x = (const float *)job->work + m * (job->k + 1);
    const int64_t end = w->starts[line + 1];
    strip sums[4] = {{0}};
    int64_t i = w->starts[line];
    for (; i + 4 <= end; i += 4) {
        _mm_prefetch((const char *)(w->pairs + (i / 2 + AHEAD) * S24I_STRIP), _MM_HINT_T0);
        add_pair(sums, w, x, i);
        add_pair(sums + 2, w, x, i + 2);
    }
    if (i < end) add_pair(sums, w, x, i);
    sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int o = 0; o < S24I_STRIP; o++) {
        const int64_t n = line * S24I_STRIP + o;
        s24i_store_f32(job->y, job->y_dtype, m * job->y_stride_m + n * job->y_stride_n,
                       linear_finish(job, m, n, sums[0][o]));
    }
}

static void run_few(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24i_linear_job *job = arg;
    (void)thread;
    for (int64_t line = begin; line < end; line++)
        for (int64_t m = 0; m < job->m; m++)
            few_strips(job, m, line);
}

static void run(const s24i_linear_job *job)
{
    s24i_linear_job copy = *job;
    const s24i_sparse_weight *w = job->w;
    const s24i_parallel *p = &job->parallel;
    p->run(p->pool, job->k + 1, job->m <= FEW ? widen_columns : turn_columns, &copy);
    p->run(p->pool, w->lines, job->m <= FEW ? run_few : run_lines, &copy);
}

const s24i_sparse_kernel s24i_sparse_4x1_bf16 = {{.name = "sparse_4x1_bf16_avx512bf16",
                                                  .dtype = S24_BF16,
                                                  .cpu = S24_CPU_AVX512 | S24_CPU_AVX512BF16,
                                                  .rank = 2 * LANES,
                                                  .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
                                                  .work_bytes = work_bytes,
                                                  .run = run},
                                                 S24I_SPARSE_STRIPS};
#endif
