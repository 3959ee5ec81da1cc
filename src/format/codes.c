// SPDX-License-Identifier: Apache-2.0
/* The 4-bit codes: which one stands for a set of non-zeros, and which ones are legal. */
#include "format/format.h"

/* By the mask of non-zeros; sets of three and four, which no caller passes, keep the first two. */
static const uint8_t code_of_mask[16] = {
    0xe, 0x8, 0x9, 0x4, 0xe, 0x8, 0x9, 0x4, 0xe, 0xc, 0xd, 0x4, 0xe, 0x8, 0x9, 0x4,
};

unsigned s24i_code_of_mask(unsigned mask4)
{
    return code_of_mask[mask4 & 0xfu];
}

int s24i_codes_are_legal(const uint8_t *indices, int64_t rows, int64_t k, s24i_find *find)
{
    int64_t stride = s24i_index_stride(k);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *row = indices + r * stride;
        for (int64_t g = 0; g < stride * 2; g++) {
            unsigned code = s24i_code(row, g);
            if (g < k / 4 ? s24i_code_is_legal(code) : code == 0) continue;
            *find = (s24i_find){.row = r, .col = 4 * g};
            return 0;
        }
    }
    return 1;
}
