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

#endif
