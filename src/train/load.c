// SPDX-License-Identifier: Apache-2.0
/*
 * A transformer from a checkpoint. The same walk over the tensors is made twice: first to check each
 * and give it its place in the arena, then to copy it there.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "train/transformer.h"

enum { PLACES_A_BLOCK = 20, PLACES_ELSE = 16, ALIGN = 16 };

typedef struct maker {
    s24_ctx *ctx;
    const s24_checkpoint *checkpoint;
    s24_transformer *t;
    int filling; /* the second walk */
    int64_t at;  /* the next free element of the arena */
} maker;

/* One tensor that is wanted. */
typedef struct wanted {
    const char *pattern;
    int64_t block;
    const char *suffix, *old_suffix;
    int64_t rows, cols; /* cols 0: a vector */
    int optional, transposed, any_rank;
} wanted;

/* What follows is another segment of the arena. */
static void segment(maker *k, int matrix)
{
    s24_transformer *t = k->t;
    k->at = s24i_round_up(k->at, ALIGN);
    if (k->filling) return;
    if (t->segment_count) {
        s24i_segment *last = &t->segments[t->segment_count - 1];
        last->count = k->at - last->offset;
        if (!last->count) t->segment_count--;
    }
    t->segments[t->segment_count++] = (s24i_segment){k->at, 0, matrix};
}

static s24_status check(const maker *k, const s24_tensor *tensor, const wanted *w)
{
    REQUIRE(k->ctx, !tensor->scales || !k->t->opts.train, S24_ERROR_UNSUPPORTED,
            "%s: tensor '%s' is quantised; floats are trained and quantised afterwards",
            tensor->file, tensor->name);
    if (!tensor->packed) TRY(s24i_tensor_check_float(k->ctx, tensor));
    if (w->any_rank) {
        TRY(s24i_tensor_check_count(k->ctx, tensor, w->rows * w->cols));
    } else {
        TRY(s24i_tensor_check_shape(k->ctx, tensor, w->transposed ? w->cols : w->rows,
                                    w->transposed ? w->rows : w->cols));
    }
    return s24i_tensor_check_finite(k->ctx, tensor);
}

static void record(const maker *k, const s24_tensor *tensor, const wanted *w)
{
    s24i_place *p = &k->t->places[k->t->place_count++];
    *p = (s24i_place){.offset = k->at,
                      .rows = w->rows,
                      .cols = w->cols ? w->cols : 1,
                      .transposed = w->transposed,
                      .rank = tensor->rank};
    snprintf(p->name, sizeof p->name, "%s", tensor->name);
    memcpy(p->shape, tensor->shape, sizeof p->shape);
}

static s24_status copy(const maker *k, const s24_tensor *tensor, const wanted *w)
{
    const int64_t count = w->rows * (w->cols ? w->cols : 1);
    s24i_machine *m = &k->t->machine;
    float *wide, *turned = NULL;
    TRY(s24i_alloc_elems(&wide, k->ctx, count, sizeof *wide, "a tensor"));
    s24_status status = s24i_tensor_widen(k->ctx, wide, tensor);
    if (status == S24_OK && w->transposed)
        status = s24i_alloc_elems(&turned, k->ctx, count, sizeof *turned, "a tensor");
    if (turned) s24i_transpose(turned, wide, w->cols, w->rows);
    if (status == S24_OK)
        m->ops->upload(m, k->t->weights + k->at, turned ? turned : wide,
                       (size_t)count * sizeof *wide);
    s24_ctx_free(k->ctx, wide);
    s24_ctx_free(k->ctx, turned);
    return status;
}

/* The place of a tensor among weights and gradients; NULL for an optional one that is not there. */
static s24_status take(maker *k, float **weights, float **gradients, const wanted *w)
{
    char name[S24I_NAME_BYTES];
    const s24i_architecture *arch = k->t->arch;
    const s24_tensor *tensor = NULL;
    *weights = NULL;
    if (gradients) *gradients = NULL;
    if (w->old_suffix)
        tensor = s24i_tensor_find(name, k->checkpoint, arch, w->pattern, w->block, w->old_suffix);
    if (!tensor)
        tensor = s24i_tensor_find(name, k->checkpoint, arch, w->pattern, w->block, w->suffix);
    if (!tensor && w->optional) return S24_OK;
    if (!tensor) return s24i_tensor_missing(k->ctx, k->checkpoint, name);
    if (!k->filling) {
        TRY(check(k, tensor, w));
        record(k, tensor, w);
    } else {
        TRY(s24i_name_tensor(k->ctx, copy(k, tensor, w), tensor));
        *weights = k->t->weights + k->at;
        if (gradients && k->t->gradients) *gradients = k->t->gradients + k->at;
    }
    k->at += w->rows * (w->cols ? w->cols : 1);
    return S24_OK;
}

/* ---- layers ------------------------------------------------------------------------------------ */

/* Some layers that read the same input, one below the other. */
typedef struct stack {
    const char *patterns[3];
    int64_t rows[3];
    int count;
} stack;

static s24_status take_stack(maker *k, s24i_layer *layer, const stack *s, int64_t block,
                             int64_t cols)
{
    const s24i_architecture *arch = k->t->arch;
    s24i_layer made = {.k = cols, .ldx = cols};
    float *w, *dw;
    for (int bias = 0; bias < 2; bias++) {
        segment(k, !bias);
        for (int i = 0; i < s->count; i++) {
            const wanted want = {.pattern = s->patterns[i],
                                 .block = block,
                                 .suffix = bias ? ".bias" : ".weight",
                                 .rows = s->rows[i],
                                 .cols = bias ? 0 : cols,
                                 .optional = bias && !arch->biases,
                                 .transposed = !bias && arch->transposed && block >= 0};
            TRY(take(k, &w, &dw, &want));
            if (i) continue;
            *(bias ? &made.bias : &made.w) = w;
            *(bias ? &made.dbias : &made.dw) = dw;
        }
    }
    for (int i = 0; i < s->count; i++)
        made.n += s->rows[i];
    made.ldy = made.n;
    *layer = made;
    return S24_OK;
}

static s24_status take_norm(maker *k, s24i_norm *norm, const char *pattern, int64_t block)
{
    const s24i_shape *shape = &k->t->shape;
    const wanted gamma = {.pattern = pattern,
                          .block = block,
                          .suffix = ".weight",
                          .old_suffix = ".gamma",
                          .rows = shape->width};
    wanted beta = gamma;
    beta.suffix = ".bias";
    beta.old_suffix = ".beta";
    float *g, *b = NULL;
    *norm = (s24i_norm){.row = {.eps = shape->eps, .rms = k->t->arch->rms, .n = shape->width}};
    segment(k, 0);
    TRY(take(k, &g, &norm->dgamma, &gamma));
    if (!k->t->arch->rms) TRY(take(k, &b, &norm->dbeta, &beta));
    norm->row.gamma = g;
    norm->row.beta = b;
    return S24_OK;
}

static s24_status take_block(maker *k, int64_t b)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    const s24i_shape *s = &t->shape;
    const int64_t wide = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    s24i_train_block *block = &t->blocks[b];
    stack qkv = {
        {a->slots[S24I_QUERY], a->slots[S24I_KEY], a->slots[S24I_VALUE]}, {wide, kv, kv}, 3};
    if (a->joint) {
        qkv.rows[0] += 2 * kv;
        qkv.count = 1;
    }
    const stack attention = {{a->slots[S24I_ATTENTION]}, {s->width}, 1};
    const stack gated = {
        {a->slots[S24I_GATE], a->slots[S24I_INTERMEDIATE]}, {s->intermediate, s->intermediate}, 2};
    const stack up = {{a->slots[S24I_INTERMEDIATE]}, {s->intermediate}, 1};
    const stack down = {{a->slots[S24I_OUTPUT]}, {s->width}, 1};
    const int64_t norm = 2 * b + !a->pre_norm;
    TRY(take_stack(k, &block->qkv, &qkv, b, s->width));
    TRY(take_stack(k, &block->attention, &attention, b, wide));
    TRY(take_stack(k, &block->up, a->slots[S24I_GATE] ? &gated : &up, b, s->width));
    TRY(take_stack(k, &block->down, &down, b, s->intermediate));
    TRY(take_norm(k, &t->norms[norm], a->attention_norm, b));
    return take_norm(k, &t->norms[norm + 1], a->output_norm, b);
}

static s24_status take_embeddings(maker *k)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    const s24i_shape *s = &t->shape;
    s24i_embed *e = &t->embed;
    const int image = s->image > 0;
    const wanted words = {
        .pattern = a->words, .suffix = "", .rows = s->vocabulary, .cols = s->width};
    const wanted positions = {.pattern = a->positions,
                              .suffix = "",
                              .rows = s->positions,
                              .cols = s->width,
                              .any_rank = image};
    const wanted types = {.pattern = a->types, .suffix = "", .rows = s->types, .cols = s->width};
    const wanted first = {
        .pattern = a->first_token, .suffix = "", .rows = 1, .cols = s->width, .any_rank = 1};
    e->width = s->width;
    e->type_count = s->types;
    segment(k, 1);
    if (a->words) TRY(take(k, &e->words, &e->dwords, &words));
    if (a->positions) TRY(take(k, &e->positions, &e->dpositions, &positions));
    if (a->types && s->types) TRY(take(k, &e->types, &e->dtypes, &types));
    if (a->first_token) TRY(take(k, &e->first, &e->dfirst, &first));
    if (!image) return S24_OK;
    const int64_t row = s->channels * s->patch * s->patch;
    const wanted w = {
        .pattern = a->patches, .suffix = ".weight", .rows = s->width, .cols = row, .any_rank = 1};
    const wanted bias = {.pattern = a->patches, .suffix = ".bias", .rows = s->width};
    t->patches = (s24i_layer){.n = s->width, .k = row, .ldx = row, .ldy = s->width};
    segment(k, 1);
    TRY(take(k, &t->patches.w, &t->patches.dw, &w));
    segment(k, 0);
    return take(k, &t->patches.bias, &t->patches.dbias, &bias);
}

/* ---- heads ------------------------------------------------------------------------------------- */

static int has(const maker *k, const char *pattern)
{
    char name[S24I_NAME_BYTES];
    return pattern &&
           s24i_tensor_find(name, k->checkpoint, k->t->arch, pattern, 0, ".weight") != NULL;
}

static s24_status choose_head(maker *k)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    const s24_head wish = t->opts.head;
    s24_head there = S24_HEAD_NONE;
    if (has(k, a->qa_head)) there = S24_HEAD_QA;
    if (a->lm_head) there = S24_HEAD_LM;
    if (has(k, a->class_head)) {
        char name[S24I_NAME_BYTES];
        const s24_tensor *w = s24i_tensor_find(name, k->checkpoint, a, a->class_head, 0, ".weight");
        there = S24_HEAD_CLASSES;
        t->shape.classes = w->rank == 2 ? w->shape[0] : 0;
    }
    t->head_kind = there;
    if (!wish || wish == there) return S24_OK;
    REQUIRE(k->ctx, wish == S24_HEAD_QA && a->qa_head, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' has no such head, and none can be made",
            s24_checkpoint_folder(k->checkpoint), a->model_type);
    t->head_kind = wish;
    return S24_OK;
}

/* Normal by Box and Muller, with BERT's deviation. */
static void random_weights(float *x, int64_t count, uint64_t seed)
{
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        s24_random(words, seed, (uint64_t)i);
        const double u = ((double)words[0] + 1.0) / 4294967296.0;
        const double angle = (double)words[1] / 4294967296.0 * 6.283185307179586;
        x[i] = (float)(0.02 * sqrt(-2.0 * log(u)) * cos(angle));
    }
}

/* A tensor that the checkpoint has not: it stands behind the others. */
static s24_status make(maker *k, float **weights, float **gradients, const wanted *w)
{
    s24_transformer *t = k->t;
    const int64_t count = w->rows * (w->cols ? w->cols : 1);
    if (!k->filling) {
        s24i_place *p = &t->places[t->place_count++];
        *p = (s24i_place){.offset = k->at,
                          .rows = w->rows,
                          .cols = w->cols ? w->cols : 1,
                          .rank = w->cols ? 2 : 1,
                          .shape = {w->rows, w->cols},
                          .made = 1};
        snprintf(p->name, sizeof p->name, "%s%s", w->pattern, w->suffix);
    } else {
        float *x;
        TRY(s24i_alloc_elems(&x, k->ctx, count, sizeof *x, "a head"));
        memset(x, 0, (size_t)count * sizeof *x);
        if (w->cols) random_weights(x, count, t->opts.seed);
        t->machine.ops->upload(&t->machine, t->weights + k->at, x, (size_t)count * sizeof *x);
        s24_ctx_free(k->ctx, x);
        *weights = t->weights + k->at;
        *gradients = t->gradients ? t->gradients + k->at : NULL;
    }
    k->at += count;
    return S24_OK;
}

static s24_status take_head(maker *k)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    const s24i_shape *s = &t->shape;
    const char *pattern = NULL;
    int64_t rows = 0;
    switch (t->head_kind) {
    case S24_HEAD_NONE:
        return S24_OK;
    case S24_HEAD_QA:
        pattern = a->qa_head;
        rows = 2;
        break;
    case S24_HEAD_CLASSES:
        pattern = a->class_head;
        rows = s->classes;
        break;
    case S24_HEAD_LM:
        pattern = a->lm_head;
        rows = s->vocabulary;
        break;
    }
    s24i_layer head = {.n = rows, .k = s->width, .ldx = s->width};
    head.ldy = s24i_round_up(rows, t->machine.row_align);
    if (t->head_kind == S24_HEAD_CLASSES) head.ldx *= s->positions;
    if (t->head_kind == S24_HEAD_LM && !has(k, pattern)) {
        head.w = t->embed.words; /* tied: the words' embeddings are the head */
        head.dw = t->embed.dwords;
        t->head = head;
        return S24_OK;
    }
    const wanted w = {.pattern = pattern, .suffix = ".weight", .rows = rows, .cols = s->width};
    const wanted bias = {.pattern = pattern,
                         .suffix = ".bias",
                         .rows = rows,
                         .optional = t->head_kind == S24_HEAD_LM};
    const int made = !has(k, pattern);
    segment(k, 1);
    TRY((made ? make : take)(k, &head.w, &head.dw, &w));
    segment(k, 0);
    TRY((made ? make : take)(k, &head.bias, &head.dbias, &bias));
    t->head = head;
    return S24_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static s24_status walk(maker *k)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    k->at = 0;
    TRY(take_embeddings(k));
    if (!a->pre_norm) TRY(take_norm(k, &t->norms[0], a->embedding_norm, 0));
    for (int64_t b = 0; b < t->shape.layers; b++)
        TRY(take_block(k, b));
    if (a->pre_norm) TRY(take_norm(k, &t->norms[2 * t->shape.layers], a->final_norm, 0));
    TRY(take_head(k));
    segment(k, 0); /* ends the last one */
    if (!k->filling) t->segment_count--;
    t->elems = k->at;
    return S24_OK;
}

static s24_status alloc_weights(s24_transformer *t, s24_ctx *ctx)
{
    s24i_machine *m = &t->machine;
    const size_t bytes = (size_t)t->elems * sizeof(float);
    t->weights = m->ops->alloc(m, bytes);
    if (t->opts.train) t->gradients = m->ops->alloc(m, bytes);
    REQUIRE(ctx, t->weights && (t->gradients || !t->opts.train), S24_ERROR_MEMORY,
            "out of memory: %lld weights", (long long)t->elems);
    m->ops->clear(m, t->weights, bytes);
    if (t->gradients) m->ops->clear(m, t->gradients, bytes);
    const s24i_arena arena = {.weights = t->weights,
                              .elems = t->elems,
                              .segments = t->segments,
                              .segment_count = t->segment_count,
                              .train = t->opts.train};
    return m->ops->prepare(m, &arena);
}

/* A device reads 16 bytes at a time. */
static s24_status check_device_shape(const s24i_shape *s, s24_ctx *ctx)
{
    const struct {
        const char *name;
        int64_t elems;
    } rows[] = {{"width", s->width},
                {"heads", s->head_width},
                {"intermediate outputs", s->intermediate},
                {"patches", s->channels * s->patch * s->patch}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        REQUIRE(ctx, rows[i].elems % 8 == 0, S24_ERROR_UNSUPPORTED,
                "a model whose %s are %lld elements; a device takes multiples of 8", rows[i].name,
                (long long)rows[i].elems);
    return S24_OK;
}

static s24_status make_machine(s24_transformer *t, s24_ctx *ctx)
{
    const s24i_shape *s = &t->shape;
    if (t->opts.device) {
        TRY(check_device_shape(s, ctx));
        return s24i_machine_gpu(&t->machine, ctx, t->opts.device, t->opts.dtype);
    }
    return s24i_machine_cpu(&t->machine, ctx, s24i_min(s->positions, t->opts.max_tokens),
                            s->head_width, s24i_max(s->width, t->head.n));
}

static s24_status find_architecture(s24_transformer *t, s24_ctx *ctx,
                                    const s24_checkpoint *checkpoint)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    const char *type;
    TRY(s24i_model_type(&type, ctx, checkpoint));
    t->arch = s24i_architecture_find(type);
    REQUIRE(ctx, t->arch && !t->arch->rel_h, S24_ERROR_UNSUPPORTED,
            "%s/config.json: model_type '%s' is not supported; bert, gpt2, llama and vit are",
            folder, s24i_show(type).text);
    TRY(s24i_shape_read(&t->shape, ctx, t->arch, folder));
    return s24i_pooling_read(&t->pooled, ctx, t->arch, folder);
}

static s24_status load(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    maker k = {.ctx = ctx, .checkpoint = checkpoint, .t = t};
    TRY(find_architecture(t, ctx, checkpoint));
    const s24i_shape *s = &t->shape;
    const int64_t places = PLACES_ELSE + PLACES_A_BLOCK * s->layers;
    TRY(s24i_alloc_elems(&t->places, ctx, places, sizeof *t->places, "tensors' names"));
    TRY(s24i_alloc_elems(&t->segments, ctx, places, sizeof *t->segments, "segments"));
    TRY(s24i_alloc_elems(&t->norms, ctx, 2 * s->layers + 1, sizeof *t->norms, "norms"));
    TRY(s24i_alloc_elems(&t->blocks, ctx, s->layers, sizeof *t->blocks, "blocks"));
    TRY(choose_head(&k));
    t->machine.row_align = 1;
    TRY(walk(&k));
    TRY(make_machine(t, ctx));
    TRY(alloc_weights(t, ctx));
    k.filling = 1;
    TRY(walk(&k));
    t->machine.ops->refresh(&t->machine);
    TRY(t->machine.status);
    return s24i_plan_buffers(t, ctx);
}

s24_status s24_transformer_load(s24_transformer **out, s24_ctx *ctx,
                                const s24_checkpoint *checkpoint, const s24_transformer_opts *opts)
{
    s24_transformer_opts known;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, checkpoint, S24_ERROR_ARGUMENT, "checkpoint is NULL");
    TRY(s24i_opts_read(ctx, &known, sizeof known, opts, "s24_transformer_opts"));
    REQUIRE(ctx, known.max_tokens >= 1 && known.max_tokens <= 1 << 24, S24_ERROR_ARGUMENT,
            "max_tokens is %lld, 1 to %d is expected", (long long)known.max_tokens, 1 << 24);
    if (!known.dtype) known.dtype = known.device ? S24_BF16 : S24_F32;
    REQUIRE(ctx,
            known.device ? known.dtype == S24_BF16 || known.dtype == S24_F16
                         : known.dtype == S24_F32,
            S24_ERROR_DTYPE, "dtype is %s; %s is expected", s24_dtype_name(known.dtype),
            known.device ? "f16 or bf16 on a device" : "f32 on the CPU");
    if (!known.max_texts) known.max_texts = known.max_tokens;
    REQUIRE(ctx, known.max_texts >= 1 && known.max_texts <= known.max_tokens, S24_ERROR_ARGUMENT,
            "max_texts is %lld, 1 to max_tokens, %lld, is expected", (long long)known.max_texts,
            (long long)known.max_tokens);
    void *memory;
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    s24_transformer *t = memory;
    t->ctx = ctx;
    t->opts = known;
    const s24_status status = load(t, ctx, checkpoint);
    if (status != S24_OK) {
        s24_transformer_destroy(t);
        return status;
    }
    *out = t;
    return S24_OK;
}
