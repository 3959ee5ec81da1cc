// SPDX-License-Identifier: Apache-2.0
/* The sums of one line of 8-bit blocks of 4x1 over a tile of tokens: what the rows of
   sparse_i8_driver.h define by their instruction set. */
#ifndef S24_KERNEL_CPU_SPARSE_I8_TILE_H
#define S24_KERNEL_CPU_SPARSE_I8_TILE_H

#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/sparse_i8.h"

enum { OUTS = S24I_SPARSE_OUTS };

/* Floats of a line's outputs over a tile of tokens that begins at x, [OUTS][tokens]; own: scales of
   the tokens. */
typedef struct tile_kind {
    int tokens;
    int parts; /* of sixteen tokens among which mix deals out its vectors, 1: none */
    void (*sum)(const s24i_sparse_i8 *w, const uint8_t *x, int64_t line, const float *own,
                float *to);
} tile_kind;

/* Which token of a tile lies at a place of its columns, so that mix has neighbours together. */
static inline int64_t token_at(const tile_kind *tile, int64_t place)
{
    if (tile->parts == 1) return place;
    return 4 * tile->parts * (place % 16 / 4) + 4 * (place / 16) + place % 4;
}

/* Defines the sum of a tile: `vec` of 4-byte lanes, VECS of them; start(n), n in all lanes; mix(r,
   x, index), which interleaves four columns; dot(sum, r, four), which adds the products of a
   token's four; and put(to, sum, scale, own), which stores float(sum)·scale·own. PART outputs are
   summed at once. Sums begin without what the tokens' offset adds. */
#define SUM_TILE(name, vec, VECS, start, mix, dot, put, PART)                                      \
    TARGET static void name(const s24i_sparse_i8 *w, const uint8_t *x, int64_t line,               \
                            const float *own, float *to)                                           \
    {                                                                                              \
        enum { WIDE = (int)sizeof(vec) / 4 };                                                      \
        for (int64_t n = OUTS * line; n < OUTS * (line + 1); n += PART) {                          \
            const int8_t *values = w->values + 4 * (n - OUTS * line);                              \
            vec sum[PART][VECS], r[VECS];                                                          \
            UNROLL for (int o = 0; o < PART; o++)                                                  \
            {                                                                                      \
                UNROLL for (int v = 0; v < VECS; v++) sum[o][v] =                                  \
                    start((int32_t)(0 - X_OFFSET * (uint32_t)w->totals[n + o]));                   \
            }                                                                                      \
            for (int64_t g = w->starts[line]; g < w->starts[line + 1]; g++) {                      \
                mix(r, x, w->index + 4 * g);                                                       \
                UNROLL for (int o = 0; o < PART; o++)                                              \
                {                                                                                  \
                    int32_t four;                                                                  \
                    memcpy(&four, values + 4 * (OUTS * g + o), sizeof four);                       \
                    UNROLL for (int v = 0; v < VECS; v++) sum[o][v] = dot(sum[o][v], r[v], four);  \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int o = 0; o < PART; o++, to += VECS * WIDE)                               \
            {                                                                                      \
                UNROLL for (int v = 0; v < VECS; v++)                                              \
                    put(to + v * WIDE, sum[o][v], w->scales[n + o], own + v * WIDE);               \
            }                                                                                      \
        }                                                                                          \
    }

#endif
