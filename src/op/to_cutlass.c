// SPDX-License-Identifier: Apache-2.0
/* PyTorch's CUTLASS layout, in and out: checks and errors around format/cutlass.c. */
#include <string.h>

#include "op/op.h"

static s24_status check_shape(s24_ctx *ctx, s24_dtype dtype, int64_t rows, int64_t cols)
{
    size_t word = s24_dtype_can_be_two_four(dtype) ? s24i_cutlass_word_bytes(dtype) : 0;
    REQUIRE(ctx, word, S24_ERROR_DTYPE,
            "the CUTLASS layout of %s; expected f16, bf16, i8, e4m3 or e5m2",
            s24_dtype_name(dtype));
    int row_unit = word == 2 ? 32 : 16, col_unit = word == 2 ? 64 : 128;
    REQUIRE(ctx, rows > 0 && rows % row_unit == 0 && cols > 0 && cols % col_unit == 0,
            S24_ERROR_SHAPE,
            "the CUTLASS layout of [%" PRId64 ", %" PRId64
            "] in %s; expected a multiple of %d rows and of %d columns",
            rows, cols, s24_dtype_name(dtype), row_unit, col_unit);
    return S24_OK;
}

s24_status s24_matrix_from_cutlass(s24_matrix **out, s24_ctx *ctx, const void *values,
                                   const void *meta, s24_dtype dtype, int64_t rows, int64_t cols)
{
    s24_matrix *matrix;
    int64_t col = 0;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, values && meta, S24_ERROR_ARGUMENT, "%s is NULL", values ? "meta" : "values");
    TRY(check_shape(ctx, dtype, rows, cols));
    TRY(s24i_matrix_new(&matrix, ctx, dtype, rows, cols));
    s24i_storage *s = matrix->storage;
    memcpy(s->values, values, s->value_bytes);
    for (int64_t r = 0; r < rows; r++) {
        if (s24i_cutlass_unpack_row(s24i_values_at(s, r, 0), s24i_indices_at(s, r, 0), dtype, meta,
                                    r, rows, cols, &col))
            continue;
        s24_matrix_destroy(matrix);
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "meta of row %" PRId64 ", columns %" PRId64 " to %" PRId64
                            " (group %" PRId64 ") puts two values in one place",
                            r, col, col + 3, col / 4);
    }
    *out = matrix;
    return S24_OK;
}

s24_status s24_matrix_to_cutlass(void *values, void *meta, s24_ctx *ctx, const s24_matrix *src)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, values && meta && src, S24_ERROR_ARGUMENT, "%s is NULL",
            !values ? "values"
            : !meta ? "meta"
                    : "src");
    const s24i_storage *s = src->storage;
    REQUIRE(ctx, !src->transposed, S24_ERROR_SHAPE,
            "src is a transposed view; expected the matrix itself");
    TRY(check_shape(ctx, s->dtype, s->rows, s->cols));
    memcpy(values, s->values, s->value_bytes);
    for (int64_t r = 0; r < s->rows; r++)
        s24i_cutlass_pack_row(meta, s->dtype, s24i_indices_at(s, r, 0), r, s->rows, s->cols);
    return S24_OK;
}
