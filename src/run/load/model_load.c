// SPDX-License-Identifier: Apache-2.0
/*
 * A model from a checkpoint. Every tensor's presence, shape, dtype and values are checked against
 * the configuration before anything of the configuration's size is allocated: the same walk is made
 * twice, first without a model to fill.
 */
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "run/gpu/gpu_model.h"
#include "run/load/choice.h"

typedef struct loader {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    const s24i_architecture *arch;
    s24i_shape shape;
    s24_model_opts opts;
    s24_dtype dtype;
    s24_model *model;   /* NULL in the walk that only checks */
    const void *mapped; /* data of the tensor that is used where the file is mapped, or NULL */
    void *buffers[S24I_SLOTS];
    s24i_source sources[S24I_SLOTS];
} loader;

static const s24_tensor *find(char name[S24I_NAME_BYTES], const loader *l, const char *pattern,
                              int64_t block, const char *suffix)
{
    return s24i_tensor_find(name, l->checkpoint, l->arch, pattern, block, suffix);
}

static s24_status missing(const loader *l, const char *name)
{
    return s24i_tensor_missing(l->ctx, l->checkpoint, name);
}

typedef struct wanted {
    const char *pattern;
    int64_t block;
    const char *suffix, *old_suffix; /* old_suffix: of files before 2020, or NULL */
    int64_t rows, cols;
    int any_rank; /* whatever its shape, that many elements */
} wanted;

/* A dense tensor into floats (checked only, when there is no model yet). */
static s24_status take(loader *l, const float *floats, const wanted *w)
{
    char name[S24I_NAME_BYTES];
    const s24_tensor *tensor = NULL;
    if (w->old_suffix) tensor = find(name, l, w->pattern, w->block, w->old_suffix);
    if (!tensor) tensor = find(name, l, w->pattern, w->block, w->suffix);
    if (!tensor) return missing(l, name);
    TRY(s24i_tensor_check_float(l->ctx, tensor));
    TRY(w->any_rank ? s24i_tensor_check_count(l->ctx, tensor, w->rows * w->cols)
                    : s24i_tensor_check_shape(l->ctx, tensor, w->rows, w->cols));
    REQUIRE(l->ctx, !tensor->packed, S24_ERROR_FORMAT,
            "%s: tensor '%s' is packed; only the weights of linear layers can be", tensor->file,
            tensor->name);
    if (!l->model) return s24i_tensor_check_finite(l->ctx, tensor);
    if (tensor->data == l->mapped) return S24_OK;
    return s24_convert(s24i_writable(floats), S24_F32, tensor->data, tensor->dtype,
                       w->rows * (w->cols ? w->cols : 1));
}

static s24_status take_norm(loader *l, const s24i_layer_norm *norm, const char *pattern,
                            int64_t block)
{
    const int64_t width = l->shape.width;
    const wanted gamma = {pattern, block, ".weight", ".gamma", width, 0, 0};
    const wanted beta = {pattern, block, ".bias", ".beta", width, 0, 0};
    TRY(take(l, norm ? norm->gamma : NULL, &gamma));
    return take(l, norm ? norm->beta : NULL, &beta);
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

static s24_status source_slot(loader *l, int64_t block, int slot)
{
    char name[S24I_NAME_BYTES];
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, &l->shape, (s24i_slot)slot);
    const s24_tensor *tensor = find(name, l, l->arch->slots[slot], block, ".weight");
    if (!tensor) return missing(l, name);
    TRY(s24i_tensor_check_shape(l->ctx, tensor, rows, cols));
    if (!tensor->packed) TRY(s24i_tensor_check_float(l->ctx, tensor));
    /* Integers are finite, and their scales were checked on opening. */
    if (!l->model) return s24i_tensor_check_finite(l->ctx, tensor);
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

static s24_status take_relative(loader *l, const s24i_block *block, int64_t b)
{
    const int64_t rows = 2 * s24i_attended_side(&l->shape, b) - 1, cols = l->shape.head_width;
    const wanted h = {l->arch->rel_h, b, "", NULL, rows, cols, 0};
    const wanted w = {l->arch->rel_w, b, "", NULL, rows, cols, 0};
    TRY(take(l, block ? block->rel_h : NULL, &h));
    return take(l, block ? block->rel_w : NULL, &w);
}

static s24_status load_block(loader *l, int64_t b)
{
    s24i_block *block = l->model ? &l->model->blocks[b] : NULL;
    if (block) join_in_place(l, block, b);
    for (int slot = 0; slot < S24I_SLOTS; slot++) {
        int64_t rows, cols;
        if (!l->arch->slots[slot]) continue;
        s24i_slot_shape(&rows, &cols, &l->shape, (s24i_slot)slot);
        const wanted bias = {l->arch->slots[slot], b, ".bias", NULL, rows, 0, 0};
        TRY(take(l, block ? block->bias[slot] : NULL, &bias));
        TRY(source_slot(l, b, slot));
    }
    TRY(take_norm(l, block ? &block->attention_norm : NULL, l->arch->attention_norm, b));
    TRY(take_norm(l, block ? &block->output_norm : NULL, l->arch->output_norm, b));
    if (l->shape.grid) TRY(take_relative(l, block, b));
    return block ? s24i_block_build(l->model, l->ctx, b, l->sources) : S24_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const s24_tensor *head_weight(const loader *l, const char *pattern)
{
    char name[S24I_NAME_BYTES];
    return pattern ? find(name, l, pattern, 0, ".weight") : NULL;
}

/* weight and bias: NULL while there is no model. */
static s24_status take_head(loader *l, const char *pattern, int64_t outputs, const float *weight,
                            const float *bias)
{
    const wanted w = {pattern, 0, ".weight", NULL, outputs, l->shape.width, 0};
    const wanted b = {pattern, 0, ".bias", NULL, outputs, 0, 0};
    if (!head_weight(l, pattern)) return S24_OK;
    TRY(take(l, weight, &w));
    return take(l, bias, &b);
}

/* Of images: the layer of the patches, whose weight is made when the others are there. */
static s24_status take_image(loader *l)
{
    const s24i_architecture *a = l->arch;
    const s24i_shape *s = &l->shape;
    const s24_model *m = l->model;
    const wanted first = {a->first_token, 0, "", NULL, 1, s->width, 1};
    const wanted bias = {a->patches, 0, ".bias", NULL, s->width, 0, 0};
    const wanted weight = {
        a->patches, 0, ".weight", NULL, s->width, s->channels * s->patch * s->patch, 1};
    if (a->first_token) TRY(take(l, m ? m->first_token : NULL, &first));
    TRY(take(l, m ? m->patch_bias : NULL, &bias));
    if (!m) return take(l, NULL, &weight);
    float *wide;
    TRY(s24i_alloc_elems(&wide, l->ctx, weight.rows * weight.cols, sizeof *wide, "a weight"));
    s24_status status = take(l, wide, &weight);
    if (status == S24_OK) status = s24i_patches_build(l->model, l->ctx, wide);
    s24_ctx_free(l->ctx, wide);
    return status;
}

static s24_status take_embeddings(loader *l)
{
    const s24i_architecture *a = l->arch;
    const s24i_shape *s = &l->shape;
    const s24_model *m = l->model;
    const wanted words = {a->words, 0, "", NULL, s->vocabulary, s->width, 0};
    const wanted positions = {a->positions, 0, "", NULL, s->positions, s->width, s->image > 0};
    const wanted types = {a->types, 0, "", NULL, s->types, s->width, 0};
    if (a->words) TRY(take(l, m ? m->words : NULL, &words));
    TRY(take(l, m ? m->position_rows : NULL, &positions));
    if (s->types) TRY(take(l, m ? m->type_rows : NULL, &types));
    if (a->embedding_norm) TRY(take_norm(l, m ? &m->embedding_norm : NULL, a->embedding_norm, 0));
    if (a->final_norm) TRY(take_norm(l, m ? &m->final_norm : NULL, a->final_norm, 0));
    return s->image ? take_image(l) : S24_OK;
}

static s24_status walk(loader *l)
{
    const s24i_shape *s = &l->shape;
    const s24_model *m = l->model;
    TRY(take_embeddings(l));
    TRY(take_head(l, l->arch->qa_head, 2, m ? m->qa_weight : NULL, m ? m->qa_bias : NULL));
    TRY(take_head(l, l->arch->class_head, s->classes, m ? m->class_weight : NULL,
                  m ? m->class_bias : NULL));
    for (int64_t b = 0; b < s->layers; b++) {
        const s24_status status = load_block(l, b);
        release_sources(l);
        TRY(status);
        if (m) TRY(s24_ctx_progress(l->ctx, "loading", b + 1, s->layers));
    }
    return S24_OK;
}

/* The classes of an image model are the rows of its head. */
static void read_classes(loader *l)
{
    const s24_tensor *head = head_weight(l, l->arch->class_head);
    if (head && head->rank == 2) l->shape.classes = head->shape[0];
}

static s24_status prepare(loader *l)
{
    const char *folder = s24_checkpoint_folder(l->checkpoint);
    const char *type;
    TRY(s24i_model_type(&type, l->ctx, l->checkpoint));
    l->arch = s24i_architecture_find(type);
    REQUIRE(l->ctx, l->arch && l->arch->encodes, S24_ERROR_UNSUPPORTED,
            "%s/config.json: model_type '%s' is not supported; bert, vit and "
            "sam_vision_model are",
            folder, s24i_show(type).text);
    TRY(s24i_shape_read(&l->shape, l->ctx, l->arch, folder));
    read_classes(l);
    if (l->opts.device) TRY(s24i_gpu_check(l->ctx, l->opts.device, &l->shape));
    TRY(walk(l));
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
                              .qa_head = head_weight(&l, l.arch->qa_head) != NULL,
                              .class_head = head_weight(&l, l.arch->class_head) != NULL};
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
    TRY_DONE(walk(&l));
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
