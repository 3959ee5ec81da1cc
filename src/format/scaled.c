// SPDX-License-Identifier: Apache-2.0
/*
 * The layouts of integers (scaled.h), in and out. With one quarter (rows16) a k block's codes are
 * bytes of the canonical indices, and a slot of values follows another, 16 rows each. With four
 * (rows64) what a multiplication of bytes takes together lies together: a dword of a row has the
 * four values of a pair of groups, and byte j of a row's codes has the 2-bit places of value j of
 * its four pairs.
 */
#include "format/scaled.h"

#include <string.h>

enum { ROWS = S24I_ROWS16, COLUMNS = S24I_ROWS16_COLUMNS, CODES = S24I_ROWS16_CODES, GROUPS = 8 };

/* Of positions 0 and 1, eight times, which stand for what is past the matrix. */
static const uint32_t FIRST_TWO = 0x44444444;

/* Sixteen 2-bit places, a square of four by four transposed: from group 2p + h, slot s at
   4(2p + h) + 2s to 8(2h + s) + 2p and back. */
static inline uint32_t turn_codes(uint32_t v)
{
    uint32_t t = (v ^ v >> 6) & 0x00cc00ccu;
    v ^= t ^ t << 6;
    t = (v ^ v >> 12) & 0x0000f0f0u;
    return v ^ t ^ t << 12;
}

/* How integers lie in a k block; a constant of the loops that go through many. */
typedef struct form {
    int bits, pairs; /* pairs: there are four quarters */
} form;

/* The byte that a value of a k block is in, after the codes, and the bits of it. */
static inline int64_t value_at(int *shift, form f, int64_t lane, int64_t value)
{
    *shift = 0;
    if (f.bits == 8 && !f.pairs) return value * ROWS + lane;
    if (f.bits == 8) return value / 4 * 64 + lane * 4 + value % 4;
    *shift = (int)(f.pairs ? 4 - value % 8 / 4 * 4 : value % 2 * 4);
    return f.pairs ? value / 8 * 64 + lane * 4 + value % 4 : value / 2 * ROWS + lane;
}

static int64_t groups_of(int64_t k, int64_t q)
{
    const int64_t left = k / 4 - q * GROUPS;
    return left < GROUPS ? left : GROUPS;
}

static int64_t group_of(const s24i_layout *layout, int64_t k)
{
    return layout->group ? layout->group : k;
}

static s24i_scaled places_of(const s24i_layout *layout, int64_t k)
{
    return s24i_scaled_of(layout->quarters, layout->bits, k, group_of(layout, k));
}

/* ---- to the layout --------------------------------------------------------------------------- */

/* One row of a k block whose values are zero; of `groups` 0 all is past the matrix. */
static inline void pack_row(uint8_t *block, int64_t lane, const int8_t *values,
                            const uint8_t *codes, int64_t groups, form f)
{
    uint32_t word = FIRST_TWO;
    memcpy(&word, codes, (size_t)((groups + 1) / 2));
    if (groups & 1) word = (word & ~(0xfu << 4 * groups)) | 4u << 4 * groups;
    if (f.pairs) word = turn_codes(word);
    memcpy(block + 4 * lane, &word, sizeof word);
    for (int64_t i = 0; i < 2 * groups; i++) {
        int shift;
        uint8_t *byte = block + CODES + value_at(&shift, f, lane, i);
        *byte = f.bits == 8 ? (uint8_t)values[i] : (uint8_t)(*byte | (values[i] & 15) << shift);
    }
}

static inline void pack(const s24i_layout *layout, uint8_t *block, const s24i_rows *of, form f)
{
    const int64_t k = of->k, group = group_of(layout, k), stride = (k + group - 1) / group;
    const s24i_scaled l = places_of(layout, k);
    memset(block, 0, (size_t)l.bytes);
    for (int64_t row = 0; row < ROWS * l.quarters; row++) {
        const int64_t quarter = row / ROWS, lane = row % ROWS, there = row < of->rows;
        const int64_t from = there ? row : 0;
        for (int64_t q = 0; q < l.k_blocks; q++) {
            float scale = 0;
            if (there) scale = of->scales ? of->scales[row * stride + q * COLUMNS / group] : 1;
            memcpy(block + s24i_scaled_scales(&l, quarter, q) + lane * 4, &scale, sizeof scale);
            pack_row(block + s24i_scaled_block(&l, quarter, q), lane,
                     (const int8_t *)of->values + from * (k / 2) + q * (COLUMNS / 2),
                     of->indices + from * s24i_index_stride(k) + q * (COLUMNS / 8),
                     there ? groups_of(k, q) : 0, f);
        }
    }
}

void s24i_scaled_pack(const s24i_layout *layout, uint8_t *block, const s24i_rows *of)
{
    if (layout->bits == 8 && layout->quarters == 1)
        pack(layout, block, of, (form){8, 0});
    else if (layout->bits == 8)
        pack(layout, block, of, (form){8, 1});
    else if (layout->quarters == 1)
        pack(layout, block, of, (form){4, 0});
    else
        pack(layout, block, of, (form){4, 1});
}

/* ---- and back -------------------------------------------------------------------------------- */

static inline void unpack_row(int8_t *values, uint8_t *codes, const uint8_t *block, int64_t lane,
                              int64_t groups, form f)
{
    uint32_t word;
    memcpy(&word, block + 4 * lane, sizeof word);
    if (f.pairs) word = turn_codes(word);
    if (groups & 1) word &= ~(0xfu << 4 * groups);
    memcpy(codes, &word, (size_t)((groups + 1) / 2));
    for (int64_t i = 0; i < 2 * groups; i++) {
        int shift;
        const uint8_t byte = block[CODES + value_at(&shift, f, lane, i)];
        values[i] = f.bits == 8 ? (int8_t)byte : (int8_t)(((byte >> shift & 15) ^ 8) - 8);
    }
}

static inline void unpack(const s24i_layout *layout, const s24i_rows *to, const uint8_t *block,
                          form f)
{
    const int64_t k = to->k, group = group_of(layout, k), stride = (k + group - 1) / group;
    const s24i_scaled l = places_of(layout, k);
    for (int64_t row = 0; row < to->rows && row < ROWS * l.quarters; row++) {
        const int64_t quarter = row / ROWS, lane = row % ROWS;
        for (int64_t q = 0; q < l.k_blocks; q++) {
            memcpy(&to->scales[row * stride + q * COLUMNS / group],
                   block + s24i_scaled_scales(&l, quarter, q) + lane * 4, sizeof(float));
            unpack_row((int8_t *)to->values + row * (k / 2) + q * (COLUMNS / 2),
                       to->indices + row * s24i_index_stride(k) + q * (COLUMNS / 8),
                       block + s24i_scaled_block(&l, quarter, q), lane, groups_of(k, q), f);
        }
    }
}

void s24i_scaled_unpack(const s24i_layout *layout, const s24i_rows *to, const uint8_t *block)
{
    if (layout->bits == 8 && layout->quarters == 1)
        unpack(layout, to, block, (form){8, 0});
    else if (layout->bits == 8)
        unpack(layout, to, block, (form){8, 1});
    else if (layout->quarters == 1)
        unpack(layout, to, block, (form){4, 0});
    else
        unpack(layout, to, block, (form){4, 1});
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Bits that are set where the first place of a group is not below the second; the places' bits are
   `apart` bits apart, and the first's low ones are those of `mask`. */
static inline uint32_t bad_codes(uint32_t v, int apart, uint32_t mask)
{
    const uint32_t low = v, high = v >> 1, low2 = v >> apart, high2 = v >> (apart + 1);
    return ~((~high & high2) | (~(high ^ high2) & ~low & low2)) & mask;
}

/* Are all codes of a k block legal? Without a branch, so that the loop vectorises. */
static int codes_are_legal(const uint8_t *codes, int pairs)
{
    uint32_t words[ROWS], bad = 0;
    memcpy(words, codes, sizeof words);
    for (int i = 0; i < ROWS; i++)
        bad |= pairs ? bad_codes(words[i], 8, 0x00550055) : bad_codes(words[i], 2, 0x11111111);
    return !bad;
}

/* Finite and not negative, or −0. */
static inline int scale_is_good(uint32_t bits)
{
    return bits < 0x7f800000u || bits == 0x80000000u;
}

static int scales_are_good(const uint8_t *scales)
{
    uint32_t words[ROWS];
    int good = 1;
    memcpy(words, scales, sizeof words);
    for (int i = 0; i < ROWS; i++)
        good &= scale_is_good(words[i]);
    return good;
}

/* Is a group what stands past the matrix: its code that of positions 0 and 1, its values 0? */
static int is_nothing(const uint8_t *block, int64_t lane, int64_t group, unsigned code, form f)
{
    for (int64_t i = 2 * group; i < 2 * group + 2; i++) {
        int shift;
        const uint8_t byte = block[CODES + value_at(&shift, f, lane, i)];
        if (byte >> shift & (f.bits == 8 ? 255 : 15)) return 0;
    }
    return code == (FIRST_TWO & 15);
}

/* The first fault of a row in a k block. */
static s24i_layout_fault row_fault(s24i_find *find, const s24i_layout *layout, const uint8_t *block,
                                   int64_t lane, int64_t groups)
{
    const form f = {layout->bits, layout->quarters > 1};
    uint32_t word;
    memcpy(&word, block + 4 * lane, sizeof word);
    if (f.pairs) word = turn_codes(word);
    for (int64_t g = 0; g < GROUPS; g++) {
        const unsigned code = word >> 4 * g & 15;
        const int good =
            g < groups ? s24i_code_is_legal(code) : is_nothing(block, lane, g, code, f);
        if (good) continue;
        find->col = 4 * g;
        return g < groups ? S24I_FAULT_CODE : S24I_FAULT_PAST;
    }
    return S24I_FAULT_NONE;
}

/* Of 16 rows, of which `rows` are there, in k block q. */
static s24i_layout_fault quarter_fault(s24i_find *find, const s24i_layout *layout,
                                       const uint8_t *scales, const uint8_t *block,
                                       const int64_t sides[2])
{
    const int64_t rows = sides[0], groups = sides[1];
    if (rows >= ROWS && groups == GROUPS && codes_are_legal(block, layout->quarters > 1) &&
        scales_are_good(scales))
        return S24I_FAULT_NONE;
    for (int64_t lane = 0; lane < ROWS; lane++) {
        uint32_t scale;
        memcpy(&scale, scales + 4 * lane, sizeof scale);
        *find = (s24i_find){.row = lane};
        if (lane < rows ? !scale_is_good(scale) : scale != 0)
            return lane < rows ? S24I_FAULT_SCALE : S24I_FAULT_PAST;
        const s24i_layout_fault fault =
            row_fault(find, layout, block, lane, lane < rows ? groups : 0);
        if (fault) return fault;
    }
    return S24I_FAULT_NONE;
}

s24i_layout_fault s24i_scaled_find_fault(s24i_find *find, const s24i_layout *layout,
                                         const uint8_t *block, int64_t rows, int64_t k)
{
    const s24i_scaled l = places_of(layout, k);
    for (int64_t q = 0; q < l.k_blocks; q++)
        for (int64_t quarter = 0; quarter < l.quarters; quarter++) {
            const int64_t sides[] = {rows - quarter * ROWS, groups_of(k, q)};
            const s24i_layout_fault fault =
                quarter_fault(find, layout, block + s24i_scaled_scales(&l, quarter, q),
                              block + s24i_scaled_block(&l, quarter, q), sides);
            if (!fault) continue;
            find->row += quarter * ROWS;
            find->col += q * COLUMNS;
            return fault;
        }
    return S24I_FAULT_NONE;
}
