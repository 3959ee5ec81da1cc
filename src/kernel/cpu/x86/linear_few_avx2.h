// SPDX-License-Identifier: Apache-2.0
/*
 * Up to eight tokens of linear_avx2.h, rows in the lanes: weights are read once, in one sequential
 * stream, and of a token's four columns vpermilps picks by two code bits a lane. Sixteen registers
 * hold the sums of eight rows, so that the other eight of a row block take a second turn at each
 * chunk of weights while it is in L1.
 */
#ifndef S24_KERNEL_X86_LINEAR_FEW_AVX2_H
#define S24_KERNEL_X86_LINEAR_FEW_AVX2_H

#include "kernel/cpu/linear_few_f32.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx2.h"

enum {
    LANES_M = 8,                              /* tokens */
    FEW_BLOCKS = 4,                           /* k blocks of a chunk */
    FEW_BLOCK = CODES + SLOTS * ROWS * VALUE, /* bytes of one */
    AHEAD = 8192 /* bytes from the weights that are used to those asked for */
};

/* T tokens, whose columns from the first of these weights on are at x, and eight rows, whose codes and
   values are at w and values: their sums so far go on. */
#define EIGHT_ROWS(T_)                                                                             \
    AVX2 static void rows_##T_(const uint8_t *w, const uint8_t *values, const float *x,            \
                               int64_t stride, int64_t columns, float(*sums)[ROWS])                \
    {                                                                                              \
        enum { T = T_, NEXT = FEW_BLOCK - SLOTS * ROWS * VALUE };                                  \
        __m256 acc[T];                                                                             \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            acc[t] = _mm256_load_ps(sums[t]);                                                      \
        }                                                                                          \
        for (; columns > 0; columns -= COLUMNS, w += FEW_BLOCK, values += NEXT) {                  \
            const int64_t groups = columns < COLUMNS ? columns / 4 : GROUPS;                       \
            __m256i code = _mm256_load_si256((const __m256i *)(const void *)w);                    \
            for (int64_t g = 0; g < groups; g++, values += 2 * ROWS * VALUE, x += 4) {             \
                const __m256 w0 = LOAD_VALUES(values), w1 = LOAD_VALUES(values + ROWS * VALUE);    \
                const __m256i second = _mm256_srli_epi32(code, 2);                                 \
                _mm_prefetch((const char *)values + AHEAD, _MM_HINT_T0);                           \
                if (VALUE == 4) _mm_prefetch((const char *)values + AHEAD + 64, _MM_HINT_T0);      \
                UNROLL for (int t = 0; t < T; t++)                                                 \
                {                                                                                  \
                    const __m256 four =                                                            \
                        _mm256_broadcast_ps((const __m128 *)(const void *)(x + t * stride));       \
                    acc[t] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, code), w0, acc[t]);        \
                    acc[t] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, second), w1, acc[t]);      \
                }                                                                                  \
                code = _mm256_srli_epi32(code, 4);                                                 \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int t = 0; t < T; t++)                                                         \
        {                                                                                          \
            _mm256_store_ps(sums[t], acc[t]);                                                      \
        }                                                                                          \
    }

EIGHT_ROWS(1)
EIGHT_ROWS(2)
EIGHT_ROWS(3)
EIGHT_ROWS(4)
EIGHT_ROWS(5)
EIGHT_ROWS(6)
EIGHT_ROWS(7)
EIGHT_ROWS(8)

static void (*const eight_rows[LANES_M + 1])(const uint8_t *, const uint8_t *, const float *,
                                             int64_t, int64_t, float (*)[ROWS]) = {
    NULL, rows_1, rows_2, rows_3, rows_4, rows_5, rows_6, rows_7, rows_8};

/* Row block b of all tokens. */
AVX2 static void few_rows(const s24i_linear_job *job, const few_t *x, int64_t stride, int64_t b)
{
    const uint8_t *w = (const uint8_t *)job->w + b * rows16_k_blocks(job->k) * FEW_BLOCK;
    _Alignas(32) float sums[LANES_M][ROWS] = {{0}};
    for (int64_t k = 0; k < job->k; k += FEW_BLOCKS * COLUMNS, w += FEW_BLOCKS * FEW_BLOCK) {
        const int64_t rest = job->k - k, columns = FEW_BLOCKS * COLUMNS;
        for (int64_t row = 0; row < ROWS; row += 8)
            eight_rows[job->m](w + 4 * row, w + CODES + row * VALUE, x + k, stride,
                               rest < columns ? rest : columns,
                               (float(*)[ROWS])(void *)&sums[0][row]);
    }
    for (int64_t m = 0; m < job->m; m++)
        for (int64_t n = b * ROWS; n < job->n && n < (b + 1) * ROWS; n += 8)
            finish(job, m, n, job->n - n, 1, _mm256_load_ps(&sums[m][n - b * ROWS]),
                   job->bias ? load_lanes(job->bias + n, 1, job->n - n) : _mm256_setzero_ps());
}

#endif
