// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of f32 weights; see select_avx2.h. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#define VALUE     4
#define ELEMENT   uint32_t
#define NO_SIGN   0x7fffffff
#define NONFINITE 0x7f800000
#define NANS      0x7f800001
#include "kernel/cpu/x86/select_avx2.h"

const s24i_select_kernel s24i_select_f32_avx2 = {
    .name = "select_f32_avx2",
    .dtype = S24_F32,
    .cpu = S24_CPU_AVX2,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
