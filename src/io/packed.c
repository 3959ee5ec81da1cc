// SPDX-License-Identifier: Apache-2.0
/*
 * Packed 2:4 matrices in a safetensors file: what docs/format.md section 3 says a reader must
 * refuse is refused here, in the order of its list, before anyone sees the tensor. Nothing is
 * copied; values and indices stay where they lie in the file.
 */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

/* One matrix that the metadata describe. */
typedef struct described {
    const char *name;
    int64_t rows, cols;
} described;

/* The description of every packed matrix, or *out = NULL when the file has none. */
static s24_status read_description(json_t **out, const s24i_header *header, s24_ctx *ctx,
                                   const char *path)
{
    const char *version = json_string_value(json_object_get(header->metadata, S24I_VERSION_KEY));
    const char *packed = json_string_value(json_object_get(header->metadata, S24I_PACKED_KEY));
    *out = NULL;
    if (!version && !packed) return S24_OK;
    REQUIRE(ctx, version && packed, S24_ERROR_FORMAT, "%s: the metadata have \"%s\" without \"%s\"",
            path, version ? S24I_VERSION_KEY : S24I_PACKED_KEY,
            version ? S24I_PACKED_KEY : S24I_VERSION_KEY);
    REQUIRE(ctx, !strcmp(version, S24I_PACKED_VERSION), S24_ERROR_FORMAT,
            "%s: \"%s\" is \"%s\", this build reads \"%s\"", path, S24I_VERSION_KEY,
            s24i_show(version).text, S24I_PACKED_VERSION);
    json_error_t error;
    *out = json_loads(packed, JSON_REJECT_DUPLICATES, &error);
    if (!*out && s24i_json_is_out_of_memory(&error))
        return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "out of memory while reading %s", path);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                            "%s: \"%s\" in the metadata is not a JSON object of distinct names",
                            path, S24I_PACKED_KEY);
    }
    return S24_OK;
}

static s24_status read_logical_shape(described *matrix, const json_t *shape, s24_ctx *ctx,
                                     const char *path)
{
    const json_t *rows = json_array_get(shape, 0), *cols = json_array_get(shape, 1);
    int64_t elements;
    REQUIRE(ctx, *matrix->name, S24_ERROR_FORMAT, "%s: \"%s\" describes a tensor without a name",
            path, S24I_PACKED_KEY);
    REQUIRE(ctx, json_array_size(shape) == 2 && json_is_integer(rows) && json_is_integer(cols),
            S24_ERROR_FORMAT, "%s: \"%s\" does not give tensor \"%s\" a shape of two integers",
            path, S24I_PACKED_KEY, s24i_show(matrix->name).text);
    matrix->rows = json_integer_value(rows);
    matrix->cols = json_integer_value(cols);
    REQUIRE(ctx,
            matrix->rows >= 1 && matrix->cols >= 4 && matrix->cols % 4 == 0 &&
                !__builtin_mul_overflow(matrix->rows, matrix->cols, &elements),
            S24_ERROR_FORMAT,
            "%s: packed tensor \"%s\" has shape [%lld, %lld], expected a row or more, columns a "
            "multiple of 4, and fewer than 2^63 elements",
            path, s24i_show(matrix->name).text, (long long)matrix->rows, (long long)matrix->cols);
    return S24_OK;
}

/* Finds a stored part and checks its shape. dtype NONE: any that can be 2:4. */
static s24_status find_part(s24_tensor **out, const s24i_header *header, s24_ctx *ctx,
                            const char *path, const s24_tensor *expected)
{
    s24_tensor *part = s24i_find_name(header->tensors, header->count, expected->name);
    *out = part;
    REQUIRE(ctx, part, S24_ERROR_FORMAT, "%s: a packed tensor lacks its part \"%s\"", path,
            s24i_show(expected->name).text);
    if (expected->dtype != S24_DTYPE_NONE)
        REQUIRE(ctx, part->dtype == expected->dtype, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is %s, expected %s", path, s24i_show(part->name).text,
                s24i_dtype_label(part->dtype), s24i_dtype_label(expected->dtype));
    else
        REQUIRE(ctx, s24_dtype_can_be_two_four(part->dtype), S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is %s, expected F32, F16, BF16, I8, F8_E4M3 or F8_E5M2", path,
                s24i_show(part->name).text, s24i_dtype_label(part->dtype));
    REQUIRE(ctx, part->rank == 2, S24_ERROR_FORMAT, "%s: tensor \"%s\" has rank %d, expected 2",
            path, s24i_show(part->name).text, part->rank);
    REQUIRE(ctx, part->shape[0] == expected->shape[0] && part->shape[1] == expected->shape[1],
            S24_ERROR_FORMAT, "%s: tensor \"%s\" has shape [%lld, %lld], expected [%lld, %lld]",
            path, s24i_show(part->name).text, (long long)part->shape[0], (long long)part->shape[1],
            (long long)expected->shape[0], (long long)expected->shape[1]);
    return S24_OK;
}

/* 1 if the low half of a byte is one of the six codes 4 8 9 C D E: the first position is below
   the second. In bytes throughout, so that the loop below vectorises. */
static inline uint8_t is_legal(uint8_t byte)
{
    return (byte & 3) < ((byte >> 2) & 3);
}

/* The first column of the first bad group of a row, or −1. */
static int64_t find_bad_code(const uint8_t *row, int64_t cols)
{
    int64_t pairs = cols / 8;
    uint8_t good = 1;
    for (int64_t i = 0; i < pairs; i++)
        good &= is_legal(row[i]) & is_legal(row[i] >> 4);
    if (cols % 8) good &= is_legal(row[pairs]) & (row[pairs] < 16);
    if (good) return -1;
    for (int64_t i = 0; i < pairs; i++) {
        if (!is_legal(row[i])) return 8 * i;
        if (!is_legal(row[i] >> 4)) return 8 * i + 4;
    }
    return 8 * pairs;
}

s24_status s24i_check_codes(s24_ctx *ctx, const char *path, const char *name,
                            const uint8_t *indices, int64_t rows, int64_t cols)
{
    int64_t stride = (cols + 7) / 8;
    for (int64_t row = 0; row < rows; row++) {
        int64_t col = find_bad_code(indices + row * stride, cols);
        REQUIRE(ctx, col < 0, S24_ERROR_FORMAT,
                "%s: packed tensor \"%s\": byte 0x%02x at row %lld, column %lld is no legal code "
                "(expected half bytes of 4 8 9 C D E, unused ones 0)",
                path, s24i_show(name).text, indices[row * stride + col / 8], (long long)row,
                (long long)col);
    }
    return S24_OK;
}

/* Makes the logical tensor out of the values' entry; the indices' one is marked with packed = −1.
   Names change later, since the search needs them sorted as they are. */
static s24_status join_parts(s24i_header *header, s24_ctx *ctx, const char *path,
                             const described *matrix, char *name)
{
    s24_tensor *values, *indices;
    s24_tensor expected = {
        .name = name, .shape = {matrix->rows, matrix->cols / 2}, .dtype = S24_DTYPE_NONE};
    size_t length = strlen(matrix->name);
    memcpy(name, matrix->name, length);
    strcpy(name + length, S24I_VALUES_SUFFIX);
    TRY(find_part(&values, header, ctx, path, &expected));
    strcpy(name + length, S24I_INDICES_SUFFIX);
    expected.dtype = S24_U8;
    expected.shape[1] = (matrix->cols + 7) / 8;
    TRY(find_part(&indices, header, ctx, path, &expected));
    TRY(s24i_check_codes(ctx, path, matrix->name, indices->data, matrix->rows, matrix->cols));
    REQUIRE(ctx, !s24i_find_name(header->tensors, header->count, matrix->name), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is there packed and dense", path, s24i_show(matrix->name).text);
    values->packed = 1;
    values->values = values->data;
    values->indices = indices->data;
    values->data = NULL;
    values->bytes += indices->bytes;
    values->shape[1] = matrix->cols;
    indices->packed = -1;
    return S24_OK;
}

static s24_status join_all(s24i_header *header, s24_ctx *ctx, const char *path, json_t *description)
{
    size_t done = 0, longest = 0;
    s24_status status = S24_OK;
    const char *key;
    json_t *shape;
    void *name;
    json_object_foreach (description, key, shape)
        if (strlen(key) > longest) longest = strlen(key);
    TRY(s24i_zeroed(&name, ctx, longest + sizeof S24I_INDICES_SUFFIX));
    json_object_foreach (description, key, shape) {
        described matrix = {.name = key};
        TRY_DONE(read_logical_shape(&matrix, shape, ctx, path));
        TRY_DONE(join_parts(header, ctx, path, &matrix, name));
        TRY_DONE(s24_ctx_progress(ctx, "opening", (int64_t)++done,
                                  (int64_t)json_object_size(description)));
    }
done:
    s24_ctx_free(ctx, name);
    return status;
}

s24_status s24i_header_fold_packed(s24i_header *header, s24_ctx *ctx, const char *path)
{
    json_t *description;
    size_t count = 0;
    TRY(read_description(&description, header, ctx, path));
    s24_status status = description ? join_all(header, ctx, path, description) : S24_OK;
    json_decref(description);
    TRY(status);
    for (size_t i = 0; i < header->count; i++) {
        s24_tensor *tensor = &header->tensors[i];
        if (tensor->packed < 0) continue;
        REQUIRE(ctx,
                tensor->packed || !(s24i_ends_with(tensor->name, S24I_VALUES_SUFFIX) ||
                                    s24i_ends_with(tensor->name, S24I_INDICES_SUFFIX)),
                S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is part of a packed tensor that \"%s\" in the metadata does not "
                "describe",
                path, s24i_show(tensor->name).text, S24I_PACKED_KEY);
        /* The names are the header's own: the stored name is cut to the logical one in place. */
        if (tensor->packed)
            header->names[tensor->name - header->names + (ptrdiff_t)strlen(tensor->name) -
                          (ptrdiff_t)strlen(S24I_VALUES_SUFFIX)] = '\0';
        header->tensors[count++] = *tensor;
    }
    header->count = count;
    if (count > 0) qsort(header->tensors, count, sizeof *header->tensors, s24i_compare_names);
    return S24_OK;
}
