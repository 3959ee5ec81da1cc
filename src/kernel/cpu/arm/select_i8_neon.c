// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of i8 weights; see select_neon.h. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE   1
#define ELEMENT uint8_t
#include "kernel/cpu/arm/select_neon.h"

const s24i_select_kernel s24i_select_i8_neon = {
    .name = "select_i8_neon",
    .dtype = S24_I8,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
