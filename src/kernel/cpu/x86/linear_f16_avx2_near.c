// SPDX-License-Identifier: Apache-2.0
/* linear_f16_avx2.c for Intel's cores, which answer late where lines are asked for past L2. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define ASK_HINT       _MM_HINT_T0
#define VALUE          2
#define LAYOUT         s24i_layout_rows16_f16
#define LOAD_VALUES(p) _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)(p)))
#include "kernel/cpu/x86/linear_avx2.h"

const s24i_linear_kernel s24i_linear_f16_avx2_near = {
    .name = "linear_f16_avx2_near",
    .dtype = S24_F16,
    .cpu = S24_CPU_AVX2,
    .core = S24_CPU_PORT5,
    .rank = 11,
    .x_dtypes = 1u << S24_F32,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
