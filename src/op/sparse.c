// SPDX-License-Identifier: Apache-2.0
/* Makes sparse matrices of their parts, and checks them. */
#include "op/sparse.h"

#include <string.h>

static const char *const names[] = {"coo", "csr", "csc", "bsr"};

const char *s24_format_name(s24_format format)
{
    return format >= S24_FORMAT_COO && format <= S24_FORMAT_BSR ? names[format - 1] : NULL;
}

s24_format s24_format_parse(const char *name)
{
    for (int i = 0; name && i < 4; i++)
        if (!strcmp(name, names[i])) return (s24_format)(i + 1);
    return (s24_format)0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static s24_status check_block(s24_ctx *ctx, const s24_sparse_parts *p)
{
    const int64_t r = p->block_rows, c = p->block_cols;
    const int is_square = r == c && (r == 8 || r == 16 || r == 32 || r == 64 || r == 128);
    REQUIRE(ctx, is_square || (r == 1 && c == 4) || (r == 4 && c == 1), S24_ERROR_SHAPE,
            "a block of %" PRId64 "x%" PRId64
            "; expected 1x4, 4x1, 8x8, 16x16, 32x32, 64x64 or 128x128",
            r, c);
    REQUIRE(ctx, p->rows % r == 0 && p->cols % c == 0, S24_ERROR_SHAPE,
            "blocks of %" PRId64 "x%" PRId64 " do not divide [%" PRId64 ", %" PRId64 "]", r, c,
            p->rows, p->cols);
    return S24_OK;
}

s24_status s24i_sparse_check_kind(s24_ctx *ctx, const s24_sparse_parts *p)
{
    REQUIRE(ctx, s24_format_name(p->format), S24_ERROR_ARGUMENT,
            "format %d is none; expected COO, CSR, CSC or BSR", (int)p->format);
    REQUIRE(ctx, s24_dtype_can_be_two_four(p->dtype), S24_ERROR_DTYPE,
            "a sparse matrix of %s; expected f32 f16 bf16 i8 e4m3 or e5m2",
            s24_dtype_name(p->dtype));
    REQUIRE(ctx, p->rows > 0 && p->cols > 0 && p->rows <= INT32_MAX && p->cols <= INT32_MAX,
            S24_ERROR_SHAPE,
            "a sparse matrix [%" PRId64 ", %" PRId64 "]; sides of 1 to 2^31 - 1 are expected",
            p->rows, p->cols);
    return p->format == S24_FORMAT_BSR ? check_block(ctx, p) : S24_OK;
}

static s24_status check_starts(s24_ctx *ctx, const s24_sparse_parts *p)
{
    const int64_t lines = s24i_sparse_lines(p);
    REQUIRE(ctx, p->starts[0] == 0, S24_ERROR_FORMAT, "starts[0] is %" PRId64 ", expected 0",
            p->starts[0]);
    for (int64_t i = 0; i < lines; i++)
        REQUIRE(ctx, p->starts[i] <= p->starts[i + 1] && p->starts[i + 1] <= p->stored,
                S24_ERROR_FORMAT,
                "starts[%" PRId64 "] is %" PRId64 ", expected %" PRId64 " to %" PRId64, i + 1,
                p->starts[i + 1], p->starts[i], p->stored);
    REQUIRE(ctx, p->starts[lines] == p->stored, S24_ERROR_FORMAT,
            "starts[%" PRId64 "] is %" PRId64 ", expected the end, %" PRId64, lines,
            p->starts[lines], p->stored);
    return S24_OK;
}

/* One line's indices, from `begin` to `end`, strictly ascending and below `limit`. */
static s24_status check_line(s24_ctx *ctx, const s24_sparse_parts *p, int64_t line, int64_t limit)
{
    for (int64_t i = p->starts[line]; i < p->starts[line + 1]; i++) {
        REQUIRE(ctx, p->index[i] >= 0 && p->index[i] < limit, S24_ERROR_FORMAT,
                "line %" PRId64 ", index[%" PRId64 "] is %d, expected 0 to %" PRId64, line, i,
                p->index[i], limit - 1);
        REQUIRE(ctx, i == p->starts[line] || p->index[i - 1] < p->index[i], S24_ERROR_FORMAT,
                "line %" PRId64 ", index[%" PRId64 "] is %d after %d, ascending ones are expected",
                line, i, p->index[i], p->index[i - 1]);
    }
    return S24_OK;
}

static s24_status check_coordinates(s24_ctx *ctx, const s24_sparse_parts *p)
{
    for (int64_t i = 0; i < p->stored; i++) {
        const int32_t row = p->rows_of[i], col = p->index[i];
        REQUIRE(ctx, row >= 0 && row < p->rows && col >= 0 && col < p->cols, S24_ERROR_FORMAT,
                "entry %" PRId64 " is at (%d, %d), outside [%" PRId64 ", %" PRId64 "]", i, row, col,
                p->rows, p->cols);
        REQUIRE(ctx,
                i == 0 || p->rows_of[i - 1] < row ||
                    (p->rows_of[i - 1] == row && p->index[i - 1] < col),
                S24_ERROR_FORMAT,
                "entry %" PRId64 " at (%d, %d) follows (%d, %d), each once and by rows is expected",
                i, row, col, p->rows_of[i - 1], p->index[i - 1]);
    }
    return S24_OK;
}

static s24_status check_places(s24_ctx *ctx, const s24_sparse_parts *p)
{
    const int is_coo = p->format == S24_FORMAT_COO;
    const int64_t limit = p->format == S24_FORMAT_CSC   ? p->rows
                          : p->format == S24_FORMAT_BSR ? p->cols / p->block_cols
                                                        : p->cols;
    REQUIRE(ctx, p->stored >= 0 && p->stored <= p->rows * p->cols, S24_ERROR_FORMAT,
            "%" PRId64 " stored values of [%" PRId64 ", %" PRId64 "]", p->stored, p->rows, p->cols);
    REQUIRE(ctx,
            (p->stored == 0 || (p->index && p->values)) &&
                (is_coo ? p->rows_of || !p->stored : p->starts != NULL),
            S24_ERROR_ARGUMENT, "a part of the sparse matrix is NULL");
    if (is_coo) return check_coordinates(ctx, p);
    TRY(check_starts(ctx, p));
    for (int64_t line = 0; line < s24i_sparse_lines(p); line++)
        TRY(check_line(ctx, p, line, limit));
    return S24_OK;
}

s24_status s24_sparse_check(s24_ctx *ctx, const s24_sparse_parts *parts)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, parts, S24_ERROR_ARGUMENT, "parts is NULL");
    TRY(s24i_sparse_check_kind(ctx, parts));
    if (!parts->starts && !parts->index && !parts->rows_of) return S24_OK;
    return check_places(ctx, parts);
}

/* ---- making ---------------------------------------------------------------------------------- */

s24_status s24i_sparse_new(s24_sparse **out, s24_ctx *ctx, const s24_sparse_parts *as,
                           int64_t stored)
{
    const int is_coo = as->format == S24_FORMAT_COO;
    const size_t piece = s24i_sparse_piece(as), number = sizeof(int32_t);
    const size_t starts = is_coo ? 0 : (size_t)s24i_sparse_lines(as) + 1;
    const size_t numbers =
        starts * sizeof(int64_t) + (size_t)(1 + is_coo) * (size_t)stored * number;
    const size_t head = (sizeof **out + 63) / 64 * 64, before = head + (numbers + 63) / 64 * 64;
    s24_sparse *matrix = NULL;
    if ((size_t)stored < SIZE_MAX / 4 / (piece + 2 * number))
        matrix = s24i_alloc(&ctx->allocator, before + (size_t)stored * piece);
    REQUIRE(ctx, matrix, S24_ERROR_MEMORY,
            "out of memory for a sparse matrix of %" PRId64 " values", stored);
    memset(matrix, 0, before + (size_t)stored * piece);
    int64_t *at = (int64_t *)(void *)((char *)matrix + head);
    matrix->allocator = ctx->allocator;
    matrix->starts = is_coo ? NULL : at;
    matrix->index = (int32_t *)(void *)(at + starts);
    matrix->rows_of = is_coo ? matrix->index + stored : NULL;
    matrix->values = (char *)matrix + before;
    matrix->parts = *as;
    matrix->parts.stored = stored;
    matrix->parts.starts = matrix->starts;
    matrix->parts.index = matrix->index;
    matrix->parts.rows_of = matrix->rows_of;
    matrix->parts.values = matrix->values;
    if (as->format != S24_FORMAT_BSR) matrix->parts.block_rows = matrix->parts.block_cols = 0;
    *out = matrix;
    return S24_OK;
}

void s24_sparse_destroy(s24_sparse *matrix)
{
    if (!matrix) return;
    const s24_allocator allocator = matrix->allocator;
    s24i_free(&allocator, matrix);
}

s24_sparse_parts s24_sparse_get(const s24_sparse *matrix)
{
    return matrix ? matrix->parts : (s24_sparse_parts){.stored = 0};
}

s24_status s24_sparse_from_parts(s24_sparse **out, s24_ctx *ctx, const s24_sparse_parts *parts)
{
    s24_sparse *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, parts, S24_ERROR_ARGUMENT, "parts is NULL");
    TRY(s24i_sparse_check_kind(ctx, parts));
    TRY(check_places(ctx, parts));
    TRY(s24i_sparse_new(&matrix, ctx, parts, parts->stored));
    const size_t stored = (size_t)parts->stored;
    if (matrix->starts)
        memcpy(matrix->starts, parts->starts,
               ((size_t)s24i_sparse_lines(parts) + 1) * sizeof *parts->starts);
    if (stored && matrix->rows_of)
        memcpy(matrix->rows_of, parts->rows_of, stored * sizeof *parts->rows_of);
    if (stored) {
        memcpy(matrix->index, parts->index, stored * sizeof *parts->index);
        memcpy(matrix->values, parts->values, stored * s24i_sparse_piece(parts));
    }
    *out = matrix;
    return S24_OK;
}
