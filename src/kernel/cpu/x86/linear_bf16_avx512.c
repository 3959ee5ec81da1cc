// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_avx512.h for bf16 weights, widened exactly; sums and x in f32. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE  2
#define LAYOUT s24i_layout_rows16_bf16
#define LOAD_VALUES(p)                                                                             \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)(const void *)(p))), 16))
#include "kernel/cpu/x86/linear_avx512.h"

const s24i_linear_kernel s24i_linear_bf16_avx512 = {
    .name = "linear_bf16_avx512",
    .dtype = S24_BF16,
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
