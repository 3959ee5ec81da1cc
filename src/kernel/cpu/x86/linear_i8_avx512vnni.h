// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 with dot products of four bytes: for each token and eight columns of 16
 * rows one broadcast of its bytes, one shuffle that picks the four that a row keeps, one vpdpbusd.
 * The indices of the shuffle are made from the codes once for all tokens of the tile, by a shift
 * and a mask.
 *
 * vpdpbusd takes one operand unsigned: x is stored as q + 128, and sums begin at -128·Σw. They wrap
 * on the way and are exact at the end.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_I8_AVX512VNNI_H
#define S24_KERNEL_CPU_X86_LINEAR_I8_AVX512VNNI_H

#include "kernel/cpu/x86/avx512.h"
#include "kernel/kernel.h"

#define TARGET                                                                                     \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,fma")))
#define TARGET_INLINE TARGET __attribute__((always_inline)) static inline

enum {
    X_OFFSET = 128,
    X_BYTES = 8,
    MAX_TOKENS = 24, /* sums in registers, the rest for temporaries */
    UNIT = 8         /* tokens that are quantised together */
};

#include "kernel/cpu/linear_i8_driver.h"
#include "kernel/cpu/x86/tokens_i8.h"

/* ---- quantisation ---------------------------------------------------------------------------- */

/* 64 columns as q + X_OFFSET. */
TARGET_INLINE __m512i offset_64(const s24i_linear_job *job, s24_dtype dtype, int whole, int64_t m,
                                int64_t k, __m512 inverse)
{
    return _mm512_xor_si512(quantise_64(job, dtype, whole, m, k, inverse),
                            _mm512_set1_epi8((char)X_OFFSET));
}

/* Token m by itself. */
TARGET_INLINE void quantise_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m, uint8_t *to,
                               int64_t step, float *scale)
{
    const int64_t whole = job->x_stride_k == 1 ? job->k / 64 * 64 : 0;
    _Alignas(64) uint64_t eights[8];
    float inverse;
    *scale = s24i_token_scale(largest_magnitude(job, dtype, whole, m), &inverse);
    for (int64_t k = 0; k < whole; k += 64) {
        const char *next = element_of(job->x, dtype, (m + 1) * job->x_stride_m + k);
        for (int i = 0; i < (dtype == S24_F32 ? 4 : 2); i++)
            _mm_prefetch(next + 64 * i, _MM_HINT_T0);
        _mm512_store_si512(eights, offset_64(job, dtype, 1, m, k, _mm512_set1_ps(inverse)));
        UNROLL for (int i = 0; i < 8; i++)
        {
            memcpy(to + i * step, eights + i, 8);
        }
        to += 8 * step;
    }
    for (int64_t k = whole; k < job->k; k += 64) {
        const int64_t eight_count = rows16_k_blocks(job->k - k) * (COLUMNS / 8);
        _mm512_store_si512(eights, offset_64(job, dtype, 0, m, k, _mm512_set1_ps(inverse)));
        for (int64_t i = 0; i < 8 && i < eight_count; i++, to += step)
            memcpy(to, eights + i, 8);
    }
}

/* Eight tokens with whole runs of 64 columns, so that a store has eight columns of each: 0.1 cycle
   an element, a third of what tokens by themselves take. */
TARGET_INLINE void quantise_eight_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m,
                                     uint8_t *to, int64_t step, float *scales)
{
    float inverse[8];
    for (int t = 0; t < 8; t++)
        scales[t] = s24i_token_scale(largest_magnitude(job, dtype, job->k, m + t), inverse + t);
    for (int64_t k = 0; k < job->k; k += 64) {
        __m512i r[8];
        __m512 turned[8];
        UNROLL for (int t = 0; t < 8; t++)
        {
            r[t] = offset_64(job, dtype, 1, m + t, k, _mm512_set1_ps(inverse[t]));
        }
        turn_eights(turned, r);
        UNROLL for (int i = 0; i < 8; i++, to += step)
        {
            _mm512_storeu_ps(to, turned[i]);
        }
    }
}

TARGET_INLINE void quantise_tokens_as(s24_dtype dtype, const s24i_linear_job *job, int64_t m,
                                      int64_t tokens, uint8_t *to, int64_t step, float *scales)
{
    const int64_t together = job->x_stride_k == 1 && job->k % 64 == 0 ? tokens / 8 * 8 : 0;
    for (int64_t t = 0; t < together; t += 8)
        quantise_eight_as(dtype, job, m + t, to + 8 * t, step, scales + t);
    for (int64_t t = together; t < tokens; t++)
        quantise_as(dtype, job, m + t, to + 8 * t, step, scales + t);
}

TARGET static void quantise_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens,
                                   uint8_t *to, int64_t step, float *scales)
{
    if (job->x_dtype == S24_F32)
        quantise_tokens_as(S24_F32, job, m, tokens, to, step, scales);
    else
        quantise_tokens_as(S24_BF16, job, m, tokens, to, step, scales);
}

/* ---- the epilogue ---------------------------------------------------------------------------- */

TARGET_INLINE __m512 scaled(__m512i sum, __m512 w_scales, float scale)
{
    return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), w_scales), _mm512_set1_ps(scale));
}

TARGET static void finish_part(const lanes_part *p, const int32_t (*sums)[ROWS])
{
    const s24i_linear_job *job = p->job;
    const __mmask16 mask = lane_mask(job->n - p->n);
    const __m512 w_scales = _mm512_load_ps(p->w);
    const __m512 bias =
        job->bias ? _mm512_maskz_loadu_ps(mask, job->bias + p->n) : _mm512_setzero_ps();
    for (int64_t t = 0; t < p->tokens; t++)
        finish(job, p->m + t, p->n, 1, mask,
               scaled(_mm512_load_si512(sums[t]), w_scales, p->scales[t]), bias);
}

/* ---- the tile -------------------------------------------------------------------------------- */

/* From the lowest field of each byte the bytes of the shuffle for eight columns: plus 4 for the
   second group's. */
TARGET_INLINE __m512i indices_of(__m512i fields)
{
    return _mm512_ternarylogic_epi32(fields, _mm512_set1_epi32(0x03030303),
                                     _mm512_set1_epi32(0x04040000), 0xea); /* (a & b) | c */
}

/* The same times eight: what vpmultishiftqb takes for it. */
TARGET_INLINE __m512i shifts_of(__m512i indices)
{
    return _mm512_slli_epi32(indices, 3);
}

/* Where a tile is in its row block, and what its next eight columns are picked by. */
typedef struct place {
    const uint8_t *w, *x;
    __m512i code, pick, shift;
} place;

/* Token t's eight columns, picked and multiplied. Shuffles have two ports, dots two, and one is
   both's: it is evenly used if some picks are by a shift, which has the dots' ports. In assembly
   for the order; few tokens are faster as the compiler has them. */
TARGET_INLINE void token(int t, __m512i *acc, const place *at, __m512i quads, const int T)
{
    const uint8_t(*eight)[X_BYTES] = (const uint8_t(*)[X_BYTES])(at->x + X_BYTES * t);
    __m512i four;
    if (t >= T) return;
    if (T < 12) {
        long long bytes;
        memcpy(&bytes, eight, X_BYTES);
        four = _mm512_shuffle_epi8(_mm512_set1_epi64(bytes), at->pick);
        acc[t] = _mm512_dpbusd_epi32(acc[t], four, quads);
    } else if (t % 3 == 1) {
        __asm__ volatile("vpbroadcastq %2,%1\n\tvpmultishiftqb %1,%3,%1\n\tvpdpbusd %4,%1,%0"
                         : "+v"(acc[t]), "=&v"(four)
                         : "m"(*eight), "v"(at->shift), "v"(quads));
    } else {
        __asm__ volatile("vpbroadcastq %2,%1\n\tvpshufb %3,%1,%1\n\tvpdpbusd %4,%1,%0"
                         : "+v"(acc[t]), "=&v"(four)
                         : "m"(*eight), "v"(at->pick), "v"(quads));
    }
}

TARGET_INLINE void three_tokens(int t, __m512i *acc, const place *at, __m512i quads, const int T)
{
    token(t, acc, at, quads, T);
    token(t + 1, acc, at, quads, T);
    token(t + 2, acc, at, quads, T);
}

/* The q-th eight columns of a k block. Their successors' indices are made among them: their latency
   is not hidden otherwise. */
TARGET_INLINE void eight_columns(unsigned q, __m512i *acc, place *at, int last, int64_t reach,
                                 const int T)
{
    const __m512i quads = _mm512_load_si512(at->w);
    at->w += 64;
    if (q == 3) at->code = _mm512_load_si512(at->w - (last ? 64 : 0));
    three_tokens(0, acc, at, quads, T);
    HOLD(at->code);
    __m512i next = _mm512_srli_epi32(at->code, 2 * ((q + 1) % 4));
    HOLD(next);
    three_tokens(3, acc, at, quads, T);
    next = indices_of(next);
    HOLD(next);
    three_tokens(6, acc, at, quads, T);
    three_tokens(9, acc, at, quads, T);
    __m512i next_shift = shifts_of(next);
    HOLD(next_shift);
    ask_for(at->w + reach, T);
    three_tokens(12, acc, at, quads, T);
    three_tokens(15, acc, at, quads, T);
    three_tokens(18, acc, at, quads, T);
    three_tokens(21, acc, at, quads, T);
    at->x += X_BYTES * T;
    at->pick = next, at->shift = next_shift;
}

/* The plain epilogue, from registers: every store could be to the job's own fields. */
TARGET_INLINE void finish_plain(const lanes_part *p, const __m512i *acc, const int T)
{
    const s24i_linear_job *job = p->job;
    const __m512 w_scales = _mm512_load_ps(p->w), alpha = _mm512_set1_ps(job->alpha);
    const __m512 bias = job->bias ? _mm512_loadu_ps(job->bias + p->n) : _mm512_setzero_ps();
    const int64_t step = job->y_stride_m;
    const float *scales = p->scales;
    char *y = element_to(job->y, job->y_dtype, p->m * step + p->n);
    if (job->y_dtype == S24_F32) UNROLL for (int t = 0; t < T; t++)
        {
            const __m512 v = scaled(acc[t], w_scales, scales[t]);
            store_outputs(y + t * step * 4, S24_F32, 0xffff, _mm512_fmadd_ps(v, alpha, bias));
        }
    else
        UNROLL for (int t = 0; t < T; t++)
        {
            const __m512 v = scaled(acc[t], w_scales, scales[t]);
            store_outputs(y + t * step * 2, S24_BF16, 0xffff, _mm512_fmadd_ps(v, alpha, bias));
        }
}

TARGET_INLINE void tile(const lanes_part *p, uintptr_t self, const int T)
{
    const s24i_linear_job *job = p->job;
    const uint8_t *y = p->y, *ahead = p->ahead;
    place at = {.w = p->w + ROW_HEAD, .x = p->x};
    const __m512i start = _mm512_load_si512(p->w + 64);
    __m512i acc[MAX_TOKENS];
    UNROLL for (int t = 0; t < T; t++)
    {
        acc[t] = start;
    }
    at.code = _mm512_load_si512(at.w);
    at.pick = indices_of(at.code), at.shift = shifts_of(at.pick);
    const int64_t reach = p->reach, y_step = p->y_step;
    int64_t left = T; /* branches would hide the loop's end from whoever foresees it */
    __asm__ volatile("" ::: "memory");
    const char *code_lines = line_of_code(self, (uintptr_t)at.w / 8, TILE_CODE);
    for (int64_t k_blocks = rows16_k_blocks(job->k); k_blocks > 0; k_blocks--) {
        if (T >= 12) _mm_prefetch(code_lines + 64 * (k_blocks - 1), _MM_HINT_T1);
        PREFETCH_TO_WRITE(y);
        y += y_step & ((1 - left--) >> 63);
        _mm_prefetch((const char *)ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)ahead + 64, _MM_HINT_T0);
        ahead += p->ahead_step;
        ask_for(at.w + reach, T);
        at.w += CODES;
        eight_columns(0, acc, &at, k_blocks == 1, reach, T);
        eight_columns(1, acc, &at, k_blocks == 1, reach, T);
        eight_columns(2, acc, &at, k_blocks == 1, reach, T);
        eight_columns(3, acc, &at, k_blocks == 1, reach, T);
    }
    if (is_plain(job, p->n)) {
        finish_plain(p, acc, T);
        return;
    }
    _Alignas(64) int32_t sums[MAX_TOKENS][ROWS];
    UNROLL for (int t = 0; t < T; t++)
    {
        _mm512_store_si512(sums[t], acc[t]);
    }
    finish_part(p, (const int32_t(*)[ROWS])sums);
}

#define TILE(T)                                                                                    \
    TARGET static void tile_##T(const lanes_part *p)                                               \
    {                                                                                              \
        tile(p, (uintptr_t)tile_##T, T);                                                           \
    }
#define TILE_AT(T) [T] = tile_##T,
FROM_1_TO_8(TILE)
FROM_9_TO_16(TILE)
FROM_17_TO_24(TILE)

static void (*const lane_tiles[MAX_TOKENS + 1])(const lanes_part *) = {
    FROM_1_TO_8(TILE_AT) FROM_9_TO_16(TILE_AT) FROM_17_TO_24(TILE_AT)};

static void run_part(const lanes_part *part)
{
    lane_tiles[part->tokens](part);
}

#endif
