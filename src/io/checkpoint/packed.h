// SPDX-License-Identifier: Apache-2.0
/*
 * Packed matrices of a file as the metadata describe them, for packed.c, which knows 2:4 ones and
 * dense ones of integers, and packed_sparse.c, which knows the sparse formats.
 */
#ifndef S24_IO_CHECKPOINT_PACKED_H
#define S24_IO_CHECKPOINT_PACKED_H

#include "io/checkpoint/checkpoint.h"

/* One matrix that the metadata describe. */
typedef struct s24i_described {
    const char *name;
    int64_t rows, cols;
    int bits; /* 0: not quantised */
    int64_t group;
    const char *layout; /* NULL: canonical */
    int dense;          /* of integers, all of them: there are no indices */
    int transposed;     /* the tensor that it stands for is its transpose */
    s24_format format;  /* of a sparse one that is not 2:4; else 0 */
    size_t format_at;   /* which member of its description names it, after the integers */
    int64_t block_rows, block_cols;
    int lift;            /* of a lifted one; else 0 */
    int64_t rank;        /* of factors; 0: there are none */
    int is_factors;      /* and nothing that they are added to */
    int64_t stored_cols; /* of the 2:4 matrix: cols, or those of the lifted one */
} s24i_described;

/* Finds a stored part and checks its dtype and shape. dtype NONE: any that can be 2:4; rank 0: 2; a
   side of −1: any. FORMAT. */
s24_status s24i_find_part(s24_tensor **out, const s24i_header *header, s24_ctx *ctx,
                          const char *path, const s24_tensor *expected);
/* FORMAT: a plain tensor has the name of a packed one. */
s24_status s24i_check_not_plain(const s24i_header *header, s24_ctx *ctx, const char *path,
                                const char *name);
/* Makes the logical tensor out of the parts' entries of a sparse one. `name` has room for the names
   of its parts. FORMAT. */
s24_status s24i_join_sparse(s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name);
/* The scales of a quantised matrix, which its values' entry gets. `name` has room for their name.
   FORMAT. */
s24_status s24i_join_scales(s24_tensor *values, s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name);
/* Reads what a description says of factors at its end, after `count` members. Returns how many
   members come before. */
size_t s24i_read_factors(s24i_described *matrix, const s24i_json *shape, size_t count);
/* FORMAT: the rank is beyond the matrix, or factors go with another kind than 2:4 and lifted. */
s24_status s24i_check_factors(const s24i_described *matrix, s24_ctx *ctx, const char *path);
/* Adds the factors to a tensor that has its other parts; `name` as below. FORMAT. */
s24_status s24i_add_factors(s24_tensor *values, s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name);
/* Makes the logical tensor of factors alone. FORMAT. */
s24_status s24i_join_factors(s24i_header *header, s24_ctx *ctx, const char *path,
                             const s24i_described *matrix, char *name);
/* Is this the name of a part of factors? */
int s24i_is_factors_part(const char *name);
/* Bytes of both factors of a tensor; 0: it has none. */
size_t s24i_factors_bytes(const s24_tensor *tensor);

/* Is this the name of a part that only sparse ones have? */
int s24i_is_sparse_part(const char *name);
/* s24_sparse_check, whose sentence names file and tensor. */
s24_status s24i_check_sparse(s24_ctx *ctx, const char *path, const char *name,
                             const s24_sparse_parts *parts);
/* How many starts such a matrix has; 0 of COO. */
int64_t s24i_sparse_starts(const s24_sparse_parts *parts);

#endif
