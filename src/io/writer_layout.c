// SPDX-License-Identifier: Apache-2.0
/*
 * What lies where in the files of a writer: tensors by dtype, wide ones first, then by name, as the
 * format's own writer orders them, so that a file written again has the same bytes; the header
 * padded with spaces so that the data begin at a multiple of 8. Matrices in a layout come first, and
 * then the data begin at a multiple of 64: each has a multiple of 64 bytes.
 */
#include "io/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/output.h"

static int compare_parts(const void *a, const void *b)
{
    const s24i_part *x = a, *y = b;
    int rank_x = s24i_dtype_rank(x->dtype), rank_y = s24i_dtype_rank(y->dtype);
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (x->is_stream != y->is_stream) return x->is_stream ? -1 : 1;
    if (rank_x != rank_y) return rank_x > rank_y ? -1 : 1;
    return strcmp(x->name, y->name);
}

static json_t *describe(const s24i_part *part)
{
    json_t *shape = json_array();
    for (int i = 0; i < part->rank; i++) {
        if (json_array_append_new(shape, json_integer(part->shape[i])) == 0) continue;
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", s24i_dtype_label(part->dtype), "shape", shape,
                     "data_offsets", (json_int_t)part->offset,
                     (json_int_t)(part->offset + part->bytes));
}

/* Adds "sparse24.version" and "sparse24.packed" if the file has packed tensors. 1: no memory. */
static int add_description(json_t *metadata, s24_ctx *ctx, const s24i_out_file *file)
{
    char *packed;
    if (json_object_size(file->packed) == 0) return 0;
    if (s24i_json_text(&packed, ctx, file->packed, JSON_COMPACT | JSON_SORT_KEYS, 0) != S24_OK)
        return 1;
    json_t *version = json_string(file->version == 3   ? S24I_LAYOUT_VERSION
                                  : file->version == 2 ? S24I_QUANTIZED_VERSION
                                                       : S24I_PACKED_VERSION);
    json_t *names = json_string(packed);
    int is_bad = json_object_set_new(metadata, S24I_VERSION_KEY, version) != 0;
    is_bad |= json_object_set_new(metadata, S24I_PACKED_KEY, names) != 0;
    s24_ctx_free(ctx, packed);
    return is_bad;
}

/* Adds "__metadata__": the model's, with our two keys made anew; nothing if empty. 1: no memory. */
static int add_metadata(json_t *header, s24_ctx *ctx, const s24i_out_file *file)
{
    json_t *metadata = json_object(), *value;
    const char *key;
    int is_bad = !metadata;
    json_object_foreach ((json_t *)(uintptr_t)file->metadata, key, value)
        if (strcmp(key, S24I_VERSION_KEY) != 0 && strcmp(key, S24I_PACKED_KEY) != 0)
            is_bad |= json_object_set(metadata, key, value) != 0;
    is_bad |= add_description(metadata, ctx, file);
    if (json_object_size(metadata) > 0)
        return is_bad | (json_object_set_new(header, "__metadata__", metadata) != 0);
    json_decref(metadata);
    return is_bad;
}

/* The JSON of a file's header, padded; freed by the caller. parts … end are the file's own. */
static s24_status header_text(char **out, s24_ctx *ctx, const s24i_out_file *file,
                              const s24i_part *parts, const s24i_part *end)
{
    json_t *header = json_object();
    int is_bad = !header || add_metadata(header, ctx, file);
    for (const s24i_part *part = parts; part < end && !is_bad; part++)
        is_bad = json_object_set_new(header, part->name, describe(part)) != 0;
    enum { LENGTH = 8, LINE = 64 }; /* bytes before the header; that streams begin at */
    const size_t multiple = file->version == 3 ? LINE : LENGTH;
    s24_status status = s24i_json_text(out, ctx, is_bad ? NULL : header, JSON_COMPACT, LINE);
    json_decref(header);
    for (size_t bytes = *out ? strlen(*out) : 0; *out && (LENGTH + bytes) % multiple; bytes++)
        (*out)[bytes] = ' ';
    return status;
}

static s24_status open_output(s24_writer *writer, s24i_out_file *file)
{
    char *path;
    if (!writer->folder) return S24_OK; /* the temporary output is the file */
    TRY(s24i_join_path(&path, writer->ctx, writer->temporary, file->name));
    s24_status status = S24_OK;
    file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0) status = s24i_fail_errno(writer->ctx, "create", path);
    s24_ctx_free(writer->ctx, path);
    return status;
}

/* Gives each part of one file its offset and writes the header. */
static s24_status lay_out_file(s24_writer *writer, size_t index, s24i_part *parts, s24i_part *end)
{
    s24i_out_file *file = &writer->files[index];
    uint64_t offset = 0;
    char *text;
    if (!file->is_used) return S24_OK;
    for (s24i_part *part = parts; part < end; part++) {
        part->offset = offset;
        REQUIRE(writer->ctx,
                !__builtin_add_overflow(offset, part->bytes, &offset) && offset < INT64_MAX / 2,
                S24_ERROR_ARGUMENT, "%s: more than 2^62 bytes of tensors", writer->path);
    }
    TRY(header_text(&text, writer->ctx, file, parts, end));
    uint64_t bytes = strlen(text);
    s24_status status = S24_OK;
    if (bytes > S24I_HEADER_MAX_BYTES)
        status = s24_ctx_fail(writer->ctx, S24_ERROR_ARGUMENT,
                              "%s: its header would have %llu bytes, at most %llu are allowed",
                              writer->path, (unsigned long long)bytes,
                              (unsigned long long)S24I_HEADER_MAX_BYTES);
    if (status == S24_OK) status = open_output(writer, file);
    if (status == S24_OK)
        status = s24i_write_at(file->fd, writer->ctx, writer->path, &bytes, sizeof bytes, 0);
    if (status == S24_OK)
        status = s24i_write_at(file->fd, writer->ctx, writer->path, text, bytes, sizeof bytes);
    s24_ctx_free(writer->ctx, text);
    for (s24i_part *part = parts; part < end; part++)
        part->offset += sizeof bytes + bytes;
    return status;
}

static void sort_parts(s24_writer *writer)
{
    if (writer->count > 0)
        qsort(writer->parts, writer->count, sizeof *writer->parts, compare_parts);
    for (size_t i = 0; i < writer->count; i++) {
        json_integer_set(json_object_get(writer->by_name, writer->parts[i].name), (json_int_t)i);
        writer->files[writer->parts[i].file].is_used = 1;
    }
    if (writer->count == 0 || writer->file_count == 1) writer->files[0].is_used = 1;
}

s24_status s24i_writer_lay_out(s24_writer *writer)
{
    if (writer->is_laid_out) return S24_OK;
    REQUIRE(writer->ctx, !writer->temporary, S24_ERROR_ARGUMENT,
            "%s: nothing can be written after a failure", writer->path);
    TRY(s24i_temporary_create(&writer->temporary, writer->folder ? NULL : &writer->files[0].fd,
                              writer->ctx, writer->path));
    sort_parts(writer);
    s24i_part *part = writer->parts, *last = writer->parts + writer->count;
    for (size_t i = 0; i < writer->file_count; i++) {
        s24i_part *first = part;
        while (part < last && part->file == i)
            part++;
        TRY(lay_out_file(writer, i, first, part));
    }
    writer->is_laid_out = 1;
    return S24_OK;
}

s24_status s24i_writer_index(char **out, const s24_writer *writer)
{
    json_t *map = json_object();
    uint64_t total = 0;
    int is_bad = !map;
    *out = NULL;
    for (size_t i = 0; i < writer->count && !is_bad; i++) {
        const s24i_part *part = &writer->parts[i];
        total += part->bytes;
        is_bad =
            json_object_set_new(map, part->name, json_string(writer->files[part->file].name)) != 0;
    }
    json_t *index = is_bad ? NULL
                           : json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                                       (json_int_t)total, "weight_map", map);
    s24_status status = s24i_json_text(out, writer->ctx, index, JSON_INDENT(2) | JSON_SORT_KEYS, 1);
    json_decref(index);
    json_decref(map);
    if (status == S24_OK) strcat(*out, "\n");
    return status;
}
