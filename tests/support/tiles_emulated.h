// SPDX-License-Identifier: Apache-2.0
/*
 * The verbs of src/kernel/cpu/x86/tiles.h in plain C, so that the rows on AMX's tiles are tested
 * on CPUs that have none: everything but the tile instructions is the rows' own.
 */
#ifndef SPARSE24_TESTS_TILES_EMULATED_H
#define SPARSE24_TESTS_TILES_EMULATED_H

#include <stdint.h>
#include <string.h>

static _Thread_local uint8_t emulated_tiles[8][16][64];

static inline void emulated_load(int tile, const void *from, int64_t step)
{
    for (int row = 0; row < 16; row++)
        memcpy(emulated_tiles[tile][row], (const uint8_t *)from + row * step, 64);
}

static inline void emulated_store(int tile, void *to, int64_t step)
{
    for (int row = 0; row < 16; row++)
        memcpy((uint8_t *)to + row * step, emulated_tiles[tile][row], 64);
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

#define TILE_ZERO(T)              memset(emulated_tiles[T], 0, sizeof *emulated_tiles)
#define TILE_LOAD(T, from, step)  emulated_load(T, from, step)
#define TILE_STORE(T, to, step)   emulated_store(T, to, step)
#define TILE_DOT_BF16(SUMS, X, W) emulated_dot_bf16(SUMS, X, W)
#define TILE_DOT_I8(SUMS, X, W)   emulated_dot_i8(SUMS, X, W)
#define TILES_BEGIN(shape)        ((void)(shape), TILES_END())
#define TILES_END()               memset(emulated_tiles, 0xff, sizeof emulated_tiles)

#endif
