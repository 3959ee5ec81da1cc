// SPDX-License-Identifier: Apache-2.0
/*
 * A GGUF file's header: counts, keys with values, tensors with the place of their data. Every
 * length is held against the bytes that are left before anything is read or taken.
 */
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"
#include "io/tokenizer/utf8.h"

enum {
    MOST_KEY = 256,      /* bytes of a key or of a tensor's name */
    MOST_KEYS = 1 << 16, /* of a file; models have some forty */
    MOST_TENSORS = 1 << 20,
    LEAST_ENTRY = 13 /* bytes of a key or a tensor */
};

typedef struct reader {
    s24i_gguf *g;
    size_t at, alignment;
} reader;

static s24_status cut_short(const reader *r, const char *what)
{
    return s24_ctx_fail(r->g->ctx, S24_ERROR_FORMAT,
                        "%s: %s at byte %zu goes beyond the file's %zu bytes", r->g->path, what,
                        r->at, r->g->map.bytes);
}

/* Reads a little-endian number of `bytes` bytes. */
static s24_status read_number(uint64_t *out, reader *r, size_t bytes, const char *what)
{
    *out = 0;
    if (bytes > r->g->map.bytes - r->at) return cut_short(r, what);
    for (size_t i = 0; i < bytes; i++)
        *out |= (uint64_t)r->g->map.data[r->at + i] << 8 * i;
    r->at += bytes;
    return S24_OK;
}

static s24_status skip(reader *r, uint64_t count, size_t bytes, const char *what)
{
    if (count > (r->g->map.bytes - r->at) / bytes) return cut_short(r, what);
    r->at += (size_t)count * bytes;
    return S24_OK;
}

static s24_status skip_string(reader *r, const char *what)
{
    uint64_t bytes;
    TRY(read_number(&bytes, r, 8, what));
    return skip(r, bytes, 1, what);
}

/* Reads a key, or a tensor's name, which ends with a zero here. */
static s24_status read_name(char out[MOST_KEY + 1], reader *r, const char *what)
{
    uint64_t bytes;
    const size_t at = r->at;
    TRY(read_number(&bytes, r, 8, what));
    const char *text = (const char *)r->g->map.data + r->at;
    TRY(skip(r, bytes, 1, what));
    REQUIRE(r->g->ctx,
            bytes > 0 && bytes <= MOST_KEY && !memchr(text, 0, (size_t)bytes) &&
                s24i_utf8_valid(text, (size_t)bytes) == bytes,
            S24_ERROR_FORMAT, "%s: %s at byte %zu is no text of 1 to %d bytes", r->g->path, what,
            at, MOST_KEY);
    memcpy(out, text, (size_t)bytes);
    out[bytes] = '\0';
    return S24_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static const size_t number_bytes[S24I_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static s24_status skip_array(s24i_gguf_value *value, reader *r, const char *key)
{
    uint64_t of;
    TRY(read_number(&of, r, 4, key));
    TRY(read_number(&value->count, r, 8, key));
    REQUIRE(r->g->ctx, of < S24I_GGUF_KINDS && of != S24I_GGUF_ARRAY, S24_ERROR_FORMAT,
            "%s: key \"%s\" is an array of the unknown kind %llu", r->g->path, s24i_show(key).text,
            (unsigned long long)of);
    value->of = (s24i_gguf_kind)of;
    value->data = r->g->map.data + r->at;
    if (of != S24I_GGUF_STRING) return skip(r, value->count, number_bytes[of], key);
    for (uint64_t i = 0; i < value->count; i++)
        TRY(skip_string(r, key));
    return S24_OK;
}

static s24_status read_value(reader *r, int64_t number)
{
    char key[MOST_KEY + 1];
    uint64_t kind;
    s24i_gguf *g = r->g;
    s24i_gguf_value value = {.kind = S24I_GGUF_U8};
    TRY(read_name(key, r, "a key"));
    REQUIRE(g->ctx, s24i_names_find(&g->keys, key, "") < 0, S24_ERROR_FORMAT,
            "%s: key \"%s\" stands there twice", g->path, s24i_show(key).text);
    TRY(read_number(&kind, r, 4, key));
    REQUIRE(g->ctx, kind < S24I_GGUF_KINDS, S24_ERROR_FORMAT,
            "%s: key \"%s\" has the unknown kind %llu", g->path, s24i_show(key).text,
            (unsigned long long)kind);
    value.kind = (s24i_gguf_kind)kind;
    value.data = g->map.data + r->at;
    if (kind == S24I_GGUF_ARRAY)
        TRY(skip_array(&value, r, key));
    else if (kind == S24I_GGUF_STRING)
        TRY(skip_string(r, key));
    else
        TRY(skip(r, 1, number_bytes[kind], key));
    TRY(s24i_reserve_elems(&g->values, &g->values_room, g->ctx, number + 1, sizeof value, "keys"));
    g->values[number] = value;
    return s24i_names_add(&g->keys, key, "");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static s24_status read_shape(s24i_gguf_tensor *t, reader *r, const char *name)
{
    uint64_t rank, side, all = 1;
    TRY(read_number(&rank, r, 4, name));
    REQUIRE(r->g->ctx, rank >= 1 && rank <= 4, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has rank %llu, expected 1 to 4", r->g->path, s24i_show(name).text,
            (unsigned long long)rank);
    t->rank = (int)rank;
    for (int i = t->rank - 1; i >= 0; i--) {
        TRY(read_number(&side, r, 8, name));
        REQUIRE(r->g->ctx,
                side >= 1 && !__builtin_mul_overflow(all, side, &all) && all < (uint64_t)1 << 48,
                S24_ERROR_FORMAT, "%s: tensor \"%s\" has a side of %llu, which is none of a tensor",
                r->g->path, s24i_show(name).text, (unsigned long long)side);
        t->shape[i] = (int64_t)side;
    }
    return S24_OK;
}

static s24_status read_type(s24i_gguf_tensor *t, reader *r, const char *name)
{
    uint64_t number;
    TRY(read_number(&number, r, 4, name));
    t->type = s24i_gguf_type((uint32_t)number);
    REQUIRE(r->g->ctx, t->type >= 0 && s24i_gguf_type_is_read(t->type), S24_ERROR_UNSUPPORTED,
            "%s: tensor \"%s\" is of type %llu%s%s, which is not supported, only %s", r->g->path,
            s24i_show(name).text, (unsigned long long)number, t->type < 0 ? "" : ", ",
            t->type < 0 ? "" : s24i_gguf_type_name(t->type), s24i_gguf_type_list());
    const int64_t columns = t->shape[t->rank - 1];
    const size_t row = s24i_gguf_row_bytes(t->type, columns);
    REQUIRE(r->g->ctx, row, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" has rows of %lld; of %s a multiple of %lld is expected", r->g->path,
            s24i_show(name).text, (long long)columns, s24i_gguf_type_name(t->type),
            (long long)s24i_gguf_type_elements(t->type));
    t->bytes = row;
    for (int i = 0; i < t->rank - 1; i++)
        t->bytes *= (size_t)t->shape[i];
    return S24_OK;
}

/* Reads a tensor; its data's offset stays where its data will be. */
static s24_status read_tensor(reader *r, int64_t number)
{
    char name[MOST_KEY + 1];
    uint64_t offset;
    s24i_gguf *g = r->g;
    s24i_gguf_tensor t = {.name = NULL};
    TRY(read_name(name, r, "a tensor's name"));
    REQUIRE(g->ctx, s24i_names_find(&g->names, name, "") < 0, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" stands there twice", g->path, s24i_show(name).text);
    TRY(read_shape(&t, r, name));
    TRY(read_type(&t, r, name));
    TRY(read_number(&offset, r, 8, name));
    REQUIRE(g->ctx, offset % r->alignment == 0 && offset <= g->map.bytes, S24_ERROR_FORMAT,
            "%s: tensor \"%s\" begins at %llu of the data, which is no multiple of %zu in the file",
            g->path, s24i_show(name).text, (unsigned long long)offset, r->alignment);
    t.data = g->map.data + offset;
    TRY(s24i_reserve_elems(&g->tensors, &g->tensors_room, g->ctx, number + 1, sizeof t, "tensors"));
    g->tensors[number] = t;
    return s24i_names_add(&g->names, name, "");
}

/* Gives every tensor its place after the header, where it must lie whole, and no byte in two. */
static s24_status place_tensors(reader *r)
{
    s24i_gguf *g = r->g;
    const size_t begin = (r->at + r->alignment - 1) / r->alignment * r->alignment;
    size_t left = begin <= g->map.bytes ? g->map.bytes - begin : 0;
    const size_t room = left;
    for (int64_t i = 0; i < g->names.count; i++) {
        s24i_gguf_tensor *t = &g->tensors[i];
        const size_t offset = (size_t)(t->data - g->map.data);
        t->name = g->names.names[i];
        REQUIRE(g->ctx, offset <= room && t->bytes <= room - offset, S24_ERROR_FORMAT,
                "%s: tensor \"%s\" has %zu bytes from %zu of the data on, of which there are %zu",
                g->path, s24i_show(t->name).text, t->bytes, offset, room);
        REQUIRE(g->ctx, t->bytes <= left, S24_ERROR_FORMAT,
                "%s: the tensors up to \"%s\" have more bytes together than there are (%zu)",
                g->path, s24i_show(t->name).text, room);
        left -= t->bytes;
        t->data = g->map.data + begin + offset;
    }
    return S24_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static s24_status read_count(uint64_t *count, reader *r, const char *what, uint64_t most)
{
    TRY(read_number(count, r, 8, what));
    REQUIRE(r->g->ctx, *count <= most && *count <= r->g->map.bytes / LEAST_ENTRY, S24_ERROR_FORMAT,
            "%s: %s is %llu, more than the file's %zu bytes hold or %llu", r->g->path, what,
            (unsigned long long)*count, r->g->map.bytes, (unsigned long long)most);
    return S24_OK;
}

static s24_status check_start(reader *r)
{
    uint64_t magic, version;
    s24_ctx *ctx = r->g->ctx;
    TRY(read_number(&magic, r, 4, "the beginning"));
    REQUIRE(ctx, magic == 0x46554747, S24_ERROR_FORMAT,
            "%s: a GGUF file is expected, and it does not begin with GGUF", r->g->path);
    TRY(read_number(&version, r, 4, "the version"));
    REQUIRE(ctx, version == 2 || version == 3, S24_ERROR_UNSUPPORTED,
            "%s: a GGUF file of %s is not supported, only versions 2 and 3 of little-endian bytes",
            r->g->path, version == 1 ? "version 1" : "another version or order of bytes");
    return S24_OK;
}

static s24_status read_alignment(reader *r)
{
    int64_t alignment = 32;
    TRY(s24i_gguf_int(&alignment, r->g, "general.alignment", S24I_OPTIONAL, 1 << 20));
    REQUIRE(r->g->ctx, alignment >= 8 && (alignment & (alignment - 1)) == 0, S24_ERROR_FORMAT,
            "%s: key \"general.alignment\" is %lld, a power of two from 8 on is expected",
            r->g->path, (long long)alignment);
    r->alignment = (size_t)alignment;
    return S24_OK;
}

static s24_status read_architecture(s24i_gguf *g)
{
    s24_text name;
    TRY(s24i_gguf_text(&name, g, "general.architecture", S24I_REQUIRED));
    snprintf(g->architecture, sizeof g->architecture, "%.*s", (int)(name.bytes & 0xff), name.data);
    REQUIRE(g->ctx, s24i_text_is(&name, g->architecture), S24_ERROR_UNSUPPORTED,
            "%s: key \"general.architecture\" has %zu bytes, which no model has that is known here",
            g->path, name.bytes);
    return S24_OK;
}

static s24_status read_file(s24i_gguf *g)
{
    reader r = {g, 0, 0};
    uint64_t tensors, keys;
    TRY(check_start(&r));
    TRY(read_count(&tensors, &r, "the number of tensors", MOST_TENSORS));
    TRY(read_count(&keys, &r, "the number of keys", MOST_KEYS));
    for (uint64_t i = 0; i < keys; i++)
        TRY(read_value(&r, (int64_t)i));
    TRY(read_architecture(g));
    TRY(read_alignment(&r));
    for (uint64_t i = 0; i < tensors; i++)
        TRY(read_tensor(&r, (int64_t)i));
    return place_tensors(&r);
}

s24_status s24i_gguf_open(s24i_gguf *out, s24_ctx *ctx, const char *path)
{
    *out = (s24i_gguf){
        .ctx = ctx, .path = path, .keys = s24i_names_of(ctx), .names = s24i_names_of(ctx)};
    TRY(s24i_map_open(&out->map, ctx, path));
    return read_file(out);
}

void s24i_gguf_close(s24i_gguf *gguf)
{
    s24i_names_free(&gguf->keys);
    s24i_names_free(&gguf->names);
    s24_ctx_free(gguf->ctx, gguf->values);
    s24_ctx_free(gguf->ctx, gguf->tensors);
    s24i_map_close(&gguf->map);
}

const s24i_gguf_tensor *s24i_gguf_tensor_of(const s24i_gguf *gguf, const char *name)
{
    const int64_t number = s24i_names_find(&gguf->names, name, "");
    return number < 0 ? NULL : &gguf->tensors[number];
}
