// SPDX-License-Identifier: Apache-2.0
/* linear_i8_avx2.h with the dots of bytes that CPUs without AVX-512 have, AVX-VNNI. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/x86.h"

#define X_OFFSET  128
#define X_BYTES   8
#define BROADCAST "vpbroadcastq"
#define ONES      quads /* none */
#define DOT       "%{vex%} vpdpbusd %4,%1,%0"
#include "kernel/cpu/x86/linear_i8_avx2.h"

const s24i_linear_kernel s24i_linear_i8_avxvnni = {
    .name = "linear_i8_avxvnni",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX2 | S24_CPU_AVXVNNI,
    .rank = 15,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};
#endif
