// SPDX-License-Identifier: Apache-2.0
/* The inside of a sparse matrix, for what makes and multiplies them. */
#ifndef S24_OP_SPARSE_H
#define S24_OP_SPARSE_H

#include "op/op.h"

struct s24_sparse {
    s24_allocator allocator;
    s24_sparse_parts parts;
    int64_t *starts; /* these are parts', to be filled */
    int32_t *index, *rows_of;
    char *values;
};

/* Bytes of one stored value or block. */
static inline size_t s24i_sparse_piece(const s24_sparse_parts *p)
{
    const int64_t cells = p->format == S24_FORMAT_BSR ? p->block_rows * p->block_cols : 1;
    return (size_t)cells * s24_dtype_bytes(p->dtype);
}
/* How many starts there are, less one; 0 of COO. */
static inline int64_t s24i_sparse_lines(const s24_sparse_parts *p)
{
    if (p->format == S24_FORMAT_COO) return 0;
    if (p->format == S24_FORMAT_CSC) return p->cols;
    return p->format == S24_FORMAT_BSR ? p->rows / p->block_rows : p->rows;
}
/* Checks format, dtype, sides and block. ARGUMENT, DTYPE, SHAPE. */
s24_status s24i_sparse_check_kind(s24_ctx *ctx, const s24_sparse_parts *as);
/* A matrix whose memory is zeros. MEMORY. */
s24_status s24i_sparse_new(s24_sparse **out, s24_ctx *ctx, const s24_sparse_parts *as,
                           int64_t stored);

#endif
