// SPDX-License-Identifier: Apache-2.0
/* linear_i8_avx512vnni.c for Intel's cores, which answer late where lines are asked for past
   L2. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define ASK_HINT _MM_HINT_T0
#include "kernel/cpu/x86/linear_i8_avx512vnni.h"

const s24i_linear_kernel s24i_linear_i8_avx512vnni_near = {
    .name = "linear_i8_avx512vnni_near",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI,
    .core = S24_CPU_PORT5,
    .rank = 21,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};
#endif
