// SPDX-License-Identifier: Apache-2.0
/*
 * The sm80 order of metadata, as PyTorch's CUTLASS backend stores it (docs/format.md, section 4).
 * Values are in the canonical order already; only the codes move.
 */
#include <string.h>

#include "format/element.h"

int64_t s24i_cutlass_offset(int64_t row, int64_t word, int64_t rows, size_t word_bytes)
{
    int64_t slab = word_bytes == 2 ? 32 : 16, interleave = word_bytes == 2 ? 4 : 2;
    int64_t r = row / slab * slab + row % 8 * interleave + row % slab / 8;
    int64_t c = word;
    if (r % 2 == 0 && c % 2 == 1) {
        r++;
        c--;
    } else if (r % 2 == 1 && c % 2 == 0) {
        r--;
        c++;
    }
    return c / 2 * (2 * rows) + 2 * r + c % 2;
}

size_t s24i_cutlass_word_bytes(s24_dtype dtype)
{
    size_t bytes = s24_dtype_bytes(dtype);
    return bytes == 2 ? 2 : bytes == 1 ? 4 : 0;
}

void s24i_cutlass_pack_row(void *meta, s24_dtype dtype, const uint8_t *indices, int64_t row,
                           int64_t rows, int64_t k)
{
    size_t bytes = s24i_cutlass_word_bytes(dtype);
    int64_t codes = (int64_t)bytes * 2;
    for (int64_t w = 0; w < k / 4 / codes; w++) {
        uint32_t word = 0;
        for (int64_t i = 0; i < codes; i++)
            word |= s24i_code(indices, w * codes + i) << (4 * i);
        s24i_element_put(meta, bytes, s24i_cutlass_offset(row, w, rows, bytes), word);
    }
}

/* A group as its two independent selectors say, encoded anew by the canonical table. 0 when the
   selectors name one place for two values. */
static int settle_group(unsigned *code, void *values, size_t bytes, uint32_t magnitude)
{
    uint32_t group[4] = {0};
    uint32_t low = s24i_element_bits(values, bytes, 0), high = s24i_element_bits(values, bytes, 1);
    if ((low & magnitude) && (high & magnitude) && (*code & 3u) == *code >> 2) return 0;
    unsigned mask = 0;
    if (low & magnitude) group[*code & 3u] = low, mask |= 1u << (*code & 3u);
    if (high & magnitude) group[*code >> 2] = high, mask |= 1u << (*code >> 2);
    *code = s24i_code_of_mask(mask);
    s24i_element_put(values, bytes, 0, group[*code & 3u]);
    s24i_element_put(values, bytes, 1, group[*code >> 2]);
    return 1;
}

int s24i_cutlass_unpack_row(void *values, uint8_t *indices, s24_dtype dtype, const void *meta,
                            int64_t row, int64_t rows, int64_t k, int64_t *bad_col)
{
    s24i_element e = s24i_element_of(dtype);
    size_t bytes = s24i_cutlass_word_bytes(dtype);
    int64_t codes = (int64_t)bytes * 2;
    memset(indices, 0, (size_t)s24i_index_stride(k));
    for (int64_t g = 0; g < k / 4; g++) {
        int64_t at = s24i_cutlass_offset(row, g / codes, rows, bytes);
        unsigned code = s24i_element_bits(meta, bytes, at) >> (4 * (g % codes)) & 0xfu;
        char *stored = (char *)values + (size_t)(2 * g) * e.bytes;
        if (!s24i_code_is_legal(code) && !settle_group(&code, stored, e.bytes, e.magnitude)) {
            *bad_col = 4 * g;
            return 0;
        }
        indices[g >> 1] = (uint8_t)(indices[g >> 1] | code << (g & 1) * 4);
    }
    return 1;
}
