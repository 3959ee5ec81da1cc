// SPDX-License-Identifier: Apache-2.0
/* linear_bf16_avx512bf16.c for cores that do 512 bits as two halves. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define HALVES 1
#include "kernel/cpu/x86/linear_bf16_avx512bf16.h"

const s24i_linear_kernel s24i_linear_bf16_avx512bf16_halves = {
    .name = "linear_bf16_avx512bf16_halves",
    .dtype = S24_BF16,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16,
    .core = S24_CPU_HALVES,
    .rank = 31,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
