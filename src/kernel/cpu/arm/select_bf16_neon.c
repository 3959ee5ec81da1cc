// SPDX-License-Identifier: Apache-2.0
/* Magnitude 2:4 selection of bf16 weights; see select_neon.h. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
#define VALUE     2
#define ELEMENT   uint16_t
#define NO_SIGN   0x7fff
#define NONFINITE 0x7f80
#define NANS      0x7f81
#include "kernel/cpu/arm/select_neon.h"

const s24i_select_kernel s24i_select_bf16_neon = {
    .name = "select_bf16_neon",
    .dtype = S24_BF16,
    .cpu = S24_CPU_NEON,
    .rank = 10,
    .mask = mask,
    .prune_pack = prune_pack,
};
#endif
