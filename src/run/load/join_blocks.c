// SPDX-License-Identifier: Apache-2.0
#include "run/load/join_blocks.h"

#include <string.h>

#include "sparse24/formats.h"

int s24i_blocks_join_up(const s24i_source *sources, int count)
{
    const s24_sparse_parts first = s24_sparse_get(sources[0].sparse);
    int can = first.format == S24_FORMAT_BSR && !sources[0].scales;
    for (int i = 1; i < count; i++) {
        const s24_sparse_parts p = s24_sparse_get(sources[i].sparse);
        can = can && p.format == first.format && p.dtype == first.dtype && p.cols == first.cols &&
              p.block_rows == first.block_rows && p.block_cols == first.block_cols &&
              !sources[i].scales && sources[i].wide == sources[0].wide;
    }
    return can;
}

/* What all of them have, with no memory yet. */
static s24_sparse_parts whole_of(const s24i_source *sources, int count)
{
    s24_sparse_parts whole = s24_sparse_get(sources[0].sparse);
    for (int i = 1; i < count; i++) {
        const s24_sparse_parts p = s24_sparse_get(sources[i].sparse);
        whole.rows += p.rows;
        whole.stored += p.stored;
    }
    return whole;
}

s24_status s24i_blocks_join(s24_sparse **out, s24_ctx *ctx, const s24i_source *sources, int count)
{
    s24_sparse_parts whole = whole_of(sources, count);
    const size_t piece =
        (size_t)(whole.block_rows * whole.block_cols) * s24_dtype_bytes(whole.dtype);
    const int64_t lines = whole.rows / whole.block_rows;
    int64_t *starts = NULL, line = 0, at = 0;
    int32_t *index = NULL;
    char *values = NULL;
    s24_status status;
    *out = NULL;
    TRY_DONE(s24i_alloc_elems(&starts, ctx, lines + 1, sizeof *starts, "a joined weight"));
    TRY_DONE(s24i_alloc_elems(&index, ctx, whole.stored + 1, sizeof *index, "a joined weight"));
    TRY_DONE(s24i_alloc_elems(&values, ctx, whole.stored + 1, piece, "a joined weight"));
    starts[0] = 0;
    for (int i = 0; i < count; i++) {
        const s24_sparse_parts p = s24_sparse_get(sources[i].sparse);
        for (int64_t l = 1; l <= p.rows / p.block_rows; l++)
            starts[++line] = at + p.starts[l];
        if (p.stored) {
            memcpy(index + at, p.index, (size_t)p.stored * sizeof *index);
            memcpy(values + (size_t)at * piece, p.values, (size_t)p.stored * piece);
        }
        at += p.stored;
    }
    whole.starts = starts;
    whole.index = index;
    whole.values = values;
    status = s24_sparse_from_parts(out, ctx, &whole);
done:
    s24_ctx_free(ctx, values);
    s24_ctx_free(ctx, index);
    s24_ctx_free(ctx, starts);
    return status;
}
