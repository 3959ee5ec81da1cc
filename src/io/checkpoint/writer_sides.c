// SPDX-License-Identifier: Apache-2.0
/* What lies in a writer's folder next to its tensors: the index, files of the model's folder, and
   what each holds. They are put there before any tensor, so that the headers have room for their
   hashes. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint/writer.h"

int s24i_writer_like(const s24_writer *writer, size_t file)
{
    const s24_checkpoint *model = writer->model;
    return model && file < model->shard_count ? model->shards[file].fd : -1;
}

/* Texts about a model, which change as they are read and no vector. */
static int is_prose(const char *name)
{
    return s24i_ends_with(name, ".md");
}

s24_status s24i_writer_note_side(s24_writer *writer, const char *name, const void *data,
                                 size_t bytes)
{
    s24i_sides *sides = &writer->sides;
    int64_t number = s24i_names_find(&sides->names, name, "");
    if (is_prose(name)) return S24_OK;
    if (number < 0) {
        number = sides->names.count;
        TRY(s24i_reserve_elems(&sides->files, &sides->room, writer->ctx, number + 1,
                               sizeof *sides->files, "side files of a writer"));
        TRY(s24i_names_add(&sides->names, name, ""));
    }
    sides->files[number] = (s24i_side){sides->names.names[number], s24i_xxh3(data, bytes)};
    return S24_OK;
}

static s24_status hear(void *user, const char *name, const void *data, size_t bytes)
{
    return s24i_writer_note_side(user, name, data, bytes);
}

/* Puts the config in place of the copied one, whose mode it takes. */
static s24_status replace_config(s24_writer *writer)
{
    s24_ctx *ctx = writer->ctx;
    const char *config = writer->config;
    char *path;
    if (!config) return S24_OK;
    TRY(s24i_writer_note_side(writer, "config.json", config, strlen(config)));
    TRY(s24i_join_path(&path, ctx, writer->temporary.path, "config.json"));
    const int like = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    const s24_status status = s24i_write_file(ctx, path, config, strlen(config), like);
    if (like >= 0) close(like);
    s24_ctx_free(ctx, path);
    return status;
}

static s24_status write_index(s24_writer *writer)
{
    s24_ctx *ctx = writer->ctx;
    char *text, *path = NULL;
    TRY(s24i_writer_index(&text, writer));
    s24_status status = s24i_writer_note_side(writer, S24I_INDEX_FILE, text, strlen(text));
    if (status == S24_OK)
        status = s24i_join_path(&path, ctx, writer->temporary.path, S24I_INDEX_FILE);
    if (status == S24_OK)
        status = s24i_write_file(ctx, path, text, strlen(text), s24i_writer_like(writer, 0));
    s24_ctx_free(ctx, path);
    s24_ctx_free(ctx, text);
    return status;
}

s24_status s24i_writer_copy_sides(s24_writer *writer)
{
    const s24i_side_listener listener = {hear, writer};
    TRY(s24i_copy_side_files(writer->ctx, writer->folder->folder, writer->temporary.path,
                             &listener));
    TRY(replace_config(writer));
    return writer->folder->has_index ? write_index(writer) : S24_OK;
}
