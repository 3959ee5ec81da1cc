// SPDX-License-Identifier: Apache-2.0
/* A small folder of each row of models.def, of both towers where it has two, made by the row's own
   keys and names, so that a new row is tested without a line here, but for keys that only it needs.
   Include after support.h. */
#ifndef S24_TEST_NN_ROW_FOLDER_H
#define S24_TEST_NN_ROW_FOLDER_H

#include "nn_language_pass.h"
#include "nn_row_config.h"

typedef struct taker {
    lm_writer *writer;
    const s24i_architecture *arch;
    int64_t head_width;
} taker;

/* Scores that no root of a head's width divides come of queries that are so much narrower, as T5
   draws them: else they blow up whatever is rounded. */
static inline void narrow_queries(const taker *t, const char *pattern)
{
    const mini_tensor *last = &t->writer->tensors[t->writer->count - 1];
    const char *queries = t->arch->slots[S24I_QUERY];
    float *w = (float *)(uintptr_t)last->data;
    if (t->arch->usual_score_factor != 1.0f || !queries || strcmp(pattern, queries) != 0) return;
    for (int64_t i = 0; i < (int64_t)(last->bytes / sizeof *w); i++)
        w[i] /= sqrtf((float)t->head_width);
}

static inline s24_status take_tensor(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    const taker *t = user;
    char bare[S24I_NAME_BYTES], name[S24I_NAME_BYTES];
    assert_null(tensor);
    if (w->optional) return S24_OK;
    s24i_tensor_name(bare, w->pattern, w->block, w->suffix);
    const int wrote =
        snprintf(name, sizeof name, "%s%s", w->role == S24I_ROLE_HEAD ? "" : t->arch->prefix, bare);
    assert_true(wrote < (int)sizeof name);
    for (int i = 0; i < t->writer->count; i++)
        if (strcmp(t->writer->names[i], name) == 0) return S24_OK; /* one norm of two halves */
    lm_add(t->writer, name, w->transposed ? w->cols : w->rows, w->transposed ? w->rows : w->cols);
    narrow_queries(t, w->pattern);
    return S24_OK;
}

/* All tensors of a model of the folder. */
static inline void add_tensors(lm_writer *w, s24_ctx *ctx, const s24i_architecture *a,
                               const char *folder)
{
    s24i_shape shape;
    s24_checkpoint *checkpoint;
    taker t = {.writer = w, .arch = a};
    OK(ctx, s24i_shape_read(&shape, ctx, a, folder));
    t.head_width = shape.head_width;
    OK(ctx, s24_checkpoint_open(&checkpoint, ctx, folder));
    const s24i_walk walk = {.ctx = ctx,
                            .checkpoint = checkpoint,
                            .arch = a,
                            .shape = &shape,
                            .heads = {{a->lm_head, a->lm_head ? shape.vocabulary : 0, 1}},
                            .draws = 1,
                            .take = take_tensor,
                            .user = &t};
    OK(ctx, s24i_walk_tensors(&walk));
    s24_checkpoint_close(checkpoint);
}

static inline void write_tensors(s24_ctx *ctx, const s24i_architecture *a, const char *folder)
{
    static const char nothing[] = "{\"nothing\":{\"dtype\":\"U8\",\"shape\":[0],"
                                  "\"data_offsets\":[0,0]}}";
    char path[600];
    lm_writer *w = calloc(1, sizeof *w);
    w->state = 11;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    io_write_tensors(path, nothing, NULL, 0);
    add_tensors(w, ctx, a, folder);
    if (a->images) add_tensors(w, ctx, a->images, folder);
    mini_write(path, w->tensors, w->count, NULL);
    for (int i = 0; i < w->count; i++)
        free((void *)(uintptr_t)w->tensors[i].data);
    free(w);
}

static inline const char *row_folder(const s24i_architecture *a, const size *n)
{
    const char *folder = io_path("model");
    char path[600];
    s24_ctx *ctx = new_ctx(NULL, 1);
    io_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", folder);
    write_row_config(a, n, "2", path);
    write_tensors(ctx, a, folder);
    s24_ctx_destroy(ctx);
    return folder;
}

#endif
