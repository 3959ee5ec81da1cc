// SPDX-License-Identifier: Apache-2.0
/* Selections of 4x4 tiles that leave at most two in every row and every column: tile_choose.h. */
#ifndef S24_KERNEL_TILE_H
#define S24_KERNEL_TILE_H

#include <stdint.h>

#include "sparse24/sparse24.h"

typedef struct s24i_tile_rule {
    s24_select select;
    /* Bit 4·row + column is set where it is kept. Of w [4, 4] the first `rows` rows are there, the
       others are not looked at; what is kept there means nothing. */
    unsigned (*mask)(const float w[16], int rows);
} s24i_tile_rule;

/* NULL for the ways to select that know no tiles. */
const s24i_tile_rule *s24i_tile_rule_find(s24_select select);

#endif
