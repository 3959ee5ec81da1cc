// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of i8 weights; see select_avx512.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE    1
#define COMPRESS 1
#include "kernel/cpu/x86/select_avx512.h"

const s24i_select_kernel s24i_select_i8_avx512vnni = {
    .name = "select_i8_avx512vnni",
    .dtype = S24_I8,
    .cpu = S24_CPU_AVX512VNNI,
    .rank = 30,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
