// SPDX-License-Identifier: Apache-2.0
/*
 * Reads safetensors headers, from strangers: nothing is allocated by, and no pointer made from, a
 * number that was not checked against the file's size. Accepted is exactly what the format's
 * own reader accepts (github.com/huggingface/safetensors), less its dtypes that we do not carry
 * and ranks above S24_MAX_RANK; unknown members of an entry are ignored as there.
 */
#include "io/checkpoint/safetensors.h"

#include "io/checkpoint/foreign.h"

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
    s24i_json_reader json; /* the header; with out, its room is for one member */
} reader;

static s24_status read_dtype(s24_tensor *tensor, const reader *r, const s24i_json *entry)
{
    const char *label = s24i_json_string(s24i_json_get(entry, "dtype"));
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
static s24_status read_shape(s24_tensor *tensor, const reader *r, const s24i_json *entry)
{
    const s24i_json *shape = s24i_json_get(entry, "shape"), *size;
    const char *name = tensor->name;
    const size_t rank = s24i_json_count(shape);
    int64_t elements = 1, bytes;
    REQUIRE(r->ctx, s24i_json_typeof(shape) == S24I_JSON_ARRAY, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has no \"shape\" array", r->path, s24i_show(name).text);
    REQUIRE(r->ctx, rank <= S24_MAX_RANK, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has %zu dimensions, at most %d are expected", r->path,
            s24i_show(name).text, rank, S24_MAX_RANK);
    s24i_json_walk walk = s24i_json_begin(shape);
    for (int i = 0; (size = s24i_json_next(&walk, NULL)) != NULL; i++) {
        tensor->shape[i] = s24i_json_integer(size);
        REQUIRE(r->ctx, s24i_json_typeof(size) == S24I_JSON_INTEGER && tensor->shape[i] >= 0,
                S24_ERROR_FORMAT,
                "%s: tensor \"%s\": dimension %d of its shape is not an integer of 0 or more",
                r->path, s24i_show(name).text, i);
        REQUIRE(r->ctx, !__builtin_mul_overflow(elements, tensor->shape[i], &elements),
                S24_ERROR_FORMAT, "%s: tensor \"%s\": its shape has more than 2^63 elements",
                r->path, s24i_show(name).text);
    }
    REQUIRE(r->ctx,
            !__builtin_mul_overflow(elements, (int64_t)s24_dtype_bytes(tensor->dtype), &bytes),
            S24_ERROR_FORMAT, "%s: tensor \"%s\": its shape takes more than 2^63 bytes", r->path,
            s24i_show(name).text);
    tensor->rank = (int)rank;
    tensor->bytes = (size_t)bytes;
    return S24_OK;
}

static s24_status read_offsets(s24_tensor *tensor, const reader *r, const s24i_json *entry)
{
    const s24i_json *offsets = s24i_json_get(entry, "data_offsets");
    const s24i_json *first = s24i_json_at(offsets, 0), *last = s24i_json_at(offsets, 1);
    const char *name = tensor->name;
    REQUIRE(r->ctx,
            s24i_json_typeof(first) == S24I_JSON_INTEGER &&
                s24i_json_typeof(last) == S24I_JSON_INTEGER && !s24i_json_at(offsets, 2),
            S24_ERROR_FORMAT, "%s: tensor \"%s\" has no \"data_offsets\" of two integers", r->path,
            s24i_show(name).text);
    const int64_t begin = s24i_json_integer(first), end = s24i_json_integer(last);
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
    const s24_tensor *x = *(const s24_tensor *const *)a, *y = *(const s24_tensor *const *)b;
    uintptr_t px = (uintptr_t)x->data, py = (uintptr_t)y->data;
    if (px != py) return px < py ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static s24_status check_order(const s24_tensor *const *by_place, size_t count, const reader *r)
{
    size_t expected = 0;
    for (size_t i = 0; i < count; i++) {
        const s24_tensor *tensor = by_place[i];
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

/* The tensors must tile the buffer. */
static s24_status check_tiling(const s24i_header *header, const reader *r)
{
    const s24_tensor **by_place;
    TRY(s24i_alloc_elems(&by_place, r->ctx, (int64_t)header->count, sizeof *by_place,
                         "the order of tensors"));
    for (size_t i = 0; i < header->count; i++)
        by_place[i] = &header->tensors[i];
    qsort(by_place, header->count, sizeof *by_place, compare_places);
    const s24_status status = check_order(by_place, header->count, r);
    s24_ctx_free(r->ctx, by_place);
    return status;
}

/* ---- the header ------------------------------------------------------------------------------ */

/*
 * The header is read twice: once to check that it is JSON and to count, once to fill, member by
 * member, so that of its tree only one member's stands at a time: a tree of the whole takes more
 * than the tensors that it describes.
 */
typedef struct counts {
    size_t members, keys_bytes;
    size_t member_bytes; /* of the largest one's tree */
} counts;

/* Goes to the next member and reads its key; *is_there = 0 at the header's end. */
static s24_status next_member(s24i_json_reader *json, int *is_there)
{
    const int is_first = json->at == json->begin;
    json->at += is_first; /* over the '{' */
    const char c = s24i_json_peek(json);
    *is_there = is_first ? c != '}' : c == ',';
    if (*is_there) {
        json->at += !is_first;
        return s24i_json_read_key(json);
    }
    if (c != '}') return s24i_json_fail(json, "',' or '}' is expected");
    json->at++;
    s24i_json_peek(json);
    return json->at == json->end ? S24_OK : s24i_json_fail(json, "the end of the text is expected");
}

static s24_status count_members(counts *found, reader *r)
{
    s24i_json_reader *json = &r->json;
    int is_there;
    *found = (counts){0};
    for (;;) {
        json->used = 0;
        TRY(next_member(json, &is_there));
        if (!is_there) return S24_OK;
        found->members++;
        REQUIRE(
            r->ctx, found->members <= S24I_MAX_MEMBERS, S24_ERROR_FORMAT,
            "%s: the header has more than %d members (tensors and \"__metadata__\"), at most as "
            "many are expected",
            r->path, S24I_MAX_MEMBERS);
        found->keys_bytes += json->used;
        json->used = 0;
        TRY(s24i_json_read_value(json));
        if (json->used > found->member_bytes) found->member_bytes = json->used;
    }
}

/* Reads the value of "__metadata__", which stays, into a block of its own. */
static s24_status read_metadata(s24i_header *header, reader *r)
{
    s24i_json_reader measure = r->json;
    const s24i_json *value;
    const char *key;
    REQUIRE(r->ctx, !header->metadata, S24_ERROR_FORMAT,
            "%s: the header has the duplicate object key \"__metadata__\"", r->path);
    measure.out = NULL;
    measure.used = 0;
    TRY(s24i_json_read_value(&measure));
    TRY(s24i_alloc_elems(&r->json.out, r->ctx, (int64_t)measure.used, 1, "a header's metadata"));
    header->metadata = (s24i_json *)r->json.out;
    TRY(s24i_json_read_value(&r->json));
    REQUIRE(r->ctx, s24i_json_typeof(header->metadata) == S24I_JSON_OBJECT, S24_ERROR_FORMAT,
            "%s: \"__metadata__\" is not an object", r->path);
    s24i_json_walk walk = s24i_json_begin(header->metadata);
    while ((value = s24i_json_next(&walk, &key)) != NULL)
        REQUIRE(r->ctx, s24i_json_string(value), S24_ERROR_FORMAT,
                "%s: \"%s\" in \"__metadata__\" is not a string", r->path, s24i_show(key).text);
    return S24_OK;
}

/* Reads a tensor's value into `entry`, which has room for it, and from there. */
static s24_status read_tensor(s24i_header *header, reader *r, const char *name, void *entry)
{
    s24_tensor *tensor = &header->tensors[header->count];
    *tensor = (s24_tensor){.name = name};
    r->json.out = entry;
    TRY(s24i_json_read_value(&r->json));
    REQUIRE(r->ctx, s24i_json_typeof(entry) == S24I_JSON_OBJECT, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" is not described by an object", r->path, s24i_show(name).text);
    TRY(read_dtype(tensor, r, entry));
    TRY(read_shape(tensor, r, entry));
    TRY(read_offsets(tensor, r, entry));
    header->count++;
    return S24_OK;
}

/* Keys go into header->names as they are stored, one after another. */
static s24_status read_members(s24i_header *header, reader *r, void *entry)
{
    s24i_json_reader *json = &r->json;
    char *names = header->names;
    int is_there;
    const char *let_go = json->begin;
    for (;;) {
        json->out = names;
        json->used = 0;
        TRY(next_member(json, &is_there));
        if (!is_there) return S24_OK;
        const char *name = s24i_json_string((s24i_json *)names);
        names += json->used;
        json->used = 0;
        if (!strcmp(name, "__metadata__"))
            TRY(read_metadata(header, r));
        else
            TRY(read_tensor(header, r, name, entry));
        s24i_map_forget(&let_go, json->at);
    }
}

/* Allocates the tensors and one block for their names. */
static s24_status allocate(s24i_header *header, void **entry, const reader *r, const counts *found)
{
    TRY(s24i_alloc_elems(&header->tensors, r->ctx, (int64_t)found->members, sizeof *header->tensors,
                         "a header's tensors"));
    TRY(s24i_alloc_elems(&header->names, r->ctx, (int64_t)found->keys_bytes, 1,
                         "a header's names"));
    return s24i_alloc_elems(entry, r->ctx, (int64_t)found->member_bytes, 1, "a header's entry");
}

static s24_status check_names(const s24i_header *header, const reader *r)
{
    if (header->count > 0)
        qsort(header->tensors, header->count, sizeof *header->tensors, s24i_compare_names);
    for (size_t i = 1; i < header->count; i++)
        REQUIRE(r->ctx, strcmp(header->tensors[i - 1].name, header->tensors[i].name) != 0,
                S24_ERROR_FORMAT, "%s: the header has the duplicate object key \"%s\"", r->path,
                s24i_show(header->tensors[i].name).text);
    return S24_OK;
}

static s24_status read_header(s24i_header *header, reader *r)
{
    s24_status status;
    counts found;
    void *entry = NULL;
    TRY(count_members(&found, r));
    r->json.at = r->json.begin;
    TRY_DONE(allocate(header, &entry, r, &found));
    TRY_DONE(read_members(header, r, entry));
    TRY_DONE(check_names(header, r));
    TRY_DONE(check_tiling(header, r));
done:
    s24_ctx_free(r->ctx, entry);
    return status;
}

s24_status s24i_header_read(s24i_header *out, s24_ctx *ctx, const char *path, const s24i_map *map)
{
    const uint8_t *data = map->data;
    const size_t bytes = map->bytes;
    uint64_t header_bytes = 0;
    *out = (s24i_header){0};
    if (bytes >= 8) memcpy(&header_bytes, data, 8);
    if (!header_bytes || header_bytes > bytes - 8 || data[8] != '{')
        TRY(s24i_refuse_foreign(ctx, path, data, bytes));
    REQUIRE(ctx, bytes >= 8, S24_ERROR_FORMAT,
            "%s: %zu bytes are too few for a safetensors file, which begins with 8 bytes that say "
            "how long its header is",
            path, bytes);
    REQUIRE(ctx, header_bytes <= S24I_HEADER_MAX_BYTES, S24_ERROR_FORMAT,
            "%s: a header of %llu bytes is announced, at most %llu are expected (not a "
            "safetensors file?)",
            path, (unsigned long long)header_bytes, (unsigned long long)S24I_HEADER_MAX_BYTES);
    REQUIRE(ctx, header_bytes <= bytes - 8, S24_ERROR_FORMAT,
            "%s: a header of %llu bytes is announced, but only %zu follow (cut short?)", path,
            (unsigned long long)header_bytes, bytes - 8);
    REQUIRE(ctx, header_bytes > 0 && data[8] == '{', S24_ERROR_FORMAT,
            "%s: the header does not begin with '{'", path);
    const char *text = (const char *)data + 8;
    reader r = {ctx,
                path,
                data + 8 + header_bytes,
                bytes - 8 - (size_t)header_bytes,
                {ctx, path, text, text, text + header_bytes, NULL, 0}};
    const s24_status status = read_header(out, &r);
    if (status != S24_OK) s24i_header_free(out, ctx);
    return status;
}

void s24i_header_free(s24i_header *header, s24_ctx *ctx)
{
    s24_ctx_free(ctx, header->tensors);
    s24_ctx_free(ctx, header->names);
    s24_ctx_free(ctx, header->metadata);
    s24_ctx_free(ctx, header->sparse);
    *header = (s24i_header){0};
}
