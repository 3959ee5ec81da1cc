// SPDX-License-Identifier: Apache-2.0
/*
 * Reads safetensors headers, from strangers: nothing is allocated by, and no pointer made from, a
 * number that was not checked against the file's size. Accepted is exactly what the format's
 * own reader accepts (github.com/huggingface/safetensors), less its dtypes that we do not carry
 * and ranks above S24_MAX_RANK; unknown members of an entry are ignored as there.
 */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are used where they lie in the file, and that is little-endian");

/* In the order of the format's own dtype list, which its writer sorts by. */
static const struct {
    const char *label;
    s24_dtype dtype;
} dtypes[] = {
    {"BOOL", S24_BOOL},    {"U8", S24_U8},   {"I8", S24_I8},   {"F8_E5M2", S24_E5M2},
    {"F8_E4M3", S24_E4M3}, {"I16", S24_I16}, {"U16", S24_U16}, {"F16", S24_F16},
    {"BF16", S24_BF16},    {"I32", S24_I32}, {"U32", S24_U32}, {"F32", S24_F32},
    {"F64", S24_F64},      {"I64", S24_I64}, {"U64", S24_U64},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

int s24i_dtype_rank(s24_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i].dtype == dtype) return i;
    return -1;
}

const char *s24i_dtype_label(s24_dtype dtype)
{
    int rank = s24i_dtype_rank(dtype);
    return rank < 0 ? NULL : dtypes[rank].label;
}

s24_dtype s24i_dtype_of_label(const char *label)
{
    for (int i = 0; i < DTYPES; i++)
        if (!strcmp(dtypes[i].label, label)) return dtypes[i].dtype;
    return S24_DTYPE_NONE;
}

int s24i_compare_names(const void *a, const void *b)
{
    return strcmp(((const s24_tensor *)a)->name, ((const s24_tensor *)b)->name);
}

s24_tensor *s24i_find_name(const s24_tensor *sorted, size_t count, const char *name)
{
    s24_tensor key = {.name = name};
    if (count == 0) return NULL;
    return bsearch(&key, sorted, count, sizeof key, s24i_compare_names);
}

/* What the reads below share. */
typedef struct reader {
    s24_ctx *ctx;
    const char *path;
    const uint8_t *buffer; /* the bytes after the header */
    size_t bytes;
} reader;

static s24_status read_dtype(s24_tensor *tensor, const reader *r, const json_t *entry)
{
    const char *label = json_string_value(json_object_get(entry, "dtype"));
    REQUIRE(r->ctx, label, S24_ERROR_FORMAT, "%s: tensor \"%s\" has no \"dtype\" string", r->path,
            s24i_show(tensor->name).text);
    tensor->dtype = s24i_dtype_of_label(label);
    REQUIRE(r->ctx, tensor->dtype != S24_DTYPE_NONE, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has dtype \"%s\"; expected one of BOOL U8 I8 F8_E5M2 F8_E4M3 I16 "
            "U16 F16 BF16 I32 U32 F32 F64 I64 U64",
            r->path, s24i_show(tensor->name).text, s24i_show(label).text);
    return S24_OK;
}

/* Fills rank, shape and the bytes that they and the dtype ask for. */
static s24_status read_shape(s24_tensor *tensor, const reader *r, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    const char *name = tensor->name;
    int64_t elements = 1, bytes;
    REQUIRE(r->ctx, json_is_array(shape), S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no \"shape\" array", r->path, s24i_show(name).text);
    REQUIRE(r->ctx, json_array_size(shape) <= S24_MAX_RANK, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %zu dimensions, at most %d are expected", r->path,
            s24i_show(name).text, json_array_size(shape), S24_MAX_RANK);
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        REQUIRE(r->ctx, json_is_integer(size) && json_integer_value(size) >= 0, S24_ERROR_FORMAT,
                "%s: tensor \"%s\": dimension %d of its shape is not an integer of 0 or more",
                r->path, s24i_show(name).text, i);
        tensor->shape[i] = json_integer_value(size);
        REQUIRE(r->ctx, !__builtin_mul_overflow(elements, tensor->shape[i], &elements),
                S24_ERROR_FORMAT, "%s: tensor \"%s\": its shape has more than 2^63 elements",
                r->path, s24i_show(name).text);
    }
    REQUIRE(r->ctx,
            !__builtin_mul_overflow(elements, (int64_t)s24_dtype_bytes(tensor->dtype), &bytes),
            S24_ERROR_FORMAT, "%s: tensor \"%s\": its shape takes more than 2^63 bytes", r->path,
            s24i_show(name).text);
    tensor->bytes = (size_t)bytes;
    return S24_OK;
}

static s24_status read_offsets(s24_tensor *tensor, const reader *r, const json_t *entry)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    const char *name = tensor->name;
    REQUIRE(r->ctx,
            json_array_size(offsets) == 2 && json_is_integer(first) && json_is_integer(last),
            S24_ERROR_FORMAT, "%s: tensor \"%s\" has no \"data_offsets\" of two integers", r->path,
            s24i_show(name).text);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    REQUIRE(r->ctx, begin >= 0 && begin <= end && (uint64_t)end <= r->bytes, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" lies at bytes %lld to %lld, expected a range inside the %zu bytes "
            "after the header%s",
            r->path, s24i_show(name).text, (long long)begin, (long long)end, r->bytes,
            begin >= 0 && begin <= end ? " (cut short?)" : "");
    REQUIRE(r->ctx, (uint64_t)(end - begin) == tensor->bytes, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %lld bytes, its dtype and shape ask for %zu", r->path,
            s24i_show(name).text, (long long)(end - begin), tensor->bytes);
    tensor->data = r->buffer + begin;
    return S24_OK;
}

/* By place in the file; of those at one place the empty ones first. */
static int compare_places(const void *a, const void *b)
{
    const s24_tensor *x = a, *y = b;
    uintptr_t px = (uintptr_t)x->data, py = (uintptr_t)y->data;
    if (px != py) return px < py ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors must tile the buffer. Leaves them sorted by place. */
static s24_status check_tiling(const s24i_header *header, const reader *r)
{
    size_t expected = 0;
    if (header->count > 0)
        qsort(header->tensors, header->count, sizeof *header->tensors, compare_places);
    for (size_t i = 0; i < header->count; i++) {
        const s24_tensor *tensor = &header->tensors[i];
        size_t begin = (size_t)((const uint8_t *)tensor->data - r->buffer);
        REQUIRE(r->ctx, begin == expected, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" begins at byte %zu after the header, expected %zu (%s)", r->path,
                s24i_show(tensor->name).text, begin, expected,
                begin < expected ? "tensors overlap" : "a hole between tensors");
        expected = begin + tensor->bytes;
    }
    REQUIRE(r->ctx, expected == r->bytes, S24_ERROR_FORMAT,
            "%s: %zu bytes follow the header, its tensors take %zu", r->path, r->bytes, expected);
    return S24_OK;
}

static s24_status read_metadata(s24i_header *header, const reader *r, json_t *root)
{
    json_t *metadata = json_object_get(root, "__metadata__"), *value;
    const char *key;
    if (!metadata) return S24_OK;
    REQUIRE(r->ctx, json_is_object(metadata), S24_ERROR_FORMAT,
            "%s: \"__metadata__\" is not an object", r->path);
    json_object_foreach (metadata, key, value)
        REQUIRE(r->ctx, json_is_string(value), S24_ERROR_FORMAT,
                "%s: \"%s\" in \"__metadata__\" is not a string", r->path, s24i_show(key).text);
    header->metadata = json_incref(metadata);
    return S24_OK;
}

/* Allocates the tensors and one block for their names. */
static s24_status allocate(s24i_header *header, const reader *r, json_t *root)
{
    size_t names_bytes = 0;
    const char *key;
    json_t *entry;
    void *memory;
    json_object_foreach (root, key, entry)
        names_bytes += strlen(key) + 1;
    TRY(s24i_zeroed(&memory, r->ctx, json_object_size(root) * sizeof *header->tensors));
    header->tensors = memory;
    TRY(s24i_zeroed(&memory, r->ctx, names_bytes));
    header->names = memory;
    return S24_OK;
}

static s24_status read_entries(s24i_header *header, const reader *r, json_t *root)
{
    const char *key;
    json_t *entry;
    TRY(read_metadata(header, r, root));
    TRY(allocate(header, r, root));
    char *names = header->names;
    json_object_foreach (root, key, entry) {
        s24_tensor *tensor = &header->tensors[header->count];
        if (!strcmp(key, "__metadata__")) continue;
        size_t name_bytes = strlen(key) + 1;
        tensor->name = memcpy(names, key, name_bytes);
        names += name_bytes;
        REQUIRE(r->ctx, json_is_object(entry), S24_ERROR_FORMAT,
                "%s: tensor \"%s\" is not described by an object", r->path, s24i_show(key).text);
        TRY(read_dtype(tensor, r, entry));
        TRY(read_shape(tensor, r, entry));
        TRY(read_offsets(tensor, r, entry));
        header->count++;
    }
    TRY(check_tiling(header, r));
    if (header->count > 0)
        qsort(header->tensors, header->count, sizeof *header->tensors, s24i_compare_names);
    return S24_OK;
}

s24_status s24i_header_read(s24i_header *out, s24_ctx *ctx, const char *path, const uint8_t *data,
                            size_t bytes)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    uint64_t header_bytes = 0;
    json_t *root;
    *out = (s24i_header){0};
    REQUIRE(ctx, bytes >= 8, S24_ERROR_FORMAT,
            "%s: %zu bytes are too few for a safetensors file, which begins with 8 bytes that say "
            "how long its header is",
            path, bytes);
    REQUIRE(ctx, bytes < sizeof pointer || memcmp(data, pointer, sizeof pointer - 1) != 0,
            S24_ERROR_FORMAT,
            "%s: a Git LFS pointer, not the file itself ('git lfs pull' fetches it)", path);
    memcpy(&header_bytes, data, 8);
    REQUIRE(ctx, header_bytes <= S24I_HEADER_MAX_BYTES, S24_ERROR_FORMAT,
            "%s: a header of %llu bytes is announced, at most %llu are expected (not a "
            "safetensors file?)",
            path, (unsigned long long)header_bytes, (unsigned long long)S24I_HEADER_MAX_BYTES);
    REQUIRE(ctx, header_bytes <= bytes - 8, S24_ERROR_FORMAT,
            "%s: a header of %llu bytes is announced, but only %zu follow (cut short?)", path,
            (unsigned long long)header_bytes, bytes - 8);
    REQUIRE(ctx, header_bytes > 0 && data[8] == '{', S24_ERROR_FORMAT,
            "%s: the header does not begin with '{'", path);
    reader r = {ctx, path, data + 8 + header_bytes, bytes - 8 - (size_t)header_bytes};
    TRY(s24i_json_parse(&root, ctx, path, data + 8, (size_t)header_bytes));
    s24_status status = read_entries(out, &r, root);
    json_decref(root);
    if (status != S24_OK) s24i_header_free(out, ctx);
    return status;
}

void s24i_header_free(s24i_header *header, s24_ctx *ctx)
{
    s24_ctx_free(ctx, header->tensors);
    s24_ctx_free(ctx, header->names);
    json_decref(header->metadata);
    *header = (s24i_header){0};
}
