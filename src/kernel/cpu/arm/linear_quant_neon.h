// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, sums in f32, NEON. The weights lie as rows16_scaled.h
 * has it, 16 rows per block; a pass's k blocks are widened to scale·integer in L1 for the tile of
 * linear_neon.h, whatever the number of tokens.
 *
 * The including file defines LAYOUT, VALUES and slot_values().
 */
#ifndef S24_KERNEL_CPU_ARM_LINEAR_QUANT_NEON_H
#define S24_KERNEL_CPU_ARM_LINEAR_QUANT_NEON_H

#define VALUE      1
#define OWN_LAYOUT 1
#define HAS_LANES  0
#include "kernel/cpu/arm/neon.h"
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"

enum { QUARTERS = 1 };

#include "kernel/cpu/rows16_scaled.h"

/* The integers of a slot of eight rows, 8·half and on. */
NEON_INLINE int8x8_t slot_values(const uint8_t *values, int slot, int half);

/* Eight integers times the scales of their rows. */
NEON_INLINE void widen_eight(float *to, int8x8_t integers, const float *scales)
{
    const int16x8_t wide = vmovl_s8(integers);
    vst1q_f32(to, vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vld1q_f32(scales)));
    vst1q_f32(to + 4,
              vmulq_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide))), vld1q_f32(scales + 4)));
}

static void widen(uint8_t *block, tile *t, const s24i_linear_job *job, int64_t b, int64_t q)
{
    const s24i_scaled l = places_of(job);
    const uint8_t *w = (const uint8_t *)job->w + b * l.bytes;
    uint8_t *to = block;
    for (int64_t i = 0; i < t->blocks; i++, q++, to += CODES + SLOTS * ROWS * 4) {
        const uint8_t *from = w + s24i_scaled_block(&l, 0, q);
        const float *scales = (const float *)(const void *)(w + s24i_scaled_scales(&l, 0, q));
        float *wide = (float *)(void *)(to + CODES);
        memcpy(to, from, CODES);
        for (int s = 0; s < SLOTS; s++)
            for (int h = 0; h < 2; h++)
                widen_eight(wide + s * ROWS + 8 * h, slot_values(from + CODES, s, h),
                            scales + 8 * h);
    }
    t->w = block, t->ahead = 0;
}

#include "kernel/cpu/arm/linear_neon.h"

#endif
