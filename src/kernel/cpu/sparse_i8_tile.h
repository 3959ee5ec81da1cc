// SPDX-License-Identifier: Apache-2.0
/* The sums of one line of 8-bit blocks of 4x1 over a tile of tokens: what the rows of
   sparse_i8_driver.h define by their instruction set. */
#ifndef S24_KERNEL_CPU_SPARSE_I8_TILE_H
#define S24_KERNEL_CPU_SPARSE_I8_TILE_H

#include <string.h>

#include "kernel/cpu/cpu.h"
#include "kernel/sparse_i8.h"

enum { OUTS = S24I_SPARSE_OUTS };

/* Sums of a line's outputs over a tile of tokens that begins at x: [OUTS][tokens]. */
typedef struct tile_kind {
    int tokens;
    void (*sum)(const s24i_sparse_i8 *w, const uint8_t *x, int64_t line, int32_t *sums);
} tile_kind;

/* Defines the sum of a tile: `vec` of 4-byte lanes, VECS of them, mix(r, x, tokens, index), which
   interleaves four columns, dot(sum, r, four), which adds the products of a token's four, and
   order(sums), which puts tokens one after another. PART outputs are summed at once. */
#define SUM_TILE(name, vec, VECS, mix, dot, order, PART)                                           \
    TARGET static void name(const s24i_sparse_i8 *w, const uint8_t *x, int64_t line,               \
                            int32_t *sums)                                                         \
    {                                                                                              \
        enum { WIDE = (int)sizeof(vec) / 4 };                                                      \
        for (int part = 0; part < OUTS; part += PART) {                                            \
            vec sum[PART][VECS], r[VECS];                                                          \
            UNROLL for (int o = 0; o < PART; o++)                                                  \
            {                                                                                      \
                UNROLL for (int v = 0; v < VECS; v++) sum[o][v] = (vec){0};                        \
            }                                                                                      \
            for (int64_t g = w->starts[line]; g < w->starts[line + 1]; g++) {                      \
                mix(r, x, w->index + 4 * g);                                                       \
                UNROLL for (int o = 0; o < PART; o++)                                              \
                {                                                                                  \
                    int32_t four;                                                                  \
                    memcpy(&four, w->values + 4 * (OUTS * g + part + o), sizeof four);             \
                    UNROLL for (int v = 0; v < VECS; v++) sum[o][v] = dot(sum[o][v], r[v], four);  \
                }                                                                                  \
            }                                                                                      \
            UNROLL for (int o = 0; o < PART; o++)                                                  \
            {                                                                                      \
                order(sum[o]);                                                                     \
                memcpy(sums + (part + o) * VECS * WIDE, sum[o], sizeof sum[o]);                    \
            }                                                                                      \
        }                                                                                          \
    }

#endif
