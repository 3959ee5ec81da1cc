// SPDX-License-Identifier: Apache-2.0
/*
 * The weight layout that the vector kernels share: one sequential stream, values and indices together.
 *
 *   W [n, k]  ->  row blocks of 16 rows, each a run of k blocks of 32 columns:
 *
 *     64 B        uint32 codes[16]     row r of the block: 8 nibbles, group g at bits 4g,
 *                                      i0 | i1 << 2 (exactly the canonical index bytes)
 *     vectors     item slot[..][16]    one row a lane; an item is one value (then slots 2g and 2g+1
 *                                      are group g's) or both of a group (then slot g is)
 *
 * Sixteen rows a vector serve the kernels with rows in the lanes (few tokens) directly; those with
 * tokens in the lanes broadcast single items and decode the same codes with a shift and an `and`.
 * Rows past n and groups past k hold zeros and the code of positions 0 and 1.
 */
#ifndef S24_KERNEL_CPU_ROWS16_H
#define S24_KERNEL_CPU_ROWS16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"

enum {
    ROWS = 16,    /* rows of a row block */
    COLUMNS = 32, /* columns of a k block */
    GROUPS = 8,   /* and its groups of four */
    CODES = 64,   /* bytes of a k block's codes */
    SLOTS = 16    /* vectors of single values of a k block */
};

static inline int64_t rows16_blocks(int64_t n)
{
    return (n + ROWS - 1) / ROWS;
}

static inline int64_t rows16_k_blocks(int64_t k)
{
    return (k + COLUMNS - 1) / COLUMNS;
}

/* Bytes in blocks of `block` bytes. */
static inline size_t rows16_bytes(int64_t n, int64_t k, int64_t block)
{
    return (size_t)(rows16_blocks(n) * rows16_k_blocks(k) * block);
}

/* One row of a k block from the canonical form: `groups` groups of `items` items of `item` bytes
   and their code bytes. */
static inline void rows16_pack_row(uint8_t *block, int64_t lane, int64_t items, int64_t item,
                                   const uint8_t *values, const uint8_t *codes, int64_t groups)
{
    uint8_t word[4] = {0x44, 0x44, 0x44, 0x44};
    memcpy(word, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) word[groups / 2] = (uint8_t)((word[groups / 2] & 0xf) | 0x40);
    memcpy(block + 4 * lane, word, sizeof word);
    for (int64_t s = 0; s < items * groups; s++)
        memcpy(block + CODES + (s * ROWS + lane) * item, values + s * item, (size_t)item);
}

/* Row block b of w, whole. */
static inline void rows16_pack_block(void *w, const s24i_weight *from, int64_t b, int64_t items,
                                     int64_t item)
{
    const int64_t n = from->n, k = from->k, k_blocks = rows16_k_blocks(k);
    const int64_t bytes = CODES + GROUPS * items * ROWS * item;
    uint8_t *first = (uint8_t *)w + b * k_blocks * bytes;
    memset(first, 0, (size_t)(k_blocks * bytes));
    for (int64_t row = b * ROWS; row < (b + 1) * ROWS; row++) {
        uint8_t *block = first;
        const int64_t at = row < n ? row : 0;
        const uint8_t *values = (const uint8_t *)from->values + at * (k / 4) * items * item;
        const uint8_t *codes = from->indices + at * ((k + 7) / 8);
        for (int64_t q = 0; q < k_blocks; q++, block += bytes) {
            int64_t groups = row < n ? (k - q * COLUMNS) / 4 : 0;
            rows16_pack_row(block, row % ROWS, items, item, values + q * GROUPS * items * item,
                            codes + q * (COLUMNS / 8), groups < GROUPS ? groups : GROUPS);
        }
    }
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
