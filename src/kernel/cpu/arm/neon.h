// SPDX-License-Identifier: Apache-2.0
/* What the NEON rows share. Every 64-bit ARM CPU has NEON, so no target attribute is needed. */
#ifndef S24_KERNEL_CPU_ARM_NEON_H
#define S24_KERNEL_CPU_ARM_NEON_H

#include <arm_neon.h>
#include <stdint.h>

#define NEON_INLINE __attribute__((always_inline)) static inline

/* Keeps a compiler that schedules before it allocates registers from loading far ahead. */
#define IN_ORDER __asm__ volatile("" ::: "memory")

#endif
