// SPDX-License-Identifier: Apache-2.0
/* The weight layout that the vector kernels share, of format/layouts.def: its sizes, and packing on
   all threads. */
#ifndef S24_KERNEL_CPU_ROWS16_H
#define S24_KERNEL_CPU_ROWS16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/format.h"
#include "kernel/kernel.h"

enum {
    ROWS = S24I_ROWS16,            /* rows of a row block */
    COLUMNS = S24I_ROWS16_COLUMNS, /* columns of a k block */
    GROUPS = COLUMNS / 4,          /* and its groups of four */
    CODES = S24I_ROWS16_CODES,     /* bytes of a k block's codes */
    SLOTS = 16                     /* vectors of single values of a k block */
};

static inline int64_t rows16_blocks(int64_t n)
{
    return (n + ROWS - 1) / ROWS;
}

static inline int64_t rows16_k_blocks(int64_t k)
{
    return (k + COLUMNS - 1) / COLUMNS;
}

/* Groups of four that the last k block has columns for. */
static inline int64_t rows16_last_groups(int64_t k)
{
    return (k - 1) % COLUMNS / 4 + 1;
}

/* A weight on its way to a layout of row blocks, which threads share out. */
typedef struct packing {
    void *w;
    const s24i_weight *from;
} packing;

static inline void rows16_share(void *w, const s24i_weight *from, int64_t blocks,
                                void (*pack)(void *arg, int64_t begin, int64_t end, int thread))
{
    packing p = {w, from};
    from->parallel.run(from->parallel.pool, blocks, pack, &p);
}

/* The codes and the integers that a row keeps of `columns` columns from k on, a multiple of 8: past
   k and n zeros, with the code of positions 0 and 1. */
static inline void rows16_integers(uint8_t *codes, int8_t *kept, const s24i_weight *from,
                                   int64_t row, int64_t k, int64_t columns)
{
    const int64_t left = row < from->n ? from->k - k : 0;
    const int64_t groups = (left < columns ? left : columns) / 4;
    memset(codes, 0x44, (size_t)columns / 8);
    memset(kept, 0, (size_t)columns / 2);
    if (groups <= 0) return;
    memcpy(kept, (const int8_t *)from->values + (row * from->k + k) / 2, (size_t)(2 * groups));
    memcpy(codes, from->indices + row * s24i_index_stride(from->k) + k / 8,
           (size_t)((groups + 1) / 2));
    if (groups & 1) codes[groups / 2] = (uint8_t)((codes[groups / 2] & 0xf) | 0x40);
}

/* Row blocks [begin, end) of `bytes` each, row by row into their lanes. */
static inline void rows16_by_rows(const packing *p, int64_t begin, int64_t end, int64_t bytes,
                                  void (*pack)(uint8_t *block, int64_t lane,
                                               const s24i_weight *from, int64_t row))
{
    uint8_t *w = p->w;
    memset(w + begin * bytes, 0, (size_t)((end - begin) * bytes));
    for (int64_t row = begin * ROWS; row < end * ROWS; row++)
        pack(w + row / ROWS * bytes, row % ROWS, p->from, row);
}

#endif
