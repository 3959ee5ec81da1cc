// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_avx512.h for f32 weights. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE          4
#define LAYOUT         s24i_layout_rows16_f32
#define LOAD_VALUES(p) _mm512_load_ps(p)
#include "kernel/cpu/x86/linear_avx512.h"

const s24i_linear_kernel s24i_linear_f32_avx512 = {
    .name = "linear_f32_avx512",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX512,
    .rank = 20,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
