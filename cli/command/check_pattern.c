// SPDX-License-Identifier: Apache-2.0
/* Counts for check what of each group of a pattern N:M is not zero, whatever the dtype. */
#include <stdlib.h>

#include "cli.h"

/* The first group of a row of floats with more than `keep` non-zeros; 0: there is none. */
static int find_in_row(s24_bad_group *bad, const float *row, int64_t cols, int keep, int64_t group)
{
    for (bad->col = 0; bad->col < cols; bad->col += group) {
        bad->nonzeros = 0;
        for (int64_t i = 0; i < group; i++)
            bad->nonzeros += row[bad->col + i] != 0.0f;
        if (bad->nonzeros > keep) return 1;
    }
    return 0;
}

s24_status cli_check_pattern(int *fits, s24_bad_group *bad, s24_ctx *ctx, const s24_dense *w,
                             const char *pattern)
{
    const int64_t group = s24_pattern_group(pattern);
    const int keep = atoi(pattern);
    const size_t bytes = (size_t)w->cols * s24_dtype_bytes(w->dtype);
    float *row = malloc((size_t)w->cols * sizeof *row);
    s24_status status = row ? S24_OK
                            : s24_ctx_fail(ctx, S24_ERROR_MEMORY, "no memory for a row of %lld",
                                           (long long)w->cols);
    *fits = 1;
    for (bad->row = 0; bad->row < w->rows && status == S24_OK && *fits; bad->row += *fits) {
        const char *from = (const char *)w->data + (size_t)bad->row * bytes;
        status = s24_convert(row, S24_F32, from, w->dtype, w->cols);
        if (status == S24_OK) *fits = !find_in_row(bad, row, w->cols, keep, group);
    }
    free(row);
    return status;
}
