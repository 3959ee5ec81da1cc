// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_neon.h for f32 weights. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE          4
#define LAYOUT         s24i_layout_rows16_f32
#define LOAD_VALUES(p) vld1q_f32((const float *)(const void *)(p))
#include "kernel/cpu/arm/linear_neon.h"

const s24i_linear_kernel s24i_linear_f32_neon = {
    .name = "linear_f32_neon",
    .dtype = S24_F32,
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
