// SPDX-License-Identifier: Apache-2.0
/* What the rows of every instruction set share: what compilers spell differently, and operands of
   either dtype. */
#ifndef S24_KERNEL_CPU_CPU_H
#define S24_KERNEL_CPU_CPU_H

#include <stdint.h>

#include "sparse24/sparse24.h"

/* clang unrolls constant loops by itself and warns of GCC's pragma. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* Element i of an operand that is f32 or bf16. */
static inline const void *element_of(const void *p, s24_dtype dtype, int64_t i)
{
    return (const char *)p + i * (dtype == S24_F32 ? 4 : 2);
}
static inline void *element_to(void *p, s24_dtype dtype, int64_t i)
{
    return (char *)p + i * (dtype == S24_F32 ? 4 : 2);
}

#endif
