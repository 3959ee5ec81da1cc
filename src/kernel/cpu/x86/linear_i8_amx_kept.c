// SPDX-License-Identifier: Apache-2.0
/*
 * The 2:4 linear on int8 with AMX that keeps the tiles of a layer that L2 holds next to its packed
 * weights, 1.63 of a dense layer's bytes together. So it expands nothing as it multiplies. It is
 * taken by its name alone: whoever asks for 2:4 counts on its bytes.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define KEPT 1
#include "kernel/cpu/x86/linear_i8_amx.h"

const s24i_linear_kernel s24i_linear_i8_amx_kept = {
    .name = "linear_i8_amx_kept",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX512 | S24_CPU_AVX512VNNI | S24_CPU_AVX512BF16 | S24_CPU_AMX,
    .rank = 39,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = work_bytes,
    .run = run_job,
};
#endif
