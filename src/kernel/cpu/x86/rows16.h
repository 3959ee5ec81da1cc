// SPDX-License-Identifier: Apache-2.0
/*
 * The weight layout that the x86 kernels share: one sequential stream, values and indices together.
 *
 *   W [n, k]  ->  row blocks of 16 rows, each a run of k blocks of 32 columns:
 *
 *     64 B        uint32 codes[16]        row r of the block: 8 nibbles, group g at bits 4g,
 *                                         i0 | i1 << 2 (exactly the canonical index bytes)
 *     16 vectors  value slot[16][16]      slot 2g and 2g+1 of group g, one row a lane
 *
 * Sixteen rows a vector serve the kernels with rows in the lanes (few tokens) directly; those with
 * tokens in the lanes broadcast single values and decode the same codes with a shift and an `and`.
 * Rows past n and groups past k hold zeros and code 0.
 */
#ifndef S24_KERNEL_X86_ROWS16_H
#define S24_KERNEL_X86_ROWS16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    ROWS = 16,    /* rows of a row block */
    COLUMNS = 32, /* columns of a k block */
    CODES = 64,   /* bytes of a k block's codes */
    SLOTS = 16    /* value vectors of a k block */
};

static inline int64_t rows16_blocks(int64_t n)
{
    return (n + ROWS - 1) / ROWS;
}

static inline int64_t rows16_k_blocks(int64_t k)
{
    return (k + COLUMNS - 1) / COLUMNS;
}

/* Bytes of a k block whose values take `value` bytes each. */
static inline int64_t rows16_block_bytes(int64_t value)
{
    return CODES + SLOTS * ROWS * value;
}

static inline size_t rows16_bytes(int64_t n, int64_t k, int64_t value)
{
    return (size_t)(rows16_blocks(n) * rows16_k_blocks(k) * rows16_block_bytes(value));
}

/* One row of a k block from the canonical form: `groups` groups of values and their code bytes. */
static inline void rows16_pack_row(uint8_t *block, int64_t lane, int64_t value,
                                   const uint8_t *values, const uint8_t *codes, int64_t groups)
{
    uint8_t word[4] = {0};
    memcpy(word, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) word[groups / 2] &= 0xf;
    memcpy(block + 4 * lane, word, sizeof word);
    for (int64_t s = 0; s < 2 * groups; s++)
        memcpy(block + CODES + (s * ROWS + lane) * value, values + s * value, (size_t)value);
}

static inline void rows16_pack(void *w, const void *values, const uint8_t *indices, int64_t n,
                               int64_t k, int64_t value)
{
    const int64_t k_blocks = rows16_k_blocks(k), bytes = rows16_block_bytes(value);
    memset(w, 0, rows16_bytes(n, k, value));
    for (int64_t row = 0; row < n; row++) {
        uint8_t *block = (uint8_t *)w + row / ROWS * k_blocks * bytes;
        const uint8_t *row_values = (const uint8_t *)values + row * (k / 2) * value;
        const uint8_t *row_codes = indices + row * ((k + 7) / 8);
        for (int64_t q = 0; q < k_blocks; q++, block += bytes) {
            int64_t groups = (k - q * COLUMNS) / 4;
            rows16_pack_row(block, row % ROWS, value, row_values + q * (COLUMNS / 2) * value,
                            row_codes + q * (COLUMNS / 8), groups < 8 ? groups : 8);
        }
    }
}

#endif
