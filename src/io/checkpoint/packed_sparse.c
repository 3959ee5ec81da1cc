// SPDX-License-Identifier: Apache-2.0
/*
 * Matrices in sparse formats that are not 2:4 in a safetensors file: their parts, found and checked
 * as docs/format.md wants it, become one tensor. What lies in the file is what s24_sparse_parts
 * point to, so that nothing is copied.
 */
#include "io/checkpoint/packed.h"

#include <stdio.h>
#include <string.h>

int s24i_is_sparse_part(const char *name)
{
    return s24i_ends_with(name, S24I_STARTS_SUFFIX) || s24i_ends_with(name, S24I_INDEX_SUFFIX) ||
           s24i_ends_with(name, S24I_ROWS_SUFFIX);
}

int64_t s24i_sparse_starts(const s24_sparse_parts *p)
{
    if (p->format == S24_FORMAT_COO) return 0;
    if (p->format == S24_FORMAT_CSC) return p->cols + 1;
    return (p->format == S24_FORMAT_BSR ? p->rows / p->block_rows : p->rows) + 1;
}

s24_status s24i_check_sparse(s24_ctx *ctx, const char *path, const char *name,
                             const s24_sparse_parts *parts)
{
    char sentence[256];
    const s24_status status = s24_sparse_check(ctx, parts);
    if (status == S24_OK) return S24_OK;
    snprintf(sentence, sizeof sentence, "%s", s24_ctx_error(ctx));
    return s24_ctx_fail(ctx, status, "%s: packed tensor \"%s\": %s", path, s24i_show(name).text,
                        sentence);
}

/* One of the parts of a matrix that is read. */
typedef struct joining {
    s24i_header *header;
    s24_ctx *ctx;
    const char *path;
    const s24i_described *matrix;
    char *name; /* room for a part's */
} joining;

/* Finds a part that begins where its elements may. */
static s24_status find(s24_tensor **out, const joining *j, const char *suffix, s24_tensor expected)
{
    strcpy(j->name, j->matrix->name);
    strcat(j->name, suffix);
    expected.name = j->name;
    TRY(s24i_find_part(out, j->header, j->ctx, j->path, &expected));
    REQUIRE(j->ctx, (uintptr_t)(*out)->data % s24_dtype_bytes((*out)->dtype) == 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" does not begin at a multiple of its elements' %zu bytes", j->path,
            s24i_show(j->name).text, s24_dtype_bytes((*out)->dtype));
    return S24_OK;
}

static s24_status find_values(s24_tensor **out, const joining *j)
{
    const s24i_described *m = j->matrix;
    const int blocks = m->format == S24_FORMAT_BSR;
    return find(out, j, S24I_VALUES_SUFFIX,
                (s24_tensor){.dtype = m->bits ? S24_I8 : S24_DTYPE_NONE,
                             .rank = blocks ? 3 : 1,
                             .shape = {-1, m->block_rows, m->block_cols}});
}

/* A part of numbers that goes with the values; their bytes are added to the values'. */
static s24_status join(const void **data, s24_tensor *values, const joining *j, const char *suffix,
                       s24_tensor expected)
{
    s24_tensor *part;
    expected.rank = 1;
    TRY(find(&part, j, suffix, expected));
    *data = part->data;
    values->bytes += part->bytes;
    part->packed = -1;
    return S24_OK;
}

static s24_status join_places(s24_sparse_parts *parts, s24_tensor *values, const joining *j)
{
    const void *index, *other;
    const s24_tensor each = {.dtype = S24_I32, .shape = {parts->stored}};
    const s24_tensor starts = {.dtype = S24_I64, .shape = {s24i_sparse_starts(parts)}};
    const int is_coo = parts->format == S24_FORMAT_COO;
    TRY(join(&index, values, j, S24I_INDEX_SUFFIX, each));
    TRY(join(&other, values, j, is_coo ? S24I_ROWS_SUFFIX : S24I_STARTS_SUFFIX,
             is_coo ? each : starts));
    parts->index = index;
    *(is_coo ? (const void **)(void *)&parts->rows_of : (const void **)(void *)&parts->starts) =
        other;
    return S24_OK;
}

s24_status s24i_join_sparse(s24i_header *header, s24_ctx *ctx, const char *path,
                            const s24i_described *matrix, char *name)
{
    const joining j = {header, ctx, path, matrix, name};
    s24_tensor *values;
    TRY(find_values(&values, &j));
    s24_sparse_parts *parts = &header->sparse[header->sparse_count++];
    *parts = (s24_sparse_parts){.format = matrix->format,
                                .dtype = values->dtype,
                                .rows = matrix->rows,
                                .cols = matrix->cols,
                                .block_rows = matrix->block_rows,
                                .block_cols = matrix->block_cols,
                                .stored = values->shape[0]};
    TRY(s24i_check_sparse(ctx, path, matrix->name, parts));
    parts->values = values->data;
    TRY(join_places(parts, values, &j));
    TRY(s24i_check_sparse(ctx, path, matrix->name, parts));
    TRY(s24i_check_not_plain(header, ctx, path, matrix->name));
    if (matrix->bits) TRY(s24i_join_scales(values, header, ctx, path, matrix, name));
    values->packed = S24_PACKED_SPARSE;
    values->transposed = matrix->transposed;
    values->sparse = parts;
    values->values = values->data;
    values->data = NULL;
    values->rank = 2;
    values->shape[0] = matrix->rows;
    values->shape[1] = matrix->cols;
    values->shape[2] = 0;
    return S24_OK;
}
