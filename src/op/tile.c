// SPDX-License-Identifier: Apache-2.0
/* Both directions at once: masks chosen tile by tile, and whether a matrix is 2:4 along n. */
#include <string.h>

#include "kernel/tile.h"
#include "op/op.h"

enum { CHUNK = 64 }; /* columns of a strip that are widened at a time */

typedef struct mask_job {
    uint8_t *mask;
    const s24_dense *src;
    const s24i_tile_rule *rule;
} mask_job;

static void mask_tile(uint8_t *mask, int64_t stride, const float wide[4][CHUNK], int64_t col,
                      const mask_job *j, int rows)
{
    float tile[16];
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            tile[4 * r + c] = wide[r][col + c];
    unsigned keep = j->rule->mask(tile, rows);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++)
            mask[r * stride + col + c] = keep >> (4 * r + c) & 1u;
}

static void mask_strips(void *arg, int64_t begin, int64_t end, int thread)
{
    const mask_job *j = arg;
    const int64_t cols = j->src->cols;
    float wide[4][CHUNK];
    (void)thread;
    memset(wide, 0, sizeof wide);
    for (int64_t strip = begin; strip < end; strip++) {
        int64_t row = 4 * strip;
        int rows = j->src->rows - row < 4 ? (int)(j->src->rows - row) : 4;
        for (int64_t c = 0; c < cols; c += CHUNK) {
            int64_t count = cols - c < CHUNK ? cols - c : CHUNK;
            for (int r = 0; r < rows; r++)
                s24i_widen(wide[r], s24i_dense_at(j->src, row + r, c), j->src->dtype, count);
            for (int64_t i = 0; i < count; i += 4)
                mask_tile(j->mask + row * cols + c, cols, (const float(*)[CHUNK])wide, i, j, rows);
        }
    }
}

void s24i_tile_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src, s24_select select)
{
    mask_job j = {mask, src, s24i_tile_rule_find(select)};
    s24_ctx_parallel_for(ctx, (src->rows + 3) / 4, mask_strips, &j);
}

s24_status s24_tile_mask(uint8_t *mask, s24_ctx *ctx, const s24_dense *src, s24_select select,
                         int allow_nonfinite)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, mask, S24_ERROR_ARGUMENT, "mask is NULL");
    TRY(s24i_dense_check_groups(ctx, "src", src));
    REQUIRE(ctx, s24i_tile_rule_find(select), S24_ERROR_ARGUMENT,
            "select is %d; expected one of S24_SELECT_TILE_*", (int)select);
    if (!allow_nonfinite) TRY(s24i_require_finite(ctx, "src", src));
    s24i_tile_mask(mask, ctx, src, select);
    return S24_OK;
}

s24_status s24_check_along_n(int *two_four, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *src)
{
    s24i_find find;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, two_four, S24_ERROR_ARGUMENT, "two_four is NULL");
    *two_four = 0;
    TRY(s24i_dense_check(ctx, "src", src));
    REQUIRE(ctx, s24_dtype_can_be_two_four(src->dtype), S24_ERROR_DTYPE,
            "src is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(src->dtype));
    *two_four = !s24i_find_bad_along_n(&find, src);
    if (!*two_four && bad) *bad = (s24_bad_group){find.row, find.col, find.nonzeros};
    return S24_OK;
}
