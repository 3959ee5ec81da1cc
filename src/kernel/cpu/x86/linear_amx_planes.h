// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of linear_amx.h where an operand is the sum of three tiles, each 2⁻⁸ of the one before:
 * x = x1 + x2 + x3 and w = w1 + w2 + w3, whose product is x1·w1 + x1·w2 + x2·w1 + x1·w3 + x2·w2 +
 * x3·w1 but for 2⁻²² of it. A step's tiles of tokens are those of x1, then of x2, then of x3; the
 * three of a row block follow each other.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_PLANES_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_PLANES_H

/* Two tiles of tokens with the weights in the tiles 4 and 5. */
#define EVEN(x)                                                                                    \
    do {                                                                                           \
        TILE_LOAD(6, x, 64);                                                                       \
        DOT(0, 6, 4);                                                                              \
        DOT(1, 6, 5);                                                                              \
        TILE_LOAD(7, (x) + TILE, 64);                                                              \
        DOT(2, 7, 4);                                                                              \
        DOT(3, 7, 5);                                                                              \
    } while (0)

/* Two tiles of tokens and two row blocks. */
TARGET_INLINE void step_even(const visit *v, int64_t t, const int WHAT)
{
    const uint8_t *x = v->x + t * v->x_next;
    const uint8_t *first = v->w[0] + (t + LEAD) * TILE_BYTES;
    const uint8_t *second = v->w[1] + (t + LEAD) * TILE_BYTES;
    uint8_t *made = tile_at(v, t + LEAD, 0), *other = tile_at(v, t + LEAD, 1);
    TILE_LOAD(4, tile_at(v, t, 0), 64);
    TILE_LOAD(5, tile_at(v, t, 1), 64);
    EVEN(x);
    prepare(made, first, 0, WHAT), prepare(made, first, 1, WHAT);
    EVEN(x + 2 * TILE);
    prepare(made, first, 2, WHAT), prepare(made, first, 3, WHAT);
    EVEN(x + 4 * TILE);
    TILE_LOAD(4, tile_at(v, t, 0) + TILE, 64);
    TILE_LOAD(5, tile_at(v, t, 1) + TILE, 64);
    EVEN(x);
    prepare(other, second, 0, WHAT), prepare(other, second, 1, WHAT);
    EVEN(x + 2 * TILE);
    prepare(other, second, 2, WHAT), prepare(other, second, 3, WHAT);
    TILE_LOAD(4, tile_at(v, t, 0) + 2 * TILE, 64);
    TILE_LOAD(5, tile_at(v, t, 1) + 2 * TILE, 64);
    EVEN(x);
}

/* A tile of tokens, the 7th, with tile `plane` of four row blocks. */
TARGET_INLINE void wide(const visit *v, int64_t t, int64_t plane)
{
    TILE_LOAD(4, tile_at(v, t, 0) + plane * TILE, 64);
    DOT(0, 7, 4);
    TILE_LOAD(5, tile_at(v, t, 1) + plane * TILE, 64);
    DOT(1, 7, 5);
    TILE_LOAD(6, tile_at(v, t, 2) + plane * TILE, 64);
    DOT(2, 7, 6);
    TILE_LOAD(4, tile_at(v, t, 3) + plane * TILE, 64);
    DOT(3, 7, 4);
}

/* One tile of tokens and four row blocks. */
TARGET_INLINE void step_wide(const visit *v, int64_t t, const int WHAT)
{
    const int64_t at = (t + LEAD) * TILE_BYTES;
    const uint8_t *x = v->x + t * v->x_next;
    TILE_LOAD(7, x, 64);
    wide(v, t, 0);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 0), v->w[0] + at);
    wide(v, t, 1);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 1), v->w[1] + at);
    wide(v, t, 2);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 2), v->w[2] + at);
    TILE_LOAD(7, x + TILE, 64);
    wide(v, t, 0);
    if (WHAT == EXPANDS) expand_all(tile_at(v, t + LEAD, 3), v->w[3] + at);
    wide(v, t, 1);
    TILE_LOAD(7, x + 2 * TILE, 64);
    wide(v, t, 0);
}

#endif
