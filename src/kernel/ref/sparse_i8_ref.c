// SPDX-License-Identifier: Apache-2.0
/* The definition of products of 8-bit weights in blocks of 4x1 by tokens quantised as they come:
   sixteen tokens at a time, whose four bytes are multiplied one after the other. */
#define TARGET
#define X_OFFSET 0

#include "kernel/cpu/sparse_i8_finish.h"
#include "kernel/cpu/sparse_i8_tile.h"

enum { TOKENS = 16 };

static void sum_tile(const s24i_sparse_i8 *w, const uint8_t *x, int64_t line, const float *own,
                     float *to)
{
    int32_t sums[OUTS * TOKENS] = {0};
    for (int64_t g = w->starts[line]; g < w->starts[line + 1]; g++)
        for (int c = 0; c < 4; c++) {
            const int8_t *column = (const int8_t *)x + (int64_t)w->index[4 * g + c] * TOKENS;
            for (int o = 0; o < OUTS; o++)
                for (int t = 0; t < TOKENS; t++)
                    sums[o * TOKENS + t] += w->values[4 * (OUTS * g + o) + c] * column[t];
        }
    for (int i = 0; i < OUTS * TOKENS; i++)
        to[i] = (float)sums[i] * w->scales[OUTS * line + i / TOKENS] * own[i % TOKENS];
}

static const tile_kind tiles[] = {{TOKENS, 1, sum_tile}};
enum { TILES = 1 };

#include "kernel/cpu/sparse_i8_driver.h"

ROW(s24i_sparse_i8_ref, "sparse_4x1_i8_ref", S24_CPU_BASELINE, 0)
