// SPDX-License-Identifier: Apache-2.0
/*
 * The order of Hopper's sparse tensor cores (docs/format.md, section 4): blocks of 64 rows by 64
 * (16-bit) or 128 (8-bit) columns, values first, then metadata, so that a block is one copy and one
 * format serves every tile.
 */
#include <string.h>

#include "format/element.h"

enum { SLAB = S24I_HOPPER_SLAB, VALUE_BYTES = 4096, STEP_VALUES = 2048 };

static int64_t block_cols(size_t element)
{
    return element == 2 ? 64 : 128;
}

static size_t block_bytes(size_t element)
{
    return VALUE_BYTES + (element == 2 ? 512 : 1024);
}

size_t s24i_hopper_slab_bytes(s24_dtype dtype, int64_t k)
{
    size_t element = s24_dtype_bytes(dtype);
    if (element != 1 && element != 2) return 0;
    int64_t cols = block_cols(element);
    return (size_t)((k + cols - 1) / cols) * block_bytes(element);
}

/* Of a row in its slab and a group in its block: where its two values are, in bytes. Each half of
   the columns is a step of the hardware; in a step, 8 rows by 16 bytes lie together. */
static size_t values_at(size_t element, int row, int group)
{
    int groups = element == 2 ? 8 : 16; /* a step */
    size_t byte = (size_t)(group % groups) * 2 * element;
    return (size_t)(group / groups) * STEP_VALUES + (size_t)(row / 8) * 256 + byte / 16 * 128 +
           (size_t)(row % 8) * 16 + byte % 16;
}

/* Where its code is: byte, and which half of it. A word belongs to a thread of the warpgroup. */
static size_t code_at(size_t element, int row, int group, int *shift)
{
    int warp = row / 16, g = row % 8, high = row % 16 / 8;
    *shift = group % 2 * 4;
    if (element == 2) { /* a word: four groups of row g, the same four of row g + 8 */
        int lane = g * 4 + group / 4;
        return VALUE_BYTES + (size_t)(warp * 32 + lane) * 4 + (size_t)(high * 2 + group % 4 / 2);
    }
    /* A word: eight groups of a row, of one step; a thread's two steps side by side. */
    int step = group / 16, lane = g * 4 + group % 16 / 8 * 2 + high;
    return VALUE_BYTES + (size_t)((warp * 32 + lane) * 2 + step) * 4 + (size_t)(group % 8 / 2);
}

void s24i_hopper_pack_slab(void *slab, s24_dtype dtype, const void *values, const uint8_t *indices,
                           int64_t rows, int64_t k)
{
    size_t element = s24_dtype_bytes(dtype), bytes = block_bytes(element);
    int64_t groups = block_cols(element) / 4, blocks = (k / 4 + groups - 1) / groups;
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *block = (uint8_t *)slab + (size_t)b * bytes;
        memset(block, 0, VALUE_BYTES);
        memset(block + VALUE_BYTES, 0xee, bytes - VALUE_BYTES); /* what is not there: code E */
        for (int r = 0; r < SLAB && r < rows; r++) {
            const char *from = (const char *)values + (size_t)r * (size_t)(k / 2) * element;
            for (int i = 0; i < groups && b * groups + i < k / 4; i++) {
                int64_t group = b * groups + i;
                int shift;
                uint8_t *code = block + code_at(element, r, i, &shift);
                memcpy(block + values_at(element, r, i), from + (size_t)group * 2 * element,
                       2 * element);
                *code = (uint8_t)((*code & ~(0xfu << shift)) |
                                  s24i_code(indices + r * s24i_index_stride(k), group) << shift);
            }
        }
    }
}

void s24i_hopper_unpack_slab(void *values, uint8_t *indices, s24_dtype dtype, const void *slab,
                             int64_t rows, int64_t k)
{
    size_t element = s24_dtype_bytes(dtype), bytes = block_bytes(element);
    int64_t groups = block_cols(element) / 4;
    for (int r = 0; r < SLAB && r < rows; r++) {
        char *to = (char *)values + (size_t)r * (size_t)(k / 2) * element;
        uint8_t *codes = indices + r * s24i_index_stride(k);
        memset(codes, 0, (size_t)s24i_index_stride(k));
        for (int64_t group = 0; group < k / 4; group++) {
            const uint8_t *block = (const uint8_t *)slab + (size_t)(group / groups) * bytes;
            int i = (int)(group % groups), shift;
            unsigned code = block[code_at(element, r, i, &shift)];
            memcpy(to + (size_t)group * 2 * element, block + values_at(element, r, i), 2 * element);
            codes[group / 2] |= (uint8_t)((code >> shift & 0xfu) << (group % 2 * 4));
        }
    }
}
