// SPDX-License-Identifier: Apache-2.0
/* The instruction sets of vec.def and the choice of one. */
#include "vec/vec.h"

#include <stddef.h>

#define S24I_VEC_SET(symbol) extern const s24i_vec s24i_vec_##symbol;
#include "vec/vec.def"

static const s24i_vec *const rows[] = {
#define S24I_VEC_SET(symbol) &s24i_vec_##symbol,
#include "vec/vec.def"
    NULL};

const s24i_vec *s24i_vec_row(int index)
{
    const int count = (int)(sizeof rows / sizeof rows[0]) - 1;
    return index >= 0 && index < count ? rows[index] : NULL;
}

const s24i_vec *s24i_vec_find(uint32_t cpu)
{
    const s24i_vec *const *row = rows;
    while (row[1] && (*row)->cpu & ~cpu)
        row++;
    return *row;
}
