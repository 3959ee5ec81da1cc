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

/* One row a pattern, bit 4·row + column. */
S24I_TABLE uint16_t s24i_tile_patterns[] = {
#define TILE_PATTERN(a, b, c, d) (a) | (b) << 4 | (c) << 8 | (d) << 12,
#include "kernel/tile_patterns.def"
#undef TILE_PATTERN
};
enum { S24I_TILE_PATTERNS = sizeof s24i_tile_patterns / sizeof *s24i_tile_patterns };

S24I_TABLE uint8_t s24i_tile_exchanges[][2] = {
#define TILE_EXCHANGE(i, j) {i, j},
#include "kernel/tile_exchanges.def"
#undef TILE_EXCHANGE
};
enum {
    S24I_EXCHANGES_OF_4 = 5,
    S24I_EXCHANGES_OF_16 = sizeof s24i_tile_exchanges / sizeof *s24i_tile_exchanges
};

/* The sum of a row's two of a pattern. */
S24I_CODE float s24i_tile_pair(const float size[16], int row, unsigned pattern)
{
    const float *of = size + 4 * row;
    unsigned keep = pattern >> 4 * row & 15u;
    float first = of[keep & 1u ? 0 : keep & 2u ? 1 : 2];
    float second = of[keep & 8u ? 3 : keep & 4u ? 2 : 1];
    return first + second;
}

/* The pattern with the largest Σ|w|, in f32 as (row 0 + row 1) + (row 2 + row 3), each row's lower
   column first; of equal sums the first in the list. From 2^124 on, and for NaN, w weighs 2^124, so
   that no sum overflows. */
S24I_CODE unsigned s24i_tile_best(const float w[16], int rows)
{
    const float most_of_one = 0x1p124f;
    float size[16], most = -1;
    unsigned best = 0;
    for (int i = 0; i < 16; i++)
        size[i] = i >= 4 * rows ? 0 : fabsf(w[i]) < most_of_one ? fabsf(w[i]) : most_of_one;
    for (int p = 0; p < S24I_TILE_PATTERNS; p++) {
        float upper = s24i_tile_pair(size, 0, s24i_tile_patterns[p]) +
                      s24i_tile_pair(size, 1, s24i_tile_patterns[p]);
        float lower = s24i_tile_pair(size, 2, s24i_tile_patterns[p]) +
                      s24i_tile_pair(size, 3, s24i_tile_patterns[p]);
        if (!(upper + lower > most)) continue;
        most = upper + lower;
        best = s24i_tile_patterns[p];
    }
    return best;
}

/* Ascending; at[i] says where key i came from. */
S24I_CODE void s24i_tile_sort(float *key, uint8_t *at, int count)
{
    for (int i = 0; i < count; i++)
        at[i] = (uint8_t)i;
    for (int e = 0; e < (count == 4 ? S24I_EXCHANGES_OF_4 : S24I_EXCHANGES_OF_16); e++) {
        int i = s24i_tile_exchanges[e][0], j = s24i_tile_exchanges[e][1];
        if (key[i] < key[j]) continue;
        float larger = key[i];
        uint8_t from = at[i];
        key[i] = key[j], at[i] = at[j];
        key[j] = larger, at[j] = from;
    }
}

/* From the largest key down, each that finds its row and its column with fewer than two; 7 or 8. */
S24I_CODE unsigned s24i_tile_by_keys(float key[16], int rows)
{
    uint8_t at[16], in_row[4] = {0}, in_col[4] = {0};
    unsigned mask = 0;
    for (int i = 4 * rows; i < 16; i++)
        key[i] = -INFINITY; /* rows that are not there come last */
    s24i_tile_sort(key, at, 16);
    for (int i = 15; i >= 0; i--) {
        int row = at[i] / 4, col = at[i] % 4;
        if (in_row[row] == 2 || in_col[col] == 2) continue;
        in_row[row]++, in_col[col]++;
        mask |= 1u << at[i];
    }
    return mask;
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
    uint8_t in_col[4] = {0};
    unsigned mask = 0;
    for (int row = 0; row < rows; row++) {
        float key[4];
        uint8_t at[4];
        int left = row < 2 ? 1 : 2;
        for (int i = 0; i < 4; i++)
            key[i] = w[4 * row + i];
        s24i_tile_sort(key, at, 4);
        for (int i = 3; i >= 0 && left > 0; i--) {
            if (in_col[at[i]] == 2) continue;
            in_col[at[i]]++, left--;
            mask |= 1u << (4 * row + at[i]);
        }
    }
    return mask;
}

#endif
