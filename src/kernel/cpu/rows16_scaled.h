// SPDX-License-Identifier: Apache-2.0
/*
 * The weight layout of integers with scales, LAYOUT (format/scaled.h), as kernels see it: in row
 * blocks of QUARTERS times 16 rows, whose k blocks have VALUES bytes after their codes. The
 * including file defines these three.
 */
#ifndef S24_KERNEL_CPU_ROWS16_SCALED_H
#define S24_KERNEL_CPU_ROWS16_SCALED_H

#include "format/scaled.h"
#include "kernel/cpu/rows16_pack.h"

enum { QUANT_BLOCK = CODES + VALUES };

static inline s24i_scaled places_of(const s24i_linear_job *job)
{
    return s24i_scaled_of(QUARTERS, VALUES / 32, job->k, job->group);
}

static inline int64_t quant_blocks(int64_t n)
{
    return (n + QUARTERS * ROWS - 1) / (QUARTERS * ROWS);
}

#endif
