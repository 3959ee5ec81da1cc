// SPDX-License-Identifier: Apache-2.0
/* Counts for check what of each group of a pattern N:M, or of dense:COLUMNS, is not zero, whatever
   the dtype. */
#include <stdlib.h>

#include "cli.h"

/* What a pattern says of a row: its groups begin after what stays dense. */
typedef struct groups {
    int64_t first, group;
    int keep;
} groups;

/* The first group of a row of floats with more than `keep` non-zeros; 0: there is none. */
static int find_in_row(s24_bad_group *bad, const float *row, int64_t cols, const groups *g)
{
    for (bad->col = g->first; bad->col < cols; bad->col += g->group) {
        bad->nonzeros = 0;
        for (int64_t i = 0; i < g->group; i++)
            bad->nonzeros += row[bad->col + i] != 0.0f;
        if (bad->nonzeros > g->keep) return 1;
    }
    return 0;
}

s24_status cli_check_pattern(int *fits, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *w,
                             const char *pattern)
{
    const int lift = s24_pattern_lift(pattern);
    const groups g = lift < 0 ? (groups){-(int64_t)lift, 4, 2}
                              : (groups){0, s24_pattern_group(pattern), atoi(pattern)};
    const size_t bytes = (size_t)w->cols * s24_dtype_bytes(w->dtype);
    float *row = malloc((size_t)w->cols * sizeof *row);
    s24_status status = row ? S24_OK
                            : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for a row of %lld",
                                           (long long)w->cols);
    *fits = 1;
    for (bad->row = 0; bad->row < w->rows && status == S24_OK && *fits; bad->row += *fits) {
        const char *from = (const char *)w->data + (size_t)bad->row * bytes;
        status = s24_convert(row, S24_F32, from, w->dtype, w->cols);
        if (status == S24_OK) *fits = !find_in_row(bad, row, w->cols, &g);
    }
    free(row);
    return status;
}
