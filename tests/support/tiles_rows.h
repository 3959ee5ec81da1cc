// SPDX-License-Identifier: Apache-2.0
/*
 * Included before all else of a test of kernels, makes it one of the rows on emulated tiles: they
 * are the table, and the CPU counts as one with AMX. On one that lacks their vectors too they are
 * skipped, as every row is.
 */
#ifndef SPARSE24_TESTS_TILES_ROWS_H
#define SPARSE24_TESTS_TILES_ROWS_H

#include "kernel/kernel.h"

extern const s24i_linear_kernel emulated_bf16_row, emulated_i8_row, emulated_bf16_kept_row,
    emulated_i8_kept_row, emulated_w8_row, emulated_w4_row;

static const s24i_linear_kernel *const emulated_rows[] = {&emulated_bf16_row,
                                                          &emulated_i8_row,
                                                          &emulated_bf16_kept_row,
                                                          &emulated_i8_kept_row,
                                                          &emulated_w8_row,
                                                          &emulated_w4_row,
                                                          NULL};

static inline uint32_t detect_with_tiles(void)
{
    return s24_cpu_detect() | S24_CPU_AMX;
}

#define s24i_linear_kernels emulated_rows
#define s24_cpu_detect      detect_with_tiles

#endif
