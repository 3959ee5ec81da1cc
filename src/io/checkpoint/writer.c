// SPDX-License-Identifier: Apache-2.0
/*
 * Writes checkpoints: declare, write, commit. The first write (or the commit) ends declaring,
 * fixes the layout and makes the temporary output; the commit writes the headers, which hold the
 * hashes of all that was written, syncs and gives the output its place.
 * Whatever fails in between, destroying the writer removes what it made.
 */
#include "io/checkpoint/writer.h"
#include "io/checkpoint/packed.h"
#include "io/convert/quantization.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file/output.h"

/* The files to be written: the model's shards, or one. */
static s24_status name_files(s24_writer *writer, const s24_checkpoint *model)
{
    size_t count = writer->folder ? model->shard_count : 1;
    TRY(s24i_zeroed(&writer->files, writer->ctx, count * sizeof *writer->files));
    for (size_t i = 0; i < count; i++) {
        s24i_out_file *file = &writer->files[writer->file_count++];
        file->fd = -1;
        file->name = writer->folder      ? model->shards[i].name
                     : writer->is_folder ? S24I_SINGLE_FILE
                                         : s24i_base_name(writer->path);
        file->metadata = writer->metadata;
        if (model && model->shard_count > 0) file->metadata = model->shards[i].header.metadata;
    }
    return S24_OK;
}

static s24_status set_up(s24_writer *writer, const char *path, const s24_checkpoint *model)
{
    const s24i_place place = {.path = path,
                              .source = writer->source,
                              .is_folder = writer->is_folder,
                              .force = writer->force};
    TRY(s24i_output_place(&writer->path, writer->ctx, &place));
    return name_files(writer, model);
}

static s24_status create(s24_writer **out, s24_ctx *ctx, const char *path,
                         const s24_writer_opts *opts, int is_converted)
{
    s24_writer_opts known;
    s24_writer *writer;
    if (!out) return s24_ctx_fail(ctx, S24_ERROR_ARGUMENT, "out is NULL");
    *out = NULL;
    REQUIRE(ctx, path && *path, S24_ERROR_ARGUMENT, "the output's path is empty");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_writer_opts"));
    if (known.model && !is_converted) TRY(s24i_quantization_require_none(ctx, known.model));
    TRY(s24i_zeroed(&writer, ctx, sizeof *writer));
    writer->ctx = ctx;
    writer->names = s24i_names_of(ctx);
    writer->sides.names = s24i_names_of(ctx);
    writer->force = known.force;
    writer->model = known.model;
    if (known.model && known.model->folder) {
        writer->folder = known.model;
        writer->source = known.model->folder;
        writer->is_folder = 1;
    }
    GIVE(out, writer, s24_writer_destroy, set_up(writer, path, known.model));
}

s24_status s24_writer_create(s24_writer **out, s24_ctx *ctx, const char *path,
                             const s24_writer_opts *opts)
{
    return create(out, ctx, path, opts, 0);
}

s24_status s24i_writer_create_converted(s24_writer **out, s24_ctx *ctx, const char *path,
                                        const s24_writer_opts *opts)
{
    return create(out, ctx, path, opts, 1);
}

static s24_status set_up_folder(s24_writer *writer, const char *path)
{
    static const char metadata[] = "{\"format\":\"pt\"}";
    TRY(s24i_json_parse(&writer->metadata, writer->ctx, path, metadata, sizeof metadata - 1));
    return set_up(writer, path, NULL);
}

s24_status s24i_writer_create_folder(s24_writer **out, s24_ctx *ctx, const s24i_new_folder *what)
{
    s24_writer *writer;
    *out = NULL;
    REQUIRE(ctx, *what->path, S24_ERROR_ARGUMENT, "the output's path is empty");
    TRY(s24i_zeroed(&writer, ctx, sizeof *writer));
    writer->ctx = ctx;
    writer->names = s24i_names_of(ctx);
    writer->sides.names = s24i_names_of(ctx);
    writer->force = what->force;
    writer->source = what->source;
    writer->is_folder = 1;
    GIVE(out, writer, s24_writer_destroy, set_up_folder(writer, what->path));
}

s24_status s24i_writer_add_file(s24_writer *writer, const char *name, const void *data,
                                size_t bytes)
{
    char *path;
    TRY(s24i_writer_make_temporary(writer));
    TRY(s24i_writer_note_side(writer, name, data, bytes));
    TRY(s24i_join_path(&path, writer->ctx, writer->temporary.path, name));
    const s24_status status = s24i_write_file(writer->ctx, path, data, bytes, -1);
    s24_ctx_free(writer->ctx, path);
    return status;
}

s24_status s24i_writer_add_text(s24_writer *writer, const char *name,
                                void (*write)(s24i_json_text *text, const void *user),
                                const void *user)
{
    char *data;
    s24i_json_text length = {NULL, 0};
    write(&length, user);
    TRY(s24i_json_make(&data, writer->ctx, write, user, 0));
    const s24_status status = s24i_writer_add_file(writer, name, data, length.bytes);
    s24_ctx_free(writer->ctx, data);
    return status;
}

s24_status s24i_writer_set_config(s24_writer *writer, const char *text)
{
    s24_ctx_free(writer->ctx, writer->config);
    return s24i_copy_string(&writer->config, writer->ctx, text);
}

static s24_status find_expected(s24i_part **out, s24_writer *writer, const char *name,
                                const char *suffix)
{
    *out = s24i_writer_find_part(writer, name, suffix);
    REQUIRE(writer->ctx, *out, S24_ERROR_ARGUMENT, "tensor \"%s\" was not declared as a %s one",
            s24i_show(name).text, *suffix ? "packed" : "dense");
    REQUIRE(writer->ctx, !(*out)->is_written, S24_ERROR_ARGUMENT, "tensor \"%s\" is written twice",
            s24i_show(name).text);
    return S24_OK;
}

/* What the model has under that name was read for what is written: a walk over a model holds the
   pages of few tensors at a time. */
static void forget_source(const s24_writer *writer, const char *name)
{
    const s24_tensor *tensor = s24_checkpoint_find(writer->model, name);
    if (tensor) s24_checkpoint_forget(writer->model, tensor);
}

void s24i_writer_set_rows(s24_writer *writer, int64_t rows)
{
    writer->rows = rows;
}

/* How many rows of a part of so many a call gives. */
static int64_t rows_given(const s24_writer *writer, int64_t rows)
{
    return writer->rows ? writer->rows : rows;
}

/* Takes the next bytes of a part into its hash. */
static s24_status hash_part(s24i_part *part, const void *data, size_t bytes)
{
    const int is_last = part->done + bytes == part->bytes;
    if (is_last && !part->done) {
        part->hash = s24i_xxh3(data, bytes);
        return S24_OK;
    }
    if (!part->stream) part->stream = s24i_xxh3_begin();
    if (!part->stream) return S24_ERROR_MEMORY;
    s24i_xxh3_add(part->stream, data, bytes);
    if (!is_last) return S24_OK;
    part->hash = s24i_xxh3_end(part->stream);
    part->stream = NULL;
    return S24_OK;
}

void s24i_writer_set_work(s24_writer *writer, const s24i_writer_work *work)
{
    writer->work = *work;
}

/* A part's bytes on their way to the file and into its hash, side by side, and other work. */
typedef struct putting {
    s24_writer *writer;
    s24i_part *part;
    const void *data;
    size_t bytes;
    s24i_writer_work work;
    int64_t jobs; /* WRITE, HASH, and a share of the work each but for WRITE */
    s24_status written, hashed;
} putting;

static void put_bytes(void *user, int64_t begin, int64_t end, int thread)
{
    enum { WRITE, HASH };
    putting *p = user;
    const s24i_out_file *file = &p->writer->files[p->part->file];
    const int64_t shares = p->jobs - 1, count = p->work.count;
    for (int64_t job = begin; job < end; job++) {
        if (job == WRITE)
            p->written = s24i_write_at(file->fd, p->writer->ctx, p->writer->path, p->data, p->bytes,
                                       file->begin + p->part->offset + p->part->done);
        if (job == HASH) p->hashed = hash_part(p->part, p->data, p->bytes);
        if (job != WRITE && count)
            p->work.fn(p->work.arg, count * (job - 1) / shares, count * job / shares, thread);
    }
}

/* Puts so many bytes there, and says after each piece how far it is. */
static s24_status put_all(s24_writer *writer, s24i_part *part, const char *data, size_t bytes)
{
    const size_t most = (size_t)32 << 20;
    size_t done = 0;
    do {
        const size_t step = bytes - done < most ? bytes - done : most;
        putting put = {.writer = writer, .part = part, .data = data + done, .bytes = step};
        put.work = writer->work;
        put.jobs = put.work.count ? s24i_max(2, s24_ctx_threads(writer->ctx)) : 2;
        writer->work.count = 0;
        s24_ctx_parallel_for(writer->ctx, put.jobs, put_bytes, &put);
        TRY(put.written);
        REQUIRE(writer->ctx, put.hashed == S24_OK, put.hashed, "out of memory for a tensor's hash");
        part->done += step;
        done += step;
        if (done < bytes)
            TRY(s24_ctx_progress(writer->ctx, "writing", (int64_t)done, (int64_t)bytes));
    } while (done < bytes);
    return S24_OK;
}

static s24_status write_part(s24_writer *writer, const char *name, const char *suffix,
                             const void *data)
{
    s24i_part *part;
    TRY(find_expected(&part, writer, name, suffix));
    const size_t bytes =
        writer->rows ? part->bytes / (size_t)part->shape[0] * (size_t)writer->rows : part->bytes;
    REQUIRE(writer->ctx, bytes <= part->bytes - part->done, S24_ERROR_ARGUMENT,
            "tensor \"%s\" is written with more rows than were declared", s24i_show(name).text);
    TRY(put_all(writer, part, data, bytes));
    part->is_written = part->done == part->bytes;
    if (part->is_written) forget_source(writer, name);
    return S24_OK;
}

static s24_status check_usable(const s24_writer *writer, const char *name, int has_data)
{
    if (!writer) return S24_ERROR_ARGUMENT;
    REQUIRE(writer->ctx, !writer->is_closed, S24_ERROR_ARGUMENT,
            "%s: nothing can be written after a commit", writer->path);
    REQUIRE(writer->ctx, name && has_data, S24_ERROR_ARGUMENT,
            "a tensor's name or its data are NULL");
    return S24_OK;
}

s24_status s24_writer_write(s24_writer *writer, const char *name, const void *data)
{
    s24i_part *part;
    TRY(check_usable(writer, name, data != NULL));
    TRY(find_expected(&part, writer, name, ""));
    TRY(s24i_writer_lay_out(writer));
    return write_part(writer, name, "", data);
}

/* The parts that every packed tensor has. */
static s24_status write_two_parts(s24_writer *writer, const char *name, const void *values,
                                  const uint8_t *indices, int64_t columns_a_value)
{
    s24i_part *part;
    TRY(find_expected(&part, writer, name, S24I_VALUES_SUFFIX));
    TRY(s24i_check_codes(writer->ctx, writer->path, name, indices,
                         rows_given(writer, part->shape[0]), columns_a_value * part->shape[1]));
    TRY(s24i_writer_lay_out(writer));
    TRY(write_part(writer, name, S24I_VALUES_SUFFIX, values));
    return write_part(writer, name, S24I_INDICES_SUFFIX, indices);
}

/* A declared tensor's weight in its layout. */
static s24_status write_stream(s24_writer *writer, const char *name, const s24_laid_out *weight)
{
    s24i_part *part;
    TRY(find_expected(&part, writer, name, S24I_STREAM_SUFFIX));
    TRY(s24i_check_stream(writer->ctx, writer->path, name, weight));
    TRY(s24i_writer_lay_out(writer));
    return write_part(writer, name, S24I_STREAM_SUFFIX, weight->data);
}

/* The same from its canonical form; of integers with scales. */
static s24_status lay_out_stream(s24_writer *writer, const s24i_part *part, const char *name,
                                 const s24_quantized *from)
{
    s24_ctx *ctx = writer->ctx;
    const char *layout = part->layout;
    const int64_t n = part->rows, k = part->cols;
    const s24_dtype dtype = s24i_layout_dtype(&layout);
    s24_matrix *matrix = NULL;
    void *stream;
    TRY(s24i_check_codes(ctx, writer->path, name, from->indices, n, k));
    TRY(s24i_alloc_elems(&stream, ctx, (int64_t)part->bytes, 1, "a weight in its layout"));
    s24_status status =
        part->bits ? s24_matrix_from_quantized(&matrix, ctx, from)
                   : s24_matrix_from_packed(&matrix, ctx, from->values, from->indices, dtype, n, k);
    if (status == S24_OK) status = s24_matrix_to_layout(stream, ctx, matrix, layout);
    const s24_laid_out weight = {layout, n, k, stream};
    if (status == S24_OK) status = write_stream(writer, name, &weight);
    s24_matrix_destroy(matrix);
    s24_ctx_free(writer->ctx, stream);
    return status;
}

s24_status s24_writer_write_packed(s24_writer *writer, const char *name, const void *values,
                                   const uint8_t *indices)
{
    TRY(check_usable(writer, name, values && indices));
    const s24i_part *stream = s24i_writer_find_part(writer, name, S24I_STREAM_SUFFIX);
    const s24_quantized floats = {.values = values, .indices = indices};
    if (stream && !stream->bits) return lay_out_stream(writer, stream, name, &floats);
    REQUIRE(writer->ctx, !stream && !s24i_writer_find_part(writer, name, S24I_SCALES_SUFFIX),
            S24_ERROR_ARGUMENT,
            "tensor \"%s\" was declared as a quantised one, but is written without scales",
            s24i_show(name).text);
    return write_two_parts(writer, name, values, indices, 2);
}

static s24_status check_scales(const s24_writer *writer, const s24i_part *part, const char *name,
                               const float *scales)
{
    const s24_quantized of = {.rows = rows_given(writer, part->rows),
                              .cols =
                                  part->lift ? s24_lifted_cols(part->cols, part->lift) : part->cols,
                              .group = part->group};
    return s24i_check_scales(writer->ctx, writer->path, name, scales, &of);
}

/* The form of a declared quantised tensor that is given so. */
static s24_quantized given_of(const s24i_part *part, const void *values, const uint8_t *indices,
                              const float *scales)
{
    return (s24_quantized){part->rows, part->cols, part->bits, part->group,
                           values,     indices,    scales};
}

s24_status s24_writer_write_quantized(s24_writer *writer, const char *name, const void *values,
                                      const uint8_t *indices, const float *scales)
{
    const s24i_part *part = writer ? s24i_writer_find_part(writer, name, S24I_VALUES_SUFFIX) : NULL;
    if (writer && !part) part = s24i_writer_find_part(writer, name, S24I_STREAM_SUFFIX);
    const int dense = part && part->dense;
    TRY(check_usable(writer, name, values && (indices || dense) && scales));
    REQUIRE(writer->ctx, part && part->bits && !part->format, S24_ERROR_ARGUMENT,
            "tensor \"%s\" was not declared as a quantised one", s24i_show(name).text);
    REQUIRE(writer->ctx, !dense || !indices, S24_ERROR_ARGUMENT,
            "tensor \"%s\" was declared as a dense one, but is written with indices",
            s24i_show(name).text);
    TRY(check_scales(writer, part, name, scales));
    if (part->layout) {
        const s24_quantized given = given_of(part, values, indices, scales);
        return lay_out_stream(writer, part, name, &given);
    }
    if (dense) {
        TRY(s24i_writer_lay_out(writer));
        TRY(write_part(writer, name, S24I_VALUES_SUFFIX, values));
    } else {
        TRY(write_two_parts(writer, name, values, indices, part->bits == 4 ? 4 : 2));
    }
    return write_part(writer, name, S24I_SCALES_SUFFIX, scales);
}

/* Is that what was declared? */
static int is_declared(const s24i_part *part, const s24_sparse_parts *p)
{
    return part && part->format == p->format && part->dtype == p->dtype && part->rows == p->rows &&
           part->cols == p->cols && part->shape[0] == p->stored &&
           (p->format != S24_FORMAT_BSR ||
            (part->block_rows == p->block_rows && part->block_cols == p->block_cols));
}

/* scales: of integers; else NULL. */
static s24_status write_sparse(s24_writer *writer, const char *name, const s24_sparse_parts *parts,
                               const float *scales)
{
    TRY(check_usable(writer, name, parts != NULL));
    const s24i_part *part = s24i_writer_find_part(writer, name, S24I_VALUES_SUFFIX);
    REQUIRE(writer->ctx, is_declared(part, parts) && !part->bits == !scales, S24_ERROR_ARGUMENT,
            "tensor \"%s\" was not declared as such a sparse one", s24i_show(name).text);
    TRY(s24i_check_sparse(writer->ctx, writer->path, name, parts));
    if (scales) TRY(check_scales(writer, part, name, scales));
    TRY(s24i_writer_lay_out(writer));
    if (scales) TRY(write_part(writer, name, S24I_SCALES_SUFFIX, scales));
    TRY(write_part(writer, name, S24I_VALUES_SUFFIX, parts->values));
    TRY(write_part(writer, name, S24I_INDEX_SUFFIX, parts->index));
    if (parts->format == S24_FORMAT_COO)
        return write_part(writer, name, S24I_ROWS_SUFFIX, parts->rows_of);
    return write_part(writer, name, S24I_STARTS_SUFFIX, parts->starts);
}

s24_status s24_writer_write_sparse(s24_writer *writer, const char *name,
                                   const s24_sparse_parts *parts)
{
    return write_sparse(writer, name, parts, NULL);
}

s24_status s24_writer_write_factors(s24_writer *writer, const char *name, const void *left,
                                    const void *right)
{
    TRY(check_usable(writer, name, left && right));
    REQUIRE(writer->ctx, s24i_writer_find_part(writer, name, S24I_RIGHT_SUFFIX), S24_ERROR_ARGUMENT,
            "tensor \"%s\" was not declared with factors", s24i_show(name).text);
    TRY(s24i_writer_lay_out(writer));
    TRY(write_part(writer, name, S24I_LEFT_SUFFIX, left));
    return write_part(writer, name, S24I_RIGHT_SUFFIX, right);
}

s24_status s24_writer_copy(s24_writer *writer, const s24_tensor *tensor)
{
    if (!writer) return S24_ERROR_ARGUMENT;
    REQUIRE(writer->ctx, tensor, S24_ERROR_ARGUMENT, "tensor is NULL");
    if (tensor->factors.rank)
        TRY(s24_writer_write_factors(writer, tensor->name, tensor->factors.left,
                                     tensor->factors.right));
    if (tensor->packed == S24_PACKED_FACTORS) return S24_OK;
    if (tensor->packed == S24_PACKED_SPARSE)
        return write_sparse(writer, tensor->name, tensor->sparse, tensor->scales);
    if (tensor->layout) {
        const s24_laid_out weight = {tensor->layout, tensor->shape[0], tensor->shape[1],
                                     tensor->stream};
        TRY(check_usable(writer, tensor->name, tensor->stream != NULL));
        return write_stream(writer, tensor->name, &weight);
    }
    if (tensor->bits)
        return s24_writer_write_quantized(writer, tensor->name, tensor->values, tensor->indices,
                                          tensor->scales);
    if (tensor->packed)
        return s24_writer_write_packed(writer, tensor->name, tensor->values, tensor->indices);
    return s24_writer_write(writer, tensor->name, tensor->data);
}

s24_status s24_writer_commit(s24_writer *writer)
{
    TRY(check_usable(writer, "", 1));
    s24_ctx *ctx = writer->ctx;
    for (int64_t i = 0; i < writer->count; i++)
        REQUIRE(ctx, writer->parts[i].is_written || writer->parts[i].bytes == 0, S24_ERROR_ARGUMENT,
                "tensor \"%s\" was declared but not written",
                s24i_show(writer->parts[i].name).text);
    TRY(s24i_writer_lay_out(writer));
    writer->is_closed = 1;
    TRY(s24i_writer_put_headers(writer));
    for (size_t i = 0; i < writer->file_count; i++) {
        TRY(s24_ctx_progress(ctx, "syncing", (int64_t)i, (int64_t)writer->file_count));
        TRY(s24i_sync_and_close(&writer->files[i].fd, ctx, writer->path));
    }
    if (writer->is_folder) TRY(s24i_sync_folder(ctx, writer->temporary.path));
    return s24i_put_in_place(&writer->temporary, writer->path, writer->force);
}

void s24_writer_destroy(s24_writer *writer)
{
    if (!writer) return;
    s24_ctx *ctx = writer->ctx;
    for (size_t i = 0; i < writer->file_count; i++)
        if (writer->files[i].fd >= 0) close(writer->files[i].fd);
    for (int64_t i = 0; i < writer->count; i++)
        (void)s24i_xxh3_end(writer->parts[i].stream);
    s24i_temporary_end(&writer->temporary);
    s24i_names_free(&writer->names);
    s24i_names_free(&writer->sides.names);
    s24_ctx_free(ctx, writer->sides.files);
    s24_ctx_free(ctx, writer->metadata);
    s24_ctx_free(ctx, writer->key);
    s24_ctx_free(ctx, writer->value);
    s24_ctx_free(ctx, writer->config);
    s24_ctx_free(ctx, writer->order);
    s24_ctx_free(ctx, writer->files);
    s24_ctx_free(ctx, writer->parts);
    s24_ctx_free(ctx, writer->path);
    s24_ctx_free(ctx, writer);
}
