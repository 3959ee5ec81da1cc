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
        if (rows) *rows = s24i_layout_rows(s24i_layouts[i]);
        return s24i_layouts[i]->name;
    }
    return NULL;
}

int s24_layout_bits(const char *layout, int64_t *group)
{
    const s24i_layout *l = s24i_layout_find(layout);
    if (group) *group = l ? l->group : 0;
    return l ? l->bits : 0;
}

size_t s24_layout_bytes(const char *layout, int64_t rows, int64_t cols)
{
    const s24i_layout *l = s24i_layout_find(layout);
    int64_t elements;
    /* No layout takes eight bytes an element with 63 rows and 28 columns more. */
    if (!l || rows < 1 || cols < 4 || cols % 4 || rows > INT64_MAX / 2 || cols > INT64_MAX / 2 ||
        __builtin_mul_overflow(rows + s24i_layout_rows(l), cols + S24I_ROWS16_COLUMNS, &elements) ||
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
    const int64_t rows = s24i_layout_rows(j->layout);
    return (j->rows + rows - 1) / rows;
}

static uint8_t *block_at(const job *j, int64_t b)
{
    return j->data + b * s24i_layout_block_bytes(j->layout, j->cols);
}

static void convert_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const s24i_storage *s = j->storage;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const int64_t row = b * s24i_layout_rows(j->layout);
        const s24i_rows rows = {.rows = j->rows - row,
                                .k = j->cols,
                                .values = s24i_values_at(s, row, 0),
                                .indices = s24i_indices_at(s, row, 0),
                                .scales =
                                    s->scales ? s->scales + row * s24i_scales_stride(s) : NULL};
        if (j->unpack)
            s24i_layout_unpack_block(j->layout, &rows, block_at(j, b));
        else
            s24i_layout_pack_block(j->layout, block_at(j, b), &rows);
    }
}

static s24i_layout_fault fault_of(s24i_find *find, const job *j, int64_t b)
{
    const int64_t row = b * s24i_layout_rows(j->layout);
    return s24i_layout_find_fault(find, j->layout, block_at(j, b), j->rows - row, j->cols);
}

static void check_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    s24i_find find;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        if (!fault_of(&find, j, b)) continue;
        for (int64_t bad = atomic_load(&j->bad);
             b < bad && !atomic_compare_exchange_weak(&j->bad, &bad, b);)
            ;
        return;
    }
}

static s24_status check(job *j, s24_ctx *ctx)
{
    static const char *const sentences[] = {
        [S24I_FAULT_CODE] =
            "the code of row %" PRId64 ", column %" PRId64 " is none of 4, 8, 9, C, D and E",
        [S24I_FAULT_SCALE] =
            "the scale of row %" PRId64 ", column %" PRId64 " is negative or not finite",
        [S24I_FAULT_PAST] = "past the matrix, at row %" PRId64 ", column %" PRId64
                            ", the code is not 4 or a value or a scale not 0"};
    s24i_find find = {0};
    atomic_init(&j->bad, blocks_of(j));
    s24_ctx_parallel_for(ctx, blocks_of(j), check_blocks, j);
    const int64_t b = atomic_load(&j->bad);
    if (b == blocks_of(j)) return S24_OK;
    const s24i_layout_fault fault = fault_of(&find, j, b);
    if (!fault) return S24_OK;
    find.row += b * s24i_layout_rows(j->layout);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT, sentences[fault], find.row, find.col);
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

/* A matrix's dtype, and of integers bits and group, must be the layout's. */
static s24_status check_values(s24_ctx *ctx, const s24i_layout *layout, const s24i_storage *s)
{
    const int64_t group = layout->bits && !layout->group ? s->cols : layout->group;
    REQUIRE(ctx, layout->dtype == s->dtype && !layout->bits == !s->scales, S24_ERROR_DTYPE,
            "the layout %s is of %s%s; the matrix is %s%s", layout->name,
            layout->bits ? "quantised " : "", s24_dtype_name(layout->dtype),
            s->scales ? "quantised " : "", s24_dtype_name(s->dtype));
    REQUIRE(ctx, layout->bits == s->bits && group == s->group, S24_ERROR_DTYPE,
            "the layout %s is of %d bits with a scale for %" PRId64
            " columns; the matrix has %d bits and a scale for %" PRId64,
            layout->name, layout->bits, group, s->bits, s->group);
    return S24_OK;
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
    TRY(check_values(ctx, j.layout, s));
    j.storage = s;
    j.unpack = 0;
    s24_ctx_parallel_for(ctx, blocks_of(&j), convert_blocks, &j);
    return S24_OK;
}

static s24_status check_copy(s24_ctx *ctx, const s24i_storage *s)
{
    s24i_find find;
    if (s->scales)
        return s24i_check_integers(ctx, &(s24_quantized){.rows = s->rows,
                                                         .cols = s->cols,
                                                         .group = s->group,
                                                         .indices = s->indices,
                                                         .scales = s->scales});
    if (s24i_codes_are_legal(s->indices, s->rows, s->cols, &find)) return S24_OK;
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "the code of row %" PRId64 ", column %" PRId64
                        " is none of 4, 8, 9, C, D and E",
                        find.row, find.col);
}

s24_status s24_matrix_from_layout(s24_matrix **out, s24_ctx *ctx, const s24_laid_out *from)
{
    job j;
    s24_matrix *matrix;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    TRY(job_of(&j, ctx, from));
    TRY(check(&j, ctx));
    const int64_t group = j.layout->group ? j.layout->group : j.cols;
    if (j.layout->bits)
        TRY(s24i_matrix_new_scaled(&matrix, ctx, j.layout->bits, group, j.rows, j.cols));
    else
        TRY(s24i_matrix_new(&matrix, ctx, j.layout->dtype, j.rows, j.cols));
    j.storage = matrix->storage;
    s24_ctx_parallel_for(ctx, blocks_of(&j), convert_blocks, &j);
    /* Once more of the copy: the caller's memory may be a file that changes. */
    GIVE(out, matrix, s24_matrix_destroy, check_copy(ctx, j.storage));
}
