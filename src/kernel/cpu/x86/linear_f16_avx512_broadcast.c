// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_avx512.h for f16 weights, widened exactly, in the design for cores whose
   port 5 both shuffles and multiplies. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE          2
#define BROADCAST      1
#define LAYOUT         s24i_layout_rows16_f16
#define LOAD_VALUES(p) _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)(p)))
#include "kernel/cpu/x86/linear_avx512.h"

const s24i_linear_kernel s24i_linear_f16_avx512_broadcast = {
    .name = "linear_f16_avx512_broadcast",
    .dtype = S24_F16,
    .cpu = S24_CPU_AVX512,
    .core = S24_CPU_PORT5,
    .rank = 25,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
