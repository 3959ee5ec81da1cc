// SPDX-License-Identifier: Apache-2.0
/* linear_i8_neon.h with the dots of bytes that ARMv8.2 may have and ARMv8.4 has, FEAT_DotProd. */
#include "kernel/kernel.h"

#if defined(__aarch64__)
/* Where the command line does not name the feature, everything below is allowed it. Older clangs
   have the instruction then, but no intrinsic. */
#ifndef __ARM_FEATURE_DOTPROD
#ifdef __clang__
#include <arm_neon.h> /* its functions have targets of their own */
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#endif
#include "kernel/cpu/arm/linear_i8_neon.h"

NEON_INLINE int32x4_t dot(int32x4_t sum, int8x16_t kept, int8x16_t quads)
{
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(kept), "w"(quads));
    return sum;
}

const s24i_linear_kernel s24i_linear_i8_dotprod = {
    .name = "linear_i8_dotprod",
    .dtype = S24_I8,
    .bits = 8,
    .activations = S24_I8,
    .cpu = S24_CPU_NEON | S24_CPU_DOTPROD,
    .rank = 15,
    .x_dtypes = 1u << S24_F32 | 1u << S24_BF16,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .work_bytes = lanes_work_bytes,
    .run = lanes_job,
};

#if defined(__clang__) && !defined(__ARM_FEATURE_DOTPROD)
#pragma clang attribute pop
#endif
#endif
