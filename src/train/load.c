// SPDX-License-Identifier: Apache-2.0
/*
 * A transformer from a checkpoint. The walk over the tensors (model/walk.h) is made twice: first to
 * check each and give it its place in the arena, then to copy it there.
 */
#include <stdio.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"
#include "io/convert/quantization.h"
#include "model/parts.h"
#include "model/tower.h"
#include "train/draw.h"

enum { PLACES_A_BLOCK = 20, PLACES_ELSE = 16, ALIGN = 16 };

typedef struct maker {
    s24_ctx *ctx;
    s24i_walk walk;
    s24_transformer *t;
    int filling;  /* the second walk */
    int64_t only; /* the block whose tensors are read alone, −1: none is; of a window: */
    int64_t block, begin, end; /* the block at hand, and the elements that all of them have */
    int64_t at;                /* the next free element of the arena */
    int64_t spare; /* elements before it that belong to no tensor but make up whole rows of heads */
    s24i_drawing drawing;
} maker;

/* Ends the last segment of the arena. */
static void end_segment(maker *k)
{
    s24_transformer *t = k->t;
    k->at = s24i_round_up(k->at, ALIGN);
    if (k->filling || !t->segment_count) return;
    s24i_segment *last = &t->segments[t->segment_count - 1];
    last->count = k->at - last->offset;
    if (!last->count) t->segment_count--;
}

/* What follows is another segment of the arena. */
static void segment(maker *k, int matrix)
{
    s24_transformer *t = k->t;
    end_segment(k);
    if (k->filling) return;
    t->segments[t->segment_count++] = (s24i_segment){.offset = k->at, .matrix = matrix};
}

/* A tensor that is made is named like the weight next to it, or, where all are, as the model type
   says, heads without its prefix. */
static void name_made(char name[S24I_NAME_BYTES], const maker *k, const s24i_wanted *w)
{
    const s24i_walk *walk = &k->walk;
    static const char weight[] = ".weight";
    if (walk->draws && w->role != S24I_ROLE_HEAD) {
        s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block, w->suffix);
        return;
    }
    if (s24i_tensor_find(name, walk->checkpoint, walk->arch, w->pattern, w->block, weight)) {
        const size_t stem = strlen(name) + 1 - sizeof weight;
        snprintf(name + stem, S24I_NAME_BYTES - stem, "%s", w->suffix);
    } else {
        s24i_tensor_name(name, w->pattern, w->block, w->suffix);
    }
}

/* As the files of the model type have it. */
static void shape_made(s24i_place *p, const maker *k, const s24i_wanted *w)
{
    const s24i_shape *s = &k->t->shape;
    if (w->transposed) {
        p->shape[0] = w->cols;
        p->shape[1] = w->rows;
    } else if (w->any_rank && w->role == S24I_ROLE_PATCHES) {
        p->rank = 4;
        p->shape[1] = s->channels;
        p->shape[2] = p->shape[3] = s->patch;
    } else if (w->any_rank) {
        p->rank = 3;
        p->shape[0] = 1;
        p->shape[1] = w->rows;
        p->shape[2] = w->cols;
    }
}

/* tensor NULL: it is made. */
static void record(const maker *k, const s24_tensor *tensor, const s24i_wanted *w)
{
    s24i_place *p = &k->t->places[k->t->place_count++];
    *p = (s24i_place){.offset = k->at,
                      .rows = w->rows,
                      .cols = s24i_max(w->cols, 1),
                      .transposed = w->transposed,
                      .linear = w->role == S24I_ROLE_LAYER && !w->is_bias && !w->transposed,
                      .rank = tensor    ? tensor->rank
                              : w->cols ? 2
                                        : 1,
                      .shape = {w->rows, w->cols},
                      .made = !tensor};
    if (tensor)
        memcpy(p->shape, tensor->shape, sizeof p->shape);
    else
        shape_made(p, k, w);
    for (int d = 0; tensor && tensor->packed && d < 2; d++)
        p->shape[d] = s24i_stored_side(tensor, d);
    if (tensor)
        snprintf(p->name, sizeof p->name, "%s", tensor->name);
    else
        name_made(p->name, k, w);
}

static s24_status copy(const maker *k, const s24_tensor *tensor, const s24i_wanted *w)
{
    const int64_t count = w->rows * (w->cols ? w->cols : 1);
    s24i_machine *m = &k->t->machine;
    float *wide, *turned = NULL;
    TRY(s24i_alloc_elems(&wide, k->ctx, count, sizeof *wide, "a tensor"));
    s24_status status = s24i_tensor_widen(k->ctx, wide, tensor);
    if (status == S24_OK && w->transposed && !tensor->packed)
        status = s24i_alloc_elems(&turned, k->ctx, count, sizeof *turned, "a tensor");
    if (turned) s24i_transpose(turned, wide, w->cols, w->rows);
    if (status == S24_OK)
        m->ops->upload(m, k->t->weights + k->at, turned ? turned : wide,
                       (size_t)count * sizeof *wide);
    s24_ctx_free(k->ctx, wide);
    s24_ctx_free(k->ctx, turned);
    return status;
}

/* ---- heads ----------------------------------------------------------------------------------- */

static s24_status choose_head(maker *k)
{
    s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    const s24_head wish = t->opts.head;
    s24_head there = S24_HEAD_NONE;
    int next_token;
    TRY(s24i_next_token_read(&next_token, k->ctx, a, k->walk.checkpoint));
    const s24_tensor *classes = s24i_walk_weight(&k->walk, a->class_head);
    if (s24i_walk_weight(&k->walk, a->qa_head)) there = S24_HEAD_QA;
    if (next_token) there = S24_HEAD_LM;
    if (classes) {
        there = S24_HEAD_CLASSES;
        t->shape.classes = classes->rank == 2 ? classes->shape[0] : 0;
    }
    if (k->walk.draws) TRY(s24i_drawing_read(&k->drawing, &there, t, k->ctx, k->walk.checkpoint));
    t->head_kind = there;
    if (!wish || wish == there) return S24_OK;
    REQUIRE(k->ctx, wish == S24_HEAD_QA && a->qa_head, S24_ERROR_UNSUPPORTED,
            "%s: a model of type '%s' has no such head, and none can be made",
            s24_checkpoint_folder(k->walk.checkpoint), a->model_type);
    t->head_kind = wish;
    return S24_OK;
}

/* Is a tensor that the checkpoint has not made: one of a head, or a bias whose neighbours, with
   which it lies end to end, are there? */
static int is_made(const maker *k, const s24i_wanted *w)
{
    if (k->walk.draws) return !w->optional;
    if (w->role == S24I_ROLE_HEAD) return k->t->head_kind != S24_HEAD_LM;
    return w->stacked;
}

static s24_status make(const maker *k, const s24i_wanted *w)
{
    s24_transformer *t = k->t;
    const int64_t count = w->rows * s24i_max(w->cols, 1);
    float *x;
    TRY(s24i_alloc_elems(&x, k->ctx, count, sizeof *x, "a tensor"));
    s24i_draw(x, k->ctx, t, &k->drawing, w, k->at - k->spare);
    t->machine.ops->upload(&t->machine, t->weights + k->at, x, (size_t)count * sizeof *x);
    s24_ctx_free(k->ctx, x);
    return S24_OK;
}

/* ---- the sink -------------------------------------------------------------------------------- */

static s24i_norm *norm_of(const maker *k, const s24i_wanted *w)
{
    const s24_transformer *t = k->t;
    switch (w->role) {
    case S24I_ROLE_ATTENTION_NORM:
        return &t->norms[s24i_block_norm(t, w->block, S24I_ATTENTION_NORM)];
    case S24I_ROLE_OUTPUT_NORM:
        return &t->norms[s24i_block_norm(t, w->block, S24I_OUTPUT_NORM)];
    case S24I_ROLE_QUERY_NORM:
        return &t->blocks[w->block].query_norm;
    case S24I_ROLE_KEY_NORM:
        return &t->blocks[w->block].key_norm;
    case S24I_ROLE_EMBEDDING_NORM:
        return s24i_is_normed_twice(t) ? &k->t->embedding_norm : &t->norms[0];
    case S24I_ROLE_AFTER_ATTENTION_NORM:
        return &t->blocks[w->block].after[0];
    case S24I_ROLE_AFTER_OUTPUT_NORM:
        return &t->blocks[w->block].after[1];
    case S24I_ROLE_APART_NORM:
        return &k->t->apart_norm;
    default:
        return &t->norms[2 * t->shape.layers];
    }
}

static s24i_layer *layer_of(const maker *k, const s24i_wanted *w)
{
    s24_transformer *t = k->t;
    s24i_train_block *block = &t->blocks[w->block];
    if (w->role == S24I_ROLE_PATCHES) return &t->patches;
    if (w->role == S24I_ROLE_PROJECT) return &t->project;
    if (w->role == S24I_ROLE_HEAD) return &t->head;
    if (w->slot <= S24I_VALUE) return &block->qkv;
    if (w->slot == S24I_ATTENTION) return &block->attention;
    return w->slot == S24I_OUTPUT ? &block->down : &block->up;
}

static void give_layer(s24i_layer *layer, const s24i_wanted *w, float *weights, float *gradients)
{
    if (!w->is_bias && w->begins)
        *layer = (s24i_layer){.k = w->cols, .ldx = w->cols, .w = weights, .dw = gradients};
    if (!w->is_bias) layer->ldy = layer->n += w->rows;
    if (!w->is_bias || !w->begins) return;
    layer->bias = weights;
    layer->dbias = gradients;
}

static void give_norm(s24i_norm *norm, const maker *k, const s24i_wanted *w, float *weights,
                      float *gradients)
{
    const s24i_shape *shape = &k->t->shape;
    const s24i_architecture *arch = k->t->arch;
    if (w->is_bias) {
        norm->row.beta = weights;
        norm->dbeta = gradients;
        return;
    }
    *norm = (s24i_norm){.row = {.gamma = weights,
                                .eps = shape->eps,
                                .rms = arch->rms,
                                .grown = arch->grown_norms,
                                .n = w->rows},
                        .dgamma = gradients};
}

/* Both halves of a block may read one norm of its input: what the first is given is the second's,
   too. */
static int is_shared_norm(const maker *k, const s24i_wanted *w)
{
    const char *first = k->t->arch->attention_norm;
    return w->role == S24I_ROLE_OUTPUT_NORM && first && strcmp(w->pattern, first) == 0;
}

static void share_norm(const maker *k, const s24i_wanted *w)
{
    s24_transformer *t = k->t;
    const s24i_norm *first = &t->norms[s24i_block_norm(t, w->block, S24I_ATTENTION_NORM)];
    if (k->only < 0) t->norms[s24i_block_norm(t, w->block, S24I_OUTPUT_NORM)] = *first;
}

/* A table that only one block has is all blocks'. */
static void give_table(const maker *k, const s24i_wanted *w, float *weights, float *gradients)
{
    const s24i_shape *s = &k->t->shape;
    const int64_t end = s->tables ? w->block + 1 : s->layers;
    for (int64_t b = s->tables ? w->block : 0; b < end; b++) {
        k->t->blocks[b].relative = weights;
        k->t->blocks[b].drelative = gradients;
    }
}

static void give_scale(s24i_train_block *block, const s24i_wanted *w, float *weights,
                       float *gradients)
{
    const int half = w->role == S24I_ROLE_OUTPUT_SCALE;
    block->scale[half] = weights;
    block->dscale[half] = gradients;
}

/* The row of the first position. */
static float *after_skipped(const maker *k, float *rows)
{
    return rows ? rows + k->t->shape.skipped * k->t->embed.width : NULL;
}

/* What reads the tensor gets its place among weights and gradients; both NULL: there is none. */
static void give(const maker *k, const s24i_wanted *w, float *weights, float *gradients)
{
    s24i_embed *e = &k->t->embed;
    switch (w->role) {
    case S24I_ROLE_WORDS:
        e->words = weights;
        e->dwords = gradients;
        break;
    case S24I_ROLE_POSITIONS:
        e->positions = after_skipped(k, weights);
        e->dpositions = after_skipped(k, gradients);
        break;
    case S24I_ROLE_TYPES:
        e->types = weights;
        e->dtypes = gradients;
        break;
    case S24I_ROLE_FIRST_TOKEN:
        e->first = weights;
        e->dfirst = gradients;
        break;
    case S24I_ROLE_MORE_TOKENS:
        e->more = weights;
        e->dmore = gradients;
        break;
    case S24I_ROLE_APART:
        k->t->apart = weights;
        k->t->dapart = gradients;
        break;
    case S24I_ROLE_RELATIVE:
        give_table(k, w, weights, gradients);
        break;
    case S24I_ROLE_ATTENTION_SCALE:
    case S24I_ROLE_OUTPUT_SCALE:
        give_scale(&k->t->blocks[w->block], w, weights, gradients);
        break;
    case S24I_ROLE_PATCHES:
    case S24I_ROLE_PROJECT:
    case S24I_ROLE_LAYER:
    case S24I_ROLE_HEAD:
        give_layer(layer_of(k, w), w, weights, gradients);
        break;
    default: /* one that is missing leaves its place to that of the embeddings, or without bias */
        if (weights) give_norm(norm_of(k, w), k, w, weights, gradients);
    }
}

static s24_status read_tensor(const maker *k, const s24_tensor *tensor, const s24i_wanted *w)
{
    return tensor ? s24i_name_tensor(k->ctx, copy(k, tensor, w), tensor) : make(k, w);
}

/* Rows of zeros after a head's, or after the words' embeddings that are one. */
static int64_t spare_rows(const maker *k, const s24i_wanted *w)
{
    const int heads =
        w->role == S24I_ROLE_HEAD || (w->role == S24I_ROLE_WORDS && k->t->head_kind == S24_HEAD_LM);
    return heads ? s24i_round_up(w->rows, S24I_HEAD_ROWS) - w->rows : 0;
}

/* The block of a tensor, −1: it is of none. */
static int64_t block_of(const s24i_wanted *w)
{
    const int is_norm = w->role >= S24I_ROLE_ATTENTION_NORM && w->role < S24I_ROLE_FINAL_NORM;
    const int is_table = w->role == S24I_ROLE_RELATIVE && strchr(w->pattern, '%');
    return w->role == S24I_ROLE_LAYER || is_norm || is_table ? w->block : -1;
}

/* In a window all blocks begin where the first does. */
static void move_window(maker *k, int64_t block)
{
    if (!k->t->window || block == k->block) return;
    end_segment(k);
    if (k->block < 0) k->begin = k->at;
    k->end = s24i_max(k->end, k->at);
    k->at = block < 0 ? k->end : k->begin;
    k->block = block;
    if (!k->filling)
        k->t->segments[k->t->segment_count++] = (s24i_segment){.offset = k->at, .matrix = 0};
}

/* What is outside blocks is read first, of a window the tensors of one block at a time. */
static int is_read(const maker *k, const s24i_wanted *w)
{
    return k->only < 0 ? !k->t->window || block_of(w) < 0 : block_of(w) == k->only;
}

/* A tensor of the walk. */
static s24_status take(void *user, const s24i_wanted *w, const s24_tensor *tensor)
{
    maker *k = user;
    s24_transformer *t = k->t;
    if (t->arch->shared && block_of(w) > 0) return S24_OK; /* share_block */
    move_window(k, block_of(w));
    if (is_shared_norm(k, w)) {
        share_norm(k, w);
        return S24_OK;
    }
    if (w->begins) segment(k, !w->is_bias && w->cols);
    if (!tensor && !is_made(k, w)) {
        give(k, w, NULL, NULL);
        return S24_OK;
    }
    if (!k->filling) {
        REQUIRE(k->ctx, !tensor || !tensor->bits || !t->opts.train, S24_ERROR_UNSUPPORTED,
                "%s: tensor '%s' is quantised; floats are trained and quantised afterwards",
                tensor->file, tensor->name);
        REQUIRE(k->ctx,
                !tensor || !(tensor->sparse || tensor->lift || tensor->factors.rank) ||
                    !t->opts.train,
                S24_ERROR_UNSUPPORTED,
                "%s: tensor '%s' is stored as %s; 'sparse24 unpack' writes what can be trained",
                tensor->file, tensor->name,
                tensor->factors.rank ? "low-rank factors"
                : tensor->lift       ? "a lifted matrix"
                                     : s24_format_name(tensor->sparse->format));
        REQUIRE(k->ctx, !tensor || !tensor->packed || w->role == S24I_ROLE_LAYER || !t->opts.train,
                S24_ERROR_UNSUPPORTED,
                "%s: tensor '%s' is packed, but a head that is trained does not stay 2:4; unpack "
                "it first",
                tensor->file, tensor->name);
        record(k, tensor, w);
        give(k, w, NULL, NULL);
    } else {
        if (is_read(k, w)) TRY(read_tensor(k, tensor, w));
        if (k->only < 0) give(k, w, t->weights + k->at, t->gradients ? t->gradients + k->at : NULL);
    }
    const int64_t cols = s24i_max(w->cols, 1), spare = spare_rows(k, w) * cols;
    k->at += w->rows * cols + spare;
    k->spare += spare;
    return S24_OK;
}

static int has_head_bias(const maker *k)
{
    char name[S24I_NAME_BYTES];
    const s24i_walk *w = &k->walk;
    return s24i_tensor_find(name, w->checkpoint, w->arch, w->arch->lm_head, 0, ".bias") != NULL;
}

/* What the walk is to find of the head. One of the next token that has no weight of its own is
   tied: the words' embeddings, and perhaps a bias. */
static s24i_wanted_head wanted_head(const maker *k)
{
    const s24_transformer *t = k->t;
    const s24i_architecture *a = t->arch;
    switch (t->head_kind) {
    case S24_HEAD_QA:
        return (s24i_wanted_head){a->qa_head, 2, 0};
    case S24_HEAD_CLASSES:
        return (s24i_wanted_head){a->class_head, t->shape.classes, 0};
    case S24_HEAD_LM:
        if (k->drawing.untied || s24i_walk_weight(&k->walk, a->lm_head) || has_head_bias(k))
            return (s24i_wanted_head){a->lm_head, t->shape.vocabulary, 1};
        break;
    case S24_HEAD_NONE:
        break;
    }
    return (s24i_wanted_head){NULL, 0, 0};
}

static void finish_head(s24_transformer *t)
{
    s24i_layer *head = &t->head;
    const s24i_shape *s = &t->shape;
    if (t->head_kind == S24_HEAD_NONE) return;
    if (!head->w && t->head_kind == S24_HEAD_LM) { /* tied */
        head->n = s->vocabulary;
        head->k = head->ldx = s->width;
        head->w = t->embed.words;
        head->dw = t->embed.dwords;
    }
    head->ldy = s24i_round_up(head->n, t->machine.row_align);
    if (t->head_kind == S24_HEAD_LM) {
        head->factor = s->logits_factor;
        head->cap = s->logits_cap;
    }
    if (t->head_kind == S24_HEAD_CLASSES) head->ldx *= s->positions;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* All blocks have the first one's tensors, whose gradients are the sums of theirs. */
static void share_block(s24_transformer *t)
{
    for (int64_t b = 1; b < t->shape.layers; b++) {
        t->blocks[b] = t->blocks[0];
        for (int norm = S24I_ATTENTION_NORM; norm <= S24I_OUTPUT_NORM; norm++)
            t->norms[s24i_block_norm(t, b, norm)] = t->norms[s24i_block_norm(t, 0, norm)];
    }
}

static s24_status walk(maker *k)
{
    s24_transformer *t = k->t;
    k->at = k->spare = k->end = 0;
    k->block = -1;
    k->walk.checks = !k->filling;
    t->embed.width = s24i_embedding_width(&t->shape);
    t->embed.type_count = t->shape.types;
    t->embed.factor = t->shape.embedding_factor;
    t->embed.lead = (t->arch->first_token != NULL) + t->shape.more_tokens;
    if (k->only < 0) t->head = (s24i_layer){.n = 0};
    TRY(s24i_walk_tensors(&k->walk));
    if (t->arch->shared) share_block(t);
    if (k->only < 0) finish_head(t);
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

/* All but those whose attention is over a grid. */
static int trains(const s24i_architecture *arch)
{
    return !arch->rel_h;
}

static s24_status find_architecture(s24_transformer *t, s24_ctx *ctx,
                                    const s24_checkpoint *checkpoint)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    const char *type;
    TRY(s24i_model_type(&type, ctx, checkpoint));
    t->arch = s24i_architecture_of(checkpoint);
    if (!t->arch) return s24i_architecture_unknown(ctx, checkpoint, trains);
    TRY(s24i_architecture_vary(&t->arch, ctx, folder, 0));
    t->steps = s24i_steps_of(t->arch);
    TRY(s24i_quantization_require_none(ctx, checkpoint));
    TRY(s24i_shape_read(&t->shape, ctx, t->arch, folder));
    return s24i_pooling_read(&t->pooled, ctx, s24i_pooling_usual(t->arch, &t->shape), folder);
}

/* What training has of all parts, a bit (1 << part) each. */
static unsigned trained_parts(const s24_transformer *t)
{
    const unsigned there = 1u << S24I_PART_SCALE | 1u << S24I_PART_TURNED |
                           1u << S24I_PART_ADJACENT | 1u << S24I_PART_QUICK;
    /* Work on one block after another would do what all of them share again and again. */
    const unsigned shared = t->window ? 0 : 1u << S24I_PART_SHARED;
    if (t->opts.device) return there;
    return there | shared | 1u << S24I_PART_FACTORS | 1u << S24I_PART_CAPS |
           1u << S24I_PART_GROWN_NORMS | 1u << S24I_PART_SIDE_BY_SIDE | 1u << S24I_PART_WIDE_NORMS |
           1u << S24I_PART_HEAD_BY_HEAD | 1u << S24I_PART_TWO_TURNS | 1u << S24I_PART_NORMS_TURNED |
           1u << S24I_PART_AFTER_NORMS | 1u << S24I_PART_GATE_LAST | 1u << S24I_PART_SLOPES |
           1u << S24I_PART_TABLES | 1u << S24I_PART_MASKED | 1u << S24I_PART_IMAGES;
}

/* What a description needs not, but a pass does. */
static s24_status check_parts(const s24_transformer *t, s24_ctx *ctx,
                              const s24_checkpoint *checkpoint)
{
    const char *folder = s24_checkpoint_folder(checkpoint);
    const int on_device = t->opts.device != NULL;
    const char *who = on_device ? "training on a device" : "training";
    REQUIRE(ctx, trains(t->arch), S24_ERROR_UNSUPPORTED,
            "%s/config.json: a model of type '%s' is not trained; %s are", folder,
            t->arch->model_type, s24i_architecture_names(trains).text);
    TRY(s24i_steps_require(ctx, t->arch, s24i_train_steps(on_device), who));
    TRY(s24i_parts_require(ctx, t->arch, &t->shape, trained_parts(t), who));
    REQUIRE(ctx, !t->shape.image || t->shape.table_side * t->shape.patch == t->shape.image,
            S24_ERROR_UNSUPPORTED,
            "%s: positions of %lld patches a side are not trained on images of %lld", folder,
            (long long)t->shape.table_side, (long long)(t->shape.image / t->shape.patch));
    return s24i_vectors_check(t, ctx, folder);
}

static void begin_walk(maker *k, const s24_checkpoint *checkpoint)
{
    k->walk = (s24i_walk){.draws = k->t->opts.draw,
                          .ctx = k->ctx,
                          .checkpoint = checkpoint,
                          .arch = k->t->arch,
                          .shape = &k->t->shape,
                          .take = take,
                          .user = k};
}

/* What can be known before a tensor is read. */
static s24_status begin(maker *k, const s24_checkpoint *checkpoint)
{
    s24_transformer *t = k->t;
    TRY(find_architecture(t, k->ctx, checkpoint));
    begin_walk(k, checkpoint);
    return choose_head(k);
}

s24_status s24_transformer_peek(s24_transformer_info *info, s24_ctx *ctx,
                                const s24_checkpoint *checkpoint)
{
    if (!info || !ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, checkpoint, S24_ERROR_ARGUMENT, "checkpoint is NULL");
    s24_transformer t = {.ctx = ctx};
    maker k = {.ctx = ctx, .t = &t};
    TRY(begin(&k, checkpoint));
    s24_transformer_describe(info, &t);
    return S24_OK;
}

static s24_status load(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint)
{
    maker k = {.ctx = ctx, .t = t, .only = -1};
    TRY(begin(&k, checkpoint));
    TRY(check_parts(t, ctx, checkpoint));
    TRY(s24i_vectors_read(t, ctx, checkpoint));
    const s24i_shape *s = &t->shape;
    const int64_t places = PLACES_ELSE + PLACES_A_BLOCK * s->layers;
    TRY(s24i_alloc_elems(&t->places, ctx, places, sizeof *t->places, "tensors' names"));
    TRY(s24i_alloc_elems(&t->segments, ctx, places, sizeof *t->segments, "segments"));
    TRY(s24i_zeroed(&t->norms, ctx, (size_t)(2 * s->layers + 1) * sizeof *t->norms));
    TRY(s24i_zeroed(&t->blocks, ctx, (size_t)s->layers * sizeof *t->blocks));
    k.walk.heads[0] = wanted_head(&k);
    t->machine.row_align = 1;
    TRY(walk(&k));
    TRY(s24i_make_machine(t, ctx));
    TRY(alloc_weights(t, ctx));
    k.filling = 1;
    TRY(walk(&k));
    t->machine.ops->refresh(&t->machine);
    TRY(t->machine.status);
    return s24i_plan_buffers(t, ctx);
}

s24_status s24i_transformer_open(s24_transformer *t, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                                 int64_t block)
{
    maker k = {.ctx = ctx, .t = t, .filling = 1, .only = block};
    t->machine.ctx = ctx;
    begin_walk(&k, checkpoint);
    k.walk.heads[0] = wanted_head(&k);
    TRY(walk(&k));
    t->machine.ops->refresh(&t->machine);
    return t->machine.status;
}

static s24_status load_with(s24_transformer **out, s24_ctx *ctx, const s24_checkpoint *checkpoint,
                            const s24_transformer_opts *opts, int window)
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
    s24_transformer *t;
    TRY(s24i_zeroed(&t, ctx, sizeof *t));
    t->ctx = ctx;
    t->opts = known;
    t->window = window;
    GIVE(out, t, s24_transformer_destroy, load(t, ctx, checkpoint));
}

s24_status s24_transformer_load(s24_transformer **out, s24_ctx *ctx,
                                const s24_checkpoint *checkpoint, const s24_transformer_opts *opts)
{
    return load_with(out, ctx, checkpoint, opts, 0);
}

s24_status s24i_transformer_load_window(s24_transformer **out, s24_ctx *ctx,
                                        const s24_checkpoint *checkpoint,
                                        const s24_transformer_opts *opts)
{
    return load_with(out, ctx, checkpoint, opts, 1);
}
