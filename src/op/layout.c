// SPDX-License-Identifier: Apache-2.0
/* The orders of weights that files may hold, in and out: checks, threads and errors around
   format/rows16.c. */
#include <string.h>

#include "op/op.h"

const s24i_layout *s24i_layout_find(const char *name)
{
    for (int i = 0; name && s24i_layouts[i]; i++)
        if (!strcmp(s24i_layouts[i]->name, name)) return s24i_layouts[i];
    return NULL;
}

const char *s24_layout_name(int index, s24_dtype *dtype, int64_t *rows)
{
    for (int i = 0; index >= 0 && s24i_layouts[i]; i++) {
        if (i < index) continue;
        if (dtype) *dtype = s24i_layouts[i]->dtype;
        if (rows) *rows = S24I_ROWS16;
        return s24i_layouts[i]->name;
    }
    return NULL;
}

size_t s24_layout_bytes(const char *layout, int64_t rows, int64_t cols)
{
    const s24i_layout *l = s24i_layout_find(layout);
    int64_t elements;
    /* No layout takes eight bytes an element with 15 rows and 28 columns more. */
    if (!l || rows < 1 || cols < 4 || cols % 4 || rows > INT64_MAX / 2 || cols > INT64_MAX / 2 ||
        __builtin_mul_overflow(rows + S24I_ROWS16, cols + S24I_ROWS16_COLUMNS, &elements) ||
        elements > PTRDIFF_MAX / 8)
        return 0;
    return s24i_layout_bytes(l, rows, cols);
}

typedef struct job {
    const s24i_layout *layout;
    uint8_t *data;
    int64_t rows, cols;
    const s24i_storage *storage; /* the canonical side, or NULL */
    int unpack;
    _Atomic int64_t bad; /* the first row block that is not legal; their number: none */
} job;

static int64_t blocks_of(const job *j)
{
    return (j->rows + S24I_ROWS16 - 1) / S24I_ROWS16;
}

static uint8_t *block_at(const job *j, int64_t b)
{
    return j->data + b * s24i_layout_block_bytes(j->layout, j->cols);
}

static void convert_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = b * S24I_ROWS16;
        void *values = s24i_values_at(j->storage, row, 0);
        uint8_t *indices = s24i_indices_at(j->storage, row, 0);
        if (j->unpack)
            s24i_layout_unpack_block(j->layout, values, indices, block_at(j, b), j->rows - row,
                                     j->cols);
        else
            s24i_layout_pack_block(j->layout, block_at(j, b), values, indices, j->rows - row,
                                   j->cols);
    }
}

static void check_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    s24i_find find;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        if (s24i_layout_block_is_legal(j->layout, block_at(j, b), j->rows - b * S24I_ROWS16,
                                       j->cols, &find))
            continue;
        for (int64_t bad = atomic_load(&j->bad);
             b < bad && !atomic_compare_exchange_weak(&j->bad, &bad, b);)
            ;
        return;
    }
}

static s24_status check(job *j, s24_ctx *ctx)
{
    s24i_find find = {0};
    atomic_init(&j->bad, blocks_of(j));
    s24_ctx_parallel_for(ctx, blocks_of(j), check_blocks, j);
    const int64_t b = atomic_load(&j->bad), row = b * S24I_ROWS16;
    if (b == blocks_of(j) ||
        s24i_layout_block_is_legal(j->layout, block_at(j, b), j->rows - row, j->cols, &find))
        return S24_OK;
    find.row += row;
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        find.row < j->rows && find.col < j->cols
                            ? "the code of row %" PRId64 ", column %" PRId64
                              " is none of 4, 8, 9, C, D and E"
                            : "past the matrix, at row %" PRId64 ", column %" PRId64
                              ", the code is not 4 or a value not 0",
                        find.row, find.col);
}

static s24_status job_of(job *j, s24_ctx *ctx, const s24_laid_out *from)
{
    REQUIRE(ctx, from && from->layout && from->data, S24_ERROR_ARGUMENT, "%s is NULL",
            !from           ? "from"
            : !from->layout ? "s24_laid_out.layout"
                            : "s24_laid_out.data");
    const s24i_layout *layout = s24i_layout_find(from->layout);
    REQUIRE(ctx, layout, S24_ERROR_ARGUMENT,
            "there is no layout named \"%s\"; s24_layout_name lists them", from->layout);
    REQUIRE(ctx, s24_layout_bytes(from->layout, from->rows, from->cols), S24_ERROR_SHAPE,
            "a matrix of [%" PRId64 ", %" PRId64
            "]; expected at least one row and a multiple of 4 columns",
            from->rows, from->cols);
    *j = (job){.layout = layout,
               .data = (uint8_t *)(uintptr_t)from->data,
               .rows = from->rows,
               .cols = from->cols,
               .unpack = 1};
    return S24_OK;
}

s24_status s24_layout_check(s24_ctx *ctx, const s24_laid_out *from)
{
    job j;
    if (!ctx) return S24_ERROR_ARGUMENT;
    TRY(job_of(&j, ctx, from));
    return check(&j, ctx);
}

s24_status s24_matrix_to_layout(void *to, s24_ctx *ctx, const s24_matrix *src, const char *layout)
{
    job j;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, to && src, S24_ERROR_ARGUMENT, "%s is NULL", to ? "src" : "to");
    REQUIRE(ctx, !src->transposed, S24_ERROR_SHAPE,
            "src is a transposed view; expected the matrix itself");
    const s24i_storage *s = src->storage;
    const s24_laid_out into = {layout, s->rows, s->cols, to};
    TRY(job_of(&j, ctx, &into));
    REQUIRE(ctx, j.layout->dtype == s->dtype && !s->scales, S24_ERROR_DTYPE,
            "the layout %s is of %s; the matrix is %s", layout, s24_dtype_name(j.layout->dtype),
            s24_dtype_name(s->dtype));
    j.storage = s;
    j.unpack = 0;
    s24_ctx_parallel_for(ctx, blocks_of(&j), convert_blocks, &j);
    return S24_OK;
}

s24_status s24_matrix_from_layout(s24_matrix **out, s24_ctx *ctx, const s24_laid_out *from)
{
    job j;
    s24_matrix *matrix;
    s24i_find find;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(job_of(&j, ctx, from));
    TRY(check(&j, ctx));
    TRY(s24i_matrix_new(&matrix, ctx, j.layout->dtype, j.rows, j.cols));
    j.storage = matrix->storage;
    s24_ctx_parallel_for(ctx, blocks_of(&j), convert_blocks, &j);
    /* Once more of the copy: the caller's memory may be a file that changes. */
    if (!s24i_codes_are_legal(j.storage->indices, j.rows, j.cols, &find)) {
        s24_matrix_destroy(matrix);
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "the code of row %" PRId64 ", column %" PRId64
                            " is none of 4, 8, 9, C, D and E",
                            find.row, find.col);
    }
    *out = matrix;
    return S24_OK;
}
