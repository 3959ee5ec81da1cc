// SPDX-License-Identifier: Apache-2.0
/* Reads the storage that matrices share, and ends the plans that lie with it: what matrices,
   layouts and plans all need. */
#include "op/op.h"

void s24_plan_destroy(s24_plan *plan)
{
    if (!plan) return;
    s24_allocator allocator = plan->allocator;
    s24i_free(&allocator, plan->own);
    s24i_free(&allocator, plan);
}

void s24i_storage_widen(float *wide, const s24i_storage *s, int64_t row, int64_t col, int64_t cols)
{
    s24i_widen(wide, s24i_values_at(s, row, col), s->dtype, cols / 2);
    if (!s->scales) return;
    const float *scales = s->scales + row * s24i_scales_stride(s);
    for (int64_t i = 0; i < cols / 2; i++)
        wide[i] *= scales[(col + 2 * i) / s->group];
}

int s24i_storage_nonfinite(s24_ctx *ctx, const s24i_storage *s, int64_t *row, int64_t *col)
{
    s24i_find find;
    s24_dense values = {s->values, s->dtype, s->rows, s->cols / 2, 0};
    if (!s24i_find_first(&find, ctx, &values, s24i_find_nonfinite)) return 0;
    unsigned code = s24i_code(s24i_indices_at(s, find.row, 0), find.col / 2);
    *row = find.row;
    *col = find.col / 2 * 4 + (find.col & 1 ? code >> 2 : code & 3u);
    return 1;
}
