// SPDX-License-Identifier: Apache-2.0
/* The 2:4 linear on int8 of linear_i8_avx512vnni.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/linear_i8_avx512vnni.h"

const s24i_linear_kernel s24i_linear_i8_avx512vnni = {
    .name = "linear_i8_avx512vnni",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI,
    .rank = 20,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};
#endif
