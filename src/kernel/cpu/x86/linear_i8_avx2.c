// SPDX-License-Identifier: Apache-2.0
/*
 * linear_i8_avx2.h with AVX2 alone. vpmaddubsw multiplies unsigned by signed bytes and adds two
 * products in 16 bits with saturation: of magnitudes of weights and x with its sign two products
 * are at most 2·128·127 = 32512, so that nothing saturates and sums are exact. The weight's sign
 * chooses x or −x, which costs nothing where x is picked anyway (vpsignb for each dot did, a fifth
 * of it).
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/cpu/x86/x86.h"

#define X_OFFSET  0
#define X_BYTES   16
#define BROADCAST "vbroadcasti128"
#define ONES      _mm256_set1_epi16(1)
#define DOT                                                                                        \
    "vpmaddubsw %1,%4,%1\n\t"                                                                      \
    "vpmaddwd %5,%1,%1\n\t"                                                                        \
    "vpaddd %1,%0,%0"
#include "kernel/cpu/x86/linear_i8_avx2.h"

const s24i_linear_kernel s24i_linear_i8_avx2 = {
    .name = "linear_i8_avx2",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_AVX2,
    .rank = 10,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};
#endif
