// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 in vectors of 256 bits, the design of linear_i8_avx512vnni.c. The including
 * file defines DOT_TARGET, a function attribute, and DOT(sum, size, x): sum plus the products of
 * bytes, four a lane; size are weights' magnitudes, unsigned, x the picked columns with the weights'
 * signs.
 */
#ifndef S24_KERNEL_X86_LINEAR_I8_AVX2_H
#define S24_KERNEL_X86_LINEAR_I8_AVX2_H

#include "kernel/cpu/x86/avx2.h"
#include "kernel/kernel.h"

#define TARGET AVX2

enum {
    X_OFFSET = 0,
    MAX_TOKENS = 8 /* sums of eight rows in registers; up to four tokens of all sixteen */
};

#include "kernel/cpu/linear_i8_driver.h"

/* ---- quantisation ---------------------------------------------------------------------------- */

AVX2_INLINE __m256 token_columns(const s24i_linear_job *job, int64_t m, int64_t k)
{
    const s24_dtype dtype = job->x_dtype;
    const void *x = element_of(job->x, dtype, m * job->x_stride_m + k * job->x_stride_k);
    return k < job->k ? load_either(x, dtype, job->x_stride_k, job->k - k) : _mm256_setzero_ps();
}

AVX2 static uint32_t largest_magnitude(const s24i_linear_job *job, int64_t m)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    uint32_t lanes[8], most = 0;
    for (int64_t k = 0; k < job->k; k += 8)
        largest = _mm256_max_epu32(
            largest, _mm256_and_si256(_mm256_castps_si256(token_columns(job, m, k)), magnitude));
    _mm256_storeu_si256((__m256i *)(void *)lanes, largest);
    for (int i = 0; i < 8; i++)
        most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* 32 columns as bytes. The packing instructions work within 128 bits, so that four vectors of eight
   come out as 2 x 4 groups, turned. */
AVX2_INLINE __m256i quantise_32(const s24i_linear_job *job, int64_t m, int64_t k, __m256 inverse)
{
    const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i q[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(token_columns(job, m, k + 8 * i), inverse));
    }
    return _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])), turn);
}

AVX2 static void quantise_token(const s24i_linear_job *job, int64_t m, uint8_t *to, int64_t step,
                                float *scale)
{
    float inverse;
    *scale = i8_token_scale(largest_magnitude(job, m), &inverse);
    for (int64_t k = 0; k < job->k; k += COLUMNS) {
        uint64_t eights[COLUMNS / 8];
        _mm256_storeu_si256((__m256i *)(void *)eights,
                            quantise_32(job, m, k, _mm256_set1_ps(inverse)));
        for (int i = 0; i < COLUMNS / 8; i++, to += step)
            memcpy(to, eights + i, 8);
    }
}

AVX2 static void quantise_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                                 int64_t step, float *scales)
{
    for (int64_t t = 0; t < tokens; t++)
        quantise_token(job, m + t, to + 8 * t, step, scales + t);
}

/* ---- the tile -------------------------------------------------------------------------------- */

/* Bytes of the shuffle for eight columns, from the lowest field of each byte of the codes: plus 4
   for the second group's. */
AVX2_INLINE __m256i indices_of(__m256i code)
{
    return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x03030303)),
                           _mm256_set1_epi32(0x04040000));
}

/* Rows 8·half and on, `halves` times eight of them, by T tokens. */
#define TILE(T_, H_)                                                                               \
    DOT_TARGET static void tile_##T_(const uint8_t *w, int64_t k_blocks, const uint8_t *x,         \
                                     int half, const uint8_t *y, int64_t y_step,                   \
                                     int32_t(*sums)[ROWS])                                         \
    {                                                                                              \
        enum { T = T_, H = H_ };                                                                   \
        __m256i acc[H][T];                                                                         \
        UNROLL for (int h = 0; h < H; h++)                                                         \
        {                                                                                          \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                acc[h][t] = _mm256_setzero_si256();                                                \
            }                                                                                      \
        }                                                                                          \
        w += ROW_HEAD + 32 * half;                                                                 \
        int64_t left = T;                                                                          \
        for (; k_blocks > 0; k_blocks--, w += BLOCK) {                                             \
            PREFETCH_TO_WRITE(y);                                                                  \
            y += --left > 0 ? y_step : 0;                                                          \
            _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);                                    \
            for (int q = 0; q < 4; q++, x += 8 * T) {                                              \
                _mm_prefetch((const char *)w + AHEAD + CODES + 64 * q, _MM_HINT_T0);               \
                UNROLL for (int h = 0; h < H; h++)                                                 \
                {                                                                                  \
                    const __m256i *at = (const __m256i *)(const void *)(w + 32 * h);               \
                    const __m256i code = _mm256_srl_epi32(at[0], _mm_cvtsi32_si128(2 * q));        \
                    const __m256i pick = indices_of(code), quads = at[2 * (q + 1)];                \
                    const __m256i size = _mm256_abs_epi8(quads);                                   \
                    UNROLL for (int t = 0; t < T; t++)                                             \
                    {                                                                              \
                        long long eight;                                                           \
                        memcpy(&eight, x + 8 * t, 8);                                              \
                        const __m256i picked =                                                     \
                            _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), pick);                  \
                        acc[h][t] = DOT(acc[h][t], size, _mm256_sign_epi8(picked, quads));         \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int h = 0; h < H; h++)                                                         \
        {                                                                                          \
            UNROLL for (int t = 0; t < T; t++)                                                     \
            {                                                                                      \
                _mm256_store_si256((__m256i *)(void *)(sums[t] + 8 * (half + h)), acc[h][t]);      \
            }                                                                                      \
        }                                                                                          \
    }

TILE(1, 2)
TILE(2, 2)
TILE(3, 2)
TILE(4, 2)
TILE(5, 1)
TILE(6, 1)
TILE(7, 1)
TILE(8, 1)

static void (*const tiles[MAX_TOKENS + 1])(const uint8_t *, int64_t, const uint8_t *, int,
                                           const uint8_t *, int64_t, int32_t (*)[ROWS]) = {
    NULL, tile_1, tile_2, tile_3, tile_4, tile_5, tile_6, tile_7, tile_8};

/* ---- the epilogue ---------------------------------------------------------------------------- */

AVX2 static void finish_part(const lanes_part *p, const int32_t (*sums)[ROWS])
{
    const s24i_linear_job *job = p->job;
    const int64_t n = p->n;
    for (int64_t part = 0; part < ROWS && n + part < job->n; part += 8) {
        const int64_t outputs = job->n - n - part;
        const __m256 w_scales = _mm256_load_ps((const float *)(const void *)p->w + part);
        const __m256 bias =
            job->bias ? load_lanes(job->bias + n + part, 1, outputs) : _mm256_setzero_ps();
        for (int64_t t = 0; t < p->tokens; t++) {
            const __m256i sum = *(const __m256i *)(const void *)(sums[t] + part);
            const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), w_scales);
            finish(job, p->m + t, n + part, outputs, 1,
                   _mm256_mul_ps(v, _mm256_set1_ps(p->scales[t])), bias);
        }
    }
}

static void run_part(const lanes_part *p)
{
    _Alignas(64) int32_t sums[MAX_TOKENS][ROWS];
    const int64_t k_blocks = rows16_k_blocks(p->job->k);
    tiles[p->tokens](p->w, k_blocks, p->x, 0, p->y, p->y_step, sums);
    if (p->tokens > 4) tiles[p->tokens](p->w, k_blocks, p->x, 1, p->y, 0, sums);
    finish_part(p, (const int32_t(*)[ROWS])sums);
}

#endif
