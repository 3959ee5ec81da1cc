// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_bf16_avx2.h, which asks for the weights of few tokens into L1 alone. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/linear_bf16_avx2.h"

const s24i_linear_kernel s24i_linear_bf16_avx2 = {
    .name = "linear_bf16_avx2",
    .dtype = S24_BF16,
    .cpu = S24_CPU_AVX2,
    .rank = 10,
    .x_dtypes = 1u << S24_F32,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .layout = &LAYOUT,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
