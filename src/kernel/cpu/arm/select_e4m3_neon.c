// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of e4m3 weights; see select_neon.h. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE     1
#define ELEMENT   uint8_t
#define NO_SIGN   0x7f
#define NONFINITE 0x7f
#define NANS      0x7f
#include "kernel/cpu/arm/select_neon.h"

const s24i_select_kernel s24i_select_e4m3_neon = {
    .name = "select_e4m3_neon",
    .dtype = S24_E4M3,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
