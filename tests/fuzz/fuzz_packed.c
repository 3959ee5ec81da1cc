// SPDX-License-Identifier: Apache-2.0
/*
 * Canonical and CUTLASS memory of any content: it is refused with a sentence, or it is a matrix
 * that goes to dense, is packed strictly, or by a mask of what is not 0, and comes back as the same
 * numbers; its transpose too.
 *
 * Input: dtype, layout and whether by a mask, rows, columns, then bytes that are repeated as often
 * as the shape needs.
 */
#include "fuzz.h"

#include <string.h>

static const s24_dtype dtypes[] = {S24_F32, S24_F16, S24_BF16, S24_I8, S24_E4M3, S24_E5M2};

/* Memory of exactly that size, so that an over-read is seen. */
static void *repeated(const uint8_t *data, size_t length, size_t bytes)
{
    uint8_t *out = malloc(bytes ? bytes : 1);
    CHECK(out);
    for (size_t i = 0; i < bytes; i++)
        out[i] = length ? data[i % length] : 0;
    return out;
}

static int is_zero(const uint8_t *element, s24_dtype dtype)
{
    float value;
    CHECK(s24_convert(&value, S24_F32, element, dtype, 1) == S24_OK);
    return value == 0;
}

/* The same bits, or two zeros. */
static int same(const uint8_t *a, const uint8_t *b, s24_dtype dtype)
{
    return !memcmp(a, b, s24_dtype_bytes(dtype)) || (is_zero(a, dtype) && is_zero(b, dtype));
}

/* Packs by a mask of what is not 0, which is free()d by the caller. */
static uint8_t *by_mask(s24_matrix_opts *opts, const s24_dense *of)
{
    const size_t count = (size_t)(of->rows * of->cols), element = s24_dtype_bytes(of->dtype);
    uint8_t *mask = malloc(count ? count : 1);
    CHECK(mask);
    for (size_t i = 0; i < count; i++)
        mask[i] = !is_zero((const uint8_t *)of->data + i * element, of->dtype);
    opts->select = S24_SELECT_MASK;
    opts->mask = mask;
    return mask;
}

static void go_round(s24_ctx *ctx, const s24_matrix *w, int masked)
{
    s24_dtype dtype = s24_matrix_dtype(w);
    size_t element = s24_dtype_bytes(dtype);
    int64_t rows = s24_matrix_rows(w), cols = s24_matrix_cols(w);
    size_t bytes = (size_t)(rows * cols) * element;
    uint8_t *once = malloc(bytes), *twice = malloc(bytes);
    CHECK(once && twice);
    s24_dense first = {once, dtype, rows, cols, 0}, second = {twice, dtype, rows, cols, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .allow_nonfinite = 1};
    s24_matrix *again;
    int two_four = 0;
    CHECK(s24_matrix_to_dense(ctx, &first, w) == S24_OK);
    CHECK(s24_check(&two_four, NULL, ctx, &first) == S24_OK && two_four);
    uint8_t *mask = masked ? by_mask(&opts, &first) : NULL;
    CHECK(s24_matrix_create(&again, ctx, &first, &opts) == S24_OK);
    free(mask);
    CHECK(s24_matrix_to_dense(ctx, &second, again) == S24_OK);
    for (size_t i = 0; i < bytes; i += element)
        CHECK(same(once + i, twice + i, dtype));
    s24_matrix_destroy(again);
    free(once);
    free(twice);
}

/* The tensor that a transposed matrix stands for is packed to that matrix. */
static void go_round_turned(s24_ctx *ctx, const s24_matrix *w, int masked)
{
    const int64_t rows = s24_matrix_rows(w), cols = s24_matrix_cols(w);
    const s24_dtype dtype = s24_matrix_dtype(w);
    const size_t bytes = (size_t)(rows * cols) * s24_dtype_bytes(dtype);
    void *stored = malloc(bytes), *again = malloc(bytes);
    CHECK(stored && again);
    const s24_dense lies = {stored, dtype, cols, rows, 0},
                    lies_again = {again, dtype, cols, rows, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .allow_nonfinite = 1, .transpose = 1};
    s24_matrix *view, *packed;
    CHECK(s24_matrix_transpose(&view, ctx, w) == S24_OK);
    CHECK(s24_matrix_to_dense(ctx, &lies, view) == S24_OK);
    s24_matrix_destroy(view);
    uint8_t *mask = masked ? by_mask(&opts, &lies) : NULL;
    CHECK(s24_matrix_create(&packed, ctx, &lies, &opts) == S24_OK);
    free(mask);
    CHECK(s24_matrix_rows(packed) == rows && s24_matrix_cols(packed) == cols);
    CHECK(s24_matrix_transpose(&view, ctx, packed) == S24_OK);
    CHECK(s24_matrix_to_dense(ctx, &lies_again, view) == S24_OK);
    for (size_t i = 0; i < bytes; i += s24_dtype_bytes(dtype))
        CHECK(same((uint8_t *)stored + i, (uint8_t *)again + i, dtype));
    s24_matrix_destroy(view);
    s24_matrix_destroy(packed);
    free(stored);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    s24_ctx *ctx = fuzz_ctx();
    s24_matrix *w = NULL;
    if (bytes < 4) return 0;
    s24_dtype dtype = dtypes[data[0] % 6];
    int cutlass = data[1] % 2, masked = data[1] / 2 % 2;
    int64_t rows = data[2] % 65, cols = data[3] % (cutlass ? 3 : 17) * (cutlass ? 64 : 4);
    size_t count = (size_t)(rows * (cols / 2));
    size_t indices = cutlass ? (size_t)(rows * cols) / 8 : (size_t)(rows * ((cols + 7) / 8));
    void *values = repeated(data + 4, bytes - 4, count * s24_dtype_bytes(dtype));
    void *codes = repeated(data + 4 + (bytes - 4) / 2, bytes - 4 - (bytes - 4) / 2, indices);
    s24_status status = cutlass ? s24_matrix_from_cutlass(&w, ctx, values, codes, dtype, rows, cols)
                                : s24_matrix_from_packed(&w, ctx, values, codes, dtype, rows, cols);
    if (status == S24_OK) {
        go_round(ctx, w, masked);
        go_round_turned(ctx, w, masked);
    } else {
        CHECK(!w && *s24_ctx_error(ctx));
    }
    s24_matrix_destroy(w);
    free(values);
    free(codes);
    return 0;
}
