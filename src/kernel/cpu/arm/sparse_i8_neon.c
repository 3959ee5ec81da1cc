// SPDX-License-Identifier: Apache-2.0
/* Products of 8-bit weights in blocks of 4x1 with NEON: products of 16 bits, added in pairs. */
#include "kernel/sparse_i8.h"

#ifdef __aarch64__
#include <arm_neon.h>

#define TARGET
#define X_OFFSET 0
#define INLINE   __attribute__((always_inline)) static inline

#include "kernel/cpu/sparse_i8_finish.h"
#include "kernel/cpu/sparse_i8_tile.h"

INLINE void mix_16(int32x4_t r[4], const uint8_t *x, const int32_t *index)
{
    const uint8x16x2_t ab =
        vzipq_u8(vld1q_u8(x + (int64_t)index[0] * 16), vld1q_u8(x + (int64_t)index[1] * 16));
    const uint8x16x2_t cd =
        vzipq_u8(vld1q_u8(x + (int64_t)index[2] * 16), vld1q_u8(x + (int64_t)index[3] * 16));
    for (int half = 0; half < 2; half++) {
        const uint16x8x2_t fours =
            vzipq_u16(vreinterpretq_u16_u8(ab.val[half]), vreinterpretq_u16_u8(cd.val[half]));
        r[2 * half] = vreinterpretq_s32_u16(fours.val[0]);
        r[2 * half + 1] = vreinterpretq_s32_u16(fours.val[1]);
    }
}

INLINE int32x4_t dot_16(int32x4_t sum, int32x4_t x, int32_t four)
{
    const int8x16_t w = vreinterpretq_s8_s32(vdupq_n_s32(four)), t = vreinterpretq_s8_s32(x);
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(t), vget_low_s8(w)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(t, w));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

INLINE void put(float *to, int32x4_t sum, float scale, const float *own)
{
    vst1q_f32(to, vmulq_f32(vmulq_n_f32(vcvtq_f32_s32(sum), scale), vld1q_f32(own)));
}

SUM_TILE(sum_16, int32x4_t, 4, vdupq_n_s32, mix_16, dot_16, put, 4)

static const tile_kind tiles[] = {{16, 1, sum_16}};
enum { TILES = 1 };

#include "kernel/cpu/sparse_i8_driver.h"

ROW(s24i_sparse_i8_neon, "sparse_4x1_i8_neon", S24_CPU_NEON, 16)
#endif
