// SPDX-License-Identifier: Apache-2.0
/* The 2:4 linear of 4-bit integers of linear_w4_avx2.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/linear_w4_avx2.h"

const s24i_linear_kernel s24i_linear_w4_avx2 = {
    .name = "linear_w4_avx2",
    .dtype = S24_I8,
    .bits = 4,
    .cpu = S24_CPU_AVX2,
    .rank = 11, /* no less than that of any f32 row of AVX2 */
    .x_dtypes = 1u << S24_F32,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
