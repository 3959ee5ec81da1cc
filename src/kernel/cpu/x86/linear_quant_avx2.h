// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, x in f32, AVX2. The weights lie as rows16_scaled.h has it,
 * 16 rows a block. Few tokens: rows in the lanes, every weight read once; of a token's four columns
 * vpermilps picks by the code bits, and a segment's sums are multiplied with its scales. More: a
 * pass's k blocks are widened to scale·integer in L1 for the tile of linear_avx2.h.
 *
 * The including file defines VALUES, put_value() and slot_values().
 */
#ifndef S24_KERNEL_X86_LINEAR_QUANT_AVX2_H
#define S24_KERNEL_X86_LINEAR_QUANT_AVX2_H

#define VALUE      1
#define OWN_LAYOUT 1
#define HAS_LANES  1
#include "kernel/cpu/linear_few_f32.h"
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx2.h"

enum {
    QUARTERS = 1,
    HALVES = ROWS / 8,
    LANES_M = 4, /* tokens */
    AHEAD = 4096 /* bytes from the weights that are used to those asked for */
};

static inline uint32_t stored_codes(uint32_t rows16)
{
    return rows16;
}

#include "kernel/cpu/rows16_scaled.h"

/* The integers of a slot of eight rows, 8·half and on. */
AVX2_INLINE __m256 slot_values(const uint8_t *values, int slot, int half);

/* ---- few tokens ------------------------------------------------------------------------------ */

/* Row block b; x has its columns together. */
#define LANES(T_)                                                                                  \
    AVX2 static void lanes_##T_(const s24i_linear_job *job, const few_t *x, int64_t stride,        \
                                int64_t b)                                                         \
    {                                                                                              \
        enum { T = T_ };                                                                           \
        const layout l = layout_of(job->k, job->group);                                            \
        const uint8_t *w = (const uint8_t *)job->w + b * l.bytes, *next = w + l.head;              \
        __m256 sums[T][HALVES];                                                                    \
        UNROLL for (int i = 0; i < T * HALVES; i++)                                                \
        {                                                                                          \
            sums[i / HALVES][i % HALVES] = _mm256_setzero_ps();                                    \
        }                                                                                          \
        for (int64_t q = 0; q < l.k_blocks; q += l.per_segment) {                                  \
            const int64_t rest = l.k_blocks - q;                                                   \
            const int64_t here = rest < l.per_segment ? rest : l.per_segment;                      \
            const float *scales = (const float *)(const void *)(l.head ? w : next);                \
            __m256 acc[T][HALVES];                                                                 \
            UNROLL for (int i = 0; i < T * HALVES; i++)                                            \
            {                                                                                      \
                acc[i / HALVES][i % HALVES] = _mm256_setzero_ps();                                 \
            }                                                                                      \
            next += l.segment_head;                                                                \
            for (int64_t i = 0; i < here; i++, next += QUANT_BLOCK) {                              \
                const int64_t k = (q + i) * COLUMNS;                                               \
                const int64_t columns = job->k - k < COLUMNS ? job->k - k : COLUMNS;               \
                __m256i code[HALVES];                                                              \
                UNROLL for (int h = 0; h < HALVES; h++)                                            \
                {                                                                                  \
                    code[h] = _mm256_load_si256((const __m256i *)(const void *)next + h);          \
                }                                                                                  \
                UNROLL for (int p = 0; p < QUANT_BLOCK; p += 64)                                   \
                {                                                                                  \
                    _mm_prefetch((const char *)next + AHEAD + p, _MM_HINT_T0);                     \
                }                                                                                  \
                for (int g = 0; g < columns / 4; g++) {                                            \
                    UNROLL for (int h = 0; h < HALVES; h++)                                        \
                    {                                                                              \
                        const __m256 w0 = slot_values(next + CODES, 2 * g, h);                     \
                        const __m256 w1 = slot_values(next + CODES, 2 * g + 1, h);                 \
                        const __m256i second = _mm256_srli_epi32(code[h], 2);                      \
                        UNROLL for (int t = 0; t < T; t++)                                         \
                        {                                                                          \
                            const __m256 four = _mm256_broadcast_ps(                               \
                                (const __m128 *)(const void *)(x + t * stride + k + 4 * g));       \
                            acc[t][h] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, code[h]), w0,   \
                                                        acc[t][h]);                                \
                            acc[t][h] = _mm256_fmadd_ps(_mm256_permutevar_ps(four, second), w1,    \
                                                        acc[t][h]);                                \
                        }                                                                          \
                        code[h] = _mm256_srli_epi32(code[h], 4);                                   \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int i = 0; i < T * HALVES; i++)                                            \
            {                                                                                      \
                const int t = i / HALVES, h = i % HALVES;                                          \
                sums[t][h] =                                                                       \
                    _mm256_fmadd_ps(acc[t][h], _mm256_load_ps(scales + 8 * h), sums[t][h]);        \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int i = 0; i < T * HALVES; i++)                                                \
        {                                                                                          \
            const int64_t n = b * ROWS + i % HALVES * 8, left = job->n - n;                        \
            if (left > 0)                                                                          \
                finish(job, i / HALVES, n, left, 1, sums[i / HALVES][i % HALVES],                  \
                       job->bias ? load_lanes(job->bias + n, 1, left) : _mm256_setzero_ps());      \
        }                                                                                          \
    }

LANES(1)
LANES(2)
LANES(3)
LANES(4)

static void (*const lanes[LANES_M + 1])(const s24i_linear_job *, const few_t *, int64_t,
                                        int64_t) = {NULL, lanes_1, lanes_2, lanes_3, lanes_4};

static void few_rows(const s24i_linear_job *job, const few_t *x, int64_t stride, int64_t b)
{
    lanes[job->m](job, x, stride, b);
}

/* ---- more ------------------------------------------------------------------------------------ */

AVX2 static void widen(uint8_t *block, tile *t, const s24i_linear_job *job, int64_t b, int64_t q)
{
    const layout l = layout_of(job->k, job->group);
    const uint8_t *w = (const uint8_t *)job->w + b * l.bytes;
    uint8_t *to = block;
    for (int64_t i = 0; i < t->blocks; i++, q++, to += CODES + SLOTS * ROWS * 4) {
        const uint8_t *from = w + block_at(&l, 0, q);
        const float *scales = (const float *)(const void *)(w + scales_at(&l, 0, q));
        float *wide = (float *)(void *)(to + CODES);
        memcpy(to, from, CODES);
        UNROLL for (int s = 0; s < SLOTS; s++)
        {
            UNROLL for (int h = 0; h < HALVES; h++)
            {
                _mm256_store_ps(
                    wide + s * ROWS + 8 * h,
                    _mm256_mul_ps(slot_values(from + CODES, s, h), _mm256_load_ps(scales + 8 * h)));
            }
        }
    }
    t->w = block, t->ahead = 0;
}

#include "kernel/cpu/x86/linear_avx2.h"

#endif
