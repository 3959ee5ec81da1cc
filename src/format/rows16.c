// SPDX-License-Identifier: Apache-2.0
/* The orders of layouts.def: those of floats, in blocks of 16 rows; integers are scaled.c's. See
   format.h, and docs/format.md, section 4. */
#include <string.h>

#include "format/scaled.h"

enum {
    ROWS = S24I_ROWS16,
    COLUMNS = S24I_ROWS16_COLUMNS,
    CODES = S24I_ROWS16_CODES,
    GROUPS = COLUMNS / 4, /* of a k block */
    FIRST_TWO = 0x44      /* the code of positions 0 and 1, twice */
};

#define LAYOUT(symbol, name, dtype, items, item)                                                   \
    const s24i_layout s24i_layout_##symbol = {name, dtype, items, item, 0, 1, 0};
#define INTEGERS(symbol, name, bits, quarters)                                                     \
    const s24i_layout s24i_layout_##symbol = {name, S24_I8, 0, 0, bits, quarters, 0};              \
    const s24i_layout s24i_layout_##symbol##_g64 = {                                               \
        name "-g64", S24_I8, 0, 0, bits, quarters, 64};                                            \
    const s24i_layout s24i_layout_##symbol##_g128 = {name "-g128", S24_I8,   0,  0,                \
                                                     bits,         quarters, 128};
#include "format/layouts.def"
#undef LAYOUT
#undef INTEGERS
#define LAYOUT(symbol, name, dtype, items, item) &s24i_layout_##symbol,
#define INTEGERS(symbol, name, bits, quarters)                                                     \
    &s24i_layout_##symbol, &s24i_layout_##symbol##_g64, &s24i_layout_##symbol##_g128,
const s24i_layout *const s24i_layouts[] = {
#include "format/layouts.def"
    NULL};
#undef LAYOUT
#undef INTEGERS

int s24i_layout_is_like(const s24i_layout *a, const s24i_layout *b)
{
    return a->dtype == b->dtype && a->items == b->items && a->bits == b->bits &&
           a->quarters == b->quarters;
}

const s24i_layout *s24i_layout_of_group(const s24i_layout *like, int64_t group, int64_t k)
{
    if (!like->bits) return like;
    for (int i = 0; s24i_layouts[i]; i++)
        if (s24i_layout_is_like(s24i_layouts[i], like) &&
            s24i_layouts[i]->group == (group == k ? 0 : group))
            return s24i_layouts[i];
    return NULL;
}

static inline int64_t k_blocks_of(int64_t k)
{
    return (k + COLUMNS - 1) / COLUMNS;
}

static inline int64_t k_block_bytes(int64_t items, int64_t item)
{
    return CODES + GROUPS * items * ROWS * item;
}

/* Groups of k block q that lie before k. */
static inline int64_t groups_of(int64_t k, int64_t q)
{
    const int64_t left = k / 4 - q * GROUPS;
    return left < GROUPS ? left : GROUPS;
}

int64_t s24i_layout_block_bytes(const s24i_layout *layout, int64_t k)
{
    const int64_t group = layout->group ? layout->group : k;
    if (layout->bits) return s24i_scaled_of(layout->quarters, layout->bits, k, group).bytes;
    return k_blocks_of(k) * k_block_bytes(layout->items, layout->item);
}

size_t s24i_layout_bytes(const s24i_layout *layout, int64_t n, int64_t k)
{
    const int64_t rows = s24i_layout_rows(layout);
    return (size_t)((n + rows - 1) / rows * s24i_layout_block_bytes(layout, k));
}

/* ---- to the layout --------------------------------------------------------------------------- */

/* One row of a k block from the canonical form. */
static inline void pack_row(uint8_t *block, int64_t lane, int64_t items, int64_t item,
                            const uint8_t *values, const uint8_t *codes, int64_t groups)
{
    uint8_t word[4] = {FIRST_TWO, FIRST_TWO, FIRST_TWO, FIRST_TWO};
    memcpy(word, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) word[groups / 2] = (uint8_t)((word[groups / 2] & 0xf) | 0x40);
    memcpy(block + 4 * lane, word, sizeof word);
    for (int64_t s = 0; s < items * groups; s++)
        memcpy(block + CODES + (s * ROWS + lane) * item, values + s * item, (size_t)item);
}

static inline void pack_block(uint8_t *first, const uint8_t *values, const uint8_t *indices,
                              int64_t rows, int64_t k, int64_t items, int64_t item)
{
    const int64_t k_blocks = k_blocks_of(k), bytes = k_block_bytes(items, item);
    if (rows < ROWS || k % COLUMNS) memset(first, 0, (size_t)(k_blocks * bytes));
    for (int64_t lane = 0; lane < ROWS; lane++) {
        const int64_t row = lane < rows ? lane : 0;
        uint8_t *block = first;
        for (int64_t q = 0; q < k_blocks; q++, block += bytes)
            pack_row(block, lane, items, item, values + (row * (k / 4) + q * GROUPS) * items * item,
                     indices + row * s24i_index_stride(k) + q * (COLUMNS / 8),
                     lane < rows ? groups_of(k, q) : 0);
    }
}

void s24i_layout_pack_block(const s24i_layout *layout, void *block, const s24i_rows *of)
{
    const int64_t rows = of->rows < ROWS ? of->rows : ROWS;
    if (layout->bits)
        s24i_scaled_pack(layout, block, of);
    else if (layout->items == 1)
        pack_block(block, of->values, of->indices, rows, of->k, 1, 4);
    else if (layout->item == 4)
        pack_block(block, of->values, of->indices, rows, of->k, 2, 4);
    else
        pack_block(block, of->values, of->indices, rows, of->k, 2, 2);
}

/* ---- and back -------------------------------------------------------------------------------- */

static inline void unpack_block(uint8_t *values, uint8_t *indices, const uint8_t *first,
                                int64_t rows, int64_t k, int64_t items, int64_t item)
{
    const int64_t k_blocks = k_blocks_of(k), bytes = k_block_bytes(items, item);
    for (int64_t row = 0; row < rows; row++) {
        uint8_t *to = values + row * (k / 4) * items * item;
        uint8_t *codes = indices + row * s24i_index_stride(k);
        const uint8_t *block = first;
        for (int64_t q = 0; q < k_blocks; q++, block += bytes) {
            const int64_t groups = groups_of(k, q);
            memcpy(codes + q * (COLUMNS / 8), block + 4 * row, (size_t)((groups + 1) / 2));
            for (int64_t s = 0; s < items * groups; s++, to += item)
                memcpy(to, block + CODES + (s * ROWS + row) * item, (size_t)item);
        }
        if (k % 8) codes[k / 8] &= 0xf;
    }
}

void s24i_layout_unpack_block(const s24i_layout *layout, const s24i_rows *to, const void *block)
{
    const int64_t rows = to->rows < ROWS ? to->rows : ROWS;
    if (layout->bits)
        s24i_scaled_unpack(layout, to, block);
    else if (layout->items == 1)
        unpack_block(to->values, to->indices, block, rows, to->k, 1, 4);
    else if (layout->item == 4)
        unpack_block(to->values, to->indices, block, rows, to->k, 2, 4);
    else
        unpack_block(to->values, to->indices, block, rows, to->k, 2, 2);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Are all codes of a k block legal? Bytes throughout, so that the loop vectorises. */
static int codes_are_legal(const uint8_t *codes)
{
    uint8_t good = 1;
    for (int i = 0; i < CODES; i++) {
        const uint8_t low = codes[i] & 15, high = codes[i] >> 4;
        good &= (uint8_t)((low & 3) < low >> 2) & (uint8_t)((high & 3) < high >> 2);
    }
    return good;
}

/* Is a group what stands past the matrix: its code that of positions 0 and 1, its values +0? */
static int is_nothing(const s24i_layout *l, const uint8_t *block, int64_t lane, int64_t group)
{
    if (s24i_code(block + 4 * lane, group) != (FIRST_TWO & 15)) return 0;
    for (int64_t s = l->items * group; s < l->items * (group + 1); s++)
        for (int64_t byte = 0; byte < l->item; byte++)
            if (block[CODES + (s * ROWS + lane) * l->item + byte]) return 0;
    return 1;
}

/* Of a k block with something wrong or something past the matrix: lane by lane. */
static s24i_layout_fault find_fault(s24i_find *find, const s24i_layout *l, const uint8_t *block,
                                    int64_t rows, int64_t groups)
{
    for (int64_t lane = 0; lane < ROWS; lane++)
        for (int64_t g = 0; g < GROUPS; g++) {
            const int is_there = lane < rows && g < groups;
            if (is_there ? s24i_code_is_legal(s24i_code(block + 4 * lane, g))
                         : is_nothing(l, block, lane, g))
                continue;
            *find = (s24i_find){.row = lane, .col = 4 * g};
            return is_there ? S24I_FAULT_CODE : S24I_FAULT_PAST;
        }
    return S24I_FAULT_NONE;
}

s24i_layout_fault s24i_layout_find_fault(s24i_find *find, const s24i_layout *layout,
                                         const void *block, int64_t rows, int64_t k)
{
    if (layout->bits) return s24i_scaled_find_fault(find, layout, block, rows, k);
    const int64_t bytes = k_block_bytes(layout->items, layout->item);
    const uint8_t *at = block;
    for (int64_t q = 0; q < k_blocks_of(k); q++, at += bytes) {
        const int64_t groups = groups_of(k, q);
        if (rows >= ROWS && groups == GROUPS && codes_are_legal(at)) continue;
        const s24i_layout_fault fault = find_fault(find, layout, at, rows, groups);
        if (!fault) continue;
        find->col += q * COLUMNS;
        return fault;
    }
    return S24I_FAULT_NONE;
}
