// SPDX-License-Identifier: Apache-2.0
/*
 * A model from a checkpoint. Every tensor's presence, shape, dtype and values are checked against
 * the configuration before anything of the configuration's size is allocated: the walk over the
 * tensors (model/walk.h) is made twice, first without a model to fill.
 */
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "model/walk.h"
#include "run/gpu/gpu_model.h"
#include "run/load/choice.h"

typedef struct loader {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_architecture *arch;
    s24i_shape shape;
    s24_model_opts opts;
    s24_dtype dtype;
    s24i_walk walk;
    s24_model *model;   /* NULL in the walk that only checks */
    const void *mapped; /* data of the tensor that is used where the file is mapped, or NULL */
    float *patches;     /* the weight of an image model's first layer, until it is built */
    void *buffers[S24I_SLOTS];
    s24i_source sources[S24I_SLOTS];
} loader;

static const s24_tensor *find(char name[S24I_NAME_BYTES], const loader *l, const char *pattern,
                              int64_t block, const char *suffix)
{
    return s24i_tensor_find(name, l->checkpoint, l->arch, pattern, block, suffix);
}

/* ---- linear weights -------------------------------------------------------------------------- */

static s24_status buffer(loader *l, int slot, s24_dense *dense, const s24_tensor *tensor)
{
    *dense = (s24_dense){NULL, S24_F32, tensor->shape[0], tensor->shape[1], 0};
    TRY(s24i_alloc_elems(&l->buffers[slot], l->ctx, dense->rows * dense->cols, sizeof(float),
                         "a weight"));
    dense->data = l->buffers[slot];
    return S24_OK;
}

/* Integers are multiplied as they are stored, but i8 activations want a scale a row. */
static int runs_as_stored(const loader *l, const s24_tensor *tensor)
{
    if (l->opts.dense) return 0;
    if (!tensor->bits) return tensor->dtype == s24i_model_values(l->dtype);
    return l->dtype != S24_I8 || (tensor->bits == 8 && tensor->group == tensor->shape[1]);
}

/* The same of a weight in a layout: where it lies, if plans of this CPU have that layout. */
static int runs_in_place(const loader *l, const s24_tensor *tensor)
{
    const char *layout = s24_layout_of(l->ctx, tensor->dtype);
    return tensor->layout && !l->opts.device && !l->opts.dense && tensor->dtype == l->dtype &&
           layout && !strcmp(layout, tensor->layout) &&
           s24i_checkpoint_has(l->checkpoint, tensor->stream);
}

static s24i_source in_place(const loader *l, const s24_tensor *tensor)
{
    return (s24i_source){
        .laid_out = {tensor->layout, tensor->shape[0], tensor->shape[1], tensor->stream},
        .checkpoint = l->checkpoint};
}

/* The same 2:4 matrix of floats with values of another dtype: the codes stay. */
static s24_status convert_matrix(s24_matrix **out, loader *l, int slot, const s24_matrix *from,
                                 const s24_tensor *tensor)
{
    const int64_t rows = tensor->shape[0], cols = tensor->shape[1], count = rows * (cols / 2);
    const s24_dtype dtype = s24i_model_values(l->dtype);
    TRY(s24i_alloc_elems(&l->buffers[slot], l->ctx, count, s24_dtype_bytes(dtype), "a weight"));
    TRY(s24_convert(l->buffers[slot], dtype, s24_matrix_values(from), tensor->dtype, count));
    s24_tensor converted = *tensor;
    converted.dtype = dtype;
    converted.layout = NULL;
    converted.values = l->buffers[slot];
    if (s24i_tensor_check_finite(l->ctx, &converted) != S24_OK)
        return s24_ctx_fail(l->ctx, S24_ERROR_NOT_FINITE, "a value is beyond the range of %s",
                            s24_dtype_name(dtype));
    return s24_matrix_from_packed(out, l->ctx, converted.values, s24_matrix_indices(from), dtype,
                                  rows, cols);
}

/* A packed tensor: used as it is, or with its values converted when the model computes in another
   dtype, or through f32 where it computes dense or integers have scales that do not fit. */
static s24_status source_packed(loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    s24_matrix *matrix;
    /* Query, key and value that are one behind the other were joined before. */
    if (slot > S24I_VALUE || l->shape.joint) {
        if (runs_in_place(l, tensor)) {
            *source = in_place(l, tensor);
            return S24_OK;
        }
    } else if (l->sources[S24I_QUERY].laid_out.data) {
        return S24_OK;
    }
    TRY(s24_tensor_matrix(&matrix, l->ctx, tensor));
    if (runs_as_stored(l, tensor)) {
        source->matrix = matrix;
        return S24_OK;
    }
    s24_dense dense;
    s24_status status;
    if (!l->opts.dense && !tensor->bits) {
        status = convert_matrix(&source->matrix, l, slot, matrix, tensor);
        s24_matrix_destroy(matrix);
        return status;
    }
    status = buffer(l, slot, &dense, tensor);
    if (status == S24_OK) status = s24_matrix_to_dense(l->ctx, &dense, matrix);
    s24_matrix_destroy(matrix);
    if (status != S24_OK) return status;
    if (l->opts.dense) {
        source->dense = dense;
        return S24_OK;
    }
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = s24i_model_values(l->dtype)};
    return s24_matrix_create(&source->matrix, l->ctx, &dense, &opts);
}

static s24_status source_dense(loader *l, int slot, const s24_tensor *tensor)
{
    s24i_source *source = &l->sources[slot];
    s24_dense dense = {(void *)(uintptr_t)tensor->data, S24_F32, tensor->shape[0], tensor->shape[1],
                       0};
    if (tensor->dtype != S24_F32) {
        TRY(buffer(l, slot, &dense, tensor));
        TRY(s24_convert(dense.data, S24_F32, tensor->data, tensor->dtype, dense.rows * dense.cols));
    }
    int two_four = 0;
    if (l->opts.sparse && dense.cols % 4 == 0 && s24i_model_packs(&l->opts, tensor))
        TRY(s24_check(&two_four, NULL, l->ctx, &dense));
    if (!two_four) {
        source->dense = dense;
        return S24_OK;
    }
    const s24_matrix_opts opts = {.size = sizeof opts, .dtype = s24i_model_values(l->dtype)};
    return s24_matrix_create(&source->matrix, l->ctx, &dense, &opts);
}

static s24_status source_slot(loader *l, s24i_slot slot, const s24_tensor *tensor)
{
    return s24i_name_tensor(
        l->ctx, tensor->packed ? source_packed(l, slot, tensor) : source_dense(l, slot, tensor),
        tensor);
}

static void release_sources(loader *l)
{
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        s24_matrix_destroy(l->sources[slot].matrix);
        s24_ctx_free(l->ctx, l->buffers[slot]);
        l->sources[slot] = (s24i_source){.matrix = NULL};
        l->buffers[slot] = NULL;
    }
}

/* The rows of which matrices that lie one behind the other have a multiple. */
static int64_t rows_of(const char *layout)
{
    const char *name;
    int64_t rows = 1;
    for (int i = 0; (name = s24_layout_name(i, NULL, &rows)); i++)
        if (!strcmp(name, layout)) break;
    return rows;
}

/* Query, key and value are one product where they lie one behind the other in the file, in any
   order, which the block's outputs and biases then have too. */
static void join_in_place(loader *l, s24i_block *block, int64_t b)
{
    const s24_tensor *tensors[3], *first = NULL;
    char name[S24I_NAME_BYTES];
    if (l->shape.joint) return;
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        const s24_tensor *t = find(name, l, l->arch->slots[slot], b, ".weight");
        if (!t || !runs_in_place(l, t) || t->shape[0] % rows_of(t->layout)) return;
        if (slot && (t->dtype != tensors[0]->dtype || t->bytes != tensors[0]->bytes)) return;
        tensors[slot] = t;
        if (!first || (uintptr_t)t->stream < (uintptr_t)first->stream) first = t;
    }
    int place[3], seen = 0;
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        const uintptr_t apart = (uintptr_t)tensors[slot]->stream - (uintptr_t)first->stream;
        if (apart % first->bytes || apart / first->bytes > 2) return;
        place[slot] = (int)(apart / first->bytes);
        seen |= 1 << place[slot];
    }
    if (seen != 7) return;
    const float *biases = block->bias[S24I_QUERY];
    for (int slot = S24I_QUERY; slot <= S24I_VALUE; slot++) {
        block->place[slot] = place[slot];
        block->bias[slot] = biases + place[slot] * first->shape[0];
    }
    l->sources[S24I_QUERY] = in_place(l, first);
    l->sources[S24I_QUERY].laid_out.rows *= 3;
}

/* ---- the sink -------------------------------------------------------------------------------- */

static const float *of_norm(const s24i_layer_norm *norm, const s24i_wanted *w)
{
    return w->is_bias ? norm->beta : norm->gamma;
}

static const float *of_block(const s24i_block *block, const s24i_wanted *w)
{
    switch (w->role) {
    case S24I_ROLE_ATTENTION_NORM:
        return of_norm(&block->attention_norm, w);
    case S24I_ROLE_OUTPUT_NORM:
        return of_norm(&block->output_norm, w);
    case S24I_ROLE_REL_H:
        return block->rel_h;
    case S24I_ROLE_REL_W:
        return block->rel_w;
    default:
        return block->bias[w->slot];
    }
}

static const float *of_head(const s24_model *m, const s24i_wanted *w)
{
    if (w->pattern == m->architecture->qa_head) return w->is_bias ? m->qa_bias : m->qa_weight;
    return w->is_bias ? m->class_bias : m->class_weight;
}

/* Where the model has a tensor that stays f32. */
static const float *floats_of(const s24_model *m, const s24i_wanted *w)
{
    switch (w->role) {
    case S24I_ROLE_WORDS:
        return m->words;
    case S24I_ROLE_POSITIONS:
        return m->position_rows;
    case S24I_ROLE_TYPES:
        return m->type_rows;
    case S24I_ROLE_FIRST_TOKEN:
        return m->first_token;
    case S24I_ROLE_PATCHES:
        return m->patch_bias;
    case S24I_ROLE_EMBEDDING_NORM:
        return of_norm(&m->embedding_norm, w);
    case S24I_ROLE_FINAL_NORM:
        return of_norm(&m->final_norm, w);
    case S24I_ROLE_HEAD:
        return of_head(m, w);
    default:
        return of_block(&m->blocks[w->block], w);
    }
}

static s24_status take_patches(loader *l, const s24_tensor *tensor, int64_t count)
{
    TRY(s24i_alloc_elems(&l->patches, l->ctx, count, sizeof *l->patches, "a weight"));
    return s24_convert(l->patches, S24_F32, tensor->data, tensor->dtype, count);
}

static s24_status take(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    loader *l = user;
    s24_model *m = l->model;
    const int64_t count = w->rows * s24i_max(w->cols, 1);
    if (w->role == S24I_ROLE_LAYER && !w->is_bias) {
        if (w->slot == S24I_QUERY) join_in_place(l, &m->blocks[w->block], w->block);
        return source_slot(l, w->slot, tensor);
    }
    if (!tensor || tensor->data == l->mapped) return S24_OK;
    if (w->role == S24I_ROLE_PATCHES && !w->is_bias) return take_patches(l, tensor, count);
    return s24_convert(s24i_writable(floats_of(m, w)), S24_F32, tensor->data, tensor->dtype, count);
}

static s24_status block_done(void *user, int64_t b)
{
    loader *l = user;
    TRY(s24i_block_build(l->model, l->ctx, b, l->sources));
    release_sources(l);
    return s24_ctx_progress(l->ctx, "loading", b + 1, l->shape.layers);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The classes of an image model are the rows of its head. */
static void read_classes(loader *l)
{
    const s24_tensor *head = s24i_walk_weight(&l->walk, l->arch->class_head);
    if (head && head->rank == 2) l->shape.classes = head->shape[0];
}

/* What of the heads there are is read. */
static void find_heads(loader *l)
{
    const s24i_architecture *a = l->arch;
    if (s24i_walk_weight(&l->walk, a->qa_head))
        l->walk.heads[0] = (s24i_wanted_head){a->qa_head, 2, 0};
    if (s24i_walk_weight(&l->walk, a->class_head))
        l->walk.heads[1] = (s24i_wanted_head){a->class_head, l->shape.classes, 0};
}

static int encodes(const s24i_architecture *arch)
{
    return arch->encodes;
}

static s24_status prepare(loader *l)
{
    const char *folder = s24_checkpoint_folder(l->checkpoint);
    const char *type;
    TRY(s24i_model_type(&type, l->ctx, l->checkpoint));
    l->arch = s24i_architecture_find(type);
    REQUIRE(l->ctx, l->arch && encodes(l->arch), S24_ERROR_UNSUPPORTED,
            "%s/config.json: model_type '%s' is not supported; %s are", folder,
            s24i_show(type).text, s24i_architecture_names(encodes).text);
    TRY(s24i_shape_read(&l->shape, l->ctx, l->arch, folder));
    l->walk = (s24i_walk){.ctx = l->ctx,
                          .checkpoint = l->checkpoint,
                          .arch = l->arch,
                          .shape = &l->shape,
                          .checks = 1,
                          .user = l};
    read_classes(l);
    find_heads(l);
    if (l->opts.device) TRY(s24i_gpu_check(l->ctx, l->opts.device, &l->shape));
    TRY(s24i_walk_tensors(&l->walk));
    char name[S24I_NAME_BYTES];
    const s24_tensor *first = find(name, l, l->arch->slots[S24I_QUERY], 0, ".weight");
    const s24_dtype wide = l->opts.device ? S24_F16 : S24_F32;
    l->dtype = l->opts.dtype ? l->opts.dtype : first->dtype == S24_BF16 ? S24_BF16 : wide;
    return S24_OK;
}

/* The word embeddings are most of a small model, and a text touches few of them: f32 ones are used
   where the file is mapped. */
static s24_status map_words(s24i_map *map, const void **words, loader *l)
{
    char name[S24I_NAME_BYTES];
    if (!l->arch->words) return S24_OK;
    const s24_tensor *tensor = find(name, l, l->arch->words, 0, "");
    if (tensor->dtype != S24_F32) return S24_OK;
    TRY(s24i_checkpoint_map(map, words, l->ctx, l->checkpoint, tensor->data, tensor->bytes, 0));
    if (*words) l->mapped = tensor->data;
    return S24_OK;
}

/* The second walk: everything into the model. */
static s24_status read_tensors(loader *l)
{
    l->walk.checks = 0;
    l->walk.take = take;
    l->walk.block_done = block_done;
    s24_status status = s24i_walk_tensors(&l->walk);
    if (status == S24_OK && l->patches) status = s24i_patches_build(l->model, l->ctx, l->patches);
    s24_ctx_free(l->ctx, l->patches);
    release_sources(l);
    return status;
}

static int64_t stored_bytes(const s24_checkpoint *checkpoint)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++)
        bytes += (int64_t)s24_checkpoint_tensor(checkpoint, i)->bytes;
    return bytes;
}

s24_status s24_model_load(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                          const s24_model_opts *opts)
{
    loader l = {.ctx = ctx, .checkpoint = checkpoint};
    s24_model *model = NULL;
    s24_status status;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, checkpoint, S24_ERROR_ARGUMENT, "checkpoint is NULL");
    TRY(s24i_model_opts_read(&l.opts, ctx, opts));
    s24i_map words_map = {0};
    const void *words = NULL;
    TRY(prepare(&l));
    TRY(map_words(&words_map, &words, &l));
    const s24i_rooms rooms = {.words = words == NULL,
                              .qa_head = l.walk.heads[0].pattern != NULL,
                              .class_head = l.walk.heads[1].pattern != NULL};
    status = s24i_model_create(&model, ctx, l.arch, &l.shape, rooms);
    if (status != S24_OK) {
        s24i_map_close(&words_map);
        return status;
    }
    if (words) model->words = words;
    model->words_map = words_map;
    model->device = l.opts.device;
    model->all_sparse = l.opts.all_sparse;
    s24i_model_set_dtype(model, l.dtype, S24_F32);
    l.dtype = model->dtype;
    model->weight_bytes = stored_bytes(checkpoint);
    l.model = model;
    TRY_DONE(s24i_pooling_read(&model->pooled, ctx, l.arch, s24_checkpoint_folder(checkpoint)));
    s24i_chooser chooser;
    if (!model->device && !l.opts.all_sparse) s24i_choose_begin(&chooser, model);
    TRY_DONE(read_tensors(&l));
    if (model->chooser) TRY_DONE(s24i_choose_end(model, ctx));
    if (model->device) TRY_DONE(s24i_gpu_upload(model, ctx));
done:
    if (status != S24_OK) {
        s24_model_destroy(model);
        return status;
    }
    *out = model;
    return S24_OK;
}
