// SPDX-License-Identifier: Apache-2.0
/* The 2:4 linear on int8 with AMX, its weights packed: 0.63 of a dense layer's bytes. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define KEPT 0
#include "kernel/cpu/x86/linear_i8_amx.h"

const s24i_linear_kernel s24i_linear_i8_amx = {
    .name = "linear_i8_amx",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16 | S24_CPU_AMX,
    .rank = 40,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
