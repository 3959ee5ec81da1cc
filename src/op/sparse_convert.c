// SPDX-License-Identifier: Apache-2.0
/*
 * Sparse matrices out of each other and of dense ones. Every source can be walked such that the
 * entries of a row come in the order of their columns; so walking it twice, to count and to place,
 * makes rows of it (CSR), and every format is made of rows.
 */
#include <string.h>

#include "op/sparse.h"

/* What a walk does with an entry: `value` are its bytes. */
typedef void (*visit)(void *user, int64_t row, int64_t col, const char *value);

/* ---- walks ----------------------------------------------------------------------------------- */

static void walk_block(const s24_sparse_parts *p, int64_t line, int64_t at, visit fn, void *user)
{
    const size_t size = s24_dtype_bytes(p->dtype);
    const char *value = (const char *)p->values + (size_t)at * s24i_sparse_piece(p);
    for (int64_t r = 0; r < p->block_rows; r++)
        for (int64_t c = 0; c < p->block_cols; c++, value += size)
            if (!s24i_is_zero(value, p->dtype))
                fn(user, line * p->block_rows + r, p->index[at] * p->block_cols + c, value);
}

static void walk_sparse(const s24_sparse_parts *p, visit fn, void *user)
{
    const size_t size = s24_dtype_bytes(p->dtype);
    const char *values = p->values;
    if (p->format == S24_FORMAT_COO)
        for (int64_t i = 0; i < p->stored; i++)
            fn(user, p->rows_of[i], p->index[i], values + (size_t)i * size);
    for (int64_t line = 0; line < s24i_sparse_lines(p); line++)
        for (int64_t i = p->starts[line]; i < p->starts[line + 1]; i++) {
            const char *value = values + (size_t)i * size;
            if (p->format == S24_FORMAT_BSR)
                walk_block(p, line, i, fn, user);
            else if (p->format == S24_FORMAT_CSC)
                fn(user, p->index[i], line, value);
            else
                fn(user, line, p->index[i], value);
        }
}

/* A dense matrix, or else a sparse one. */
typedef struct source {
    const s24_dense *dense;
    const s24_sparse_parts *sparse;
} source;

static void walk(const source *from, visit fn, void *user)
{
    if (!from->dense) {
        walk_sparse(from->sparse, fn, user);
        return;
    }
    const s24_dense *d = from->dense;
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t c = 0; c < d->cols; c++) {
            const char *value = s24i_dense_at(d, r, c);
            if (!s24i_is_zero(value, d->dtype)) fn(user, r, c, value);
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* How many entries a row has stands one place further, so that their sums are starts. */
static void count(void *user, int64_t row, int64_t col, const char *value)
{
    int64_t *counts = user;
    (void)col;
    (void)value;
    counts[row + 1]++;
}

/* A matrix that is filled line by line; next[line]: where the next entry goes. */
typedef struct filling {
    s24_sparse *to;
    int64_t *next;
    size_t size;
} filling;

static void place(void *user, int64_t row, int64_t col, const char *value)
{
    const filling *f = user;
    const int64_t at = f->next[row]++;
    f->to->index[at] = (int32_t)col;
    memcpy(f->to->values + (size_t)at * f->size, value, f->size);
}

static void sum_up(int64_t *starts, int64_t lines)
{
    for (int64_t i = 0; i < lines; i++)
        starts[i + 1] += starts[i];
}

/* Rows of any source. counts: rows + 1 zeros. */
static s24_status make_rows(s24_sparse **out, s24_ctx *ctx, const source *from,
                            const s24_sparse_parts *as, int64_t *counts)
{
    walk(from, count, counts);
    sum_up(counts, as->rows);
    TRY(s24i_sparse_new(out, ctx, as, counts[as->rows]));
    memcpy((*out)->starts, counts, ((size_t)as->rows + 1) * sizeof *counts);
    filling f = {*out, counts, s24_dtype_bytes(as->dtype)};
    walk(from, place, &f);
    return S24_OK;
}

/* ---- out of rows ----------------------------------------------------------------------------- */

static s24_status rows_to_coordinates(s24_sparse **out, s24_ctx *ctx, const s24_sparse *rows,
                                      const s24_sparse_parts *as, int64_t *unused)
{
    const s24_sparse_parts *p = &rows->parts;
    (void)unused;
    TRY(s24i_sparse_new(out, ctx, as, p->stored));
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = p->starts[r]; i < p->starts[r + 1]; i++)
            (*out)->rows_of[i] = (int32_t)r;
    if (!p->stored) return S24_OK;
    memcpy((*out)->index, p->index, (size_t)p->stored * sizeof *p->index);
    memcpy((*out)->values, p->values, (size_t)p->stored * s24_dtype_bytes(p->dtype));
    return S24_OK;
}

static void count_turned(void *user, int64_t row, int64_t col, const char *value)
{
    count(user, col, row, value);
}

static void place_turned(void *user, int64_t row, int64_t col, const char *value)
{
    place(user, col, row, value);
}

static s24_status rows_to_columns(s24_sparse **out, s24_ctx *ctx, const s24_sparse *rows,
                                  const s24_sparse_parts *as, int64_t *counts)
{
    TRY(s24i_sparse_new(out, ctx, as, rows->parts.stored));
    walk_sparse(&rows->parts, count_turned, counts);
    sum_up(counts, as->cols);
    memcpy((*out)->starts, counts, ((size_t)as->cols + 1) * sizeof *counts);
    filling f = {*out, counts, s24_dtype_bytes(as->dtype)};
    walk_sparse(&rows->parts, place_turned, &f);
    return S24_OK;
}

/* Marks with `line + 1` the block columns that a row of blocks has; returns how many. */
static int64_t mark_blocks(int64_t *marks, const s24_sparse_parts *p, const s24_sparse_parts *as,
                           int64_t line)
{
    int64_t found = 0;
    const int64_t first = line * as->block_rows;
    for (int64_t i = p->starts[first]; i < p->starts[first + as->block_rows]; i++) {
        int64_t *mark = &marks[p->index[i] / as->block_cols];
        found += *mark != line + 1;
        *mark = line + 1;
    }
    return found;
}

/* Writes a row of blocks from `at` on, whose block columns are marked. */
static void fill_blocks(s24_sparse *to, int64_t *marks, const s24_sparse_parts *p, int64_t line,
                        int64_t at)
{
    const s24_sparse_parts *as = &to->parts;
    const size_t size = s24_dtype_bytes(as->dtype);
    for (int64_t c = 0; c < as->cols / as->block_cols; c++) {
        if (marks[c] != line + 1) continue;
        marks[c] = at; /* from now on its place */
        to->index[at++] = (int32_t)c;
    }
    for (int64_t r = 0; r < as->block_rows; r++) {
        const int64_t row = line * as->block_rows + r;
        for (int64_t i = p->starts[row]; i < p->starts[row + 1]; i++) {
            const int64_t col = p->index[i];
            const int64_t block = marks[col / as->block_cols];
            const int64_t cell = r * as->block_cols + col % as->block_cols;
            memcpy(to->values + (size_t)block * s24i_sparse_piece(as) + (size_t)cell * size,
                   (const char *)p->values + (size_t)i * size, size);
        }
    }
}

static s24_status rows_to_blocks(s24_sparse **out, s24_ctx *ctx, const s24_sparse *rows,
                                 const s24_sparse_parts *as, int64_t *marks)
{
    const s24_sparse_parts *p = &rows->parts;
    const int64_t lines = as->rows / as->block_rows, width = as->cols / as->block_cols;
    int64_t stored = 0;
    for (int64_t line = 0; line < lines; line++)
        stored += mark_blocks(marks, p, as, line);
    TRY(s24i_sparse_new(out, ctx, as, stored));
    for (int64_t line = 0; line < lines; line++) {
        int64_t *starts = (*out)->starts + line;
        memset(marks, 0, (size_t)width * sizeof *marks);
        starts[1] = starts[0] + mark_blocks(marks, p, as, line);
        fill_blocks(*out, marks, p, line, starts[0]);
    }
    return S24_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static s24_status make_of_rows(s24_sparse **out, s24_ctx *ctx, const s24_sparse *rows,
                               const s24_sparse_parts *as, int64_t *counts)
{
    if (as->format == S24_FORMAT_COO) return rows_to_coordinates(out, ctx, rows, as, counts);
    if (as->format == S24_FORMAT_CSC) return rows_to_columns(out, ctx, rows, as, counts);
    return rows_to_blocks(out, ctx, rows, as, counts);
}

static s24_status make(s24_sparse **out, s24_ctx *ctx, const source *from,
                       const s24_sparse_parts *as)
{
    const int64_t longest = as->rows > as->cols ? as->rows : as->cols;
    const size_t bytes = ((size_t)longest + 1) * sizeof(int64_t);
    s24_sparse_parts by_rows = *as;
    s24_sparse *rows = NULL;
    int64_t *counts = s24i_alloc(&ctx->allocator, bytes);
    REQUIRE(ctx, counts, S24_ERROR_MEMORY, "out of memory for the rows of a sparse matrix");
    memset(counts, 0, bytes);
    by_rows.format = S24_FORMAT_CSR;
    s24_status status = make_rows(&rows, ctx, from, &by_rows, counts);
    memset(counts, 0, bytes);
    if (status == S24_OK && as->format == S24_FORMAT_CSR) {
        *out = rows;
        rows = NULL;
    } else if (status == S24_OK) {
        status = make_of_rows(out, ctx, rows, as, counts);
    }
    s24_sparse_destroy(rows);
    s24i_free(&ctx->allocator, counts);
    return status;
}

s24_status s24_sparse_create(s24_sparse **out, s24_ctx *ctx, const s24_dense *src,
                             const s24_sparse_parts *as)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, as, S24_ERROR_ARGUMENT, "as is NULL; expected a format");
    TRY(s24i_dense_check(ctx, "src", src));
    const source from = {src, NULL};
    s24_sparse_parts kind = {.format = as->format,
                             .dtype = src->dtype,
                             .rows = src->rows,
                             .cols = src->cols,
                             .block_rows = as->block_rows,
                             .block_cols = as->block_cols};
    TRY(s24i_sparse_check_kind(ctx, &kind));
    return make(out, ctx, &from, &kind);
}

s24_status s24_sparse_convert(s24_sparse **out, s24_ctx *ctx, const s24_sparse *src,
                              const s24_sparse_parts *as)
{
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, src && as, S24_ERROR_ARGUMENT, "%s is NULL", src ? "as" : "src");
    const source from = {NULL, &src->parts};
    s24_sparse_parts kind = {.format = as->format,
                             .dtype = src->parts.dtype,
                             .rows = src->parts.rows,
                             .cols = src->parts.cols,
                             .block_rows = as->block_rows,
                             .block_cols = as->block_cols};
    TRY(s24i_sparse_check_kind(ctx, &kind));
    return make(out, ctx, &from, &kind);
}

/* Where to_dense puts entries. */
typedef struct spreading {
    const s24_dense *dst;
    s24_dtype from;
    s24_status status;
} spreading;

static void spread(void *user, int64_t row, int64_t col, const char *value)
{
    spreading *s = user;
    const s24_status status =
        s24_convert(s24i_dense_at(s->dst, row, col), s->dst->dtype, value, s->from, 1);
    if (status != S24_OK) s->status = status;
}

s24_status s24_sparse_to_dense(s24_ctx *ctx, const s24_dense *dst, const s24_sparse *src)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, src, S24_ERROR_ARGUMENT, "src is NULL; expected a sparse matrix");
    TRY(s24i_dense_check(ctx, "dst", dst));
    REQUIRE(ctx, s24_dtype_can_be_two_four(dst->dtype), S24_ERROR_DTYPE,
            "dst is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", s24_dtype_name(dst->dtype));
    REQUIRE(ctx, dst->rows == src->parts.rows && dst->cols == src->parts.cols, S24_ERROR_SHAPE,
            "dst is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", dst->rows,
            dst->cols, src->parts.rows, src->parts.cols);
    for (int64_t r = 0; r < dst->rows; r++)
        memset(s24i_dense_at(dst, r, 0), 0, (size_t)dst->cols * s24_dtype_bytes(dst->dtype));
    spreading s = {dst, src->parts.dtype, S24_OK};
    walk_sparse(&src->parts, spread, &s);
    return s.status;
}
