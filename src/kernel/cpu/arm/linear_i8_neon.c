// SPDX-License-Identifier: Apache-2.0
/*
 * linear_i8_neon.h with NEON's baseline. Products are 16 bits, and two of them, at most
 * 2·128·127 = 32512, still are: nothing saturates and sums are exact.
 */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#include "kernel/cpu/arm/linear_i8_neon.h"

NEON_INLINE int32x4_t dot(int32x4_t sum, int8x16_t kept, int8x16_t quads)
{
    const int16x8_t low = vmull_s8(vget_low_s8(kept), vget_low_s8(quads));
    const int16x8_t high = vmull_high_s8(kept, quads);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

const s24i_linear_kernel s24i_linear_i8_neon = {
    .name = "linear_i8_neon",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};
#endif
