// SPDX-License-Identifier: Apache-2.0
/* The linear of linear_avx2.h for bf16 weights, widened exactly; sums and x in f32. Included by the
   rows' files. */
#ifndef S24_KERNEL_CPU_X86_LINEAR_BF16_AVX2_H
#define S24_KERNEL_CPU_X86_LINEAR_BF16_AVX2_H

#include "kernel/kernel.h"

#define VALUE          2
#define LAYOUT         s24i_layout_rows16_bf16
#define LOAD_VALUES(p) load_values(p)
#include "kernel/cpu/x86/x86.h"

/* Each to the upper half of its lane. In assembly because the compiler would keep the order in one
   of the sixteen registers, which sums need. */
AVX2_INLINE __m256 load_values(const void *p)
{
    static const uint8_t upper[32] __attribute__((aligned(32))) = {
        128, 128, 0, 1, 128, 128, 2,  3,  128, 128, 4,  5,  128, 128, 6,  7,
        128, 128, 8, 9, 128, 128, 10, 11, 128, 128, 12, 13, 128, 128, 14, 15};
    const __m256i eight = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)p));
    __m256 values;
    __asm__("vpshufb %2,%1,%0"
            : "=x"(values)
            : "x"(eight), "m"(*(const __m256i *)(const void *)upper));
    return values;
}
#include "kernel/cpu/x86/linear_avx2.h"

#endif
