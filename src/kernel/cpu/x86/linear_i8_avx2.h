// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 in vectors of 256 bits, the design of linear_i8_avx512vnni.h. The
 * including file defines X_OFFSET, X_BYTES and DOT, instructions that add products of bytes, four a
 * lane, to the sums in %0: of columns in %1, which they may overwrite, by quads in %4; %5 has ONES.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_I8_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_I8_AVX2_H

#include "kernel/cpu/x86/avx2.h"
#include "kernel/kernel.h"

#define TARGET AVX2

enum {
    UNIT = 1,
    MAX_TOKENS = 10 /* sums of eight rows in registers; up to four tokens of all sixteen */
};

#include "kernel/cpu/linear_i8_driver.h"

/* ---- quantisation ---------------------------------------------------------------------------- */

/* Eight columns of a token from k on; `whole`: all are there, and together. */
AVX2_INLINE __m256 token_columns(const s24i_linear_job *job, int whole, int64_t m, int64_t k)
{
    const s24_dtype dtype = job->x_dtype;
    const void *x =
        element_of(job->x, dtype, m * job->x_stride_m + k * (whole ? 1 : job->x_stride_k));
    if (whole && dtype == S24_F32) return _mm256_loadu_ps(x);
    return k < job->k ? load_either(x, dtype, job->x_stride_k, job->k - k) : _mm256_setzero_ps();
}

AVX2_INLINE __m256i larger_magnitude(__m256i largest, __m256 x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    return _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(x), magnitude));
}

AVX2 static uint32_t largest_magnitude(const s24i_linear_job *job, int64_t whole, int64_t m)
{
    __m256i largest[4];
    uint32_t lanes[8], most = 0;
    UNROLL for (int i = 0; i < 4; i++)
    {
        largest[i] = _mm256_setzero_si256();
    }
    for (int64_t k = 0; k < whole; k += COLUMNS) {
        UNROLL for (int i = 0; i < 4; i++)
        {
            largest[i] = larger_magnitude(largest[i], token_columns(job, 1, m, k + 8 * i));
        }
    }
    for (int64_t k = whole; k < job->k; k += 8)
        largest[0] = larger_magnitude(largest[0], token_columns(job, 0, m, k));
    _mm256_storeu_si256((__m256i *)(void *)lanes,
                        _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]),
                                         _mm256_max_epu32(largest[2], largest[3])));
    for (int i = 0; i < 8; i++)
        most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* 32 columns as bytes. The packing instructions work within 128 bits, so that four vectors of eight
   come out as 2 x 4 groups, turned. */
AVX2_INLINE __m256i quantise_32(const s24i_linear_job *job, int whole, int64_t m, int64_t k,
                                __m256 inverse)
{
    const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i q[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(token_columns(job, whole, m, k + 8 * i), inverse));
    }
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_xor_si256(_mm256_permutevar8x32_epi32(bytes, turn),
                            _mm256_set1_epi8((char)X_OFFSET));
}

/* Each eight of 32 columns and then what they are with the other sign. */
AVX2_INLINE void store_both(uint8_t *to, int64_t step, __m256i q)
{
    const __m256i minus = _mm256_sub_epi8(_mm256_setzero_si256(), q);
    const __m256i even = _mm256_unpacklo_epi64(q, minus), odd = _mm256_unpackhi_epi64(q, minus);
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(even));
    _mm_storeu_si128((__m128i *)(void *)(to + step), _mm256_castsi256_si128(odd));
    _mm_storeu_si128((__m128i *)(void *)(to + 2 * step), _mm256_extracti128_si256(even, 1));
    _mm_storeu_si128((__m128i *)(void *)(to + 3 * step), _mm256_extracti128_si256(odd, 1));
}

AVX2 static void quantise_token(const s24i_linear_job *job, int64_t m, uint8_t *to, int64_t step,
                                float *scale)
{
    const int64_t whole =
        job->x_stride_k == 1 && job->x_dtype == S24_F32 ? job->k / COLUMNS * COLUMNS : 0;
    float inverse;
    *scale = s24i_token_scale(largest_magnitude(job, whole, m), &inverse);
    for (int64_t k = 0; k < job->k; k += COLUMNS) {
        uint64_t eights[COLUMNS / 8];
        const __m256 by = _mm256_set1_ps(inverse);
        const __m256i q = k < whole ? quantise_32(job, 1, m, k, by) : quantise_32(job, 0, m, k, by);
        if (X_BYTES == 16) {
            store_both(to, step, q);
            to += COLUMNS / 8 * step;
            continue;
        }
        _mm256_storeu_si256((__m256i *)(void *)eights, q);
        for (int i = 0; i < COLUMNS / 8; i++, to += step)
            memcpy(to, eights + i, 8);
    }
}

AVX2 static void quantise_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                                 int64_t step, float *scales)
{
    for (int64_t t = 0; t < tokens; t++)
        quantise_token(job, m + t, to + X_BYTES * t, step, scales + t);
}

/* ---- the tile -------------------------------------------------------------------------------- */

/* Bytes of the shuffle for the q-th eight columns of a k block, from eight rows' codes: of each
   byte the field q; two bits of it are without the 4 of the second group. */
AVX2_INLINE __m256i indices_of(const uint8_t *codes, int q)
{
    const __m256i *at = (const __m256i *)(const void *)codes;
    if (X_BYTES == 16)
        return _mm256_and_si256(
            _mm256_srli_epi32(_mm256_load_si256(at + q / 2 * (CODES / 32)), q % 2 * 4),
            _mm256_set1_epi8(0xf));
    return _mm256_or_si256(
        _mm256_and_si256(_mm256_srli_epi32(_mm256_load_si256(at), 2 * q), _mm256_set1_epi8(3)),
        _mm256_set1_epi32(0x04040000));
}

/* Multiplies rows 8·half and on, H times eight of them, by T tokens; both are constants. In
   assembly, because compilers put the additions to sums off until there are no registers. */
AVX2_INLINE void tile(const lanes_part *p, int half, int32_t (*sums)[ROWS], const int T,
                      const int H)
{
    const uint8_t *w = p->w + ROW_HEAD + 32 * half, *x = p->x, *y = p->y, *ahead = p->ahead;
    int64_t left = T;
    __m256i acc[2][MAX_TOKENS], pick[2];
    UNROLL for (int h = 0; h < H; h++)
    {
        pick[h] = indices_of(w + 32 * h, 0);
        UNROLL for (int t = 0; t < T; t++)
        {
            acc[h][t] = _mm256_load_si256((const __m256i *)(const void *)(p->w + 64) + half + h);
        }
    }
    for (int64_t k_blocks = rows16_k_blocks(p->job->k); k_blocks > 0; k_blocks--) {
        PREFETCH_TO_WRITE(y);
        y += --left > 0 ? p->y_step : 0;
        _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)ahead + 64, _MM_HINT_T0);
        ahead += p->ahead_step;
        for (int i = 0; i < CODE_BYTES; i += 64)
            _mm_prefetch((const char *)w + i + AHEAD, _MM_HINT_T0);
        UNROLL for (int q = 0; q < 4; q++)
        {
            const __m256i *at = (const __m256i *)(const void *)(w + CODE_BYTES + 64 * q);
            _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T0);
            if (q == 3 && k_blocks > 1) w += BLOCK;
            UNROLL for (int h = 0; h < H; h++)
            {
                const __m256i quads = at[h], next = indices_of(w + 32 * h, (q + 1) % 4);
                UNROLL for (int t = 0; t < T; t++)
                {
                    __m256i four;
                    __asm__ volatile(BROADCAST " %2,%1\n\tvpshufb %3,%1,%1\n\t" DOT
                                     : "+x"(acc[h][t]), "=&x"(four)
                                     : "m"(*(const uint8_t(*)[X_BYTES])(x + X_BYTES * t)),
                                       "x"(pick[h]), "x"(quads), "x"(ONES));
                }
                pick[h] = next;
            }
            x += X_BYTES * T;
        }
    }
    UNROLL for (int h = 0; h < H; h++)
    {
        UNROLL for (int t = 0; t < T; t++)
        {
            _mm256_store_si256((__m256i *)(void *)(sums[t] + 8 * (half + h)), acc[h][t]);
        }
    }
}

#define TILE(T)                                                                                    \
    AVX2 static void tile_##T(const lanes_part *p, int half, int32_t(*sums)[ROWS])                 \
    {                                                                                              \
        tile(p, half, sums, T, T > 4 ? 1 : 2);                                                     \
    }
#define TILE_AT(T) [T] = tile_##T,
FROM_1_TO_8(TILE)
TILE(9)
TILE(10)

static void (*const tiles[MAX_TOKENS + 1])(const lanes_part *, int, int32_t (*)[ROWS]) = {
    FROM_1_TO_8(TILE_AT) TILE_AT(9) TILE_AT(10)};

/* ---- the epilogue ---------------------------------------------------------------------------- */

AVX2_INLINE __m256 scaled(const int32_t *sums, __m256 w_scales, float scale)
{
    const __m256i sum = _mm256_load_si256((const __m256i *)(const void *)sums);
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), w_scales), _mm256_set1_ps(scale));
}

/* Whole lines of f32, of products and a bias alone. */
AVX2 static void finish_plain(const s24i_linear_job *job, float *y, int64_t tokens,
                              const float *bias, const float *w_scales, const float *scales,
                              const int32_t (*sums)[ROWS])
{
    const int64_t stride = job->y_stride_m;
    const __m256 alpha = _mm256_set1_ps(job->alpha);
    const __m256 s0 = _mm256_load_ps(w_scales), s1 = _mm256_load_ps(w_scales + 8);
    const __m256 b0 = bias ? _mm256_loadu_ps(bias) : _mm256_setzero_ps();
    const __m256 b1 = bias ? _mm256_loadu_ps(bias + 8) : _mm256_setzero_ps();
    for (int64_t t = 0; t < tokens; t++, y += stride) {
        _mm256_storeu_ps(y, _mm256_fmadd_ps(scaled(sums[t], s0, scales[t]), alpha, b0));
        _mm256_storeu_ps(y + 8, _mm256_fmadd_ps(scaled(sums[t] + 8, s1, scales[t]), alpha, b1));
    }
}

AVX2 static void finish_part(const lanes_part *p, const int32_t (*sums)[ROWS])
{
    const s24i_linear_job *job = p->job;
    const float *w_scales = (const float *)(const void *)p->w;
    const int64_t n = p->n;
    if (!job->gate && !(job->residual && job->beta != 0) && job->n - n >= ROWS &&
        job->activation == S24_ACTIVATION_NONE && job->y_stride_n == 1 && job->y_dtype == S24_F32) {
        finish_plain(job, (float *)job->y + p->m * job->y_stride_m + n, p->tokens,
                     job->bias ? job->bias + n : NULL, w_scales, p->scales, sums);
        return;
    }
    for (int64_t part = 0; part < ROWS && n + part < job->n; part += 8) {
        const int64_t outputs = job->n - n - part;
        const __m256 part_scales = _mm256_load_ps(w_scales + part);
        const __m256 bias =
            job->bias ? load_lanes(job->bias + n + part, 1, outputs) : _mm256_setzero_ps();
        for (int64_t t = 0; t < p->tokens; t++)
            finish(job, p->m + t, n + part, outputs, 1,
                   scaled(sums[t] + part, part_scales, p->scales[t]), bias);
    }
}

static void run_part(const lanes_part *p)
{
    _Alignas(64) int32_t sums[MAX_TOKENS][ROWS];
    tiles[p->tokens](p, 0, sums);
    if (p->tokens > 4) tiles[p->tokens](p, 1, sums);
    finish_part(p, (const int32_t(*)[ROWS])sums);
}

#endif
