// SPDX-License-Identifier: Apache-2.0
/* Checks of dense arguments: every refusal names the argument, what it is and what was expected. */
#include <stdio.h>

#include "op/op.h"

s24_status s24i_dense_check(s24_ctx *ctx, const char *name, const s24_dense *dense)
{
    size_t bytes;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, dense, S24_ERROR_ARGUMENT, "%s is NULL; expected a dense matrix", name);
    REQUIRE(ctx, dense->data, S24_ERROR_ARGUMENT, "%s.data is NULL", name);
    REQUIRE(ctx, dense->rows > 0 && dense->cols > 0, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected at least one row and one column", name,
            dense->rows, dense->cols);
    REQUIRE(ctx, dense->ld == 0 || dense->ld >= dense->cols, S24_ERROR_SHAPE,
            "%s has a leading dimension of %" PRId64 "; expected 0 or at least its %" PRId64
            " columns",
            name, dense->ld, dense->cols);
    size_t element = s24_dtype_bytes(dense->dtype);
    REQUIRE(ctx, element, S24_ERROR_DTYPE, "%s has the unknown dtype %d", name, (int)dense->dtype);
    REQUIRE(ctx,
            !s24i_mul_overflow((size_t)dense->rows, (size_t)s24i_dense_ld(dense), &bytes) &&
                !s24i_mul_overflow(bytes, element, &bytes) && bytes <= PTRDIFF_MAX,
            S24_ERROR_SHAPE, "%s is [%" PRId64 ", %" PRId64 "], more bytes than memory can have",
            name, dense->rows, dense->cols);
    REQUIRE(ctx, (uintptr_t)dense->data % element == 0, S24_ERROR_ARGUMENT,
            "%s.data is not aligned to its elements of %zu bytes", name, element);
    return S24_OK;
}

s24_status s24i_dense_check_groups(s24_ctx *ctx, const char *name, const s24_dense *dense)
{
    TRY(s24i_dense_check(ctx, name, dense));
    REQUIRE(ctx, s24_dtype_can_be_two_four(dense->dtype), S24_ERROR_DTYPE,
            "%s is %s; expected f32, f16, bf16, i8, e4m3 or e5m2", name,
            s24_dtype_name(dense->dtype));
    REQUIRE(ctx, dense->cols % 4 == 0, S24_ERROR_SHAPE,
            "%s has %" PRId64 " columns; 2:4 needs a multiple of 4", name, dense->cols);
    return S24_OK;
}

/* "f32 or bf16" */
static const char *dtype_list(char *text, size_t bytes, uint32_t dtypes)
{
    size_t used = 0;
    *text = 0;
    for (int d = 1; d < S24_DTYPE_COUNT && used < bytes; d++)
        if (dtypes >> d & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " or " : "",
                                     s24_dtype_name((s24_dtype)d));
    return text;
}

s24_status s24i_dense_check_operand(s24_ctx *ctx, const char *name, const s24_dense *dense,
                                    int64_t rows, int64_t cols, uint32_t dtypes)
{
    char list[64];
    TRY(s24i_dense_check(ctx, name, dense));
    REQUIRE(ctx, dtypes >> (int)dense->dtype & 1, S24_ERROR_DTYPE, "%s is %s; expected %s", name,
            s24_dtype_name(dense->dtype), dtype_list(list, sizeof list, dtypes));
    REQUIRE(ctx, dense->rows == rows && dense->cols == cols, S24_ERROR_SHAPE,
            "%s is [%" PRId64 ", %" PRId64 "]; expected [%" PRId64 ", %" PRId64 "]", name,
            dense->rows, dense->cols, rows, cols);
    return S24_OK;
}

static size_t pitch_of(const s24_dense *d)
{
    return (size_t)s24i_dense_ld(d) * s24_dtype_bytes(d->dtype);
}

int s24i_dense_overlap(const s24_dense *a, const s24_dense *b)
{
    if ((uintptr_t)a->data > (uintptr_t)b->data) return s24i_dense_overlap(b, a);
    const size_t distance = (uintptr_t)b->data - (uintptr_t)a->data;
    const size_t a_width = (size_t)a->cols * s24_dtype_bytes(a->dtype);
    const size_t b_width = (size_t)b->cols * s24_dtype_bytes(b->dtype);
    const size_t pitch = a->rows > 1 ? pitch_of(a) : pitch_of(b);
    if (distance >= (size_t)(a->rows - 1) * pitch_of(a) + a_width) return 0;
    if (a->rows > 1 && b->rows > 1 && pitch_of(a) != pitch_of(b)) return 1;
    /* Rows of one pitch: b begins in a row of a, or in a gap that must hold its whole width. */
    return distance % pitch < a_width || distance % pitch + b_width > pitch;
}

typedef struct search {
    const s24_dense *src;
    int (*in_rows)(s24i_find *find, const s24_dense *src);
    atomic_int_fast64_t first_row; /* the lowest row found so far; rows when none */
} search;

static void search_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    search *s = arg;
    s24i_find find;
    s24_dense part = *s->src;
    (void)thread;
    if (atomic_load(&s->first_row) < begin) return;
    part.data = s24i_dense_at(s->src, begin, 0);
    part.rows = end - begin;
    if (!s->in_rows(&find, &part)) return;
    int_fast64_t seen = atomic_load(&s->first_row);
    while (begin + find.row < seen)
        if (atomic_compare_exchange_weak(&s->first_row, &seen, begin + find.row)) break;
}

int s24i_find_first(s24i_find *find, s24_ctx *ctx, const s24_dense *src,
                    int (*in_rows)(s24i_find *find, const s24_dense *src))
{
    search s = {.src = src, .in_rows = in_rows};
    atomic_init(&s.first_row, src->rows);
    s24_ctx_parallel_for(ctx, src->rows, search_rows, &s);
    int64_t row = atomic_load(&s.first_row);
    if (row == src->rows) return 0;
    s24_dense one = *src;
    one.data = s24i_dense_at(src, row, 0);
    one.rows = 1;
    in_rows(find, &one);
    find->row = row;
    return 1;
}

s24_status s24i_require_finite(s24_ctx *ctx, const char *name, const s24_dense *src)
{
    s24i_find find;
    if (!s24i_find_first(&find, ctx, src, s24i_find_nonfinite)) return S24_OK;
    float value = s24i_load_f32(s24i_dense_at(src, find.row, find.col), src->dtype, 0);
    return s24_ctx_fail(ctx, S24_ERROR_NOT_FINITE,
                        "%s is %s at row %" PRId64 ", column %" PRId64 " (group %" PRId64
                        "); expected finite values",
                        name, value != value ? "NaN" : "Inf", find.row, find.col, find.col / 4);
}
