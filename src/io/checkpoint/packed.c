// SPDX-License-Identifier: Apache-2.0
/*
 * Packed 2:4 matrices in a safetensors file: what docs/format.md section 3 says a reader must
 * refuse is refused here, in the order of its list, before anyone sees the tensor. Nothing is
 * copied; values, indices and scales stay where they lie in the file.
 */
#include "io/checkpoint/packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The description of every packed matrix, or *out = NULL when the file has none. From version 2 on
   there may be quantised ones, from version 3 on ones in a layout, from version 4 on transposed
   ones, from version 5 on dense ones of integers, from version 6 on ones in sparse formats, from
   version 7 on lifted ones, from version 8 on factors and integers in sparse formats, from version
   9 on lifted ones whose first columns are dense, from version 10 on integers in a layout. */
static s24_status read_description(s24i_json **out, int *number, const s24i_header *header,
                                   s24_ctx *ctx, const char *path)
{
    static const char *const versions[] = {
        S24I_PACKED_VERSION, S24I_QUANTIZED_VERSION, S24I_LAYOUT_VERSION, S24I_TRANSPOSED_VERSION,
        S24I_DENSE_VERSION,  S24I_SPARSE_VERSION,    S24I_LIFTED_VERSION, S24I_FACTORS_VERSION,
        S24I_BESIDE_VERSION, S24I_STREAMED_VERSION};
    enum { VERSIONS = sizeof versions / sizeof *versions };
    const char *version = s24i_json_string(s24i_json_get(header->metadata, S24I_VERSION_KEY));
    const char *packed = s24i_json_string(s24i_json_get(header->metadata, S24I_PACKED_KEY));
    *out = NULL;
    *number = 0;
    if (!version && !packed) return S24_OK;
    REQUIRE(ctx, version && packed, S24_ERROR_FORMAT, "%s: the metadata have \"%s\" without \"%s\"",
            path, version ? S24I_VERSION_KEY : S24I_PACKED_KEY,
            version ? S24I_PACKED_KEY : S24I_VERSION_KEY);
    for (int i = 0; i < VERSIONS; i++)
        if (!strcmp(version, versions[i])) *number = i + 1;
    REQUIRE(ctx, *number, S24_ERROR_FORMAT,
            "%s: \"%s\" is \"%s\", this build reads \"%s\" to \"%s\"", path, S24I_VERSION_KEY,
            s24i_show(version).text, versions[0], versions[VERSIONS - 1]);
    const s24_status status = s24i_json_parse(out, ctx, path, packed, strlen(packed));
    if (status == S24_ERROR_MEMORY) return status;
    if (s24i_json_typeof(*out) == S24I_JSON_OBJECT) return S24_OK;
    s24_ctx_free(ctx, *out);
    *out = NULL;
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: \"%s\" in the metadata is not a JSON object of distinct names", path,
                        S24I_PACKED_KEY);
}

/* bits and group, the third and fourth number of a quantised matrix. */
static s24_status read_scheme(s24i_described *matrix, const s24i_json *shape, s24_ctx *ctx,
                              const char *path)
{
    const int64_t bits = s24i_json_integer(s24i_json_at(shape, 2));
    matrix->group = s24i_json_integer(s24i_json_at(shape, 3));
    REQUIRE(ctx, bits == 8 || bits == 4, S24_ERROR_FORMAT,
            "%s: quantised tensor \"%s\" has %lld bits, expected 8 or 4", path,
            s24i_show(matrix->name).text, (long long)bits);
    REQUIRE(
        ctx, matrix->group == 64 || matrix->group == 128 || matrix->group == matrix->stored_cols,
        S24_ERROR_FORMAT,
        "%s: quantised tensor \"%s\" has a scale for %lld columns, expected 64, 128 or all %lld",
        path, s24i_show(matrix->name).text, (long long)matrix->group,
        (long long)matrix->stored_cols);
    matrix->bits = (int)bits;
    return S24_OK;
}

s24_dtype s24i_layout_dtype(const char **name)
{
    s24_dtype dtype;
    const char *known;
    for (int i = 0; (known = s24_layout_name(i, &dtype, NULL)); i++) {
        if (strcmp(known, *name) != 0) continue;
        *name = known;
        return dtype;
    }
    return S24_DTYPE_NONE;
}

/* Its bits and group are the layout's. */
static s24_status read_layout(s24i_described *matrix, int version, s24_ctx *ctx, const char *path)
{
    const char *layout = matrix->layout;
    matrix->bits = s24_layout_bits(layout, &matrix->group);
    if (matrix->bits && !matrix->group) matrix->group = matrix->cols;
    REQUIRE(ctx, s24i_layout_dtype(&layout) && (version > 9 || !matrix->bits),
            S24_ERROR_UNSUPPORTED,
            "%s: tensor \"%s\" is stored in the layout \"%s\", which this build does not know",
            path, s24i_show(matrix->name).text, s24i_show(layout).text);
    return S24_OK;
}

/* A sparse format's name, after the sides or after bits and group. Returns whether there is one. */
static int read_format(s24i_described *matrix, const s24i_json *shape, size_t count, int version)
{
    for (size_t at = 2; at < count && at <= (version > 7 ? 4 : 2) && version > 5; at += 2) {
        const char *name = s24i_json_string(s24i_json_at(shape, at));
        matrix->format = name ? s24_format_parse(name) : 0;
        matrix->format_at = at;
        if (name) return matrix->format != 0;
    }
    return 0;
}

/* The words that a description ends with. Returns how many members come before them. */
static size_t read_words(s24i_described *matrix, const s24i_json *shape, int version)
{
    size_t count = s24i_json_typeof(shape) == S24I_JSON_ARRAY ? s24i_json_count(shape) : 0;
    const char *last = count ? s24i_json_string(s24i_json_at(shape, count - 1)) : NULL;
    if (version > 3 && last && !strcmp(last, S24I_TRANSPOSED)) {
        matrix->transposed = 1;
        count--;
    }
    if (version > 7) count = s24i_read_factors(matrix, shape, count);
    last = count ? s24i_json_string(s24i_json_at(shape, count - 1)) : NULL;
    if (version > 4 && count == 5 && last && !strcmp(last, S24I_DENSE)) {
        matrix->dense = 1;
        count--;
    }
    if (read_format(matrix, shape, count, version)) return count;
    if (version > 6 && count % 2 == 1 && last) matrix->lift = s24_pattern_lift(last);
    if (version < 9 && matrix->lift < 0) matrix->lift = 0;
    if (matrix->lift) return count - 1;
    if (version > 2 && count == 3) matrix->layout = s24i_json_string(s24i_json_at(shape, 2));
    return count - (matrix->layout != NULL);
}

/* All of a description but what bits and group are. */
static s24_status read_members(size_t *count, s24i_described *matrix, const s24i_json *shape,
                               int version, s24_ctx *ctx, const char *path)
{
    static const char *const others[] = {
        "",
        ", or these, bits and group",
        ", or these and bits and group or a layout's name",
        ", or these and bits and group or a layout's name, with or without \"" S24I_TRANSPOSED
        "\" after them",
        ", or these and bits and group, with or without \"" S24I_DENSE
        "\", or a layout's name, with or without \"" S24I_TRANSPOSED "\" after them",
        ", or these and bits and group, with or without \"" S24I_DENSE
        "\", or a layout's or a format's name, bsr with two integers, with or without "
        "\"" S24I_TRANSPOSED "\" after them",
        ", or these and bits and group, with or without \"" S24I_DENSE
        "\" or a pattern such as \"6:8\", or that pattern alone, or a layout's or a format's name, "
        "bsr with two integers, with or without \"" S24I_TRANSPOSED "\" after them",
        ", or these and bits and group, with or without \"" S24I_DENSE
        "\" or a pattern such as \"6:8\" or a format's name, or that pattern alone, or a layout's "
        "or a format's name, bsr with two integers, with or without \"" S24I_LOW_RANK
        "\" or \"" S24I_FACTORS "\" and a rank, and \"" S24I_TRANSPOSED "\", after them",
        ", or these and bits and group, with or without \"" S24I_DENSE
        "\" or a pattern such as \"6:8\" or \"dense:64\" or a format's name, or that pattern "
        "alone, "
        "or a layout's or a format's name, bsr with two integers, with or without \"" S24I_LOW_RANK
        "\" or \"" S24I_FACTORS "\" and a rank, and \"" S24I_TRANSPOSED "\", after them"};
    enum { OTHERS = sizeof others / sizeof *others };
    const size_t numbers = read_words(matrix, shape, version);
    const size_t sparse = matrix->format_at + (matrix->format == S24_FORMAT_BSR ? 3 : 1);
    int fits = numbers == 2 || (version > 1 && numbers == 4);
    if (matrix->format) fits = numbers == sparse;
    for (size_t i = 0; i < numbers && fits; i++)
        fits = (matrix->format && i == matrix->format_at) ||
               s24i_json_typeof(s24i_json_at(shape, i)) == S24I_JSON_INTEGER;
    REQUIRE(ctx, fits, S24_ERROR_FORMAT,
            "%s: \"%s\" does not give tensor \"%s\" a shape of two integers%s", path,
            S24I_PACKED_KEY, s24i_show(matrix->name).text,
            others[version < OTHERS ? version - 1 : OTHERS - 1]);
    *count = numbers;
    return S24_OK;
}

/* Block, bits and group of a matrix in a sparse format; s24_sparse_check knows what its sides may
   be. */
static s24_status read_sparse(s24i_described *matrix, const s24i_json *shape, s24_ctx *ctx,
                              const char *path)
{
    const size_t at = matrix->format_at;
    matrix->stored_cols = matrix->cols;
    if (matrix->format == S24_FORMAT_BSR) {
        matrix->block_rows = s24i_json_integer(s24i_json_at(shape, at + 1));
        matrix->block_cols = s24i_json_integer(s24i_json_at(shape, at + 2));
    }
    if (at == 2) return S24_OK;
    TRY(read_scheme(matrix, shape, ctx, path));
    REQUIRE(ctx, matrix->bits == 8 && matrix->group == matrix->cols && matrix->cols % 4 == 0,
            S24_ERROR_FORMAT,
            "%s: tensor \"%s\" in a sparse format has integers of %d bits with a scale for %lld of "
            "%lld columns, expected 8 bits, a scale a row, and columns a multiple of 4",
            path, s24i_show(matrix->name).text, matrix->bits, (long long)matrix->group,
            (long long)matrix->cols);
    return S24_OK;
}

static s24_status read_logical_shape(s24i_described *matrix, const s24i_json *shape, int version,
                                     s24_ctx *ctx, const char *path)
{
    size_t numbers = 0;
    int64_t elements;
    REQUIRE(ctx, *matrix->name, S24_ERROR_FORMAT, "%s: \"%s\" describes a tensor without a name",
            path, S24I_PACKED_KEY);
    TRY(read_members(&numbers, matrix, shape, version, ctx, path));
    matrix->rows = s24i_json_integer(s24i_json_at(shape, 0));
    matrix->cols = s24i_json_integer(s24i_json_at(shape, 1));
    if (matrix->rank) TRY(s24i_check_factors(matrix, ctx, path));
    if (matrix->format) return read_sparse(matrix, shape, ctx, path);
    REQUIRE(ctx,
            matrix->rows >= 1 && matrix->cols >= 4 && matrix->cols % 4 == 0 &&
                !__builtin_mul_overflow(matrix->rows, matrix->cols, &elements),
            S24_ERROR_FORMAT,
            "%s: packed tensor \"%s\" has shape [%lld, %lld], expected a row or more, columns a "
            "multiple of 4, and fewer than 2^63 elements",
            path, s24i_show(matrix->name).text, (long long)matrix->rows, (long long)matrix->cols);
    matrix->stored_cols = matrix->lift ? s24_lifted_cols(matrix->cols, matrix->lift) : matrix->cols;
    char pattern[S24_LIFT_BYTES];
    REQUIRE(ctx, matrix->stored_cols, S24_ERROR_FORMAT,
            "%s: packed tensor \"%s\" is %s, which its %lld columns do not hold", path,
            s24i_show(matrix->name).text, s24_lift_pattern(pattern, matrix->lift),
            (long long)matrix->cols);
    if (matrix->layout) return read_layout(matrix, version, ctx, path);
    return numbers == 4 ? read_scheme(matrix, shape, ctx, path) : S24_OK;
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
    s24i_map_touch(indices, (size_t)(rows * stride));
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

enum { TOUCHED = 1 << 21 }; /* bytes at a time */

static void touch_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const s24_laid_out *weight = arg;
    const size_t bytes = s24_layout_bytes(weight->layout, weight->rows, weight->cols);
    const size_t first = (size_t)begin * TOUCHED, last = (size_t)end * TOUCHED;
    (void)thread;
    s24i_map_touch((const char *)weight->data + first, (last < bytes ? last : bytes) - first);
}

s24_status s24i_check_stream(s24_ctx *ctx, const char *path, const char *name,
                             const s24_laid_out *weight)
{
    char sentence[256];
    s24_laid_out all = *weight;
    const size_t bytes = s24_layout_bytes(weight->layout, weight->rows, weight->cols);
    s24_ctx_parallel_for(ctx, (int64_t)((bytes + TOUCHED - 1) / TOUCHED), touch_range, &all);
    const s24_status status = s24_layout_check(ctx, weight);
    if (status == S24_OK) return S24_OK;
    snprintf(sentence, sizeof sentence, "%s", s24_ctx_error(ctx));
    return s24_ctx_fail(ctx, status, "%s: packed tensor \"%s\": %s", path, s24i_show(name).text,
                        sentence);
}

/* The one part of a matrix in a layout. `name` has room for its name. */
static s24_status join_stream(s24i_header *header, s24_ctx *ctx, const char *path,
                              const s24i_described *matrix, char *name)
{
    s24_tensor *stream;
    const size_t bytes = s24_layout_bytes(matrix->layout, matrix->rows, matrix->cols);
    const s24_tensor expected = {
        .name = name, .dtype = S24_U8, .rank = 1, .shape = {(int64_t)bytes}};
    REQUIRE(ctx, bytes, S24_ERROR_FORMAT, "%s: packed tensor \"%s\" has more bytes than memory",
            path, s24i_show(matrix->name).text);
    strcpy(name, matrix->name);
    strcat(name, S24I_STREAM_SUFFIX);
    TRY(s24i_find_part(&stream, header, ctx, path, &expected));
    const s24_laid_out weight = {matrix->layout, matrix->rows, matrix->cols, stream->data};
    TRY(s24i_check_stream(ctx, path, matrix->name, &weight));
    TRY(s24i_check_not_plain(header, ctx, path, matrix->name));
    stream->layout = matrix->layout;
    stream->dtype = s24i_layout_dtype(&stream->layout);
    stream->bits = matrix->bits;
    stream->group = matrix->group;
    stream->packed = 1;
    stream->transposed = matrix->transposed;
    stream->stream = stream->data;
    stream->data = NULL;
    stream->rank = 2;
    stream->shape[0] = matrix->rows;
    stream->shape[1] = matrix->cols;
    return S24_OK;
}

/* The second part of a 2:4 matrix. `name` has room for its name. */
static s24_status join_indices(s24_tensor *values, s24i_header *header, s24_ctx *ctx,
                               const char *path, const s24i_described *matrix, char *name)
{
    s24_tensor *indices;
    const s24_tensor expected = {
        .name = name, .shape = {matrix->rows, (matrix->stored_cols + 7) / 8}, .dtype = S24_U8};
    strcpy(name + strlen(matrix->name), S24I_INDICES_SUFFIX);
    TRY(s24i_find_part(&indices, header, ctx, path, &expected));
    TRY(s24i_check_codes(ctx, path, matrix->name, indices->data, matrix->rows,
                         matrix->stored_cols));
    values->indices = indices->data;
    values->bytes += indices->bytes;
    indices->packed = -1;
    return S24_OK;
}

/* Makes the logical tensor out of the values' entry; the others are marked with packed = −1.
   Names change later, since the search needs them sorted as they are. */
static s24_status join_parts(s24i_header *header, s24_ctx *ctx, const char *path,
                             const s24i_described *matrix, char *name)
{
    s24_tensor *values;
    s24_tensor expected = {.name = name,
                           .shape = {matrix->rows, matrix->stored_cols / (matrix->dense ? 1 : 2)},
                           .dtype = S24_DTYPE_NONE};
    if (matrix->bits) expected.dtype = matrix->bits == 8 ? S24_I8 : S24_U8;
    if (matrix->bits == 4) expected.shape[1] /= 2;
    strcpy(name, matrix->name);
    strcat(name, S24I_VALUES_SUFFIX);
    TRY(s24i_find_part(&values, header, ctx, path, &expected));
    if (!matrix->dense) TRY(join_indices(values, header, ctx, path, matrix, name));
    TRY(s24i_check_not_plain(header, ctx, path, matrix->name));
    if (matrix->bits) TRY(s24i_join_scales(values, header, ctx, path, matrix, name));
    values->packed = matrix->dense ? S24_PACKED_DENSE : matrix->lift ? S24_PACKED_LIFTED : 1;
    values->lift = matrix->lift;
    values->transposed = matrix->transposed;
    values->values = values->data;
    values->data = NULL;
    values->shape[1] = matrix->cols;
    return matrix->rank ? s24i_add_factors(values, header, ctx, path, matrix, name) : S24_OK;
}

static s24_status join_all(s24i_header *header, s24_ctx *ctx, const char *path,
                           const s24i_json *description, int version)
{
    const size_t count = s24i_json_count(description);
    size_t done = 0, longest = 0;
    s24_status status = S24_OK;
    const char *key;
    const s24i_json *shape;
    void *name;
    s24i_json_walk walk = s24i_json_begin(description);
    while (s24i_json_next(&walk, &key))
        if (strlen(key) > longest) longest = strlen(key);
    TRY(s24i_zeroed(&name, ctx, longest + sizeof S24I_INDICES_SUFFIX));
    if (version > 5)
        TRY_DONE(s24i_alloc_elems(&header->sparse, ctx, (int64_t)count, sizeof *header->sparse,
                                  "sparse matrices"));
    walk = s24i_json_begin(description);
    while ((shape = s24i_json_next(&walk, &key)) != NULL) {
        s24i_described matrix = {.name = key};
        TRY_DONE(read_logical_shape(&matrix, shape, version, ctx, path));
        TRY_DONE((matrix.format       ? s24i_join_sparse
                  : matrix.layout     ? join_stream
                  : matrix.is_factors ? s24i_join_factors
                                      : join_parts)(header, ctx, path, &matrix, name));
        TRY_DONE(s24_ctx_progress(ctx, "opening", (int64_t)++done, (int64_t)count));
    }
done:
    s24_ctx_free(ctx, name);
    return status;
}

/* What follows the name in that of a packed tensor's first part. */
static const char *first_suffix(const s24_tensor *tensor)
{
    if (tensor->packed == S24_PACKED_FACTORS) return S24I_LEFT_SUFFIX;
    return tensor->layout ? S24I_STREAM_SUFFIX : S24I_VALUES_SUFFIX;
}

s24_status s24i_header_fold_packed(s24i_header *header, s24_ctx *ctx, const char *path)
{
    s24i_json *description;
    size_t count = 0;
    int version;
    TRY(read_description(&description, &version, header, ctx, path));
    s24_status status = description ? join_all(header, ctx, path, description, version) : S24_OK;
    s24_ctx_free(ctx, description);
    TRY(status);
    for (size_t i = 0; i < header->count; i++) {
        s24_tensor *tensor = &header->tensors[i];
        if (tensor->packed < 0) continue;
        REQUIRE(ctx,
                tensor->packed ||
                    !(s24i_ends_with(tensor->name, S24I_VALUES_SUFFIX) ||
                      s24i_ends_with(tensor->name, S24I_INDICES_SUFFIX) ||
                      (version > 1 && s24i_ends_with(tensor->name, S24I_SCALES_SUFFIX)) ||
                      (version > 2 && s24i_ends_with(tensor->name, S24I_STREAM_SUFFIX)) ||
                      (version > 5 && s24i_is_sparse_part(tensor->name)) ||
                      (version > 7 && s24i_is_factors_part(tensor->name))),
                S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is part of a packed tensor that \"%s\" in the metadata does not "
                "describe",
                path, s24i_show(tensor->name).text, S24I_PACKED_KEY);
        /* The names are the header's own: the stored name is cut to the logical one in place. */
        if (tensor->packed)
            header->names[tensor->name - header->names + (ptrdiff_t)strlen(tensor->name) -
                          (ptrdiff_t)strlen(first_suffix(tensor))] = '\0';
        header->tensors[count++] = *tensor;
    }
    header->count = count;
    if (count > 0) qsort(header->tensors, count, sizeof *header->tensors, s24i_compare_names);
    return S24_OK;
}
