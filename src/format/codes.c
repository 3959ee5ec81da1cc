// SPDX-License-Identifier: Apache-2.0
/* The 4-bit codes: which one stands for a set of non-zeros, and which ones are legal. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

/* By the mask of non-zeros; sets of three and four, which no caller passes, keep the first two. */
static const uint8_t code_of_mask[16] = {
    0xe, 0x8, 0x9, 0x4, 0xe, 0x8, 0x9, 0x4, 0xe, 0xc, 0xd, 0x4, 0xe, 0x8, 0x9, 0x4,
};

unsigned s24i_code_of_mask(unsigned mask4)
{
    return code_of_mask[mask4 & 0xfu];
}

/* Are all 16 codes of eight bytes legal? A code i0 | i1 << 2 is if i0 < i1. */
static int words_are_legal(const uint8_t *bytes, int64_t count)
{
    const uint64_t ones = UINT64_C(0x1111111111111111);
    uint64_t all = ones;
    for (int64_t i = 0; i < count; i++) {
        uint64_t w;
        memcpy(&w, bytes + 8 * i, sizeof w);
        const uint64_t more = w >> 3 & ~(w >> 1), same = ~(w >> 3 ^ w >> 1);
        all &= more | (same & w >> 2 & ~w);
    }
    return (all & ones) == ones;
}

int s24i_codes_are_legal(const uint8_t *indices, int64_t rows, int64_t k, s24i_find *find)
{
    const int64_t stride = s24i_index_stride(k), words = k / 64;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *row = indices + r * stride;
        /* Eight bytes at a time; where they hold a bad code, or end, one at a time. */
        const int64_t first = words_are_legal(row, words) ? 16 * words : 0;
        for (int64_t g = first; g < stride * 2; g++) {
            unsigned code = s24i_code(row, g);
            if (g < k / 4 ? s24i_code_is_legal(code) : code == 0) continue;
            *find = (s24i_find){.row = r, .col = 4 * g};
            return 0;
        }
    }
    return 1;
}

s24_status s24i_check_integers(s24_ctx *ctx, const s24_quantized *q)
{
    const int64_t stride = (q->cols + q->group - 1) / q->group;
    s24i_find find;
    REQUIRE(ctx, !q->indices || s24i_codes_are_legal(q->indices, q->rows, q->cols, &find),
            S24_ERROR_FORMAT,
            "the indices of row %" PRId64 ", column %" PRId64 " (group %" PRId64
            ") are not a legal 2:4 code",
            find.row, find.col, find.col / 4);
    for (int64_t i = 0; i < q->rows * stride; i++)
        REQUIRE(ctx, isfinite(q->scales[i]) && q->scales[i] >= 0, S24_ERROR_FORMAT,
                "the scale of row %" PRId64 ", column %" PRId64
                " is %g; expected a finite number that is not negative",
                i / stride, i % stride * q->group, (double)q->scales[i]);
    return S24_OK;
}
