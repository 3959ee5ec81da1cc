// SPDX-License-Identifier: Apache-2.0
/* The 2:4 linear on bf16 with AMX, its weights packed: 0.56 of a dense layer's bytes. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define KEPT 0
#include "kernel/cpu/x86/linear_bf16_amx.h"

const s24i_linear_kernel s24i_linear_bf16_amx = {
    .name = "linear_bf16_amx",
    .dtype = S24_BF16,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16 | S24_CPU_AMX,
    .rank = 40,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &s24i_layout_rows16_bf16_pairs,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
