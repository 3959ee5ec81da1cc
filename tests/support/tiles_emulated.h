// SPDX-License-Identifier: Apache-2.0
/*
 * The verbs of src/base/tiles.h in plain C, so that the rows on AMX's tiles are tested
 * on CPUs that have none: everything but the tile instructions is the rows' own.
 */
#ifndef SPARSE24_TESTS_TILES_EMULATED_H
#define SPARSE24_TESTS_TILES_EMULATED_H

#include <stdint.h>
#include <string.h>

typedef struct tile_shape tile_shape;
static void emulated_begin(const tile_shape *shape);
static void emulated_end(void);

#define TILE_ZERO(T)              emulated_zero(T)
#define TILE_LOAD(T, from, step)  emulated_load(T, from, step)
#define TILE_STORE(T, to, step)   emulated_store(T, to, step)
#define TILE_DOT_BF16(SUMS, X, W) emulated_dot_bf16(SUMS, X, W)
#define TILE_DOT_I8(SUMS, X, W)   emulated_dot_i8(SUMS, X, W)
#define TILES_BEGIN(shape)        emulated_begin(shape)
#define TILES_END()               emulated_end()
#include "base/tiles.h"

static _Thread_local uint8_t emulated_tiles[8][16][64];
static _Thread_local tile_shape emulated_shape;

static inline void emulated_end(void)
{
    memset(emulated_tiles, 0xff, sizeof emulated_tiles);
    memset(&emulated_shape, 0, sizeof emulated_shape);
}

static inline void emulated_begin(const tile_shape *shape)
{
    emulated_end();
    emulated_shape = *shape;
}

static inline void emulated_zero(int tile)
{
    memset(emulated_tiles[tile], 0, sizeof *emulated_tiles);
}

/* What the shape leaves out is zero, and not read. */
static inline void emulated_load(int tile, const void *from, int64_t step)
{
    emulated_zero(tile);
    for (int row = 0; row < emulated_shape.rows[tile]; row++)
        memcpy(emulated_tiles[tile][row], (const uint8_t *)from + row * step,
               emulated_shape.bytes[tile]);
}

static inline void emulated_store(int tile, void *to, int64_t step)
{
    for (int row = 0; row < emulated_shape.rows[tile]; row++)
        memcpy((uint8_t *)to + row * step, emulated_tiles[tile][row], emulated_shape.bytes[tile]);
}

/* Subnormals count as zero. */
static inline float emulated_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)(bits & 0x7f80 ? bits : bits & 0x8000) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Even and odd columns have sums of their own for the 32 of a tile. */
static inline void emulated_dot_bf16(int sums, int x, int w)
{
    float(*to)[16] = (float(*)[16])(void *)emulated_tiles[sums];
    const uint16_t(*a)[32] = (const uint16_t(*)[32])(const void *)emulated_tiles[x];
    const uint16_t(*b)[32] = (const uint16_t(*)[32])(const void *)emulated_tiles[w];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            float part[2] = {0, 0};
            for (int k = 0; k < 32; k++)
                part[k % 2] += emulated_bf16(a[i][k]) * emulated_bf16(b[k / 2][2 * j + k % 2]);
            to[i][j] += part[0] + part[1];
        }
}

static inline void emulated_dot_i8(int sums, int x, int w)
{
    uint32_t(*to)[16] = (uint32_t(*)[16])(void *)emulated_tiles[sums];
    const int8_t(*a)[64] = (const int8_t(*)[64])(const void *)emulated_tiles[x];
    const int8_t(*b)[64] = (const int8_t(*)[64])(const void *)emulated_tiles[w];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            for (int k = 0; k < 64; k++)
                to[i][j] += (uint32_t)(a[i][k] * b[k / 4][4 * j + k % 4]);
}

#endif
