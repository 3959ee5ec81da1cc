// SPDX-License-Identifier: Apache-2.0
/* The memory of passes, planned once: every buffer is a part of one arena. */
#include <string.h>

#include "model/apart.h"
#include "model/distances.h"
#include "model/rotary.h"
#include "train/transformer.h"

/* Logits that are made at a time on the CPU and on a device, and gradients of them that are used at
   a time there; rows of the first are a multiple of ROWS where they are so many, as tiles of
   products are. */
enum { CPU_LOGITS = 1 << 23, LOGITS = 1 << 27, DLOGITS = 1 << 28, ROWS = 128, MOST_ROWS = 1 << 20 };

/* With base NULL it only counts. */
typedef struct plan {
    char *base;
    size_t used, align, element;
} plan;

static void *part(plan *p, int64_t count, size_t size)
{
    void *memory = p->base ? p->base + p->used : NULL;
    p->used += ((size_t)count * size + p->align - 1) / p->align * p->align;
    return memory;
}
static float *floats(plan *p, int64_t count)
{
    return part(p, count, sizeof(float));
}
static void *activations(plan *p, int64_t count)
{
    return part(p, count, p->element);
}
static s24i_stacked stacked(plan *p, int64_t slots, int64_t count, size_t size)
{
    const size_t step = ((size_t)count * size + p->align - 1) / p->align * p->align;
    return (s24i_stacked){part(p, slots * (int64_t)step, 1), step};
}

/* Does the pass backward read the tokens sorted by id? */
static int is_sorted(const s24_transformer *t)
{
    return t->opts.train && t->machine.ops->sorted && !t->shape.image;
}

/* Do gradients of logits lie where these were? */
static int is_in_place(const s24_transformer *t)
{
    return t->machine.element == sizeof(float);
}

static void plan_step(plan *p, s24_transformer *t)
{
    const int64_t tokens = t->opts.max_tokens, texts = t->opts.max_texts;
    const s24i_shape *s = &t->shape;
    s24i_train_batch *r = &t->room;
    r->offsets = part(p, texts + 1, sizeof *r->offsets);
    r->tiles = part(p, texts + 1, sizeof *r->tiles);
    r->bounds = part(p, texts + 1, sizeof *r->bounds);
    r->ids = part(p, tokens, sizeof *r->ids);
    r->types = part(p, tokens, sizeof *r->types);
    r->positions = part(p, tokens, sizeof *r->positions);
    if (s->masked_grows) r->factors = floats(p, tokens);
    r->mask = part(p, tokens, sizeof *r->mask);
    r->targets = part(p, tokens, sizeof *r->targets);
    if (is_sorted(t)) r->order = part(p, tokens, sizeof *r->order);
    r->starts = part(p, texts, sizeof *r->starts);
    r->ends = part(p, texts, sizeof *r->ends);
    if (s->image) r->pixels = floats(p, tokens / s->positions * s->channels * s->image * s->image);
}

/* Positions that a text of a batch can reach; a model may say a million. */
static int64_t turned_positions(const s24_transformer *t)
{
    return s24i_min(t->shape.positions, t->opts.max_tokens);
}

/* What passes know of positions and of tokens' distance. */
static void plan_positions(plan *p, s24_transformer *t)
{
    const s24i_shape *s = &t->shape;
    s24i_buffers *at = &t->at;
    const int64_t longest = turned_positions(t), angles = longest * s24i_turned(s);
    const int64_t count = s24i_distances(longest, &at->distance_zero);
    const int by_head = s24i_has_distances(t->arch);
    at->distances_head = by_head ? count : 0;
    at->distances_block = s->tables ? s->heads * count : 0;
    if (t->arch->rotary) at->angles = floats(p, angles);
    if (s->near_rope.theta != 0.0f) at->near_angles = floats(p, angles);
    if (by_head || (s->near && !t->machine.gpu))
        at->distances = floats(p, by_head ? s24i_max(s->tables, 1) * s->heads * count : count);
    if (t->arch->relative && t->machine.gpu) at->buckets = part(p, count, sizeof *at->buckets);
}

/* Rows of distances, and, of a pass backward, their gradients. */
static void plan_apart(plan *p, s24_transformer *t)
{
    const s24i_shape *s = &t->shape;
    s24i_buffers *at = &t->at;
    const int64_t rows = s24i_apart_rows(&s->apart);
    if (!t->apart) return;
    at->apart = floats(p, rows * s->width);
    at->apart_stats = floats(p, 2 * rows);
    at->apart_qkv = floats(p, rows * s24i_qkv_outputs(s));
    if (!t->opts.train) return;
    at->dapart_qkv = floats(p, rows * s24i_qkv_outputs(s));
    at->dapart_block = floats(p, rows * s->width);
    at->dapart = floats(p, rows * s->width);
}

/* How many rows the head takes at a time. */
static void plan_chunks(s24_transformer *t)
{
    s24i_buffers *at = &t->at;
    const int64_t tokens = t->opts.max_tokens, n = t->head.ldy;
    at->chunk = 0;
    at->chunks = 1;
    if (n && t->head_kind == S24_HEAD_LM) {
        const int64_t logits = t->machine.gpu ? LOGITS : CPU_LOGITS;
        const int64_t most = s24i_max(1, s24i_min(MOST_ROWS, logits / n));
        at->chunk = s24i_min(tokens, most < ROWS ? most : most / ROWS * ROWS);
        if (!is_in_place(t))
            at->chunks = s24i_max(
                1, s24i_min(DLOGITS / (n * at->chunk), (tokens + at->chunk - 1) / at->chunk));
    } else if (n) {
        at->chunk = t->head_kind == S24_HEAD_QA ? tokens : t->opts.max_texts;
    }
}

/* Of each layer where a backward pass will ask for them, else of the one at work. */
static void plan_forward(plan *p, s24_transformer *t)
{
    const s24i_shape *s = &t->shape;
    s24i_buffers *at = &t->at;
    const int64_t tokens = t->opts.max_tokens, gated = s24i_is_gated(t->arch) ? 2 : 1;
    const int64_t wide = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    const int64_t norms = s24i_norm_slot(t, 2 * s->layers) + 1;
    const int64_t blocks = s24i_block_slot(t, s->layers - 1) + 1;
    at->s = stacked(p, norms, tokens * s->width, p->element);
    at->n = stacked(p, norms, tokens * s->width, p->element);
    at->stats = stacked(p, norms, 2 * tokens, sizeof(float));
    at->qkv = stacked(p, blocks, tokens * (wide + 2 * kv), p->element);
    if (t->arch->query_norm) {
        at->raw = stacked(p, blocks, tokens * (wide + 2 * kv), p->element);
        at->head_stats =
            stacked(p, blocks, 2 * (tokens + 1) * (s->heads + s->kv_heads), sizeof(float));
    }
    at->context = stacked(p, blocks, tokens * wide, p->element);
    at->u = stacked(p, blocks, tokens * s->intermediate * gated, p->element);
    at->h = stacked(p, blocks, tokens * s->intermediate, p->element);
    at->lse = stacked(p, blocks, t->machine.gpu ? tokens * s->heads : 0, sizeof(float));
    at->z = activations(p, tokens * s->width);
    if (t->arch->after_attention_norm || t->arch->attention_scale) {
        at->added = stacked(p, 2 * blocks, tokens * s->width, p->element);
        at->added_stats = stacked(p, 2 * blocks, 2 * tokens, sizeof(float));
    }
    if (s24i_projects(s)) {
        at->narrow = activations(p, tokens * s->embedding);
        at->narrow_n = activations(p, tokens * s->embedding);
    }
    if (s24i_is_normed_twice(t)) {
        at->narrow = activations(p, tokens * s->width);
        at->embedding_stats = floats(p, 2 * tokens);
    }
    if (s->image) at->rows = activations(p, tokens * s->channels * s->patch * s->patch);
    plan_positions(p, t);
    plan_apart(p, t);
    at->pooled = floats(p, t->opts.max_texts * s24i_pooled_width(t));
    at->vectors =
        t->modules.count ? floats(p, t->opts.max_texts * s24i_vector_width(t)) : at->pooled;
    at->sums = part(p, 1, sizeof *at->sums);
    plan_chunks(t);
    at->logits = floats(p, at->chunk * t->head.ldy);
}

static void plan_backward(plan *p, s24_transformer *t)
{
    const s24i_shape *s = &t->shape;
    s24i_buffers *at = &t->at;
    const int64_t tokens = t->opts.max_tokens, gated = s24i_is_gated(t->arch) ? 2 : 1;
    const int64_t wide = s->heads * s->head_width, kv = s->kv_heads * s->head_width;
    const int64_t narrow = s24i_projects(s) ? tokens * s->embedding : 0;
    at->dn = activations(p, tokens * s->width);
    at->ds = activations(p, tokens * s->width);
    at->narrow_dn = activations(p, narrow);
    at->narrow_ds = activations(p, narrow);
    at->dqkv = activations(p, tokens * (wide + 2 * kv));
    at->dcontext = activations(p, tokens * wide);
    at->dh = activations(p, tokens * s->intermediate);
    at->du = gated > 1 ? activations(p, tokens * s->intermediate * gated) : at->dh;
    at->dlogits =
        is_in_place(t) ? at->logits : activations(p, at->chunks * at->chunk * t->head.ldy);
    at->states = activations(p, (s->layers + 1) * tokens * s->width);
    const s24i_train_batch most = {
        .tokens = tokens, .texts = t->opts.max_texts, .longest = s24i_min(tokens, s->positions)};
    s24i_heads heads = s24i_heads_of(t, 0);
    heads.step = &most;
    at->attention_bytes = t->machine.ops->attention_bytes(&t->machine, &heads);
    at->attention = part(p, (int64_t)at->attention_bytes, 1);
    at->teacher_vectors = floats(p, t->opts.max_texts * s24i_vector_width(t));
    at->teacher_logits = floats(p, at->chunk * t->head.ldy);
}

static void plan_all(plan *p, s24_transformer *t)
{
    plan_step(p, t);
    plan_forward(p, t);
    if (t->opts.train) plan_backward(p, t);
}

static s24_status fill_angles(s24_transformer *t, s24_ctx *ctx, float *to, const s24i_rope *rope)
{
    const int64_t d = s24i_turned(&t->shape), positions = turned_positions(t);
    const int64_t count = positions * d;
    float *angles;
    TRY(s24i_alloc_elems(&angles, ctx, count, sizeof *angles, "rotary positions"));
    s24i_rotary_fill(angles, rope, d, positions);
    t->machine.ops->upload(&t->machine, to, angles, (size_t)count * sizeof *angles);
    s24_ctx_free(ctx, angles);
    return S24_OK;
}

static s24_status fill_apart(s24_transformer *t, s24_ctx *ctx)
{
    const int64_t zero = t->at.distance_zero;
    if (!t->apart) return S24_OK;
    TRY(s24i_alloc_elems(&t->apart_rows, ctx, 2 * zero + 1, sizeof *t->apart_rows, "distances"));
    for (int64_t by = -zero; by <= zero; by++)
        t->apart_rows[by + zero] = (int32_t)s24i_apart_row(&t->shape.apart, by);
    return S24_OK;
}

/* Of each distance, as attention's tables have it. */
static s24_status fill_buckets(s24_transformer *t, s24_ctx *ctx)
{
    const int64_t count = t->at.distances_head;
    int32_t *buckets;
    TRY(s24i_alloc_elems(&buckets, ctx, count, sizeof *buckets, "distances"));
    for (int64_t i = 0; i < count; i++)
        buckets[i] = (int32_t)s24i_bucket(&t->shape, i - t->at.distance_zero);
    t->machine.ops->upload(&t->machine, t->at.buckets, buckets, (size_t)count * sizeof *buckets);
    s24_ctx_free(ctx, buckets);
    return S24_OK;
}

s24_status s24i_plan_buffers(s24_transformer *t, s24_ctx *ctx)
{
    const s24i_machine *m = &t->machine;
    plan p = {.align = m->memory_align, .element = m->element};
    const int64_t words = t->opts.max_texts + 1 + t->opts.max_tokens +
                          (is_sorted(t) ? t->opts.max_tokens + t->shape.vocabulary : 0);
    TRY(s24i_alloc_elems(&t->host, ctx, 2 * (t->opts.max_texts + 1), sizeof *t->host, "a batch"));
    TRY(s24i_alloc_elems(&t->host_words, ctx, words, sizeof *t->host_words, "a batch"));
    if (t->shape.masked_grows)
        TRY(s24i_alloc_elems(&t->host_factors, ctx, t->opts.max_tokens, sizeof(float), "a batch"));
    plan_all(&p, t);
    t->arena = m->ops->alloc(&t->machine, p.used);
    REQUIRE(ctx, t->arena, S24_ERROR_MEMORY, "out of memory: %zu bytes for passes over %lld tokens",
            p.used, (long long)t->opts.max_tokens);
    p.base = t->arena;
    p.used = 0;
    plan_all(&p, t);
    TRY(fill_apart(t, ctx));
    if (t->at.angles) TRY(fill_angles(t, ctx, t->at.angles, &t->shape.rope));
    if (t->at.buckets) TRY(fill_buckets(t, ctx));
    return t->at.near_angles ? fill_angles(t, ctx, t->at.near_angles, &t->shape.near_rope) : S24_OK;
}
