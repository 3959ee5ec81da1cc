// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_neon.h for bf16 weights, widened exactly as x is; sums in f32. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE  2
#define LAYOUT s24i_layout_rows16_bf16
#define LOAD_VALUES(p)                                                                             \
    vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)(p)), 16))
#include "kernel/cpu/arm/linear_neon.h"

const s24i_linear_kernel s24i_linear_bf16_neon = {
    .name = "linear_bf16_neon",
    .dtype = S24_BF16,
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
