// SPDX-License-Identifier: Apache-2.0
/*
 * The linear of linear_quant_neon.h for 4-bit integers: groups [8] of 16 rows, a byte each, the
 * first value in the low half.
 */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#include <string.h>

#include "kernel/cpu/rows16.h"

#define LAYOUT s24i_layout_rows16_i4
enum { VALUES = GROUPS * ROWS };

#include "kernel/cpu/arm/linear_quant_neon.h"

NEON_INLINE int8x8_t slot_values(const uint8_t *values, int slot, int half)
{
    const int8x8_t v = vld1_s8((const int8_t *)values + slot / 2 * ROWS + 8 * half);
    return vshr_n_s8(slot % 2 ? v : vshl_n_s8(v, 4), 4);
}

const s24i_linear_kernel s24i_linear_w4_neon = {
    .name = "linear_w4_neon",
    .dtype = S24_I8,
    .bits = 4,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
