// SPDX-License-Identifier: Apache-2.0
/*
 * PyTorch's SparseSemiStructuredTensor: of its CUTLASS backend values and metadata, of its
 * cuSPARSELt backend one buffer of both, whose metadata's order NVIDIA does not publish: it is that
 * which cuSPARSELt 0.8 was seen to write, of whole blocks of 64 rows and 64 columns (128 columns of
 * 8 bits).
 */
#include <string.h>

#include "io/convert/convert.h"

enum { PACKED, META, SHAPE, LT_SHAPE = META };

static s24_status fail_shape(const s24i_foreign *w, int64_t rows, int64_t cols)
{
    return s24_ctx_fail(w->ctx, S24_ERROR_UNSUPPORTED,
                        "%s: tensor \"%s\" is [%lld, %lld] of %s, a multiple of [%lld, %lld] is "
                        "expected",
                        w->path, s24i_show(w->name).text, (long long)w->rows, (long long)w->cols,
                        s24_dtype_name(w->part[PACKED]->dtype), (long long)rows, (long long)cols);
}

static int is_sixteen(const s24_tensor *packed)
{
    return packed->dtype == S24_F16 || packed->dtype == S24_BF16;
}

static s24_status measure_cutlass(s24i_foreign *w)
{
    const s24_tensor *packed = w->part[PACKED];
    const int sixteen = is_sixteen(packed);
    int64_t shape[2];
    TRY(s24i_foreign_shape(shape, w, SHAPE));
    w->rows = shape[0];
    w->cols = shape[1];
    const int64_t values[] = {w->rows, w->cols / 2};
    const int64_t rows = sixteen ? 32 : 16, cols = sixteen ? 64 : 128;
    TRY(s24i_foreign_part(w, PACKED, sixteen ? packed->dtype : S24_I8, 2, values));
    if (w->rows % rows || w->cols % cols) return fail_shape(w, rows, cols);
    const s24_tensor *meta = w->part[META];
    const size_t bytes = (size_t)(w->rows * (w->cols / 8));
    REQUIRE(w->ctx, meta->dtype == (sixteen ? S24_I16 : S24_I32) && meta->bytes == bytes,
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is %s of %zu bytes, expected %s of %zu", w->path,
            s24i_show(meta->name).text, s24i_dtype_label(meta->dtype), meta->bytes,
            sixteen ? "I16" : "I32", bytes);
    return S24_OK;
}

/* Takes values and codes of a matrix. */
static s24_status take(s24i_numbers *out, s24_matrix *matrix)
{
    const size_t size = s24_dtype_bytes(out->dtype);
    const int64_t codes = out->rows * ((out->cols + 7) / 8), kept = out->rows * (out->cols / 2);
    void *values;
    uint8_t *indices;
    TRY(s24i_numbers_own(&values, out, 0, kept, size));
    TRY(s24i_numbers_own(&indices, out, 1, codes, 1));
    memcpy(values, s24_matrix_values(matrix), (size_t)kept * size);
    memcpy(indices, s24_matrix_indices(matrix), (size_t)codes);
    out->values = values;
    out->indices = indices;
    return S24_OK;
}

static s24_status read_cutlass(s24i_numbers *out, const s24i_foreign *w)
{
    s24_matrix *matrix = NULL;
    s24_status status =
        s24_matrix_from_cutlass(&matrix, w->ctx, w->part[PACKED]->data, w->part[META]->data,
                                out->dtype, out->rows, out->cols);
    status = s24i_name_tensor(w->ctx, status, w->part[META]);
    if (status == S24_OK) status = take(out, matrix);
    s24_matrix_destroy(matrix);
    return status;
}

const s24i_foreign_scheme s24i_scheme_torch_cutlass = {
    .name = "PyTorch SparseSemiStructuredTensorCUTLASS",
    .whole = "",
    .part = {{.suffix = ".packed"}, {.suffix = ".meta"}, {.suffix = ".shape"}},
    .measure = measure_cutlass,
    .read = read_cutlass,
    .is_two_four = 1,
};

/* ---- cuSPARSELt ------------------------------------------------------------------------------ */

static s24_status measure_cusparselt(s24i_foreign *w)
{
    const s24_tensor *packed = w->part[PACKED];
    const int sixteen = is_sixteen(packed), is_narrow = s24_dtype_bytes(packed->dtype) == 1;
    int64_t shape[2];
    TRY(s24i_foreign_shape(shape, w, LT_SHAPE));
    w->rows = shape[0];
    w->cols = shape[1];
    REQUIRE(w->ctx, sixteen || (is_narrow && s24_dtype_can_be_two_four(packed->dtype)),
            S24_ERROR_FORMAT, "%s: tensor \"%s\" is %s, expected F16, BF16, I8 or F8_E4M3", w->path,
            s24i_show(packed->name).text, s24i_dtype_label(packed->dtype));
    if (w->rows % 64 || w->cols % (sixteen ? 64 : 128))
        return fail_shape(w, 64, sixteen ? 64 : 128);
    const size_t bytes = (size_t)(w->rows * (w->cols / 8)) * (sixteen ? 9 : 5);
    REQUIRE(w->ctx, packed->bytes == bytes, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %zu bytes, of [%lld, %lld] %zu are expected", w->path,
            s24i_show(packed->name).text, packed->bytes, (long long)w->rows, (long long)w->cols,
            bytes);
    return S24_OK;
}

/* Where, in half bytes, the code of a row's group of four columns stands. */
static int64_t half_byte_of(int64_t row, int64_t group, int64_t cols, int sixteen)
{
    const int64_t block = row >> 6;
    if (sixteen)
        return (row >> 3 & 1) + 2 * (group >> 2 & 1) + 4 * (group & 3) + 16 * (row & 7) +
               128 * (row >> 4 & 3) + 512 * (group >> 3) + block * (cols / 32) * 512;
    return (group & 1) + 2 * (row >> 3 & 1) + 4 * (group >> 3 & 1) + 8 * (group >> 1 & 1) +
           16 * (group >> 2 & 1) + 32 * (row & 7) + 256 * (row >> 4 & 3) + 1024 * (group >> 4) +
           block * (cols / 64) * 1024;
}

static s24_status read_cusparselt(s24i_numbers *out, const s24i_foreign *w)
{
    const int sixteen = is_sixteen(w->part[PACKED]);
    const size_t values = (size_t)(out->rows * (out->cols / 2)) * s24_dtype_bytes(out->dtype);
    const uint8_t *meta = (const uint8_t *)w->part[PACKED]->data + values;
    const int64_t stride = out->cols / 8;
    uint8_t *indices;
    TRY(s24i_numbers_own(&indices, out, 0, out->rows * stride, 1));
    for (int64_t r = 0; r < out->rows; r++)
        for (int64_t g = 0; g < out->cols / 4; g++) {
            const int64_t at = half_byte_of(r, g, out->cols, sixteen);
            indices[r * stride + g / 2] |=
                (uint8_t)((meta[at / 2] >> 4 * (at % 2) & 15) << 4 * (g % 2));
        }
    out->values = w->part[PACKED]->data;
    out->indices = indices;
    return s24i_check_codes(w->ctx, w->path, w->part[PACKED]->name, indices, out->rows, out->cols);
}

const s24i_foreign_scheme s24i_scheme_torch_cusparselt = {
    .name = "PyTorch SparseSemiStructuredTensorCUSPARSELT",
    .whole = "",
    .part = {{.suffix = ".packed"}, {.suffix = ".shape"}},
    .measure = measure_cusparselt,
    .read = read_cusparselt,
    .is_two_four = 1,
};
