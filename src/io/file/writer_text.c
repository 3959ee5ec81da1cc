// SPDX-License-Identifier: Apache-2.0
/* What the JSON of a writer's files says: the headers, and the index of a folder of several
   files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint/writer.h"

/* ---- sparse24.packed ------------------------------------------------------------------------- */

typedef struct packed_parts {
    const s24i_part **parts; /* the first ones of packed tensors, by their logical names */
    size_t count;
} packed_parts;

static int compare_logical_names(const void *a, const void *b)
{
    const s24i_part *x = *(const s24i_part *const *)a, *y = *(const s24i_part *const *)b;
    const size_t bytes = x->logical_bytes < y->logical_bytes ? x->logical_bytes : y->logical_bytes;
    const int order = memcmp(x->name, y->name, bytes);
    return order ? order
                 : (x->logical_bytes > y->logical_bytes) - (x->logical_bytes < y->logical_bytes);
}

static void write_format(s24i_json_text *text, const s24i_part *part)
{
    const char *name = s24_format_name(part->format);
    s24i_json_put(text, ",");
    s24i_json_put_string(text, name, strlen(name));
    if (part->format != S24_FORMAT_BSR) return;
    s24i_json_put(text, ",");
    s24i_json_put_integer(text, part->block_rows);
    s24i_json_put(text, ",");
    s24i_json_put_integer(text, part->block_cols);
}

static void write_pattern(s24i_json_text *text, int lift)
{
    char room[S24_LIFT_BYTES];
    const char *pattern = s24_lift_pattern(room, lift);
    s24i_json_put(text, ",");
    s24i_json_put_string(text, pattern, strlen(pattern));
}

static void write_factors(s24i_json_text *text, const s24i_part *part)
{
    s24i_json_put(text, part->is_factors ? ",\"" S24I_FACTORS "\"," : ",\"" S24I_LOW_RANK "\",");
    s24i_json_put_integer(text, part->factors);
}

static void write_packed(s24i_json_text *text, const void *user)
{
    const packed_parts *packed = user;
    for (size_t i = 0; i < packed->count; i++) {
        const s24i_part *part = packed->parts[i];
        s24i_json_put(text, i ? "," : "{");
        s24i_json_put_string(text, part->name, part->logical_bytes);
        s24i_json_put(text, ":[");
        s24i_json_put_integer(text, part->rows);
        s24i_json_put(text, ",");
        s24i_json_put_integer(text, part->cols);
        if (part->bits || part->layout) s24i_json_put(text, ",");
        if (part->layout) s24i_json_put_string(text, part->layout, strlen(part->layout));
        if (part->bits && !part->layout) {
            s24i_json_put_integer(text, part->bits);
            s24i_json_put(text, ",");
            s24i_json_put_integer(text, part->group);
            if (part->dense) s24i_json_put(text, ",\"" S24I_DENSE "\"");
        }
        if (part->format) write_format(text, part);
        if (part->lift) write_pattern(text, part->lift);
        if (part->factors) write_factors(text, part);
        if (part->transposed) s24i_json_put(text, ",\"" S24I_TRANSPOSED "\"");
        s24i_json_put(text, "]");
    }
    s24i_json_put(text, "}");
}

/* ---- sparse24.xxh3 --------------------------------------------------------------------------- */

typedef struct hashes {
    const s24i_part **parts; /* by name */
    int64_t count;
    const s24i_side **sides; /* by name; NULL: none are told of */
    int64_t side_count;
} hashes;

static int compare_part_names(const void *a, const void *b)
{
    return strcmp((*(const s24i_part *const *)a)->name, (*(const s24i_part *const *)b)->name);
}

static int compare_side_names(const void *a, const void *b)
{
    return strcmp((*(const s24i_side *const *)a)->name, (*(const s24i_side *const *)b)->name);
}

static void write_hash(s24i_json_text *text, int is_first, const char *name, uint64_t hash)
{
    if (!is_first) s24i_json_put(text, ",");
    s24i_json_put_string(text, name, strlen(name));
    s24i_json_put(text, ":\"");
    s24i_json_put(text, s24i_xxh3_digits(hash).text);
    s24i_json_put(text, "\"");
}

/* The header's own hash is put in its place when the header is whole. */
static void write_hashes(s24i_json_text *text, const void *user)
{
    const hashes *h = user;
    s24i_json_put(text, "{\"header\":\"");
    s24i_json_put(text, s24i_xxh3_digits(0).text);
    s24i_json_put(text, "\",");
    if (h->sides) {
        s24i_json_put(text, "\"files\":{");
        for (int64_t i = 0; i < h->side_count; i++)
            write_hash(text, i == 0, h->sides[i]->name, h->sides[i]->hash);
        s24i_json_put(text, "},");
    }
    s24i_json_put(text, "\"tensors\":{");
    for (int64_t i = 0; i < h->count; i++)
        write_hash(text, i == 0, h->parts[i]->name, h->parts[i]->hash);
    s24i_json_put(text, "}}");
}

static s24_status sort_sides(hashes *h, s24_ctx *ctx, const s24i_sides *sides)
{
    if (!sides) return S24_OK;
    h->side_count = sides->names.count;
    TRY(s24i_alloc_elems(&h->sides, ctx, h->side_count, sizeof *h->sides,
                         "the order of side files"));
    for (int64_t i = 0; i < h->side_count; i++)
        h->sides[i] = &sides->files[i];
    qsort(h->sides, (size_t)h->side_count, sizeof *h->sides, compare_side_names);
    return S24_OK;
}

static s24_status hashes_text(char **out, s24_ctx *ctx, const s24i_out_file *file,
                              s24i_part *const *parts, s24i_part *const *end)
{
    hashes h = {.count = end - parts};
    *out = NULL;
    TRY(s24i_alloc_elems(&h.parts, ctx, h.count, sizeof *h.parts, "the order of hashes"));
    for (int64_t i = 0; i < h.count; i++)
        h.parts[i] = parts[i];
    qsort(h.parts, (size_t)h.count, sizeof *h.parts, compare_part_names);
    s24_status status = sort_sides(&h, ctx, file->sides);
    if (status == S24_OK) status = s24i_json_make(out, ctx, write_hashes, &h, 0);
    s24_ctx_free(ctx, h.parts);
    s24_ctx_free(ctx, h.sides);
    return status;
}

/* ---- a header -------------------------------------------------------------------------------- */

typedef struct header {
    const s24i_out_file *file;
    s24i_part *const *parts, *const *end;
    const char *hashes; /* the text of sparse24.xxh3 */
    const char *packed; /* that of sparse24.packed, NULL: nothing is */
} header;

static void write_member(s24i_json_text *text, int *count, const char *key, const char *value)
{
    if ((*count)++) s24i_json_put(text, ",");
    s24i_json_put_string(text, key, strlen(key));
    s24i_json_put(text, ":");
    s24i_json_put_string(text, value, strlen(value));
}

int s24i_is_own_key(const char *key)
{
    return !strcmp(key, S24I_HASH_KEY) || !strcmp(key, S24I_VERSION_KEY) ||
           !strcmp(key, S24I_PACKED_KEY);
}

/* The hashes, which stand first (S24I_HASH_LEAD); then the model's metadata, with our keys and the
   writer's made anew. */
static void write_metadata(s24i_json_text *text, const header *h)
{
    static const char *const versions[] = {
        S24I_PACKED_VERSION,     S24I_PACKED_VERSION, S24I_QUANTIZED_VERSION, S24I_LAYOUT_VERSION,
        S24I_TRANSPOSED_VERSION, S24I_DENSE_VERSION,  S24I_SPARSE_VERSION,    S24I_LIFTED_VERSION,
        S24I_FACTORS_VERSION,    S24I_BESIDE_VERSION, S24I_STREAMED_VERSION};
    int count = 0;
    const char *key;
    write_member(text, &count, S24I_HASH_KEY, h->hashes);
    s24i_json_walk walk = s24i_json_begin(h->file->metadata);
    for (const s24i_json *value; (value = s24i_json_next(&walk, &key)) != NULL;)
        if (!s24i_is_own_key(key) && !(h->file->key && strcmp(key, h->file->key) == 0))
            write_member(text, &count, key, s24i_json_string(value));
    if (h->file->key) write_member(text, &count, h->file->key, h->file->value);
    if (!h->packed) return;
    write_member(text, &count, S24I_VERSION_KEY, versions[h->file->version]);
    write_member(text, &count, S24I_PACKED_KEY, h->packed);
}

static void write_part(s24i_json_text *text, const s24i_part *part)
{
    s24i_json_put_string(text, part->name, strlen(part->name));
    s24i_json_put(text, ":{\"dtype\":\"");
    s24i_json_put(text, s24i_dtype_label(part->dtype));
    s24i_json_put(text, "\",\"shape\":[");
    for (int i = 0; i < part->rank; i++) {
        if (i > 0) s24i_json_put(text, ",");
        s24i_json_put_integer(text, part->shape[i]);
    }
    s24i_json_put(text, "],\"data_offsets\":[");
    s24i_json_put_integer(text, (int64_t)part->offset);
    s24i_json_put(text, ",");
    s24i_json_put_integer(text, (int64_t)(part->offset + part->bytes));
    s24i_json_put(text, "]}");
}

static void write_header(s24i_json_text *text, const void *user)
{
    const header *h = user;
    s24i_json_put(text, "{\"__metadata__\":{");
    write_metadata(text, h);
    s24i_json_put(text, "}");
    for (s24i_part *const *part = h->parts; part < h->end; part++) {
        s24i_json_put(text, ",");
        write_part(text, *part);
    }
    s24i_json_put(text, "}");
}

/* The text of sparse24.packed; NULL where nothing is. */
static s24_status packed_text(char **out, s24_ctx *ctx, const header *h)
{
    packed_parts packed = {NULL, 0};
    *out = NULL;
    if (!h->file->packed) return S24_OK;
    TRY(s24i_alloc_elems(&packed.parts, ctx, (int64_t)h->file->packed, sizeof *packed.parts,
                         "the order of packed tensors"));
    for (s24i_part *const *part = h->parts; part < h->end; part++)
        if ((*part)->cols) packed.parts[packed.count++] = *part;
    qsort(packed.parts, packed.count, sizeof *packed.parts, compare_logical_names);
    const s24_status status = s24i_json_make(out, ctx, write_packed, &packed, 0);
    s24_ctx_free(ctx, packed.parts);
    return status;
}

s24_status s24i_writer_header(char **out, s24_ctx *ctx, const s24i_out_file *file,
                              s24i_part *const *parts, s24i_part *const *end)
{
    enum { LENGTH = 8, LINE = 64 }; /* bytes before the header; that streams begin at */
    const size_t multiple = file->has_streams ? LINE : LENGTH;
    header h = {file, parts, end, NULL, NULL};
    char *packed = NULL, *hashed;
    *out = NULL;
    TRY(hashes_text(&hashed, ctx, file, parts, end));
    s24_status status = packed_text(&packed, ctx, &h);
    h.hashes = hashed;
    h.packed = packed;
    if (status == S24_OK) status = s24i_json_make(out, ctx, write_header, &h, LINE);
    s24_ctx_free(ctx, hashed);
    s24_ctx_free(ctx, packed);
    for (size_t bytes = *out ? strlen(*out) : 0; *out && (LENGTH + bytes) % multiple; bytes++)
        (*out)[bytes] = ' ';
    return status;
}

/* ---- the index ------------------------------------------------------------------------------- */

typedef struct index_of {
    const s24_writer *writer;
    const s24i_part **by_name;
} index_of;

static void write_index(s24i_json_text *text, const void *user)
{
    const index_of *index = user;
    const s24_writer *writer = index->writer;
    int64_t total = 0;
    for (int64_t i = 0; i < writer->count; i++)
        total += (int64_t)writer->parts[i].bytes;
    s24i_json_put(text, "{\n  \"metadata\": {\n    \"total_size\": ");
    s24i_json_put_integer(text, total);
    s24i_json_put(text, "\n  },\n  \"weight_map\": {");
    for (int64_t i = 0; i < writer->count; i++) {
        const char *name = index->by_name[i]->name;
        const char *file = writer->files[index->by_name[i]->file].name;
        s24i_json_put(text, i ? ",\n    " : "\n    ");
        s24i_json_put_string(text, name, strlen(name));
        s24i_json_put(text, ": ");
        s24i_json_put_string(text, file, strlen(file));
    }
    s24i_json_put(text, writer->count ? "\n  }\n}\n" : "}\n}\n");
}

s24_status s24i_writer_index(char **out, const s24_writer *writer)
{
    index_of index = {writer, NULL};
    *out = NULL;
    TRY(s24i_alloc_elems(&index.by_name, writer->ctx, writer->count, sizeof *index.by_name,
                         "the order of an index"));
    for (int64_t i = 0; i < writer->count; i++)
        index.by_name[i] = &writer->parts[i];
    qsort(index.by_name, (size_t)writer->count, sizeof *index.by_name, compare_part_names);
    const s24_status status = s24i_json_make(out, writer->ctx, write_index, &index, 0);
    s24_ctx_free(writer->ctx, index.by_name);
    return status;
}
