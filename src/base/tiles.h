// SPDX-License-Identifier: Apache-2.0
/*
 * AMX's tiles, as verbs: eight of up to 16 rows by 64 bytes. In assembly, because gcc's intrinsics
 * tell the compiler nothing of the memory that a tile is loaded from, and clang's take literals
 * alone; T and the like are numbers of tiles, written out. As try.h it is code alone, for rooms of
 * both libraries.
 */
#ifndef S24_BASE_TILES_H
#define S24_BASE_TILES_H

#include <stdint.h>

#ifndef TILE_ZERO /* a test may bring tiles of its own, where the CPU has none */
#define TILE_ZERO(T) __asm__ volatile("tilezero %%tmm" #T ::)
/* Rows lie `step` bytes apart. */
#define TILE_LOAD(T, from, step)                                                                   \
    __asm__ volatile("tileloadd (%0,%1,1),%%tmm" #T ::"r"(from), "r"((int64_t)(step)) : "memory")
#define TILE_STORE(T, to, step)                                                                    \
    __asm__ volatile("tilestored %%tmm" #T ",(%0,%1,1)"                                            \
                     :                                                                             \
                     : "r"(to), "r"((int64_t)(step))                                               \
                     : "memory")
/* sums[i][j] += Σ over 32 bf16 (64 int8) of a row i of X and what column j of W has of them. */
#define TILE_DOT_BF16(SUMS, X, W)                                                                  \
    __asm__ volatile("tdpbf16ps %%tmm" #W ",%%tmm" #X ",%%tmm" #SUMS ::)
#define TILE_DOT_I8(SUMS, X, W) __asm__ volatile("tdpbssd %%tmm" #W ",%%tmm" #X ",%%tmm" #SUMS ::)
#define TILES_BEGIN(shape)      __asm__ volatile("ldtilecfg %0" ::"m"(*(shape)))
#define TILES_END()             __asm__ volatile("tilerelease" ::)
#endif

typedef struct tile_shape {
    uint8_t palette, start_row, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shape;

/* Rows of 64 bytes: `rows` of them in the tiles 0 to 3 and 7, in the others 16. A product takes as
   many cycles as its tile X has rows. */
static inline void begin_tiles(int rows)
{
    tile_shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++)
        shape.bytes[i] = 64, shape.rows[i] = (uint8_t)(i < 4 || i == 7 ? rows : 16);
    TILES_BEGIN(&shape);
}

#endif
