// SPDX-License-Identifier: Apache-2.0
/*
 * Included before all else of a test of vector functions, makes it one of the set on emulated
 * tiles: that is the table, and the CPU counts as one with AMX. On one that lacks its vectors too
 * it is skipped.
 */
#ifndef SPARSE24_TESTS_TILES_SET_H
#define SPARSE24_TESTS_TILES_SET_H

#include "vec/vec.h"

extern const s24i_vec emulated_set;

static inline const s24i_vec *emulated_row(int index)
{
    return index ? NULL : &emulated_set;
}

static inline uint32_t detect_with_tiles(void)
{
    return s24_cpu_detect() | S24_CPU_AMX;
}

#define s24i_vec_row   emulated_row
#define s24_cpu_detect detect_with_tiles

#endif
