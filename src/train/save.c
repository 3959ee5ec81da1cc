// SPDX-License-Identifier: Apache-2.0
/* A transformer's weights back into a folder like the one they came from. */
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "train/transformer.h"

typedef struct saver {
    s24_ctx *ctx;
    const s24_transformer *t;
    const s24_checkpoint *model;
    s24_writer *writer;
} saver;

/* The index of the place that has a tensor's name, −1 if none has. */
static int64_t find_place(const s24_transformer *t, const char *name)
{
    for (int64_t i = 0; i < t->place_count; i++)
        if (strcmp(t->places[i].name, name) == 0) return i;
    return -1;
}

static s24_status declare(const saver *s)
{
    for (int64_t i = 0; i < s24_checkpoint_count(s->model); i++)
        TRY(s24_writer_declare(s->writer, s24_checkpoint_tensor(s->model, i)));
    for (int64_t i = 0; i < s->t->place_count; i++) {
        const s24i_place *p = &s->t->places[i];
        s24_tensor tensor = {.name = p->name, .dtype = S24_F32, .rank = p->rank};
        if (!p->made || s24_checkpoint_find(s->model, p->name)) continue;
        memcpy(tensor.shape, p->shape, sizeof tensor.shape);
        TRY(s24_writer_declare(s->writer, &tensor));
    }
    return S24_OK;
}

static s24_status write_packed(const saver *s, const s24_tensor *tensor, void *data)
{
    const s24_dense dense = {data, tensor->dtype, s24i_stored_side(tensor, 0),
                             s24i_stored_side(tensor, 1), 0};
    const s24_matrix_opts opts = {.size = sizeof opts, .transpose = tensor->transposed == 1};
    s24_matrix *matrix;
    TRY(s24i_name_tensor(s->ctx, s24_matrix_create(&matrix, s->ctx, &dense, &opts), tensor));
    const s24_status status = s24_writer_write_packed(
        s->writer, tensor->name, s24_matrix_values(matrix), s24_matrix_indices(matrix));
    s24_matrix_destroy(matrix);
    return status;
}

/* tensor NULL: a made one. */
static s24_status write_place(const saver *s, int64_t index, const s24_tensor *tensor)
{
    const s24i_place *p = &s->t->places[index];
    const int64_t count = p->rows * p->cols;
    float *wide;
    TRY(s24i_alloc_elems(&wide, s->ctx, count, 2 * sizeof *wide, "a tensor"));
    void *data = wide;
    s24_status status = s24_transformer_read(wide, s->t, s->ctx, index, 0);
    if (status == S24_OK && tensor && tensor->dtype != S24_F32) {
        data = wide + count;
        status = s24_convert(data, tensor->dtype, wide, S24_F32, count);
    }
    if (status == S24_OK)
        status = tensor && tensor->packed ? write_packed(s, tensor, data)
                                          : s24_writer_write(s->writer, p->name, data);
    s24_ctx_free(s->ctx, wide);
    return status;
}

static s24_status write_all(const saver *s)
{
    for (int64_t i = 0; i < s24_checkpoint_count(s->model); i++) {
        const s24_tensor *tensor = s24_checkpoint_tensor(s->model, i);
        const int64_t index = find_place(s->t, tensor->name);
        if (index >= 0)
            TRY(write_place(s, index, tensor));
        else
            TRY(s24_writer_copy(s->writer, tensor));
    }
    for (int64_t i = 0; i < s->t->place_count; i++)
        if (s->t->places[i].made && !s24_checkpoint_find(s->model, s->t->places[i].name))
            TRY(write_place(s, i, NULL));
    return S24_OK;
}

s24_status s24_transformer_save(const s24_transformer *transformer, s24_ctx *ctx,
                                const s24_checkpoint *model, const char *path, int force)
{
    saver s = {.ctx = ctx, .t = transformer, .model = model};
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, transformer && model && path, S24_ERROR_ARGUMENT, "%s is NULL",
            !transformer ? "transformer"
            : !model     ? "model"
                         : "path");
    REQUIRE(ctx, s24_checkpoint_folder(model), S24_ERROR_ARGUMENT,
            "a model is saved like the folder that it came from; a single file was opened");
    const s24_writer_opts opts = {.size = sizeof opts, .force = force, .model = model};
    TRY(s24_writer_create(&s.writer, ctx, path, &opts));
    s24_status status = declare(&s);
    if (status == S24_OK) status = write_all(&s);
    if (status == S24_OK) status = s24_writer_commit(s.writer);
    s24_writer_destroy(s.writer);
    return status;
}
