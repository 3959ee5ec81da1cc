// SPDX-License-Identifier: Apache-2.0
/*
 * y = x·wᵀ, w 2:4 in integers with scales, x in f32, AVX2. The weights lie as rows16_scaled.h has
 * it, 16 rows per block. Few tokens: linear_few_avx2.h, on integers made floats; a segment's sums
 * are multiplied with its scales. More: a pass's k blocks are widened to scale·integer in L1 for
 * the tile of linear_avx2.h.
 *
 * The including file defines LAYOUT, VALUES and values_of() of linear_few_avx2.h.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_QUANT_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_QUANT_AVX2_H

#define VALUE      1
#define OWN_LAYOUT 1
#define HAS_LANES  1
#include "kernel/cpu/linear_tile.h"
#include "kernel/cpu/rows16.h"
#include "kernel/cpu/x86/avx2.h"

enum { QUARTERS = 1, GROUP_BYTES = VALUES / GROUPS, HALF_BYTES = 8, FEW_BLOCK = CODES + VALUES };

#include "kernel/cpu/rows16_scaled.h"
#include "kernel/cpu/x86/linear_few_avx2.h"

static stream stream_of(const s24i_linear_job *job, int64_t b)
{
    const s24i_scaled l = places_of(job);
    const uint8_t *w = (const uint8_t *)job->w + b * l.bytes;
    if (!l.head) return (stream){w, NULL, l.per_segment * COLUMNS};
    return (stream){w + l.head, (const float *)(const void *)w, job->k};
}

/* ---- more ------------------------------------------------------------------------------------ */

AVX2 static void widen(uint8_t *block, tile *t, const s24i_linear_job *job, int64_t b, int64_t q)
{
    const s24i_scaled l = places_of(job);
    const uint8_t *w = (const uint8_t *)job->w + b * l.bytes;
    uint8_t *to = block;
    for (int64_t i = 0; i < t->blocks; i++, q++, to += CODES + SLOTS * ROWS * 4) {
        const uint8_t *from = w + s24i_scaled_block(&l, 0, q);
        const float *scales = (const float *)(const void *)(w + s24i_scaled_scales(&l, 0, q));
        float *wide = (float *)(void *)(to + CODES);
        memcpy(to, from, CODES);
        UNROLL for (int s = 0; s < SLOTS; s++)
        {
            const uint8_t *group = from + CODES + s / 2 * GROUP_BYTES;
            UNROLL for (int h = 0; h < 2; h++)
            {
                _mm256_store_ps(wide + s * ROWS + 8 * h,
                                _mm256_mul_ps(values_of(group + h * HALF_BYTES, s % 2),
                                              _mm256_load_ps(scales + 8 * h)));
            }
        }
    }
    t->w = block, t->ahead = 0;
}

#include "kernel/cpu/x86/linear_avx2.h"

#endif
