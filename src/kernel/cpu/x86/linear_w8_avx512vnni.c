// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_w8_avx512vnni.h, for cores whose L1 has many misses on their way. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/linear_w8_avx512vnni.h"

const s24i_linear_kernel s24i_linear_w8_avx512vnni = {
    .name = "linear_w8_avx512vnni",
    .dtype = S24_I8,
    .bits = 8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI,
    .rank = 30,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = quant_work_bytes,
    .run = run_quant,
};
#endif
