// SPDX-License-Identifier: Apache-2.0
/* Holds what the rows of both instruction sets share: targets, and the codes of a selection. */
#ifndef S24_KERNEL_CPU_X86_X86_H
#define S24_KERNEL_CPU_X86_X86_H

#include <immintrin.h>
#include <stdint.h>

#include "kernel/cpu/cpu.h"

#define AVX2          __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE   AVX2 __attribute__((always_inline)) static inline
#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define AVX512_INLINE AVX512 __attribute__((always_inline)) static inline

/* __builtin_prefetch(p, 1) is a plain prefetch unless the target says prfchw, which no row asks
   for; every CPU with AVX2 takes the instruction, the oldest as a no-op. */
#define PREFETCH_TO_WRITE(p) __asm__ volatile("prefetchw %0" ::"m"(*(const char *)(p)))

/* Holds a vector in its place between the tokens of a tile: what is made for later in one clump
   stops them. */
#define HOLD(vector) __asm__ volatile("" : "+v"(vector))

/* Holds a loaded vector in its register: left to itself gcc loads it again for its second use. */
#define KEEP(vector) __asm__("" : "+v"(vector))

/* A group's nibble i0 | i1 << 2 by the mask of kept lanes; only masks of two bits occur. */
static const uint8_t code_of_kept[16] = {[3] = 4, [5] = 8, [6] = 9, [9] = 12, [10] = 13, [12] = 14};

/*
 * A line of a function's own code, for it to ask for into L2: of the first `bytes` (a power of two)
 * the one at `offset`, modulo that; offsets that move on go round all of it. Where L2 holds
 * whatever the caches above it hold (Zen 5), operands that stream through L2 push a loop's code out
 * of it, and so out of everywhere, however often it runs: L2 hears nothing of instructions that are
 * read from nearer.
 */
__attribute__((always_inline)) static inline const char *
line_of_code(uintptr_t function, uintptr_t offset, uintptr_t bytes)
{
    return (const char *)function + (offset & (bytes - 1));
}

/* For functions that have a constant number of tokens: F(number), for each of them. */
#define FROM_1_TO_8(F)   F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#define FROM_9_TO_16(F)  F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16)
#define FROM_17_TO_24(F) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24)

enum { TILE_CODE = 8 << 10, FEW_CODE = 16 << 10 }; /* of a tile; of one for few tokens */

#endif
