// SPDX-License-Identifier: Apache-2.0
/*
 * Models of a known shape with random weights, to time forward passes without a checkpoint. The
 * weights are the same on every machine: uniform with BERT's standard deviation of 0.02. All
 * threads make them, a block at a time.
 */
#include <string.h>

#include "run/gpu/gpu_model.h"
#include "run/load/choice.h"
#include "run/load/cut.h"
#include "run/load/layer_dtypes.h"
#include "run/load/preset_blocks.h"

static const struct {
    const char *name, *model_type;
    s24i_shape shape;
    int answers;
    int untied; /* a language model's head is a tensor of its own */
} presets[] = {
#define S24I_PRESET(preset, words, rows, kinds, wide, deep, many, inner, head)                     \
    {preset,                                                                                       \
     "bert",                                                                                       \
     {.vocabulary = words,                                                                         \
      .positions = rows,                                                                           \
      .types = kinds,                                                                              \
      .width = wide,                                                                               \
      .layers = deep,                                                                              \
      .heads = many,                                                                               \
      .kv_heads = many,                                                                            \
      .head_width = (wide) / (many),                                                               \
      .intermediate = inner,                                                                       \
      .eps = 1e-12f,                                                                               \
      .activation = S24_ACTIVATION_GELU},                                                          \
     head,                                                                                         \
     0},
#define S24I_KIN_PRESET(preset, type, words, rows, kinds, skip, wide, deep, many, inner, by, far)  \
    {preset,                                                                                       \
     type,                                                                                         \
     {.vocabulary = words,                                                                         \
      .positions = rows,                                                                           \
      .skipped = skip,                                                                             \
      .types = kinds,                                                                              \
      .width = wide,                                                                               \
      .layers = deep,                                                                              \
      .heads = many,                                                                               \
      .kv_heads = many,                                                                            \
      .head_width = (wide) / (many),                                                               \
      .intermediate = inner,                                                                       \
      .near = by,                                                                                  \
      .windowed = {(by) ? 0x6DB6DB6DB6DB6DB6 : 0},                                                 \
      .rope = {.theta = 160000.0f},                                                                \
      .near_rope = {.theta = (by) ? 10000.0f : 0.0f},                                              \
      .buckets = far,                                                                              \
      .buckets_read = far,                                                                         \
      .farthest = 128,                                                                             \
      .joint = (by) > 0,                                                                           \
      .gated = (by) > 0,                                                                           \
      .joint_gate = (by) > 0,                                                                      \
      .eps = (by) ? 1e-5f : 1e-12f,                                                                \
      .activation = S24_ACTIVATION_GELU},                                                          \
     0,                                                                                            \
     0},
#define S24I_IMAGE_PRESET(preset, type, side, piece, kinds, wide, deep, many, inner, small, near,  \
                          far)                                                                     \
    {preset,                                                                                       \
     type,                                                                                         \
     {.positions = (side) / (piece) * ((side) / (piece)) + !(near),                                \
      .joint = (near) > 0,                                                                         \
      .grid = (near) ? (side) / (piece) : 0,                                                       \
      .window = near,                                                                              \
      .global_blocks = far,                                                                        \
      .image = side,                                                                               \
      .patch = piece,                                                                              \
      .channels = 3,                                                                               \
      .classes = kinds,                                                                            \
      .width = wide,                                                                               \
      .layers = deep,                                                                              \
      .heads = many,                                                                               \
      .kv_heads = many,                                                                            \
      .head_width = (wide) / (many),                                                               \
      .intermediate = inner,                                                                       \
      .eps = small,                                                                                \
      .activation = S24_ACTIVATION_GELU},                                                          \
     0,                                                                                            \
     0},
#define S24I_LANGUAGE_PRESET(preset, type, words, rows, wide, deep, many, keys, each, inner, act,  \
                             own)                                                                  \
    {preset,                                                                                       \
     type,                                                                                         \
     {.vocabulary = words,                                                                         \
      .positions = rows,                                                                           \
      .joint = (keys) == 0,                                                                        \
      .gated = (keys) > 0,                                                                         \
      .width = wide,                                                                               \
      .layers = deep,                                                                              \
      .heads = many,                                                                               \
      .kv_heads = (keys) ? (keys) : (many),                                                        \
      .head_width = (each) ? (each) : (wide) / (many),                                             \
      .intermediate = inner,                                                                       \
      .eps = 1e-5f,                                                                                \
      .rope = {.theta = 500000.0f},                                                                \
      .activation = act},                                                                          \
     0,                                                                                            \
     own},
#define S24I_MIXTURE_PRESET(preset, type, words, rows, wide, deep, many, keys, each, inner, all,   \
                            taken, own)                                                            \
    {preset,                                                                                       \
     type,                                                                                         \
     {.vocabulary = words,                                                                         \
      .positions = rows,                                                                           \
      .gated = 1,                                                                                  \
      .width = wide,                                                                               \
      .layers = deep,                                                                              \
      .heads = many,                                                                               \
      .kv_heads = keys,                                                                            \
      .head_width = each,                                                                          \
      .intermediate = inner,                                                                       \
      .eps = 1e-6f,                                                                                \
      .rope = {.theta = 1000000.0f},                                                               \
      .activation = S24_ACTIVATION_SILU,                                                           \
      .mixture = {.experts = all,                                                                  \
                  .used = taken,                                                                   \
                  .width = inner,                                                                  \
                  .normalised = 1,                                                                 \
                  .blocks = {UINT64_MAX, UINT64_MAX}}},                                            \
     0,                                                                                            \
     own},
#include "run/load/presets.def"
#undef S24I_MIXTURE_PRESET
#undef S24I_LANGUAGE_PRESET
#undef S24I_KIN_PRESET
#undef S24I_PRESET
#undef S24I_IMAGE_PRESET
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *s24_model_preset_name(int index)
{
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

/* Numbers in order: which one a number is decides it, so any thread may make it. */
typedef struct random_numbers {
    s24_ctx *ctx;
    uint64_t state; /* after the numbers that were taken */
} random_numbers;

enum { PIECE = 1 << 16 }; /* numbers that a thread makes at a time */

/* What is drawn: of a whole model what a rank has. */
typedef struct drawing {
    const s24_model_opts *opts;
    const s24i_shape *whole;
    s24i_ranks ranks;
    float *weights; /* room for a block's of the rank */
} drawing;

typedef struct fill_job {
    float *x;
    int64_t count;
    uint64_t state;
} fill_job;

static void fill_range(void *arg, int64_t first, int64_t end, int thread)
{
    const fill_job *job = arg;
    float *x = job->x;
    (void)thread;
    end = s24i_min(end * PIECE, job->count);
    for (int64_t i = first * PIECE; i < end; i++) {
        const uint64_t z = s24i_preset_random(job->state + ((uint64_t)i + 1) * S24I_PRESET_STEP);
        /* 24 bits to [−1, 1), times 0.02·√3. */
        x[i] = ((float)(int32_t)(z >> 40) * (2.0f / 16777216.0f) - 1.0f) * 0.034641f;
    }
}

static void fill(float *x, int64_t count, random_numbers *random)
{
    fill_job job = {x, count, random->state};
    random->state += (uint64_t)count * S24I_PRESET_STEP;
    s24_ctx_parallel_for(random->ctx, (count + PIECE - 1) / PIECE, fill_range, &job);
}

/* Of so many numbers in order those from `begin` to `end`. */
static void fill_some(float *x, int64_t begin, int64_t end, const random_numbers *random)
{
    random_numbers from = *random;
    from.state += (uint64_t)begin * S24I_PRESET_STEP;
    fill(x, end - begin, &from);
}

static void skip(random_numbers *random, int64_t count)
{
    random->state += (uint64_t)count * S24I_PRESET_STEP;
}

static void fill_norm(const s24i_layer_norm *norm)
{
    for (int64_t i = 0; i < norm->n; i++) {
        s24i_writable(norm->gamma)[i] = 1.0f;
        if (norm->beta) s24i_writable(norm->beta)[i] = 0.0f;
    }
}

/* A layer's bias, or what a rank has of it. */
static void fill_bias(s24i_block *block, s24i_slot slot, const drawing *d, random_numbers *random)
{
    const s24i_cut cut = s24i_cut_of(&d->ranks, d->whole, slot);
    float *to = s24i_writable(block->bias[slot]);
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, d->whole, slot);
    if (!s24i_cut_has_bias(&d->ranks, &cut)) block->bias[slot] = NULL;
    if (rows && cut.along_k) fill_some(to, 0, rows, random);
    for (int i = 0; rows && !cut.along_k && i < cut.count; i++) {
        fill_some(to, cut.begin[i], cut.end[i], random);
        to += cut.end[i] - cut.begin[i];
    }
    skip(random, rows);
}

static void fill_block_floats(s24_model *model, int64_t b, const drawing *d, random_numbers *random)
{
    const s24i_shape *shape = &model->shape;
    s24i_block *block = &model->blocks[b];
    for (int slot = 0; slot < S24I_ALL_SLOTS; slot++)
        if (model->architecture->biases)
            fill_bias(block, (s24i_slot)slot, d, random);
        else
            block->bias[slot] = NULL;
    fill_norm(&block->attention_norm);
    fill_norm(&block->output_norm);
    fill_norm(&block->query_norm);
    fill_norm(&block->key_norm);
    if (block->router)
        fill(s24i_writable(block->router), shape->mixture.experts * shape->width, random);
    if (!shape->grid) return;
    const int64_t rows = 2 * s24i_attended_side(shape, b) - 1;
    fill(s24i_writable(block->rel_h), rows * shape->head_width, random);
    fill(s24i_writable(block->rel_w), rows * shape->head_width, random);
}

/* [tables, buckets, heads]: a rank has its heads' columns. */
static void fill_relative(s24_model *model, const drawing *d, random_numbers *random)
{
    const int64_t heads = model->shape.heads, first = d->ranks.rank * heads;
    for (int64_t b = 0; b < s24i_max(model->shape.tables, 1) * model->shape.buckets; b++) {
        fill_some(s24i_writable(model->relative) + b * heads, first, first + heads, random);
        skip(random, d->whole->heads);
    }
}

static void fill_floats(s24_model *model, const drawing *d, random_numbers *random)
{
    const s24i_shape *shape = &model->shape;
    fill(s24i_writable(model->words), shape->vocabulary * shape->width, random);
    if (model->position_rows)
        fill(s24i_writable(model->position_rows), shape->positions * shape->width, random);
    fill(s24i_writable(model->type_rows), shape->types * shape->width, random);
    if (model->relative) fill_relative(model, d, random);
    if (model->embedding_norm.gamma) fill_norm(&model->embedding_norm);
    if (model->final_norm.gamma) fill_norm(&model->final_norm);
    for (int64_t b = 0; b < shape->layers; b++)
        fill_block_floats(model, b, d, random);
    if (shape->image) fill(s24i_writable(model->patch_bias), shape->width, random);
    if (model->first_token) fill(s24i_writable(model->first_token), shape->width, random);
    if (model->qa_weight) {
        fill(s24i_writable(model->qa_weight), 2 * shape->width, random);
        fill(s24i_writable(model->qa_bias), 2, random);
    }
    if (!model->class_weight) return;
    fill(s24i_writable(model->class_weight), shape->classes * shape->width, random);
    fill(s24i_writable(model->class_bias), shape->classes, random);
}

static s24_status fill_patches(s24_model *model, s24_ctx *ctx, random_numbers *random)
{
    const s24i_shape *s = &model->shape;
    const int64_t count = s->width * s->channels * s->patch * s->patch;
    float *weight;
    TRY(s24i_alloc_elems(&weight, ctx, count, sizeof *weight, "the patches' layer"));
    fill(weight, count, random);
    model->weight_bytes += count * (int64_t)sizeof *weight;
    const s24_status status = s24i_patches_build(model, ctx, weight, NULL);
    s24_ctx_free(ctx, weight);
    return status;
}

/* 2:4 weights to be multiplied as dense ones. */
static s24_status make_dense(s24i_source *source, s24_ctx *ctx)
{
    const s24_status status = s24_matrix_to_dense(ctx, &source->dense, source->matrix);
    s24_matrix_destroy(source->matrix);
    source->matrix = NULL;
    return status;
}

/* What the options say of a layer, as of a tensor of a checkpoint: may it be 2:4, is it not in 8
   bits? */
static void asked_of(int *packs, int *wide, const s24_model *model, const s24_model_opts *opts,
                     s24i_slot slot, int64_t block)
{
    char name[S24I_NAME_BYTES], room[S24I_NAME_BYTES];
    const s24_tensor tensor = {
        .name = name, .dtype = S24_F32, .rank = 2, .transposed = model->architecture->transposed};
    s24i_tensor_name(name, s24i_slot_pattern(room, model->architecture, &model->shape, slot), block,
                     ".weight");
    *packs = s24i_model_packs(opts, &tensor);
    *wide = s24i_layer_is_wide(opts, &tensor);
}

/* Bytes of a whole layer as files have it. */
static int64_t file_bytes(const s24i_shape *whole, s24i_slot slot, int sparse, s24_dtype values)
{
    int64_t rows, cols;
    s24i_slot_shape(&rows, &cols, whole, slot);
    const int64_t part = (int64_t)s24_dtype_bytes(values);
    return sparse ? rows * (cols / 2 * part + (cols + 7) / 8) : rows * cols * part;
}

/* The source of a layer whose weights are to be in the options' format; a device's experts have
   them dense. */
static s24_status fill_format(s24i_source *source, s24_model *model, s24_ctx *ctx, const drawing *d,
                              s24i_slot slot, uint64_t seed)
{
    const s24_dtype values = s24i_model_values(model->dtype);
    const int dense = d->opts->dense || (model->device && slot >= S24I_ALL_SLOTS);
    TRY(s24i_preset_blocks(dense ? NULL : &source->sparse, ctx, &source->dense, d->opts, values,
                           seed));
    model->weight_bytes += (int64_t)((double)file_bytes(d->whole, slot, 0, values) * 0.01 *
                                     (double)(100 - d->opts->zeros));
    return S24_OK;
}

/* The source of a layer with these weights, 2:4 where the options say so. */
static s24_status fill_source(s24i_source *source, s24_model *model, s24_ctx *ctx, const drawing *d,
                              s24i_slot slot, int packs)
{
    const s24_dtype values = s24i_model_values(model->dtype);
    const int sparse = d->opts->sparse && packs;
    const s24_matrix_opts magnitude = {
        .size = sizeof magnitude, .select = S24_SELECT_MAGNITUDE, .dtype = values};
    model->weight_bytes += file_bytes(d->whole, slot, sparse, values);
    if (!sparse) return S24_OK;
    TRY(s24_matrix_create(&source->matrix, ctx, &source->dense, &magnitude));
    return d->opts->dense ? make_dense(source, ctx) : S24_OK;
}

/* Numbers of a layer [rows, cols] that come in this order; a rank makes its own part alone, whose
   numbers are those of the whole. */
typedef struct layer_draw {
    float *to;
    const s24i_cut *cut;
    random_numbers random;
    int64_t cols;
} layer_draw;

/* Some columns of each row. */
static void draw_columns(void *arg, int64_t first, int64_t end, int thread)
{
    const layer_draw *d = arg;
    const int64_t begin = d->cut->begin[0], cols = d->cut->end[0] - begin;
    (void)thread;
    for (int64_t r = first; r < end; r++) {
        const fill_job job = {d->to + r * cols, cols,
                              d->random.state + (uint64_t)(r * d->cols + begin) * S24I_PRESET_STEP};
        fill_range((void *)(uintptr_t)&job, 0, (cols + PIECE - 1) / PIECE, 0);
    }
}

/* dense, which is whole, becomes what a rank has of it, in memory at dense->data. */
static void draw_layer(s24_dense *dense, const drawing *d, const s24i_cut *cut,
                       random_numbers *random)
{
    const layer_draw job = {dense->data, cut, *random, dense->cols};
    const int64_t count = dense->rows * dense->cols;
    float *to = dense->data;
    if (!d->ranks.comm) {
        fill_some(to, 0, count, random);
    } else if (cut->along_k) {
        s24_ctx_parallel_for(random->ctx, dense->rows, draw_columns, (void *)(uintptr_t)&job);
        dense->cols = cut->end[0] - cut->begin[0];
    } else {
        dense->rows = 0;
        for (int i = 0; i < cut->count; i++) {
            const int64_t first = cut->begin[i] * dense->cols, end = cut->end[i] * dense->cols;
            fill_some(to, first, end, random);
            to += end - first;
            dense->rows += cut->end[i] - cut->begin[i];
        }
    }
    skip(random, count);
}

/* A layer that a block has: not its own feed-forward ones where it has experts. */
static int has_layer(const s24i_shape *shape, int64_t block, int slot)
{
    int64_t rows, cols;
    const int mixes = s24i_mixture_has(&shape->mixture, block);
    s24i_slot_shape(&rows, &cols, shape, (s24i_slot)slot);
    return rows && (slot < S24I_INTERMEDIATE || (slot >= S24I_ALL_SLOTS) == mixes);
}

/* One layer after the other into memory of the largest block, so that no rank has more of it than
   its part. */
static s24_status fill_sources(s24i_source *of, s24_model *model, s24_ctx *ctx, const drawing *d,
                               int64_t block, random_numbers *random)
{
    float *to = d->weights;
    for (int slot = 0; slot < s24i_slot_numbers(&d->whole->mixture); slot++) {
        if (!has_layer(d->whole, block, slot)) continue;
        const s24i_cut cut = s24i_cut_of(&d->ranks, d->whole, (s24i_slot)slot);
        s24_dense dense = {.data = to, .dtype = S24_F32};
        int packs;
        s24i_slot_shape(&dense.rows, &dense.cols, d->whole, (s24i_slot)slot);
        asked_of(&packs, &of[slot].wide, model, d->opts, (s24i_slot)slot, block);
        if (d->opts->sparse && packs) TRY(s24i_cut_check(ctx, &cut, dense.cols));
        draw_layer(&dense, d, &cut, random);
        to += dense.rows * dense.cols;
        of[slot].dense = dense;
        TRY(d->opts->format && packs
                ? fill_format(&of[slot], model, ctx, d, (s24i_slot)slot, random->state)
                : fill_source(&of[slot], model, ctx, d, (s24i_slot)slot, packs));
    }
    return S24_OK;
}

static s24_status fill_block(s24_model *model, s24_ctx *ctx, int64_t block, const drawing *d,
                             random_numbers *random)
{
    const int numbers = s24i_slot_numbers(&d->whole->mixture);
    s24i_source *sources;
    TRY(s24i_zeroed(&sources, ctx, (size_t)numbers * sizeof *sources));
    s24_status status = fill_sources(sources, model, ctx, d, block, random);
    if (status == S24_OK) status = s24i_block_build(model, ctx, block, sources);
    for (int slot = 0; slot < numbers; slot++) {
        s24_matrix_destroy(sources[slot].matrix);
        s24_sparse_destroy(sources[slot].sparse);
    }
    s24_ctx_free(ctx, sources);
    return status;
}

/* Blocks one after the other, in one room for their weights. */
static s24_status fill_blocks(s24_model *model, s24_ctx *ctx, drawing *d, random_numbers *random)
{
    int64_t count = 0; /* of a block, which all are alike */
    s24_status status = S24_OK;
    for (int slot = 0; slot < s24i_slot_numbers(&model->shape.mixture); slot++) {
        int64_t rows, cols;
        s24i_slot_shape(&rows, &cols, &model->shape, (s24i_slot)slot);
        if (has_layer(&model->shape, 0, slot)) count += rows * cols;
    }
    TRY(s24i_alloc_elems(&d->weights, ctx, count, sizeof(float), "a block's weights"));
    for (int64_t b = 0; b < model->shape.layers && status == S24_OK; b++)
        status = fill_block(model, ctx, b, d, random);
    s24_ctx_free(ctx, d->weights);
    return status;
}

static s24_status fill_model(s24_model *model, s24_ctx *ctx, drawing *d)
{
    random_numbers random = {ctx, 1};
    fill_floats(model, d, &random);
    if (d->whole->image) TRY(fill_patches(model, ctx, &random));
    /* A head is memory of its own in any case; where it is a tensor of its own too, only its
       numbers are those of the words. */
    const s24i_source head = {.dense = {s24i_writable(model->words), S24_F32,
                                        model->shape.vocabulary, model->shape.width, 0},
                              .scheme = model->head_scheme,
                              .in_rows = 1};
    if (model->architecture->lm_head) TRY(s24i_lm_head_build(model, ctx, &head));
    return fill_blocks(model, ctx, d, &random);
}

static void set_options(s24_model *model, const s24_model_opts *o)
{
    if (model->first_token) model->pooled.pooling = S24I_POOL_CLS;
    model->device = o->device;
    model->all_sparse = o->all_sparse;
    model->narrow_asked = o->layer_dtypes != NULL;
    model->scheme = o->quantize;
    model->head_scheme = o->quantize_head;
    s24i_model_set_dtype(model, o->dtype, o->device ? S24_F16 : S24_F32);
}

static s24_status make_preset(s24_model **out, s24_ctx *ctx, int index, const s24_model_opts *o,
                              const s24i_ranks *ranks)
{
    s24_model *model;
    const s24i_shape *shape = &presets[index].shape;
    const s24i_architecture *arch = s24i_architecture_find(presets[index].model_type);
    drawing d = {o, shape, *ranks, NULL};
    s24i_shape here;
    if (o->device) TRY(s24i_gpu_check(ctx, o, arch, shape));
    TRY(s24i_ranks_shape(&here, ctx, ranks, arch, shape, presets[index].name));
    const s24i_rooms rooms = {
        .words = 1, .qa_head = presets[index].answers, .class_head = shape->classes > 0};
    TRY(s24i_model_create(&model, ctx, arch, &here, rooms));
    set_options(model, o);
    const int64_t positions = arch->positions ? shape->positions : 0;
    const int64_t words = shape->vocabulary * (1 + presets[index].untied);
    model->weight_bytes = (words + positions + shape->types) * shape->width * 4;
    s24i_chooser chooser;
    if (!o->device && !o->all_sparse) s24i_choose_begin(&chooser, model);
    s24_status status = fill_model(model, ctx, &d);
    if (status == S24_OK && model->chooser) status = s24i_choose_end(model, ctx);
    if (status == S24_OK && o->device) status = s24i_gpu_upload(model, ctx);
    if (status != S24_OK) {
        s24_model_destroy(model);
        return status;
    }
    *out = model;
    return S24_OK;
}

s24_status s24_model_preset(s24_model **out, s24_ctx *ctx, const char *name,
                            const s24_model_opts *opts)
{
    s24_model_opts o;
    s24i_ranks ranks;
    int index = 0;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, name, S24_ERROR_ARGUMENT, "a preset's name is NULL");
    TRY(s24i_model_opts_read(&o, ctx, opts));
    TRY(s24i_preset_format_check(ctx, &o));
    while (index < PRESETS && strcmp(presets[index].name, name) != 0)
        index++;
    REQUIRE(ctx, index < PRESETS, S24_ERROR_ARGUMENT, "there is no preset named '%s'",
            s24i_show(name).text);
    TRY(s24i_ranks_begin(&ranks, ctx, &o));
    const s24_status status = make_preset(out, ctx, index, &o, &ranks);
    const s24i_ranks_model of = {NULL, name, &o};
    return s24i_ranks_end(out, ctx, &ranks, &of, status);
}
