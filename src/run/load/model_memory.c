// SPDX-License-Identifier: Apache-2.0
/* A model's memory and description. */
#include "model/model.h"

#include <string.h>

#include "model/apart.h"
#include "run/gpu/gpu_model.h"
#include "run/load/latent_weight.h"
#include "run/load/layer_dtypes.h"
#include "run/weight/weight.h"

int s24i_model_find_linear(int64_t *block, s24i_slot *slot, const s24_model *model,
                           const char *name)
{
    const s24i_shape *shape = &model->shape;
    if (!s24i_slot_find(block, slot, model->architecture, name) || *block >= shape->layers)
        return 0;
    const int64_t expert = s24i_slot_expert(*slot), experts = shape->mixture.experts;
    const int mixes = s24i_mixture_has(&shape->mixture, *block);
    if (*slot < S24I_INTERMEDIATE) return 1;
    if (expert < 0) return !mixes;
    if (expert == S24I_MOST_EXPERTS) *slot = s24i_slot_of(experts, s24i_slot_kind(*slot));
    return mixes && (expert < experts || expert == S24I_MOST_EXPERTS) &&
           (int)*slot < s24i_slot_numbers(&shape->mixture);
}

/* The option's scheme becomes the library's own text. */
static s24_status check_scheme(s24_ctx *ctx, const char *option, const char **scheme,
                               const s24_model_opts *opts)
{
    const char *name = NULL;
    if (!*scheme) return S24_OK;
    for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++)
        if (!strcmp(name, *scheme)) break;
    REQUIRE(ctx, name, S24_ERROR_ARGUMENT,
            "the option %s of a model is \"%s\"; int8, int4, or either with -g64 or -g128 was "
            "expected",
            option, *scheme);
    REQUIRE(ctx, opts->dtype != S24_I8 && opts->dtype != S24_E4M3, S24_ERROR_ARGUMENT,
            "the option %s of a model excludes the dtype %s, which quantises weights itself",
            option, s24_dtype_name(opts->dtype));
    *scheme = name;
    return S24_OK;
}

s24_status s24i_model_opts_read(s24_model_opts *out, s24_ctx *ctx, const s24_model_opts *opts)
{
    TRY(s24i_opts_read(ctx, out, sizeof *out, opts, "s24_model_opts"));
    TRY(s24i_layer_dtypes_read(out, ctx));
    const s24_dtype dtype = out->dtype;
    const int anywhere = !dtype || dtype == S24_BF16 || dtype == S24_I8;
    const int on_device = anywhere || dtype == S24_F16 || dtype == S24_E4M3;
    REQUIRE(ctx, !out->dense || !out->all_sparse, S24_ERROR_ARGUMENT,
            "the options dense and all_sparse of a model exclude each other");
    TRY(check_scheme(ctx, "quantize", &out->quantize, out));
    TRY(check_scheme(ctx, "quantize_head", &out->quantize_head, out));
    REQUIRE(ctx, on_device || dtype == S24_F32, S24_ERROR_DTYPE,
            "the option dtype of a model is %s; f32, f16, bf16, i8 or e4m3 was expected",
            s24_dtype_name(dtype));
    REQUIRE(ctx, on_device || !out->device, S24_ERROR_UNSUPPORTED,
            "a model runs in f32 on the CPU only; on a GPU f16, bf16, i8 or e4m3 is expected");
    REQUIRE(ctx, anywhere || dtype == S24_F32 || out->device, S24_ERROR_UNSUPPORTED,
            "a model runs in %s on a GPU only; on the CPU f32, bf16 or i8 is expected",
            s24_dtype_name(dtype));
    return S24_OK;
}

void s24i_model_set_dtype(s24_model *model, s24_dtype asked, s24_dtype usual)
{
    const s24_dtype dtype = asked ? asked : usual;
    const int narrow = model->device && (dtype == S24_I8 || dtype == S24_E4M3);
    model->dtype = narrow ? S24_BF16 : dtype;
    model->narrow = narrow ? dtype : S24_DTYPE_NONE;
}

int s24i_model_packs(const s24_model_opts *opts, const s24_tensor *tensor)
{
    if (!opts->include && !opts->exclude) return 1;
    return s24_tensor_is_selected(tensor, opts->include, opts->exclude);
}

/* Hands out the next `count` floats of the model's one allocation; counts only while base is
   NULL. */
typedef struct carver {
    float *base;
    int64_t used;
} carver;

static const float *carve(carver *c, int64_t count)
{
    const float *floats = c->base ? c->base + c->used : NULL;
    c->used += count;
    return floats;
}

static void carve_norm(carver *c, s24i_layer_norm *norm, const s24_model *model, int64_t n)
{
    norm->gamma = carve(c, n);
    norm->beta = model->architecture->rms ? NULL : carve(c, n);
    norm->eps = model->shape.eps;
    norm->n = n;
}

/* Behind everything else: what comes after a few outputs' bias were not aligned on a device. */
static void carve_heads(carver *c, s24_model *model, s24i_rooms rooms)
{
    const s24i_shape *shape = &model->shape;
    if (rooms.class_head) model->class_weight = carve(c, shape->classes * shape->width);
    if (rooms.square) model->square_weight = carve(c, shape->width * shape->width);
    if (rooms.square) model->square_bias = carve(c, shape->width);
    if (rooms.class_norm) carve_norm(c, &model->class_norm, model, shape->width);
    if (rooms.qa_head) model->qa_weight = carve(c, 2 * shape->width);
    if (rooms.qa_head) model->qa_bias = carve(c, 2);
    if (rooms.class_head) model->class_bias = carve(c, shape->classes);
    if (rooms.lm_bias) model->lm_bias = carve(c, shape->vocabulary);
    if (shape->buckets)
        model->relative = carve(c, s24i_max(shape->tables, 1) * shape->buckets * shape->heads);
}

/* In the order in which they stand in one product where there is one. */
static void carve_biases(carver *c, s24i_block *block, const s24i_shape *shape)
{
    static const s24i_slot order[] = {S24I_QUERY,     S24I_KEY,  S24I_VALUE,        S24I_LATENT,
                                      S24I_ATTENTION, S24I_GATE, S24I_INTERMEDIATE, S24I_OUTPUT};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int64_t rows, cols;
        s24i_slot_shape(&rows, &cols, shape, order[i]);
        block->bias[order[i]] = carve(c, rows);
    }
}

static void carve_mixture(carver *c, s24i_block *block, const s24_model *model, int64_t number)
{
    const s24i_shape *shape = &model->shape;
    const s24i_mixture_row *row = model->architecture->mixture;
    if (!s24i_mixture_has(&shape->mixture, number)) return;
    block->router = carve(c, shape->mixture.experts * shape->width);
    if (row->router_biased) block->router_bias = carve(c, shape->mixture.experts);
    for (int i = 0; i < 2; i++) {
        const s24i_slot kind = i ? S24I_OUTPUT : S24I_INTERMEDIATE;
        int64_t rows, cols;
        s24i_slot_shape(&rows, &cols, shape, s24i_slot_of(0, kind));
        if (row->biases[kind]) block->expert_bias[i] = carve(c, shape->mixture.experts * rows);
    }
    if (row->correction) block->correction = carve(c, shape->mixture.experts);
    if (row->shared_gate && shape->mixture.shared_width)
        block->shared_gate = carve(c, shape->width);
}

static void carve_block(carver *c, s24_model *model, int64_t number)
{
    const s24i_shape *shape = &model->shape;
    s24i_block *block = &model->blocks[number];
    carve_biases(c, block, shape);
    for (int i = 0; i < 3; i++)
        block->place[i] = i;
    if (model->architecture->attention_norm)
        carve_norm(c, &block->attention_norm, model, shape->width);
    if (model->architecture->output_norm) carve_norm(c, &block->output_norm, model, shape->width);
    if (model->architecture->after_attention_norm) {
        carve_norm(c, &block->after_attention_norm, model, shape->width);
        carve_norm(c, &block->after_output_norm, model, shape->width);
    }
    if (model->architecture->query_norm) {
        carve_norm(c, &block->query_norm, model, s24i_head_norm(model->architecture, shape, 0));
        carve_norm(c, &block->key_norm, model, s24i_head_norm(model->architecture, shape, 1));
        if (model->architecture->latent)
            block->query_norm.eps = block->key_norm.eps = S24I_LATENT_EPS;
    }
    if (model->architecture->sinks) block->sinks = carve(c, shape->heads);
    if (model->architecture->attention_scale) {
        block->attention_scale = carve(c, shape->width);
        block->output_scale = carve(c, shape->width);
    }
    const int64_t apart = shape->heads * shape->head_width * s24i_apart_ld(&shape->apart);
    if (shape->apart.span && shape->apart.of_queries) block->apart_keys = carve(c, apart);
    if (shape->apart.span && shape->apart.of_keys) block->apart_queries = carve(c, apart);
    carve_mixture(c, block, model, number);
    if (!shape->grid) return;
    const int64_t rows = 2 * s24i_attended_side(shape, number) - 1;
    block->rel_h = carve(c, rows * shape->head_width);
    block->rel_w = carve(c, rows * shape->head_width);
}

/* A head that pools, and the layer after pooling. */
static void carve_pooling(carver *c, s24_model *model)
{
    const s24i_shape *shape = &model->shape;
    for (int part = 0; part < S24I_PROBE_PARTS && shape->probes; part++) {
        int64_t rows, cols;
        s24i_probe_shape(&rows, &cols, shape, (s24i_probe_part)part);
        model->probe[part] = carve(c, rows * s24i_max(cols, 1));
    }
    if (shape->probes) model->probe_keys = carve(c, shape->heads * shape->width);
    if (!shape->projected) return;
    model->projection = carve(c, shape->projected * shape->width);
    model->projection_bias = carve(c, shape->projected);
}

static void carve_model(carver *c, s24_model *model, s24i_rooms rooms)
{
    const s24i_shape *shape = &model->shape;
    const s24i_architecture *a = model->architecture;
    const int64_t wide = s24i_embedding_width(shape);
    if (rooms.words) model->words = carve(c, shape->vocabulary * wide);
    if (a->positions || shape->image) {
        model->position_rows = carve(c, (shape->skipped + shape->positions) * wide);
        if (c->base) model->position_rows += shape->skipped * wide;
    }
    model->type_rows = carve(c, shape->types * wide);
    if (!shape->types) model->type_rows = NULL;
    if (a->embedding_norm) carve_norm(c, &model->embedding_norm, model, wide);
    if (shape->apart.span) model->apart = carve(c, s24i_apart_rows(&shape->apart) * shape->width);
    if (shape->apart.normed) carve_norm(c, &model->apart_norm, model, shape->width);
    if (s24i_projects(shape)) model->project_bias = carve(c, shape->width);
    if (a->final_norm) carve_norm(c, &model->final_norm, model, shape->width);
    if (shape->image) model->patch_bias = carve(c, shape->width);
    if (a->first_token) model->first_token = carve(c, shape->width);
    if (shape->more_tokens) model->more_tokens = carve(c, shape->more_tokens * shape->width);
    carve_pooling(c, model);
    for (int64_t b = 0; b < shape->layers; b++)
        carve_block(c, model, b);
    carve_heads(c, model, rooms);
}

static s24i_patches patches_of(const s24i_architecture *architecture, const s24i_shape *shape)
{
    enum { MULTIPLE = 8 }; /* of a row: the products of a device read so many elements at a time */
    return (s24i_patches){shape->image, shape->patch, shape->channels,
                          (architecture->first_token != NULL) + shape->more_tokens,
                          s24i_round_up(shape->channels * shape->patch * shape->patch, MULTIPLE)};
}

s24_status s24i_model_create(s24_model **out, s24_ctx *ctx, const s24i_architecture *architecture,
                             const s24i_shape *shape, s24i_rooms rooms)
{
    s24_model *model;
    s24_status status = S24_OK;
    *out = NULL;
    TRY(s24i_alloc_elems(&model, ctx, 1, sizeof *model, "a model"));
    memset(model, 0, sizeof *model);
    model->ctx = ctx;
    model->architecture = architecture;
    model->shape = *shape;
    model->patch_map = patches_of(architecture, shape);
    model->dtype = S24_F32;
    model->pooled.pools_prompt = 1;
    model->pooled.normalise = 1;
    TRY_DONE(s24i_alloc_elems(&model->blocks, ctx, shape->layers, sizeof *model->blocks,
                              "a model's blocks"));
    memset(model->blocks, 0, (size_t)shape->layers * sizeof *model->blocks);
    carver count = {NULL, 0};
    carve_model(&count, model, rooms);
    TRY_DONE(s24i_alloc_elems(&model->floats, ctx, count.used, sizeof(float),
                              "a model's embeddings, biases and norms"));
    model->float_count = count.used;
    carver floats = {model->floats, 0};
    carve_model(&floats, model, rooms);
done:
    if (status != S24_OK) {
        s24_model_destroy(model);
        return status;
    }
    *out = model;
    return S24_OK;
}

void s24i_block_clear(s24i_block *block, s24_ctx *ctx)
{
    for (int i = 0; i < s24i_block_products(block); i++)
        s24i_linear_clear(s24i_block_product_of(block, i), ctx);
    if (block->experts) s24_ctx_free(block->experts_ctx, block->experts);
    s24i_latent_clear(block);
    block->experts = NULL;
    block->expert_products = 0;
}

void s24_model_destroy(s24_model *model)
{
    if (!model) return;
    for (int64_t b = 0; model->blocks && b < model->shape.layers; b++)
        s24i_block_clear(&model->blocks[b], model->ctx);
    s24i_linear_clear(&model->patches, model->ctx);
    s24i_linear_clear(&model->project, model->ctx);
    s24i_linear_clear(&model->lm_head, model->ctx);
    s24i_gpu_free(model);
    s24_ctx_free(model->ctx, model->blocks);
    s24_ctx_free(model->ctx, model->floats);
    s24_ctx_free(model->ctx, model->ranks.table);
    s24i_map_close(&model->words_map);
    s24_ctx_free(model->ctx, model);
}

static int is_dense_copy(const s24i_linear *linear, const void *arg)
{
    (void)arg;
    return linear->sparse && (linear->weight[S24I_WAY_DENSE] || linear->weight[S24I_WAY_KEPT]);
}

/* Tiles are as large as dense weights, and lie in the memory of the 2:4 ones. */
static int64_t copy_bytes(const s24_model *model, const s24i_linear *l)
{
    const int64_t tiles = l->n * l->k * (model->dtype == S24_I8 ? 1 : 2);
    return s24i_weight_bytes(l->weight[S24I_WAY_DENSE]) + (l->weight[S24I_WAY_KEPT] ? tiles : 0);
}

static int64_t dense_copy_bytes(const s24_model *model)
{
    int64_t bytes = 0;
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = 0; i < s24i_block_products(&model->blocks[b]); i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            if (is_dense_copy(l, NULL)) bytes += copy_bytes(model, l);
        }
    return bytes;
}

static int64_t linear_layers(const s24i_shape *shape)
{
    int64_t layers = 0;
    for (int64_t b = 0; b < shape->layers; b++)
        layers += s24i_block_layers(shape, b);
    return layers;
}

/* Of the whole model, whatever a rank has of it. */
static int64_t whole(const s24_model *model, int64_t here)
{
    return here * s24i_max(model->ranks.world, 1);
}

int64_t s24_model_kv_heads(const s24_model *model)
{
    return whole(model, model->shape.kv_heads);
}

int s24_model_classifies_tokens(const s24_model *model)
{
    return model->reading.whom == S24I_CLASSIFIES_TOKENS;
}

void s24_model_describe(s24_model_info *info, const s24_model *model)
{
    const s24i_shape *shape = &model->shape;
    *info = (s24_model_info){.model_type = model->architecture->model_type,
                             .vocabulary = shape->vocabulary,
                             .positions = shape->positions,
                             .types = shape->types,
                             .width = shape->width,
                             .layers = shape->layers,
                             .heads = whole(model, shape->heads),
                             .intermediate = whole(model, shape->intermediate),
                             .linear_layers = linear_layers(shape),
                             .sparse_layers = s24i_model_sparse_layers(model),
                             .dense_copies = s24i_model_layers(model, is_dense_copy, NULL),
                             .dense_bytes = dense_copy_bytes(model),
                             .weight_bytes = model->weight_bytes,
                             .has_qa_head = model->qa_weight != NULL,
                             .dtype = model->narrow ? model->narrow : model->dtype,
                             .device_bytes = model->device_bytes,
                             .image = shape->image,
                             .patch = shape->patch,
                             .channels = shape->channels,
                             .classes = model->class_weight ? shape->classes : 0};
}
