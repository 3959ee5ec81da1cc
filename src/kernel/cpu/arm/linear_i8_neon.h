// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 with NEON, the design of linear_i8_avx512vnni.h: a register holds four
 * rows of the four kept values of eight columns, out of which a table look-up takes each row's
 * columns of a token. The including file defines dot(sum, kept, quads): sum plus the products of
 * bytes, four a lane; none of kept is -128.
 */
#ifndef S24_KERNEL_CPU_ARM_LINEAR_I8_NEON_H
#define S24_KERNEL_CPU_ARM_LINEAR_I8_NEON_H

#include "kernel/cpu/arm/linear_finish_neon.h"
#include "kernel/kernel.h"

#define TARGET

enum {
    X_OFFSET = 0,
    X_BYTES = 8,
    UNIT = 1,
    MAX_TOKENS = 4, /* sums of all sixteen rows in 16 registers */
    QUARTERS = 4    /* registers of sums of a token */
};

#include "kernel/cpu/linear_i8_driver.h"

NEON_INLINE int32x4_t dot(int32x4_t sum, int8x16_t kept, int8x16_t quads);

/* ---- quantisation ---------------------------------------------------------------------------- */

NEON_INLINE float32x4_t token_columns(const s24i_linear_job *job, int64_t m, int64_t k)
{
    if (k >= job->k) return vdupq_n_f32(0); /* k is a multiple of 4 */
    return load_lanes(job->x, job->x_dtype, m * job->x_stride_m + k * job->x_stride_k,
                      job->x_stride_k, 4);
}

static uint32_t largest_magnitude(const s24i_linear_job *job, int64_t m)
{
    uint32x4_t largest = vdupq_n_u32(0);
    for (int64_t k = 0; k < job->k; k += 4)
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(token_columns(job, m, k)),
                                               vdupq_n_u32(0x7fffffff)));
    return vmaxvq_u32(largest);
}

/* Four columns as integers, to the nearest even; NaN is zero. */
NEON_INLINE int16x4_t quantise_four(const s24i_linear_job *job, int64_t m, int64_t k, float inverse)
{
    return vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(token_columns(job, m, k), inverse)));
}

static void quantise_token(const s24i_linear_job *job, int64_t m, uint8_t *to, int64_t step,
                           float *scale)
{
    const int64_t columns = rows16_k_blocks(job->k) * COLUMNS;
    float inverse;
    *scale = s24i_token_scale(largest_magnitude(job, m), &inverse);
    for (int64_t k = 0; k < columns; k += 8, to += step)
        vst1_s8((int8_t *)to, vmovn_s16(vcombine_s16(quantise_four(job, m, k, inverse),
                                                     quantise_four(job, m, k + 4, inverse))));
}

static void quantise_tokens(const s24i_linear_job *job, int64_t m, int64_t tokens, uint8_t *to,
                            int64_t step, float *scales)
{
    for (int64_t t = 0; t < tokens; t++)
        quantise_token(job, m + t, to + 8 * t, step, scales + t);
}

/* ---- the tile -------------------------------------------------------------------------------- */

/* Bytes of the look-up for eight columns, from four rows' codes and how far these are shifted: the
   lowest field of each byte, plus 4 for the second group's. */
NEON_INLINE uint8x16_t indices_of(uint8x16_t codes, int8x16_t shift)
{
    const uint8x16_t group = vreinterpretq_u8_u32(vdupq_n_u32(0x04040000));
    return vorrq_u8(vandq_u8(vshlq_u8(codes, shift), vdupq_n_u8(3)), group);
}

/* Multiplies a row block by T tokens, a constant. */
NEON_INLINE void tile(const uint8_t *w, int64_t k_blocks, const uint8_t *x, int32_t (*sums)[ROWS],
                      const int T)
{
    int32x4_t acc[QUARTERS][MAX_TOKENS];
    UNROLL for (int i = 0; i < QUARTERS * T; i++)
    {
        acc[i / T][i % T] = vdupq_n_s32(0);
    }
    for (w += ROW_HEAD; k_blocks > 0; k_blocks--, w += BLOCK) {
        const int8_t *quads = (const int8_t *)w + CODES;
        int8x16_t shift = vdupq_n_s8(0);
        __builtin_prefetch(w + AHEAD);
        for (int q = 0; q < 4; q++, x += 8 * T, quads += 4 * ROWS) {
            __builtin_prefetch(quads + AHEAD);
            int8x16_t eight[MAX_TOKENS];
            UNROLL for (int t = 0; t < T; t++)
            {
                eight[t] =
                    vreinterpretq_s8_s64(vld1q_dup_s64((const int64_t *)(const void *)(x + 8 * t)));
            }
            UNROLL for (int r = 0; r < QUARTERS; r++)
            {
                IN_ORDER;
                const uint8x16_t pick = indices_of(vld1q_u8(w + 16 * r), shift);
                const int8x16_t four = vld1q_s8(quads + 16 * r);
                UNROLL for (int t = 0; t < T; t++)
                {
                    acc[r][t] = dot(acc[r][t], vqtbl1q_s8(eight[t], pick), four);
                }
            }
            shift = vsubq_s8(shift, vdupq_n_s8(2));
        }
    }
    UNROLL for (int i = 0; i < QUARTERS * T; i++)
    {
        vst1q_s32(sums[i % T] + 4 * (i / T), acc[i / T][i % T]);
    }
}

#define TILE(T)                                                                                    \
    static void tile_##T(const uint8_t *w, int64_t k_blocks, const uint8_t *x,                     \
                         int32_t(*sums)[ROWS])                                                     \
    {                                                                                              \
        tile(w, k_blocks, x, sums, T);                                                             \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)

static void (*const tiles[MAX_TOKENS + 1])(const uint8_t *, int64_t, const uint8_t *,
                                           int32_t (*)[ROWS]) = {NULL, tile_1, tile_2, tile_3,
                                                                 tile_4};

/* ---- the epilogue ---------------------------------------------------------------------------- */

static void finish_part(const lanes_part *p, const int32_t (*sums)[ROWS])
{
    const s24i_linear_job *job = p->job;
    const int64_t n = p->n;
    for (int64_t part = 0; part < ROWS && n + part < job->n; part += 4) {
        const float32x4_t w_scales = vld1q_f32((const float *)(const void *)p->w + part);
        const float32x4_t bias = load_bias(job, n + part);
        for (int64_t t = 0; t < p->tokens; t++) {
            const float32x4_t sum = vcvtq_f32_s32(vld1q_s32(sums[t] + part));
            finish(job, p->m + t, n + part, 1, vmulq_n_f32(vmulq_f32(sum, w_scales), p->scales[t]),
                   bias);
        }
    }
}

static void run_part(const lanes_part *p)
{
    _Alignas(64) int32_t sums[MAX_TOKENS][ROWS];
    tiles[p->tokens](p->w, rows16_k_blocks(p->job->k), p->x, sums);
    finish_part(p, (const int32_t(*)[ROWS])sums);
}

#endif
