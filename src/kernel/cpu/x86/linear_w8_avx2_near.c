// SPDX-License-Identifier: Apache-2.0
/* linear_w8_avx2.c for Intel's cores, which answer late where lines are asked for past
   L2. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define ASK_HINT _MM_HINT_T0
#include "kernel/cpu/x86/linear_w8_avx2.h"

const s24i_linear_kernel s24i_linear_w8_avx2_near = {
    .name = "linear_w8_avx2_near",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX2,
    .core = S24_CPU_PORT5,
    .rank = 12,
    .x_dtypes = 1u << S24_F32,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
