// SPDX-License-Identifier: Apache-2.0
/* linear_w8_avx512vnni.c for Intel's cores, whose L1 has few misses on their way: lines of weights
   are asked for into L2 first. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define NEAR_AHEAD 1024
#include "kernel/cpu/x86/linear_w8_avx512vnni.h"

const s24i_linear_kernel s24i_linear_w8_avx512vnni_near = {
    .name = "linear_w8_avx512vnni_near",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI,
    .core = S24_CPU_PORT5,
    .rank = 31,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = quant_work_bytes,
    .run = run_quant,
};
#endif
