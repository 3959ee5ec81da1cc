// SPDX-License-Identifier: Apache-2.0
/* The 2:4 linear on bf16 of linear_bf16_avx512bf16.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/linear_bf16_avx512bf16.h"

const s24i_linear_kernel s24i_linear_bf16_avx512bf16 = {
    .name = "linear_bf16_avx512bf16",
    .dtype = S24_BF16,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16,
    .rank = 30,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
