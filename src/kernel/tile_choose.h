// SPDX-License-Identifier: Apache-2.0
/*
 * Selections of a 4x4 tile that leave at most two in every row and every column, so that the matrix
 * and its transpose are 2:4 at once. Devices choose the same, ties, NaN and Inf included.
 *
 * The best of the 90 patterns: "Accelerated Sparse Neural Training", Hubara et al., NeurIPS 2021,
 * and "Accelerating Transformer Pre-training with 2:4 Sparsity", Hu et al., ICML 2024. The greedy
 * rules and causal1122 are PyTorch's (_sparse_semi_structured_tile). They sort with a network that
 * exchanges two keys unless the first is smaller, so equal keys change places and a NaN does with
 * every key; what they keep of a tie follows from that.
 */
#ifndef S24_KERNEL_TILE_CHOOSE_H
#define S24_KERNEL_TILE_CHOOSE_H

#include <math.h>
#include <stdint.h>

#include "base/everywhere.h"

/* Steps are spelled out, by tables of constants: a device keeps all of a tile in registers. */

/* Columns that a row keeps, as one of six pairs. */
#define S24I_TILE_PAIR(keep)                                                                       \
    ((keep) == 0x3   ? 0                                                                           \
     : (keep) == 0x5 ? 1                                                                           \
     : (keep) == 0x9 ? 2                                                                           \
     : (keep) == 0x6 ? 3                                                                           \
     : (keep) == 0xa ? 4                                                                           \
                     : 5)

/* Sums of the six pairs of a row; what weighs more than 2^124, and NaN, weighs that. */
S24I_CODE void s24i_tile_pairs(float pair[6], const float w[4], int there)
{
    const float most_of_one = 0x1p124f;
    float size[4];
    for (int i = 0; i < 4; i++)
        size[i] = !there ? 0 : fabsf(w[i]) < most_of_one ? fabsf(w[i]) : most_of_one;
    pair[0] = size[0] + size[1];
    pair[1] = size[0] + size[2];
    pair[2] = size[0] + size[3];
    pair[3] = size[1] + size[2];
    pair[4] = size[1] + size[3];
    pair[5] = size[2] + size[3];
}

/* The pattern with the largest Σ|w|, in f32 as (row 0 + row 1) + (row 2 + row 3), each row's lower
   column first; of equal sums the first in the list. From 2^124 on, and for NaN, w weighs 2^124, so
   that no sum overflows. */
S24I_CODE unsigned s24i_tile_best(const float w[16], int rows)
{
    float pair[4][6], most = -1;
    unsigned best = 0;
    for (int r = 0; r < 4; r++)
        s24i_tile_pairs(pair[r], w + 4 * r, r < rows);
#define TILE_PATTERN(a, b, c, d)                                                                   \
    {                                                                                              \
        const float sum = (pair[0][S24I_TILE_PAIR(a)] + pair[1][S24I_TILE_PAIR(b)]) +              \
                          (pair[2][S24I_TILE_PAIR(c)] + pair[3][S24I_TILE_PAIR(d)]);               \
        best = sum > most ? (a) | (b) << 4 | (c) << 8 | (d) << 12 : best;                          \
        most = sum > most ? sum : most;                                                            \
    }
#include "kernel/tile_patterns.def"
#undef TILE_PATTERN
    return best;
}

/* Two keys and what they carry change places unless the first is smaller. */
S24I_CODE void s24i_tile_exchange(float *a, float *b, uint32_t *of_a, uint32_t *of_b)
{
    const float key = *a;
    const uint32_t of = *of_a;
    const int stay = key < *b;
    *a = stay ? key : *b;
    *b = stay ? *b : key;
    *of_a = stay ? of : *of_b;
    *of_b = stay ? *of_b : of;
}

/* From the largest key down, each that finds its row and its column with fewer than two; 7 or 8. A
   key carries its place, from bit 16 on, and a one for its row, from bit 0, and for its column,
   from bit 8, two bits each. */
S24I_CODE unsigned s24i_tile_by_keys(float key[16], int rows)
{
    uint32_t of[16], kept = 0;
    for (int i = 0; i < 16; i++) {
        of[i] = 1u << (16 + i) | 1u << 2 * (i / 4) | 1u << (8 + 2 * (i % 4));
        if (i >= 4 * rows) key[i] = -INFINITY; /* rows that are not there come last */
    }
#define TILE_EXCHANGE(i, j) s24i_tile_exchange(&key[i], &key[j], &of[i], &of[j]);
#include "kernel/tile_exchanges.def"
#undef TILE_EXCHANGE
    for (int i = 15; i >= 0; i--)
        kept += kept >> 1 & of[i] & 0x5555u ? 0 : of[i];
    return kept >> 16;
}

S24I_CODE unsigned s24i_tile_greedy(const float w[16], int rows)
{
    float key[16];
    for (int i = 0; i < 16; i++)
        key[i] = fabsf(w[i]);
    return s24i_tile_by_keys(key, rows);
}

S24I_CODE unsigned s24i_tile_signed(const float w[16], int rows)
{
    float key[16];
    for (int i = 0; i < 16; i++)
        key[i] = w[i];
    return s24i_tile_by_keys(key, rows);
}

/* Row by row, the largest w first, at most 1, 1, 2, 2 of them and two of a column; what a row keeps
   does not depend on the rows below it. */
S24I_CODE unsigned s24i_tile_causal1122(const float w[16], int rows)
{
    unsigned in_col = 0, mask = 0; /* counts of columns, two bits each */
    for (int row = 0; row < rows; row++) {
        float key[4];
        uint32_t of[4];
        int left = row < 2 ? 1 : 2;
        for (int i = 0; i < 4; i++) {
            key[i] = w[4 * row + i];
            of[i] = (uint32_t)i;
        }
        s24i_tile_exchange(&key[0], &key[1], &of[0], &of[1]);
        s24i_tile_exchange(&key[2], &key[3], &of[2], &of[3]);
        s24i_tile_exchange(&key[0], &key[2], &of[0], &of[2]);
        s24i_tile_exchange(&key[1], &key[3], &of[1], &of[3]);
        s24i_tile_exchange(&key[1], &key[2], &of[1], &of[2]);
        for (int i = 3; i >= 0 && left > 0; i--) {
            if (in_col >> 2 * of[i] & 2) continue;
            in_col += 1u << 2 * of[i];
            left--;
            mask |= 1u << (4 * row + (int)of[i]);
        }
    }
    return mask;
}

#endif
