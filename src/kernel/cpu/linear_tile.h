// SPDX-License-Identifier: Apache-2.0
/* What linear_driver.h asks of a tile: 16 rows, c vectors of tokens, some k blocks. */
#ifndef S24_KERNEL_CPU_LINEAR_TILE_H
#define S24_KERNEL_CPU_LINEAR_TILE_H

#include <stdint.h>

typedef struct tile {
    const uint8_t *w; /* the row block at the first k block */
    int64_t blocks;
    int64_t groups; /* of the last of them that hold columns: what follows is zeros */
    const void *x;  /* the panel there */
    float *sums;    /* [16][c * LANE] */
    int first;      /* sums start at zero */
    int64_t ahead;  /* bytes from these weights to those of the next call, to prefetch */
    int cold;       /* they come from far, all of them: no panel before left them near */
} tile;

#endif
