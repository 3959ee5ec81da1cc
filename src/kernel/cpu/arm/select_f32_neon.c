// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of f32 weights; see select_neon.h. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE     4
#define ELEMENT   uint32_t
#define NO_SIGN   0x7fffffff
#define NONFINITE 0x7f800000
#define NANS      0x7f800001
#include "kernel/cpu/arm/select_neon.h"

const s24i_select_kernel s24i_select_f32_neon = {
    .name = "select_f32_neon",
    .dtype = S24_F32,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
