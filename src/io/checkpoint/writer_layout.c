// SPDX-License-Identifier: Apache-2.0
/*
 * What lies where in the files of a writer: tensors by dtype, wide ones first, then by name, as the
 * format's own writer orders them, so that a file written again has the same bytes; the header
 * padded with spaces so that the data begin at a multiple of 8. Matrices in a layout come first,
 * and then the data begin at a multiple of 64: each has a multiple of 64 bytes.
 */
#include "io/checkpoint/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file/output.h"

static int compare_parts(const void *a, const void *b)
{
    const s24i_part *x = *(const s24i_part *const *)a, *y = *(const s24i_part *const *)b;
    int rank_x = s24i_dtype_rank(x->dtype), rank_y = s24i_dtype_rank(y->dtype);
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (!x->layout != !y->layout) return x->layout ? -1 : 1;
    if (rank_x != rank_y) return rank_x > rank_y ? -1 : 1;
    return strcmp(x->name, y->name);
}

static s24_status open_output(s24_writer *writer, s24i_out_file *file)
{
    char *path;
    if (!writer->is_folder) return S24_OK; /* the temporary output is the file */
    TRY(s24i_join_path(&path, writer->ctx, writer->temporary.path, file->name));
    s24_status status = S24_OK;
    file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, writer->folder ? 0600 : 0666);
    if (file->fd < 0) status = s24i_fail_errno(writer->ctx, "create", path);
    s24_ctx_free(writer->ctx, path);
    return status;
}

/* Gives each part of one file its offset after the header. */
static s24_status place_parts(const s24_writer *writer, s24i_part **parts, s24i_part **end)
{
    uint64_t offset = 0;
    REQUIRE(writer->ctx, end - parts < S24I_MAX_MEMBERS, S24_ERROR_ARGUMENT,
            "%s: a file would have %lld tensors, fewer than %d are allowed", writer->path,
            (long long)(end - parts), S24I_MAX_MEMBERS);
    for (; parts < end; parts++) {
        (*parts)->offset = offset;
        REQUIRE(writer->ctx,
                !__builtin_add_overflow(offset, (*parts)->bytes, &offset) && offset < INT64_MAX / 2,
                S24_ERROR_ARGUMENT, "%s: more than 2^62 bytes of tensors", writer->path);
    }
    return S24_OK;
}

/* Places the parts of one file after the room that its header takes. */
static s24_status lay_out_file(s24_writer *writer, size_t index, s24i_part **parts, s24i_part **end)
{
    s24i_out_file *file = &writer->files[index];
    char *text;
    if (!file->is_used) return S24_OK;
    TRY(place_parts(writer, parts, end));
    TRY(s24i_writer_header(&text, writer->ctx, file, parts, end));
    const uint64_t bytes = strlen(text);
    s24_ctx_free(writer->ctx, text);
    REQUIRE(writer->ctx, bytes <= S24I_HEADER_MAX_BYTES, S24_ERROR_ARGUMENT,
            "%s: its header would have %llu bytes, at most %llu are allowed", writer->path,
            (unsigned long long)bytes, (unsigned long long)S24I_HEADER_MAX_BYTES);
    file->begin = sizeof bytes + bytes;
    const int like = s24i_writer_like(writer, index);
    TRY(open_output(writer, file));
    return like < 0 ? S24_OK : s24i_take_mode(file->fd, writer->ctx, writer->path, like);
}

/* What the writer's files have in common with each: its parts, first … end. */
static s24_status each_file(s24_writer *writer,
                            s24_status (*of)(s24_writer *writer, size_t index, s24i_part **first,
                                             s24i_part **end))
{
    s24i_part **part = writer->order, **last = writer->order + writer->count;
    for (size_t i = 0; i < writer->file_count; i++) {
        s24i_part **first = part;
        while (part < last && (*part)->file == i)
            part++;
        TRY(of(writer, i, first, part));
    }
    return S24_OK;
}

static s24_status put_header(s24_writer *writer, size_t index, s24i_part **parts, s24i_part **end)
{
    enum { LEAD = sizeof S24I_HASH_LEAD - 1 };
    const s24i_out_file *file = &writer->files[index];
    char *text;
    if (!file->is_used) return S24_OK;
    TRY(s24i_writer_header(&text, writer->ctx, file, parts, end));
    const uint64_t bytes = file->begin - sizeof bytes;
    char *rest = text + LEAD + S24I_HASH_DIGITS;
    const s24i_digits digits = s24i_xxh3_digits(s24i_xxh3(rest, strlen(rest)));
    memcpy(text + LEAD, digits.text, S24I_HASH_DIGITS);
    s24_status status = s24i_write_at(file->fd, writer->ctx, writer->path, &bytes, sizeof bytes, 0);
    if (status == S24_OK)
        status = s24i_write_at(file->fd, writer->ctx, writer->path, text, bytes, sizeof bytes);
    s24_ctx_free(writer->ctx, text);
    return status;
}

s24_status s24i_writer_put_headers(s24_writer *writer)
{
    return each_file(writer, put_header);
}

static s24_status sort_parts(s24_writer *writer)
{
    TRY(s24i_alloc_elems(&writer->order, writer->ctx, writer->count, sizeof *writer->order,
                         "the order of tensors"));
    for (int64_t i = 0; i < writer->count; i++) {
        writer->order[i] = &writer->parts[i];
        writer->files[writer->parts[i].file].is_used = 1;
    }
    qsort(writer->order, (size_t)writer->count, sizeof *writer->order, compare_parts);
    if (writer->count == 0 || writer->file_count == 1) writer->files[0].is_used = 1;
    return S24_OK;
}

/* The first file that is written has the hashes of a folder's other files. */
static void give_sides(s24_writer *writer)
{
    size_t first = 0;
    while (!writer->files[first].is_used)
        first++;
    if (writer->is_folder) writer->files[first].sides = &writer->sides;
}

s24_status s24i_writer_make_temporary(s24_writer *writer)
{
    if (writer->temporary.path) return S24_OK;
    /* Until a file has its model's mode it is its owner's alone. */
    const mode_t mode = writer->folder      ? 0700
                        : writer->is_folder ? 0777
                        : writer->model     ? 0600
                                            : 0666;
    return s24i_temporary_create(&writer->temporary,
                                 writer->is_folder ? NULL : &writer->files[0].fd, writer->ctx,
                                 writer->path, mode);
}

s24_status s24i_writer_lay_out(s24_writer *writer)
{
    if (writer->is_laid_out) return S24_OK;
    REQUIRE(writer->ctx, !writer->is_begun, S24_ERROR_ARGUMENT,
            "%s: nothing can be written after a failure", writer->path);
    TRY(s24i_writer_make_temporary(writer));
    writer->is_begun = 1;
    TRY(sort_parts(writer));
    give_sides(writer);
    if (writer->folder) TRY(s24i_writer_copy_sides(writer));
    TRY(each_file(writer, lay_out_file));
    writer->is_laid_out = 1;
    return S24_OK;
}
