// SPDX-License-Identifier: Apache-2.0
/* What a writer is told before it writes: which tensors there will be, and in what form. */
#include <string.h>

#include "io/checkpoint/packed.h"
#include "io/checkpoint/writer.h"
#include "io/tokenizer/utf8.h"

static s24_status check_layout(s24_ctx *ctx, const s24_tensor *tensor)
{
    const char *layout = tensor->layout;
    const s24_dtype dtype = s24i_layout_dtype(&layout);
    REQUIRE(ctx, dtype, S24_ERROR_ARGUMENT, "packed tensor \"%s\": there is no layout \"%s\"",
            s24i_show(tensor->name).text, s24i_show(layout).text);
    int64_t group;
    const int bits = s24_layout_bits(layout, &group);
    REQUIRE(ctx, dtype == tensor->dtype && !bits == !tensor->bits, S24_ERROR_DTYPE,
            "packed tensor \"%s\" is %s%s; the layout %s is of %s%s", s24i_show(tensor->name).text,
            tensor->bits ? "quantised " : "", s24_dtype_name(tensor->dtype), layout,
            bits ? "quantised " : "", s24_dtype_name(dtype));
    if (bits && !group) group = tensor->shape[1];
    REQUIRE(ctx, !bits || (bits == tensor->bits && group == tensor->group), S24_ERROR_DTYPE,
            "packed tensor \"%s\" has %d bits and a scale for %lld columns; the layout %s has %d "
            "and one for %lld",
            s24i_show(tensor->name).text, tensor->bits, (long long)tensor->group, layout, bits,
            (long long)group);
    REQUIRE(ctx, s24_layout_bytes(layout, tensor->shape[0], tensor->shape[1]), S24_ERROR_SHAPE,
            "packed tensor \"%s\" has more bytes than memory", s24i_show(tensor->name).text);
    return S24_OK;
}

/* What is stored where is not there yet. */
static s24_sparse_parts kind_of(const s24_tensor *tensor)
{
    return (s24_sparse_parts){.format = tensor->sparse->format,
                              .dtype = tensor->dtype,
                              .rows = tensor->shape[0],
                              .cols = tensor->shape[1],
                              .block_rows = tensor->sparse->block_rows,
                              .block_cols = tensor->sparse->block_cols,
                              .stored = tensor->sparse->stored};
}

static s24_status check_sparse(const s24_writer *writer, const s24_tensor *tensor)
{
    s24_ctx *ctx = writer->ctx;
    REQUIRE(ctx, tensor->sparse && tensor->rank == 2 && !tensor->layout, S24_ERROR_ARGUMENT,
            "packed tensor \"%s\" is no matrix of floats in a format that `sparse` names",
            s24i_show(tensor->name).text);
    const int64_t cols = tensor->shape[1];
    REQUIRE(ctx,
            !tensor->bits || (tensor->bits == 8 && tensor->dtype == S24_I8 &&
                              tensor->group == cols && cols % 4 == 0),
            S24_ERROR_DTYPE,
            "quantised tensor \"%s\" in a sparse format is %s of %d bits with a scale for %lld of "
            "%lld columns, expected i8 of 8 bits, a scale a row, and columns a multiple of 4",
            s24i_show(tensor->name).text, s24_dtype_name(tensor->dtype), tensor->bits,
            (long long)tensor->group, (long long)cols);
    const s24_sparse_parts kind = kind_of(tensor);
    return s24i_check_sparse(ctx, writer->path, tensor->name, &kind);
}

static int has_factors(const s24_tensor *tensor)
{
    return tensor->packed == S24_PACKED_LOW_RANK || tensor->packed == S24_PACKED_FACTORS;
}

static s24_status check_factors(s24_ctx *ctx, const s24_tensor *tensor)
{
    const s24_factors *f = &tensor->factors;
    const int64_t most = s24i_min(tensor->shape[0], tensor->shape[1]);
    REQUIRE(ctx, f->rank >= 1 && f->rank <= most, S24_ERROR_SHAPE,
            "packed tensor \"%s\" has factors of rank %lld, expected 1 to %lld",
            s24i_show(tensor->name).text, (long long)f->rank, (long long)most);
    REQUIRE(ctx, f->dtype == S24_F32 || f->dtype == S24_F16 || f->dtype == S24_BF16,
            S24_ERROR_DTYPE, "packed tensor \"%s\" has factors of %s, expected f32, f16 or bf16",
            s24i_show(tensor->name).text, s24_dtype_name(f->dtype));
    REQUIRE(ctx, !tensor->layout && !(tensor->packed == S24_PACKED_FACTORS && tensor->bits),
            S24_ERROR_ARGUMENT, "packed tensor \"%s\" has factors, and a layout or integers",
            s24i_show(tensor->name).text);
    return S24_OK;
}

static s24_status check_declared(const s24_writer *writer, const s24_tensor *tensor)
{
    s24_ctx *ctx = writer->ctx;
    REQUIRE(ctx, tensor && tensor->name, S24_ERROR_ARGUMENT, "a tensor without a name is declared");
    REQUIRE(ctx, !writer->temporary.path, S24_ERROR_ARGUMENT,
            "tensor \"%s\" is declared after the first write", s24i_show(tensor->name).text);
    REQUIRE(ctx,
            strcmp(tensor->name, "__metadata__") != 0 &&
                !s24i_ends_with(tensor->name, S24I_VALUES_SUFFIX) &&
                !s24i_ends_with(tensor->name, S24I_INDICES_SUFFIX) &&
                !s24i_ends_with(tensor->name, S24I_SCALES_SUFFIX) &&
                !s24i_ends_with(tensor->name, S24I_STREAM_SUFFIX) &&
                !s24i_is_sparse_part(tensor->name) && !s24i_is_factors_part(tensor->name),
            S24_ERROR_ARGUMENT, "a tensor may not be named \"%s\"", s24i_show(tensor->name).text);
    REQUIRE(ctx, s24i_dtype_label(tensor->dtype), S24_ERROR_DTYPE,
            "tensor \"%s\" has a dtype (%s) that a file cannot hold", s24i_show(tensor->name).text,
            s24_dtype_name(tensor->dtype));
    REQUIRE(ctx, s24i_utf8_valid(tensor->name, strlen(tensor->name)) == strlen(tensor->name),
            S24_ERROR_ARGUMENT, "the tensor name \"%s\" is not UTF-8",
            s24i_show(tensor->name).text);
    REQUIRE(ctx, tensor->rank >= 0 && tensor->rank <= S24_MAX_RANK, S24_ERROR_SHAPE,
            "tensor \"%s\" has rank %d, expected 0 to %d", s24i_show(tensor->name).text,
            tensor->rank, S24_MAX_RANK);
    if (!tensor->packed) return S24_OK;
    if (tensor->packed == S24_PACKED_SPARSE) return check_sparse(writer, tensor);
    REQUIRE(ctx, s24_dtype_can_be_two_four(tensor->dtype), S24_ERROR_DTYPE,
            "packed tensor \"%s\" is %s, expected f32, f16, bf16, i8, e4m3 or e5m2",
            s24i_show(tensor->name).text, s24_dtype_name(tensor->dtype));
    REQUIRE(ctx,
            tensor->rank == 2 && tensor->shape[0] >= 1 && tensor->shape[1] >= 4 &&
                tensor->shape[1] % 4 == 0,
            S24_ERROR_SHAPE, "packed tensor \"%s\" is no matrix of columns a multiple of 4",
            s24i_show(tensor->name).text);
    REQUIRE(ctx, tensor->packed != S24_PACKED_DENSE || (tensor->bits && !tensor->layout),
            S24_ERROR_DTYPE, "packed tensor \"%s\" is dense, but not of integers",
            s24i_show(tensor->name).text);
    if (has_factors(tensor)) TRY(check_factors(ctx, tensor));
    const int lifted = tensor->packed == S24_PACKED_LIFTED ||
                       (tensor->packed == S24_PACKED_LOW_RANK && tensor->lift);
    REQUIRE(ctx, lifted == !!tensor->lift && !(lifted && tensor->layout), S24_ERROR_ARGUMENT,
            "packed tensor \"%s\" has lift %d%s; only a lifted one has it, and no layout",
            s24i_show(tensor->name).text, tensor->lift, lifted ? "" : " and is no lifted one");
    const int64_t cols = s24i_stored_cols(tensor);
    char pattern[S24_LIFT_BYTES];
    REQUIRE(ctx, !tensor->lift || s24_lift_pattern(pattern, tensor->lift), S24_ERROR_ARGUMENT,
            "packed tensor \"%s\" has lift %d; s24_pattern_lift gives those that there are",
            s24i_show(tensor->name).text, tensor->lift);
    REQUIRE(ctx, cols, S24_ERROR_SHAPE,
            "packed tensor \"%s\" is %s, which its %lld columns do not hold",
            s24i_show(tensor->name).text, pattern, (long long)tensor->shape[1]);
    if (tensor->layout) return check_layout(ctx, tensor);
    if (!tensor->bits) return S24_OK;
    REQUIRE(ctx, tensor->dtype == S24_I8 && (tensor->bits == 8 || tensor->bits == 4),
            S24_ERROR_DTYPE, "quantised tensor \"%s\" is %s of %d bits, expected i8 of 8 or 4",
            s24i_show(tensor->name).text, s24_dtype_name(tensor->dtype), tensor->bits);
    REQUIRE(ctx, tensor->group == 64 || tensor->group == 128 || tensor->group == cols,
            S24_ERROR_SHAPE,
            "quantised tensor \"%s\" has a scale for %lld columns, expected 64, 128 or all %lld",
            s24i_show(tensor->name).text, (long long)tensor->group, (long long)cols);
    return S24_OK;
}

/* Which file a tensor goes into. */
static s24_status find_file(size_t *out, const s24_writer *writer, const s24_tensor *tensor)
{
    *out = 0;
    if (!tensor->file || !writer->folder) return S24_OK;
    for (*out = 0; *out < writer->file_count; ++*out)
        if (!strcmp(writer->files[*out].name, tensor->file)) return S24_OK;
    return s24_ctx_fail(writer->ctx, S24_ERROR_ARGUMENT,
                        "tensor \"%s\" is declared in %s, which is no file of the model",
                        s24i_show(tensor->name).text, s24i_show(tensor->file).text);
}

s24i_part *s24i_writer_find_part(const s24_writer *writer, const char *name, const char *suffix)
{
    const int64_t number = s24i_names_find(&writer->names, name, suffix);
    return number < 0 ? NULL : &writer->parts[number];
}

static s24_status check_new(const s24_writer *writer, const char *name)
{
    static const char *const suffixes[] = {"", S24I_VALUES_SUFFIX, S24I_STREAM_SUFFIX,
                                           S24I_LEFT_SUFFIX};
    for (int i = 0; i < 4; i++)
        REQUIRE(writer->ctx, !s24i_writer_find_part(writer, name, suffixes[i]), S24_ERROR_ARGUMENT,
                "tensor \"%s\" is declared twice", s24i_show(name).text);
    return S24_OK;
}

/* Adds one stored tensor of the tensor's rank and rows, with its own dtype and last dimension. */
static s24_status add_part(s24_writer *writer, const s24_tensor *tensor, const char *suffix,
                           s24_dtype dtype, int64_t last)
{
    s24_ctx *ctx = writer->ctx;
    int64_t bytes = (int64_t)s24_dtype_bytes(dtype);
    TRY(s24i_reserve_elems(&writer->parts, &writer->room, ctx, writer->count + 1,
                           sizeof *writer->parts, "tensors of a writer"));
    s24i_part *part = &writer->parts[writer->count];
    *part = (s24i_part){.dtype = dtype, .rank = tensor->rank};
    for (int i = 0; i < tensor->rank; i++) {
        part->shape[i] = i == tensor->rank - 1 ? last : tensor->shape[i];
        REQUIRE(ctx, part->shape[i] >= 0 && !__builtin_mul_overflow(bytes, part->shape[i], &bytes),
                S24_ERROR_SHAPE,
                "tensor \"%s\": dimension %d (%lld) is negative or makes it larger than 2^63 bytes",
                s24i_show(tensor->name).text, i, (long long)part->shape[i]);
    }
    part->bytes = (size_t)bytes;
    TRY(find_file(&part->file, writer, tensor));
    TRY(s24i_names_add(&writer->names, tensor->name, suffix));
    part->name = writer->names.names[writer->count++];
    return S24_OK;
}

/* What the metadata say of a packed tensor, noted with its first part. */
static void describe_packed(s24_writer *writer, const s24_tensor *tensor, int64_t first)
{
    s24i_part *part = &writer->parts[first];
    s24i_out_file *file = &writer->files[part->file];
    const int transposed = tensor->transposed == 1;
    const int dense = tensor->packed == S24_PACKED_DENSE;
    const int sparse = tensor->packed == S24_PACKED_SPARSE;
    const int factors = has_factors(tensor);
    const int version = tensor->layout && tensor->bits        ? 10
                        : tensor->lift < 0                    ? 9
                        : factors || (sparse && tensor->bits) ? 8
                        : tensor->lift                        ? 7
                        : sparse                              ? 6
                        : dense                               ? 5
                        : transposed                          ? 4
                        : tensor->layout                      ? 3
                        : tensor->bits                        ? 2
                                                              : 1;
    part->rows = tensor->shape[0];
    part->cols = tensor->shape[1];
    part->bits = tensor->bits;
    part->group = tensor->group;
    part->dense = dense;
    part->transposed = transposed;
    part->layout = tensor->layout;
    if (sparse) {
        part->format = tensor->sparse->format;
        part->block_rows = tensor->sparse->block_rows;
        part->block_cols = tensor->sparse->block_cols;
    }
    part->lift = tensor->lift;
    part->factors = factors ? tensor->factors.rank : 0;
    part->is_factors = tensor->packed == S24_PACKED_FACTORS;
    if (part->layout) s24i_layout_dtype(&part->layout);
    part->logical_bytes = strlen(tensor->name);
    file->packed++;
    file->has_streams |= part->layout != NULL;
    if (file->version < version) file->version = version;
}

static s24_status add_stream(s24_writer *writer, const s24_tensor *tensor)
{
    s24_tensor flat = *tensor;
    flat.rank = 1;
    return add_part(writer, &flat, S24I_STREAM_SUFFIX, S24_U8,
                    (int64_t)s24_layout_bytes(tensor->layout, tensor->shape[0], tensor->shape[1]));
}

static s24_status add_canonical(s24_writer *writer, const s24_tensor *tensor)
{
    const int dense = tensor->packed == S24_PACKED_DENSE;
    const int64_t k = s24i_stored_cols(tensor), values = dense ? k : k / 2;
    if (tensor->bits == 4)
        TRY(add_part(writer, tensor, S24I_VALUES_SUFFIX, S24_U8, values / 2));
    else
        TRY(add_part(writer, tensor, S24I_VALUES_SUFFIX, tensor->dtype, values));
    if (!dense) TRY(add_part(writer, tensor, S24I_INDICES_SUFFIX, S24_U8, (k + 7) / 8));
    if (!tensor->bits) return S24_OK;
    return add_part(writer, tensor, S24I_SCALES_SUFFIX, S24_F32,
                    (k + tensor->group - 1) / tensor->group);
}

static s24_status add_sparse(s24_writer *writer, const s24_tensor *tensor)
{
    const s24_sparse_parts p = kind_of(tensor);
    const int blocks = p.format == S24_FORMAT_BSR, is_coo = p.format == S24_FORMAT_COO;
    s24_tensor part = *tensor;
    part.rank = blocks ? 3 : 1;
    if (tensor->bits) TRY(add_part(writer, tensor, S24I_SCALES_SUFFIX, S24_F32, 1));
    part.shape[0] = p.stored;
    part.shape[1] = p.block_rows;
    TRY(add_part(writer, &part, S24I_VALUES_SUFFIX, p.dtype, blocks ? p.block_cols : p.stored));
    part.rank = 1;
    TRY(add_part(writer, &part, S24I_INDEX_SUFFIX, S24_I32, p.stored));
    if (is_coo) return add_part(writer, &part, S24I_ROWS_SUFFIX, S24_I32, p.stored);
    return add_part(writer, &part, S24I_STARTS_SUFFIX, S24_I64, s24i_sparse_starts(&p));
}

static s24_status add_factors(s24_writer *writer, const s24_tensor *tensor)
{
    const s24_factors *f = &tensor->factors;
    s24_tensor part = *tensor;
    TRY(add_part(writer, &part, S24I_LEFT_SUFFIX, f->dtype, f->rank));
    part.shape[0] = f->rank;
    return add_part(writer, &part, S24I_RIGHT_SUFFIX, f->dtype, tensor->shape[1]);
}

static s24_status add_packed(s24_writer *writer, const s24_tensor *tensor)
{
    const int sparse = tensor->packed == S24_PACKED_SPARSE;
    const int64_t first = writer->count + (sparse && tensor->bits);
    if (tensor->packed != S24_PACKED_FACTORS)
        TRY((sparse ? add_sparse : tensor->layout ? add_stream : add_canonical)(writer, tensor));
    if (has_factors(tensor)) TRY(add_factors(writer, tensor));
    describe_packed(writer, tensor, first);
    return S24_OK;
}

s24_status s24_writer_set_metadata(s24_writer *writer, const char *key, const char *value)
{
    char *copy;
    if (!writer) return S24_ERROR_ARGUMENT;
    s24_ctx *ctx = writer->ctx;
    REQUIRE(ctx, key && value, S24_ERROR_ARGUMENT, "%s is NULL", key ? "value" : "key");
    REQUIRE(ctx, !writer->temporary.path, S24_ERROR_ARGUMENT,
            "the metadata's \"%s\" is set after the first write", s24i_show(key).text);
    REQUIRE(ctx, !s24i_is_own_key(key) && (!writer->key || strcmp(writer->key, key) == 0),
            S24_ERROR_ARGUMENT, "the metadata's \"%s\" cannot be set%s%s", s24i_show(key).text,
            writer->key ? " next to " : ", it is the writer's own", writer->key ? writer->key : "");
    TRY(s24i_copy_string(&copy, ctx, value));
    s24_ctx_free(ctx, writer->value);
    writer->value = copy;
    if (!writer->key) TRY(s24i_copy_string(&writer->key, ctx, key));
    for (size_t i = 0; i < writer->file_count; i++) {
        writer->files[i].key = writer->key;
        writer->files[i].value = writer->value;
    }
    return S24_OK;
}

s24_status s24_writer_declare(s24_writer *writer, const s24_tensor *tensor)
{
    if (!writer) return S24_ERROR_ARGUMENT;
    TRY(check_declared(writer, tensor));
    TRY(check_new(writer, tensor->name));
    if (tensor->packed) return add_packed(writer, tensor);
    return add_part(writer, tensor, "", tensor->dtype,
                    tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 0);
}
