// SPDX-License-Identifier: Apache-2.0
/*
 * A model from a checkpoint. Every tensor's presence, shape, dtype and values are checked against
 * the configuration before anything of the configuration's size is allocated: the walk over the
 * tensors (model/walk.h) is made twice, first without a model to fill.
 */
#include <string.h>

#include "dense/dense.h"
#include "io/checkpoint/checkpoint.h"
#include "io/convert/quantization.h"
#include "model/tower.h"
#include "run/gpu/gpu_model.h"
#include "run/load/choice.h"
#include "run/load/loader.h"
#include "run/load/model_inputs.h"

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
    case S24I_ROLE_AFTER_ATTENTION_NORM:
        return of_norm(&block->after_attention_norm, w);
    case S24I_ROLE_AFTER_OUTPUT_NORM:
        return of_norm(&block->after_output_norm, w);
    case S24I_ROLE_QUERY_NORM:
        return of_norm(&block->query_norm, w);
    case S24I_ROLE_KEY_NORM:
        return of_norm(&block->key_norm, w);
    case S24I_ROLE_REL_H:
        return block->rel_h;
    case S24I_ROLE_REL_W:
        return block->rel_w;
    case S24I_ROLE_ROUTER:
        return block->router;
    case S24I_ROLE_SINKS:
        return block->sinks;
    case S24I_ROLE_ROUTER_BIAS:
        return block->router_bias;
    case S24I_ROLE_EXPERT_BIAS:
        return block->expert_bias[w->slot == S24I_OUTPUT];
    case S24I_ROLE_CORRECTION:
        return block->correction;
    case S24I_ROLE_SHARED_GATE:
        return block->shared_gate;
    case S24I_ROLE_ATTENTION_SCALE:
        return block->attention_scale;
    case S24I_ROLE_OUTPUT_SCALE:
        return block->output_scale;
    default:
        return block->bias[w->slot];
    }
}

static const float *of_head(const s24_model *m, const s24i_wanted *w)
{
    if (w->pattern == m->architecture->qa_head) return w->is_bias ? m->qa_bias : m->qa_weight;
    if (w->pattern == m->architecture->lm_head) return m->lm_bias;
    return w->is_bias ? m->class_bias : m->class_weight;
}

/* Where the model has a tensor that stays f32. */
static const float *floats_of(const s24_model *m, const s24i_wanted *w)
{
    switch (w->role) {
    case S24I_ROLE_WORDS:
        return m->words;
    case S24I_ROLE_POSITIONS:
        return m->position_rows - m->shape.skipped * w->cols;
    case S24I_ROLE_TYPES:
        return m->type_rows;
    case S24I_ROLE_FIRST_TOKEN:
        return m->first_token;
    case S24I_ROLE_MORE_TOKENS:
        return m->more_tokens;
    case S24I_ROLE_PROBE:
        return m->probe[w->part];
    case S24I_ROLE_PROJECTION:
        return w->is_bias ? m->projection_bias : m->projection;
    case S24I_ROLE_PATCHES:
        return m->patch_bias;
    case S24I_ROLE_RELATIVE:
        return m->relative;
    case S24I_ROLE_APART:
        return m->apart;
    case S24I_ROLE_APART_NORM:
        return of_norm(&m->apart_norm, w);
    case S24I_ROLE_PROJECT:
        return m->project_bias;
    case S24I_ROLE_SQUARE:
        return w->is_bias ? m->square_bias : m->square_weight;
    case S24I_ROLE_CLASS_NORM:
        return of_norm(&m->class_norm, w);
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

/* A weight that is built when all floats are there. */
static s24_status take_later(s24i_loader *l, float **weight, const s24_tensor *tensor,
                             int64_t count)
{
    TRY(s24i_alloc_elems(weight, l->ctx, count, sizeof **weight, "a weight"));
    return s24i_tensor_widen(l->ctx, *weight, tensor);
}

/* A layer's of which a rank has a part. */
static s24_status take_cut_bias(s24i_loader *l, const s24i_wanted *w, const s24_tensor *tensor,
                                float *to)
{
    const s24i_cut cut = s24i_cut_of(&l->ranks, &l->shape, w->slot);
    const size_t part = s24_dtype_bytes(tensor->dtype);
    if (!s24i_cut_has_bias(&l->ranks, &cut)) {
        l->model->blocks[w->block].bias[w->slot] = NULL;
        return S24_OK;
    }
    if (cut.along_k) return s24_convert(to, S24_F32, tensor->data, tensor->dtype, w->rows);
    for (int i = 0; i < cut.count; i++) {
        const int64_t count = cut.end[i] - cut.begin[i];
        TRY(s24_convert(to, S24_F32, (const char *)tensor->data + (size_t)cut.begin[i] * part,
                        tensor->dtype, count));
        to += count;
    }
    return S24_OK;
}

/* A layer's. Layers that may be one product have biases end to end, or none. */
static s24_status take_bias(s24i_loader *l, const s24i_wanted *w, const s24_tensor *tensor)
{
    float *to = s24i_writable(floats_of(l->model, w));
    if (tensor && l->ranks.comm) return take_cut_bias(l, w, tensor, to);
    if (tensor) return s24_convert(to, S24_F32, tensor->data, tensor->dtype, w->rows);
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, &l->model->shape, w->slot);
    if (w->stacked)
        memset(to, 0, (size_t)rows * sizeof *to);
    else
        l->model->blocks[w->block].bias[w->slot] = NULL;
    return S24_OK;
}

/* A table of distances, [buckets, heads]: a rank has its heads' columns. */
static s24_status take_relative(s24i_loader *l, const s24i_wanted *w, const s24_tensor *tensor)
{
    const s24i_shape *here = &l->model->shape;
    const int64_t before = w->block * here->buckets * here->heads;
    float *whole = NULL, *to = s24i_writable(l->model->relative) + before;
    const s24_status status = take_later(l, &whole, tensor, l->shape.buckets * l->shape.heads);
    for (int64_t b = 0; b < here->buckets && status == S24_OK; b++)
        memcpy(to + b * here->heads, whole + b * l->shape.heads + l->ranks.rank * here->heads,
               (size_t)here->heads * sizeof *to);
    s24_ctx_free(l->ctx, whole);
    return status;
}

/* A bias that is not there adds zeros; a norm that is not there at all changes nothing. */
static void take_nothing(const s24i_loader *l, const s24i_wanted *w)
{
    if (w->is_bias)
        memset(s24i_writable(floats_of(l->model, w)), 0, (size_t)w->rows * sizeof(float));
    else
        l->model->blocks[w->block].attention_norm.gamma = NULL;
}

/* Is it a norm, or a bias, that may not be there? */
static int is_filled(const s24i_loader *l, const s24i_wanted *w)
{
    const s24i_role role = w->role;
    if (role == S24I_ROLE_HEAD) return w->is_bias && w->pattern != l->arch->lm_head;
    return role == S24I_ROLE_EMBEDDING_NORM || role == S24I_ROLE_ATTENTION_NORM ||
           role == S24I_ROLE_OUTPUT_NORM || role == S24I_ROLE_FINAL_NORM ||
           role == S24I_ROLE_SQUARE || role == S24I_ROLE_CLASS_NORM ||
           ((role == S24I_ROLE_PATCHES || role == S24I_ROLE_PROJECTION) && w->is_bias);
}

static int is_gamma(const s24i_wanted *w)
{
    const s24i_role role = w->role;
    return !w->is_bias && (role == S24I_ROLE_ATTENTION_NORM || role == S24I_ROLE_OUTPUT_NORM ||
                           role == S24I_ROLE_AFTER_ATTENTION_NORM ||
                           role == S24I_ROLE_AFTER_OUTPUT_NORM || role == S24I_ROLE_QUERY_NORM ||
                           role == S24I_ROLE_KEY_NORM || role == S24I_ROLE_FINAL_NORM);
}

static s24_status take(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    s24i_loader *l = user;
    s24_model *m = l->model;
    const int64_t count = w->rows * s24i_max(w->cols, 1);
    if (w->role == S24I_ROLE_LAYER && w->is_bias) return take_bias(l, w, tensor);
    if (w->role == S24I_ROLE_LAYER) {
        if (l->without_weights) return S24_OK;
        if (w->slot == S24I_QUERY) s24i_join_in_place(l, &m->blocks[w->block], w->block);
        return s24i_source_slot(l, (int)w->slot, tensor);
    }
    if (!tensor && is_filled(l, w)) take_nothing(l, w);
    if (tensor && w->role == S24I_ROLE_RELATIVE) return take_relative(l, w, tensor);
    if (!tensor || (tensor->data && tensor->data == l->mapped)) return S24_OK;
    if (w->role == S24I_ROLE_PATCHES && !w->is_bias)
        return take_later(l, &l->patches, tensor, count);
    if (w->role == S24I_ROLE_POSITIONS && m->shape.image)
        return take_later(l, &l->table, tensor, count);
    if (w->role == S24I_ROLE_PROJECT && !w->is_bias)
        return take_later(l, &l->project, tensor, count);
    if (w->role == S24I_ROLE_HEAD && w->pattern == l->arch->lm_head && !w->is_bias) {
        l->lm_head = tensor;
        return S24_OK;
    }
    if (w->role == S24I_ROLE_WORDS && !m->words) return S24_OK;
    float *to = s24i_writable(floats_of(m, w));
    TRY(s24i_tensor_widen(l->ctx, to, tensor));
    for (int64_t i = 0; l->arch->grown_norms && is_gamma(w) && i < count; i++)
        to[i] += 1.0f;
    return S24_OK;
}

static s24_status block_done(void *user, int64_t b)
{
    s24i_loader *l = user;
    if (l->without_weights) return S24_OK;
    TRY(s24i_block_build(l->model, l->ctx, b, l->sources));
    s24i_release_sources(l);
    return s24_ctx_progress(l->ctx, "loading", b + 1, l->shape.layers);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The last layer of a classifier, NULL: there is none. */
static const char *class_head(const s24i_loader *l)
{
    if (l->reading.whom == S24I_CLASSIFIES_TOKENS) return l->arch->text_head.token_last;
    return l->reading.whom ? l->arch->text_head.last : l->arch->class_head;
}

/* The classes are the rows of that, and what vectors become those of theirs. */
static void read_classes(s24i_loader *l)
{
    const s24_tensor *head = s24i_walk_weight(&l->walk, class_head(l));
    if (head && head->rank == 2) l->shape.classes = head->shape[0];
    if (l->score) l->shape.classes = 1;
    const s24_tensor *projection = s24i_walk_weight(&l->walk, l->arch->projection);
    if (projection && projection->rank == 2) l->shape.projected = projection->shape[0];
}

/* What of the heads there are is read. */
static void find_heads(s24i_loader *l)
{
    const s24i_architecture *a = l->arch;
    if (s24i_walk_weight(&l->walk, a->qa_head))
        l->walk.heads[0] = (s24i_wanted_head){a->qa_head, 2, 0};
    if (l->next_token) l->walk.heads[0] = (s24i_wanted_head){a->lm_head, l->shape.vocabulary, 1};
    l->walk.classifies = l->reading.whom;
    if (l->score) return;
    if (s24i_walk_weight(&l->walk, class_head(l)))
        l->walk.heads[1] = (s24i_wanted_head){class_head(l), l->shape.classes, l->arch->causal};
}

static int any(const s24i_architecture *arch)
{
    (void)arch;
    return 1;
}

static s24_status prepare(s24i_loader *l)
{
    const char *folder = s24_checkpoint_folder(l->checkpoint);
    const char *type;
    TRY(s24i_model_type(&type, l->ctx, l->checkpoint));
    l->arch = s24i_architecture_of(l->checkpoint);
    if (!l->arch) return s24i_architecture_unknown(l->ctx, l->checkpoint, any);
    s24i_towers_log(l->ctx, l->checkpoint);
    TRY(s24i_quantization_require_none(l->ctx, l->checkpoint));
    TRY(s24i_architecture_vary(&l->arch, l->ctx, folder, l->opts.images));
    TRY(s24i_shape_read(&l->shape, l->ctx, l->arch, folder));
    if (l->opts.device) s24i_latent_spread(&l->shape);
    l->walk = (s24i_walk){.ctx = l->ctx,
                          .checkpoint = l->checkpoint,
                          .arch = l->arch,
                          .shape = &l->shape,
                          .checks = 1,
                          .user = l};
    if (!l->headless && !l->without_weights)
        TRY(s24i_text_head_read(&l->reading, l->ctx, l->arch, l->checkpoint));
    if (l->score)
        l->reading = (s24i_text_reading){S24I_CLASSIFIES_TEXTS, S24I_READS_LAST, .padding = -1};
    /* A decoder that classifies has words that may be said to be tied to a head that it lost. */
    if (!l->headless && !l->reading.whom)
        TRY(s24i_next_token_read(&l->next_token, l->ctx, l->arch, l->checkpoint));
    read_classes(l);
    find_heads(l);
    if (l->opts.device) TRY(s24i_gpu_check(l->ctx, &l->opts, l->arch, &l->shape));
    TRY(s24i_walk_tensors(&l->walk));
    char name[S24I_NAME_BYTES];
    const char *query = s24i_slot_pattern(name, l->arch, &l->shape, S24I_QUERY);
    const s24_tensor *first = s24i_loader_find(name, l, query, 0, ".weight");
    const s24_dtype wide = l->opts.device ? S24_F16 : S24_F32;
    l->dtype = l->opts.dtype ? l->opts.dtype : first->dtype == S24_BF16 ? S24_BF16 : wide;
    l->widens = l->opts.device || l->without_weights;
    const int narrow = l->opts.dtype == S24_I8 || l->opts.dtype == S24_E4M3;
    l->widens_layers = l->widens && (l->without_weights || !l->arch->lm_head || narrow);
    return S24_OK;
}

static const s24_tensor *find_words(const s24i_loader *l)
{
    char name[S24I_NAME_BYTES];
    return s24i_loader_find(name, l, l->arch->words, 0, "");
}

/* Is a tensor used as the file has it? A device has floats of its own. */
static int is_usable(const s24i_loader *l, const s24_tensor *tensor)
{
    const int narrow = tensor->dtype == S24_BF16 && !l->opts.device;
    return !tensor->packed && (tensor->dtype == S24_F32 || narrow);
}

/* The word embeddings are most of a small model, and a text touches few of them: they are used
   where the file is mapped. */
static s24_status map_words(s24i_map *map, const void **words, s24i_loader *l)
{
    if (!l->arch->words) return S24_OK;
    const s24_tensor *tensor = find_words(l);
    if (!is_usable(l, tensor)) return S24_OK;
    TRY(s24i_checkpoint_map(map, words, l->ctx, l->checkpoint, tensor->data, tensor->bytes, 0));
    if (*words) l->mapped = tensor->data;
    return S24_OK;
}

/* Words of integers that are the head's too stay what they are. */
static int shares_words(const s24i_loader *l)
{
    if (!l->next_token || l->widens || s24i_walk_weight(&l->walk, l->arch->lm_head)) return 0;
    return find_words(l)->packed == S24_PACKED_DENSE;
}

/* Without a weight of its own the head is the words' embeddings. */
static s24_status build_head(s24i_loader *l)
{
    const s24_tensor *tensor = l->lm_head ? l->lm_head : find_words(l);
    const s24i_shape *s = &l->model->shape;
    s24i_source source = {
        .dense = {(void *)(uintptr_t)tensor->data, tensor->dtype, s->vocabulary, s->width, 0},
        .checkpoint = l->checkpoint,
        .scheme = l->model->head_scheme,
        .in_rows = 1};
    float *wide = NULL;
    const int integers = tensor->packed == S24_PACKED_DENSE && !l->widens_layers;
    if (integers) source.integers = s24i_tensor_quantized(tensor);
    if (integers || is_usable(l, tensor)) return s24i_lm_head_build(l->model, l->ctx, &source);
    s24_status status = take_later(l, &wide, tensor, s->vocabulary * s->width);
    source.dense.data = wide;
    source.dense.dtype = S24_F32;
    source.checkpoint = NULL;
    if (status == S24_OK) status = s24i_lm_head_build(l->model, l->ctx, &source);
    s24_ctx_free(l->ctx, wide);
    return status;
}

/* The second walk: everything into the model. */
static s24_status read_tensors(s24i_loader *l)
{
    l->walk.checks = 0;
    l->walk.take = take;
    l->walk.block_done = block_done;
    s24_status status = s24i_make_sources(l);
    if (status == S24_OK) status = s24i_walk_tensors(&l->walk);
    if (status == S24_OK && l->patches)
        status = s24i_patches_build(l->model, l->ctx, l->patches, l->table);
    if (status == S24_OK) s24i_probe_build(l->model);
    if (status == S24_OK && l->next_token && !l->without_weights) status = build_head(l);
    if (status == S24_OK && l->project) status = s24i_project_build(l->model, l->ctx, l->project);
    s24_ctx_free(l->ctx, l->patches);
    s24_ctx_free(l->ctx, l->table);
    s24_ctx_free(l->ctx, l->project);
    s24i_free_sources(l);
    return status;
}

static int has_lm_bias(const s24i_loader *l)
{
    char name[S24I_NAME_BYTES];
    return l->next_token && s24i_loader_find(name, l, l->arch->lm_head, 0, ".bias");
}

static int64_t stored_bytes(const s24_checkpoint *checkpoint)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < s24_checkpoint_count(checkpoint); i++)
        bytes += (int64_t)s24_checkpoint_tensor(checkpoint, i)->bytes;
    return bytes;
}

/* The model of a checkpoint that was walked once, with room for its floats. */
static s24_status create(s24_model **out, s24i_loader *l)
{
    s24i_map words_map = {0};
    const void *words = NULL;
    s24i_shape here;
    TRY(s24i_ranks_shape(&here, l->ctx, &l->ranks, l->arch, &l->shape,
                         s24_checkpoint_folder(l->checkpoint)));
    TRY(map_words(&words_map, &words, l));
    const s24i_rooms rooms = {.words = words == NULL && !shares_words(l),
                              .qa_head = s24i_walk_weight(&l->walk, l->arch->qa_head) != NULL,
                              .class_head = l->walk.heads[1].rows > 0 || l->score,
                              .square = s24i_has_square(l->arch, l->reading.whom),
                              .class_norm = s24i_has_class_norm(l->arch, l->reading.whom),
                              .lm_bias = has_lm_bias(l)};
    const s24_status status = s24i_model_create(out, l->ctx, l->arch, &here, rooms);
    if (status != S24_OK) {
        s24i_map_close(&words_map);
        return status;
    }
    s24_model *model = *out;
    if (words && find_words(l)->dtype == S24_BF16)
        model->narrow_words = words;
    else if (words)
        model->words = words;
    model->words_map = words_map;
    model->device = l->opts.device;
    model->reading = l->reading;
    model->all_sparse = l->opts.all_sparse;
    model->narrow_asked = l->opts.layer_dtypes != NULL;
    model->scheme = l->opts.quantize;
    model->head_scheme = l->opts.quantize_head;
    s24i_model_set_dtype(model, l->dtype, S24_F32);
    model->weight_bytes = stored_bytes(l->checkpoint);
    return S24_OK;
}

/* Says so where dense layers use more of the CPU than the context may. */
static void say_engine(const s24i_loader *l)
{
    s24_model_info info;
    s24_model_describe(&info, l->model);
    const int has_dense = info.linear_layers > info.sparse_layers || info.dense_copies;
    if (has_dense && !l->model->device) s24i_dense_warn(l->ctx);
}

static s24_status fill(s24i_loader *l)
{
    s24_model *model = l->model;
    s24i_chooser chooser;
    TRY(s24i_pooling_read(&model->pooled, l->ctx, s24i_pooling_usual(l->arch, &l->shape),
                          s24_checkpoint_folder(l->checkpoint)));
    if (!model->device && !l->opts.all_sparse) s24i_choose_begin(&chooser, model);
    TRY(read_tensors(l));
    if (l->score) TRY(s24i_token_score_fill(model, l->ctx, l->checkpoint, l->score));
    if (model->chooser) TRY(s24i_choose_end(model, l->ctx));
    say_engine(l);
    if (l->of_others)
        s24_ctx_log(
            l->ctx, S24_LOG_INFO,
            "%lld weights lie in the order of another kind of CPU, and are copied into that of "
            "this one; 'sparse24 pack IN OUT --layout cpu' writes it",
            (long long)l->of_others);
    TRY(s24i_inputs_read(model, l->ctx, l->checkpoint));
    return model->device ? s24i_gpu_upload(model, l->ctx) : S24_OK;
}

static s24_status load(s24_model **out, s24i_loader *l)
{
    s24_model *model;
    TRY(prepare(l));
    TRY(create(&model, l));
    l->model = model;
    l->dtype = model->dtype;
    const s24_status status = fill(l);
    if (status != S24_OK) {
        s24_model_destroy(model);
        return status;
    }
    *out = model;
    return S24_OK;
}

static s24_status load_with(s24_model **out, s24i_loader *l, const s24_model_opts *opts)
{
    if (!out || !l->ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(l->ctx, l->checkpoint, S24_ERROR_ARGUMENT, "checkpoint is NULL");
    TRY(s24i_model_opts_read(&l->opts, l->ctx, opts));
    TRY(s24i_ranks_begin(&l->ranks, l->ctx, &l->opts));
    s24_status status = S24_OK;
    if (l->opts.verify) status = s24_checkpoint_verify(NULL, l->ctx, l->checkpoint, 1);
    if (status == S24_OK) status = load(out, l);
    const s24i_ranks_model of = {l->checkpoint, NULL, &l->opts};
    return s24i_ranks_end(out, l->ctx, &l->ranks, &of, status);
}

s24_status s24_model_load(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                          const s24_model_opts *opts)
{
    s24i_loader l = {.ctx = ctx, .checkpoint = checkpoint};
    return load_with(out, &l, opts);
}

s24_status s24i_model_load_scoring(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                   const s24_model_opts *opts, const s24i_token_score *score)
{
    s24i_loader l = {.ctx = ctx, .checkpoint = checkpoint, .score = score};
    return load_with(out, &l, opts);
}

s24_status s24i_model_load_headless(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                    const s24_model_opts *opts)
{
    s24i_loader l = {.ctx = ctx, .checkpoint = checkpoint, .headless = 1};
    return load_with(out, &l, opts);
}

s24_status s24i_model_load_bare(s24_model **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                int images)
{
    const s24_model_opts opts = {
        .size = sizeof opts, .dtype = S24_F32, .all_sparse = 1, .images = images};
    s24i_loader l = {.ctx = ctx, .checkpoint = checkpoint, .opts = opts, .without_weights = 1};
    *out = NULL;
    return load(out, &l);
}
