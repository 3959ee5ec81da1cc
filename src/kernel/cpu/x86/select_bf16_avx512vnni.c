// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of bf16 weights; see select_avx512.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE     2
#define COMPRESS  1
#define NO_SIGN   0x7fff
#define NONFINITE 0x7f80
#define NANS      0x7f81
#include "kernel/cpu/x86/select_avx512.h"

const s24i_select_kernel s24i_select_bf16_avx512vnni = {
    .name = "select_bf16_avx512vnni",
    .dtype = S24_BF16,
    .cpu = S24_CPU_AVX512VNNI,
    .rank = 30,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
