// SPDX-License-Identifier: Apache-2.0
/*
 * The arrays of NumPy's archives as the tensors of a checkpoint: a zip archive of records
 * "NAME.npy", each a header, which is a Python dict in text, and the elements. All of them are
 * copied out once, inflated where they are deflated.
 */
#include <stdlib.h>
#include <string.h>

#include "io/file/inflate.h"
#include "io/torch/torch.h"

enum { LINE = 64, MOST_HEADER = 1024, SUFFIX_BYTES = 4 /* ".npy" */, FIRST_BYTES = 10 };

static const struct {
    const char *descr;
    s24_dtype dtype;
} dtypes[] = {
    {"|u1", S24_U8}, {"|b1", S24_BOOL}, {"|i1", S24_I8}, {"<f2", S24_F16}, {"<f4", S24_F32}};

static s24_status fail(s24_ctx *ctx, const s24_tensor *t, const char *what)
{
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT, "%s: array \"%s\": %s", t->file,
                        s24i_show(t->name).text, what);
}

/* What stands after a key of the header; NULL: it has none. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " :");
}

static s24_status read_dtype(s24_ctx *ctx, s24_tensor *t, const char *header)
{
    const char *descr = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    if (!descr || *descr != '\'' || !order)
        return fail(ctx, t, "its header says no dtype or order");
    const int length = (int)strcspn(descr + 1, "'");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (length == 3 && !strncmp(descr + 1, dtypes[i].descr, 3)) t->dtype = dtypes[i].dtype;
    REQUIRE(ctx, t->dtype, S24_ERROR_UNSUPPORTED,
            "%s: array \"%s\" is of dtype '%.*s'; u8, i8, bool, f16 or f32 is expected", t->file,
            s24i_show(t->name).text, length < 16 ? length : 16, descr + 1);
    REQUIRE(ctx, !strncmp(order, "False", 5), S24_ERROR_UNSUPPORTED,
            "%s: array \"%s\" is in Fortran's order; C's is expected", t->file,
            s24i_show(t->name).text);
    return S24_OK;
}

/* "(2, 3)", "(5,)" or "()", and as many bytes as that is. */
static s24_status read_shape(s24_ctx *ctx, s24_tensor *t, const char *header, size_t left)
{
    const char *at = value_of(header, "'shape'");
    size_t bytes = s24_dtype_bytes(t->dtype);
    if (!at || *at++ != '(') return fail(ctx, t, "its header says no shape");
    while (at[strspn(at, " ,")] != ')') {
        char *end;
        at += strspn(at, " ,");
        const long long side = strtoll(at, &end, 10);
        if (end == at || side < 0 || t->rank == S24_MAX_RANK)
            return fail(ctx, t, "its shape is none, or has too many sides");
        t->shape[t->rank++] = side;
        if (side > 0 && bytes > SIZE_MAX / (size_t)side) return fail(ctx, t, "it is too large");
        bytes *= (size_t)side;
        at = end;
    }
    REQUIRE(ctx, bytes == left, S24_ERROR_FORMAT,
            "%s: array \"%s\" has %zu bytes; its shape has %zu", t->file, s24i_show(t->name).text,
            left, bytes);
    t->bytes = bytes;
    return S24_OK;
}

/* A whole record, its header first. */
static s24_status read_array(s24_ctx *ctx, s24_tensor *t, const uint8_t *data, size_t bytes)
{
    char header[MOST_HEADER + 1];
    if (bytes < FIRST_BYTES + 2 || memcmp(data, "\x93NUMPY", 6) != 0)
        return fail(ctx, t, "it does not begin as NumPy's arrays do");
    const int is_first = data[6] == 1;
    const size_t first = FIRST_BYTES + (is_first ? 0 : 2);
    size_t length = data[8] | (size_t)data[9] << 8;
    if (!is_first) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > MOST_HEADER || length > bytes - first)
        return fail(ctx, t, "its header is longer than it can be");
    memcpy(header, data + first, length);
    header[length] = '\0';
    t->data = data + first + length;
    TRY(read_dtype(ctx, t, header));
    return read_shape(ctx, t, header, bytes - first - length);
}

static int is_array(const char *name)
{
    const size_t length = strlen(name);
    return length > SUFFIX_BYTES && !strcmp(name + length - SUFFIX_BYTES, ".npy");
}

static size_t in_lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Room for all arrays, their names and their tensors. */
static s24_status make_room(s24i_shard *shard, s24_ctx *ctx, const s24i_archive *a)
{
    size_t names = 0, count = 0, bytes = 0;
    for (int64_t i = 0; i < a->names.count; i++) {
        if (!is_array(a->names.names[i])) continue;
        names += strlen(a->names.names[i]);
        REQUIRE(ctx, a->records[i].whole < SIZE_MAX / 2 - bytes, S24_ERROR_FORMAT,
                "%s: its arrays are larger than memory can be", shard->path);
        bytes += in_lines(a->records[i].whole);
        count++;
    }
    REQUIRE(ctx, count, S24_ERROR_FORMAT, "%s: the archive has no arrays of NumPy", shard->path);
    TRY(s24i_zeroed(&shard->aligned, ctx, bytes + LINE));
    TRY(s24i_alloc_elems(&shard->header.names, ctx, (int64_t)names + 1, 1, "a file's names"));
    return s24i_alloc_elems(&shard->header.tensors, ctx, (int64_t)count,
                            sizeof *shard->header.tensors, "a file's tensors");
}

static s24_status fill(s24i_shard *shard, s24_ctx *ctx, const s24i_archive *a)
{
    uint8_t *place = shard->aligned;
    char *name = shard->header.names;
    for (int64_t i = 0; i < a->names.count; i++) {
        const s24i_record *r = &a->records[i];
        const uint8_t *stored = (const uint8_t *)shard->map.data + r->begin;
        if (!is_array(a->names.names[i])) continue;
        s24_tensor *t = &shard->header.tensors[shard->header.count];
        *t = (s24_tensor){.name = strcpy(name, a->names.names[i]), .file = shard->name};
        name += strlen(name);
        name[-SUFFIX_BYTES] = '\0';
        if (!r->is_deflated)
            memcpy(place, stored, r->whole);
        else if (!s24i_inflate(place, r->whole, stored, r->bytes))
            return fail(ctx, t, "its deflated bytes are damaged");
        TRY(read_array(ctx, t, place, r->whole));
        REQUIRE(ctx, (uintptr_t)t->data % s24_dtype_bytes(t->dtype) == 0, S24_ERROR_FORMAT,
                "%s: array \"%s\" does not lie as its dtype wants", t->file,
                s24i_show(t->name).text);
        place += in_lines(r->whole);
        shard->header.count++;
    }
    qsort(shard->header.tensors, shard->header.count, sizeof *shard->header.tensors,
          s24i_compare_names);
    return S24_OK;
}

s24_status s24i_npz_read(s24i_shard *shard, s24_ctx *ctx)
{
    s24i_archive archive;
    s24_status status = s24i_archive_open(&archive, ctx, shard->path, &shard->map, 1);
    if (status == S24_OK) status = make_room(shard, ctx, &archive);
    if (status == S24_OK) status = fill(shard, ctx, &archive);
    s24i_archive_free(&archive);
    return status;
}
