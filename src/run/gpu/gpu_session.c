// SPDX-License-Identifier: Apache-2.0
/*
 * Forward passes on a device: one stream, buffers for max_tokens tokens, everything enqueued without
 * waiting. A shape that comes again is captured into a graph, of which a bounded number is kept, the
 * one unused longest going first: launching kernels one by one costs more than a small batch.
 *
 * hidden [tokens, width] is updated by the norms, which add what the products left in sum: behind a
 * product a residual would be waited for, in a norm it streams. q, k and v stand side by side in qkv,
 * and sum takes their place. Where norms stand before the layers hidden holds the sums, and context
 * their norm whenever it does not hold what the attention gave. When the last block is done, qkv,
 * context and outer hold the outputs on their way to the host.
 */
#include "run/gpu/gpu_session.h"

#include <string.h>

#include "run/session.h"

/* Where the parts of a batch lie in inputs, in elements of 32 bits. */
typedef struct input_places {
    int64_t tiles, ids, positions, offsets, types, mask, pooled, end;
} input_places;

static input_places places_of(const s24i_gpu_shape *key)
{
    input_places p = {.tiles = 0};
    p.ids = 2 * key->tiles;
    p.positions = p.ids + (key->images ? 0 : key->tokens);
    p.offsets = p.positions + key->tokens;
    p.types = p.offsets + key->texts + 1;
    p.mask = p.types + (key->types ? key->tokens : 0);
    p.pooled = p.mask + (key->mask ? (key->tokens + 3) / 4 : 0);
    p.end = p.pooled + (key->unpooled ? (key->tokens + 3) / 4 : 0);
    return p;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static s24_status reserve(void **out, const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t cols)
{
    return s24_device_alloc(out, ctx, gpu->device,
                            (size_t)(gpu->max_tokens * cols * S24I_GPU_ELEMENT), gpu->stream);
}

static s24_status reserve_work(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], i);
            const size_t bytes =
                l->packed ? s24_device_linear_work_bytes(gpu->device, l->packed) : 0;
            gpu->work_bytes = bytes > gpu->work_bytes ? bytes : gpu->work_bytes;
        }
    if (gpu->work_bytes) {
        TRY(s24_device_alloc(&gpu->work, ctx, gpu->device, gpu->work_bytes, gpu->stream));
        TRY(s24_device_clear(ctx, gpu->device, gpu->work, gpu->work_bytes, gpu->stream));
    }
    return s24_device_alloc(&gpu->dense_work, ctx, gpu->device, S24I_GPU_DENSE_WORK, gpu->stream);
}

static s24_status reserve_images(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t images = gpu->max_tokens / s->positions;
    const int64_t pixels = images * s->channels * s->image * s->image;
    TRY(s24_device_alloc(&gpu->pixels, ctx, gpu->device, (size_t)pixels * sizeof(float),
                         gpu->stream));
    if (!gpu->model->class_weight) return S24_OK;
    return s24_device_alloc(&gpu->class_logits, ctx, gpu->device,
                            (size_t)(images * s->classes) * sizeof(float), gpu->stream);
}

static s24_status fill(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_shape *s = &gpu->model->shape;
    const int64_t tokens = gpu->max_tokens;
    const s24i_gpu_shape most = {.tokens = tokens,
                                 .texts = tokens,
                                 .tiles = tokens + tokens / 64 + 1,
                                 .types = 1,
                                 .mask = 1,
                                 .unpooled = 1};
    void *inputs;
    gpu->wide = s24i_max(s->intermediate, 2 * s->width); /* f32 hidden states fit too */
    if (s->image) gpu->wide = s24i_max(gpu->wide, gpu->model->patch_map.row);
    gpu->input_bytes = (size_t)places_of(&most).end * sizeof(int32_t);
    TRY(s24_device_stream_create(&gpu->stream, ctx, gpu->device));
    TRY(reserve(&gpu->hidden, gpu, ctx, s->width));
    TRY(reserve(&gpu->qkv, gpu, ctx, 3 * s->width));
    TRY(reserve(&gpu->context, gpu, ctx, s->width));
    TRY(reserve(&gpu->outer, gpu, ctx, gpu->wide));
    TRY(s24_device_alloc(&inputs, ctx, gpu->device, gpu->input_bytes, gpu->stream));
    gpu->inputs = inputs;
    TRY(s24_device_pinned_alloc(&inputs, ctx, gpu->device, gpu->input_bytes));
    gpu->pinned = inputs;
    if (s->image) TRY(reserve_images(gpu, ctx));
    TRY(s24i_gpu_narrow_reserve(gpu, ctx));
    TRY(s24i_gpu_norm_create(gpu, ctx));
    return reserve_work(gpu, ctx);
}

s24_status s24i_gpu_session_create(s24i_gpu_session **out, s24_ctx *ctx, const s24_model *model,
                                   int64_t max_tokens)
{
    void *memory;
    *out = NULL;
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    s24i_gpu_session *gpu = memory;
    gpu->ctx = ctx;
    gpu->model = model;
    gpu->device = model->device;
    gpu->max_tokens = max_tokens;
    const s24_status status = fill(gpu, ctx);
    if (status != S24_OK) {
        s24i_gpu_session_destroy(gpu);
        return status;
    }
    *out = gpu;
    return S24_OK;
}

void s24i_gpu_session_destroy(s24i_gpu_session *gpu)
{
    if (!gpu) return;
    s24_ctx *ctx = gpu->ctx;
    if (gpu->stream) (void)s24_device_wait(ctx, gpu->device, gpu->stream);
    for (int i = 0; i < S24I_GPU_GRAPHS; i++)
        s24_device_graph_destroy(gpu->device, gpu->graphs[i].graph);
    void *const buffers[] = {gpu->hidden,       gpu->qkv,        gpu->context, gpu->outer,
                             gpu->work,         gpu->inputs,     gpu->pixels,  gpu->class_logits,
                             gpu->narrow_scale, gpu->dense_work, gpu->narrow,  gpu->moments[0],
                             gpu->moments[1],   gpu->terms};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i]) (void)s24_device_free(ctx, gpu->device, buffers[i], gpu->stream);
    for (int i = 0; i < S24I_PRODUCTS; i++)
        if (gpu->dense_copies[i])
            (void)s24_device_free(ctx, gpu->device, gpu->dense_copies[i], gpu->stream);
    s24_device_pinned_free(gpu->device, gpu->pinned);
    s24_device_stream_destroy(gpu->device, gpu->stream);
    s24_ctx_free(ctx, gpu);
}

/* ---- the pass -------------------------------------------------------------------------------- */

s24_status s24i_gpu_norm(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_layer_norm *norm,
                         const s24_dense *hidden, const s24_dense *sum, int narrow)
{
    const int before = gpu->model->architecture->pre_norm;
    const s24_dense context = s24i_gpu_view(gpu, gpu->context, hidden->rows, hidden->cols);
    const s24_dense eight = s24i_gpu_narrow_view(gpu, hidden->rows, hidden->cols);
    const s24_device_norm_args args = {.size = sizeof args,
                                       .y = !before       ? hidden
                                            : norm->gamma ? &context
                                                          : NULL,
                                       .sum = before ? hidden : NULL,
                                       .x = sum ? sum : hidden,
                                       .residual = sum ? hidden : NULL,
                                       .gamma = s24i_on_device(gpu->model, norm->gamma),
                                       .beta = s24i_on_device(gpu->model, norm->beta),
                                       .eps = norm->eps,
                                       .narrow = narrow ? &eight : NULL,
                                       .narrow_scale = gpu->narrow_scale,
                                       .stream = gpu->stream};
    return s24_device_norm(ctx, gpu->device, &args);
}

static s24_status embed(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                        const s24_dense *hidden)
{
    const s24_model *model = gpu->model;
    const input_places p = places_of(key);
    const s24_dense eight = s24i_gpu_narrow_view(gpu, hidden->rows, hidden->cols);
    if (key->images) return s24i_gpu_embed_images(gpu, ctx, key->texts, gpu->inputs + p.positions);
    const s24_device_norm_args args = {
        .size = sizeof args,
        .y = hidden,
        .ids = gpu->inputs + p.ids,
        .positions = gpu->inputs + p.positions,
        .types = key->types ? gpu->inputs + p.types : NULL,
        .words = model->device_words,
        .position_rows = s24i_on_device(model, model->position_rows),
        .type_rows = s24i_on_device(model, model->type_rows),
        .gamma = s24i_on_device(model, model->embedding_norm.gamma),
        .beta = s24i_on_device(model, model->embedding_norm.beta),
        .eps = model->embedding_norm.eps,
        .narrow = s24i_gpu_norm_narrows(gpu, key->tokens, 0, 0) ? &eight : NULL,
        .narrow_scale = gpu->narrow_scale,
        .stream = gpu->stream};
    return s24_device_norm(ctx, gpu->device, &args);
}

static int queries_of(const s24i_gpu_session *gpu, int64_t tokens)
{
    const s24i_shape *s = &gpu->model->shape;
    return s24_device_attention_queries(gpu->device, tokens, s->width, s->heads);
}

static const uint8_t *mask_of(const s24i_gpu_session *gpu, const s24i_gpu_shape *key)
{
    return key->mask ? (const uint8_t *)(gpu->inputs + places_of(key).mask) : NULL;
}

/* The tokens that pooling takes, which attention's mask says unless a prompt is left out. */
static const uint8_t *pooled_of(const s24i_gpu_session *gpu, const s24i_gpu_shape *key)
{
    return key->unpooled ? (const uint8_t *)(gpu->inputs + places_of(key).pooled)
                         : mask_of(gpu, key);
}

/* context = the attention of q, k and v. */
static s24_status attend(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                         int64_t number)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[number];
    const input_places p = places_of(key);
    const s24_dense qkv = s24i_gpu_view(gpu, gpu->qkv, key->tokens, 3 * s->width);
    const s24_dense context = s24i_gpu_view(gpu, gpu->context, key->tokens, s->width);
    if (s->grid) {
        const int64_t side = s24i_attended_side(s, number);
        const s24_device_attention_grid_args args = {
            .size = sizeof args,
            .context = &context,
            .qkv = &qkv,
            .heads = s->heads,
            .images = key->texts,
            .grid = s->grid,
            .window = side < s->grid ? side : 0,
            .bias = s24i_on_device(gpu->model, b->bias[S24I_QUERY]),
            .rel_h = s24i_on_device(gpu->model, b->rel_h),
            .rel_w = s24i_on_device(gpu->model, b->rel_w),
            .stream = gpu->stream};
        return s24_device_attention_grid(ctx, gpu->device, &args);
    }
    const s24_device_attention_args args = {.size = sizeof args,
                                            .context = &context,
                                            .qkv = &qkv,
                                            .heads = s->heads,
                                            .offsets = gpu->inputs + p.offsets,
                                            .tiles = gpu->inputs + p.tiles,
                                            .tile_count = key->tiles,
                                            .queries = queries_of(gpu, key->tokens),
                                            .mask = mask_of(gpu, key),
                                            .stream = gpu->stream};
    return s24_device_attention(ctx, gpu->device, &args);
}

/* The norm behind the sums of a block: its own, or where norms stand before layers the next one's. */
static const s24i_layer_norm *norm_behind(const s24_model *model, int64_t block)
{
    if (!model->architecture->pre_norm) return &model->blocks[block].output_norm;
    return block + 1 < model->shape.layers ? &model->blocks[block + 1].attention_norm
                                           : &model->final_norm;
}

static s24_status block(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                        int64_t number, const s24_dense *hidden)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24i_block *b = &gpu->model->blocks[number];
    const int folded = gpu->folded[s24i_gpu_octave(key->tokens)];
    const s24_dense sum = s24i_gpu_view(gpu, gpu->qkv, key->tokens, s->width);
    for (int i = 0; i < b->qkv_count; i++)
        TRY(s24i_gpu_product(gpu, ctx, key->tokens, number, i));
    TRY(attend(gpu, ctx, key, number));
    TRY(s24i_gpu_product(gpu, ctx, key->tokens, number, S24I_PRODUCT_ATTENTION));
    const int before = gpu->model->architecture->pre_norm;
    if (!folded)
        TRY(s24i_gpu_norm(
            gpu, ctx, before ? &b->output_norm : &b->attention_norm, hidden, &sum,
            s24i_gpu_norm_narrows(gpu, key->tokens, number, S24I_PRODUCT_INTERMEDIATE)));
    TRY(s24i_gpu_product(gpu, ctx, key->tokens, number, S24I_PRODUCT_INTERMEDIATE));
    TRY(s24i_gpu_product(gpu, ctx, key->tokens, number, S24I_PRODUCT_OUTPUT));
    if (folded && number + 1 < s->layers) return S24_OK;
    return s24i_gpu_norm(gpu, ctx, norm_behind(gpu->model, number), hidden, folded ? NULL : &sum,
                         s24i_gpu_norm_narrows(gpu, key->tokens, number + 1, 0));
}

/* logits [images, classes] from the first token of each. */
static s24_status classify(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                           const s24_dense *states)
{
    const s24_model *model = gpu->model;
    const s24_dense w =
        s24i_gpu_view(gpu, (void *)(uintptr_t)s24i_on_device(model, model->class_weight),
                      model->shape.classes, model->shape.width);
    const s24_dense first = {states->data, states->dtype, key->texts, states->cols,
                             model->shape.positions * states->cols};
    const s24_device_head_args args = {.size = sizeof args,
                                       .y = gpu->class_logits,
                                       .x = &first,
                                       .w = &w,
                                       .bias = model->device_class_bias,
                                       .rows_first = 1,
                                       .stream = gpu->stream};
    return s24_device_head(ctx, gpu->device, &args);
}

static s24_status results(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                          const s24_dense *hidden)
{
    const s24_model *model = gpu->model;
    const int64_t width = model->shape.width;
    const s24_dense normed = s24i_gpu_view(gpu, gpu->context, key->tokens, width);
    const s24_dense *states = model->final_norm.gamma ? &normed : hidden;
    static const s24_device_pooling poolings[] = {[S24I_POOL_MEAN] = S24_DEVICE_POOL_MEAN,
                                                  [S24I_POOL_CLS] = S24_DEVICE_POOL_FIRST,
                                                  [S24I_POOL_MAX] = S24_DEVICE_POOL_MAX};
    if (key->hidden) {
        const s24_device_head_args args = {
            .size = sizeof args, .y = gpu->outer, .x = hidden, .stream = gpu->stream};
        TRY(s24_device_head(ctx, gpu->device, &args));
    }
    if (key->logits) {
        const s24_dense w = s24i_gpu_view(
            gpu, (void *)(uintptr_t)s24i_on_device(model, model->qa_weight), 2, width);
        const s24_device_head_args args = {.size = sizeof args,
                                           .y = gpu->context,
                                           .x = hidden,
                                           .w = &w,
                                           .bias = model->device_qa_bias,
                                           .stream = gpu->stream};
        TRY(s24_device_head(ctx, gpu->device, &args));
    }
    if (key->classes) TRY(classify(gpu, ctx, key, states));
    if (!key->embeddings) return S24_OK;
    const s24_device_pool_args args = {.size = sizeof args,
                                       .y = gpu->qkv,
                                       .x = states,
                                       .offsets = gpu->inputs + places_of(key).offsets,
                                       .texts = key->texts,
                                       .mask = pooled_of(gpu, key),
                                       .pooling = poolings[model->pooled.pooling],
                                       .normalise = model->pooled.normalise,
                                       .stream = gpu->stream};
    return s24_device_pool(ctx, gpu->device, &args);
}

static s24_status enqueue(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key)
{
    const s24i_shape *s = &gpu->model->shape;
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, key->tokens, s->width);
    TRY(embed(gpu, ctx, key, &hidden));
    for (int64_t b = 0; b < s->layers; b++)
        TRY(block(gpu, ctx, key, b, &hidden));
    return results(gpu, ctx, key, &hidden);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static s24_status capture(s24_device_graph **out, const s24i_gpu_session *gpu, s24_ctx *ctx,
                          const s24i_gpu_shape *key)
{
    s24_device_graph *graph = NULL;
    TRY(s24_device_graph_begin(ctx, gpu->device, gpu->stream));
    s24_status status = enqueue(gpu, ctx, key);
    const s24_status ended =
        s24_device_graph_end(&graph, status == S24_OK ? ctx : gpu->ctx, gpu->device, gpu->stream);
    if (status == S24_OK) status = ended;
    if (status == S24_OK)
        *out = graph;
    else
        s24_device_graph_destroy(gpu->device, graph);
    return status;
}

/* The entry of a shape: known, or in the place of the one unused longest. */
static s24i_gpu_graph *entry_of(s24i_gpu_session *gpu, const s24i_gpu_shape *key, int *known)
{
    s24i_gpu_graph *oldest = &gpu->graphs[0];
    for (int i = 0; i < S24I_GPU_GRAPHS; i++) {
        s24i_gpu_graph *g = &gpu->graphs[i];
        *known = g->used && memcmp(&g->shape, key, sizeof *key) == 0;
        if (*known) return g;
        if (g->used < oldest->used) oldest = g;
    }
    s24_device_graph_destroy(gpu->device, oldest->graph);
    *oldest = (s24i_gpu_graph){.shape = *key};
    return oldest;
}

static s24_status run(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key)
{
    int known;
    s24i_gpu_graph *g = entry_of(gpu, key, &known);
    g->used = ++gpu->passes;
    if (known && !g->graph) TRY(capture(&g->graph, gpu, ctx, key));
    if (g->graph) return s24_device_graph_launch(ctx, gpu->device, g->graph, gpu->stream);
    return enqueue(gpu, ctx, key);
}

/* ---- in and out ------------------------------------------------------------------------------ */

/* queries 0: attention over a grid needs no tiles. */
static int64_t tile_count(const s24_batch *batch, int queries)
{
    int64_t count = 0;
    for (int64_t b = 0; queries && b < batch->texts; b++)
        count += (batch->offsets[b + 1] - batch->offsets[b] + queries - 1) / queries;
    return count;
}

static void write_inputs(s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key,
                         int queries)
{
    const input_places p = places_of(key);
    int32_t *tiles = gpu->pinned + p.tiles, *positions = gpu->pinned + p.positions;
    uint8_t *pooled = (uint8_t *)(gpu->pinned + p.pooled);
    for (int64_t b = 0; b < batch->texts; b++) {
        const int64_t length = batch->offsets[b + 1] - batch->offsets[b];
        for (int64_t q = 0; queries && q < length; q += queries) {
            *tiles++ = (int32_t)b;
            *tiles++ = (int32_t)q;
        }
        for (int64_t t = 0; t < length; t++)
            *positions++ = (int32_t)t;
        for (int64_t t = 0; key->unpooled && t < length; t++)
            *pooled++ = (uint8_t)s24i_is_pooled(batch, batch->offsets[b] + t, t, key->unpooled);
    }
    for (int64_t b = 0; b <= batch->texts; b++)
        gpu->pinned[p.offsets + b] = (int32_t)batch->offsets[b];
    const size_t tokens = (size_t)key->tokens;
    if (!key->images) memcpy(gpu->pinned + p.ids, batch->ids, tokens * sizeof(int32_t));
    if (key->types) memcpy(gpu->pinned + p.types, batch->types, tokens * sizeof(int32_t));
    if (key->mask) memcpy(gpu->pinned + p.mask, batch->mask, tokens);
}

static size_t pixel_bytes(const s24i_gpu_session *gpu, const s24i_gpu_shape *key)
{
    const s24i_shape *s = &gpu->model->shape;
    return (size_t)(key->texts * s->channels * s->image * s->image) * sizeof(float);
}

s24_status s24i_gpu_submit(s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                           const s24_outputs *outputs, int64_t unpooled)
{
    s24i_gpu_shape key = {.tokens = batch->offsets[batch->texts],
                          .texts = batch->texts,
                          .types = batch->types && gpu->model->type_rows,
                          .mask = batch->mask != NULL,
                          .unpooled = unpooled,
                          .embeddings = outputs->embeddings != NULL,
                          .logits = outputs->start_logits || outputs->end_logits,
                          .hidden = outputs->hidden != NULL,
                          .classes = outputs->logits != NULL,
                          .images = gpu->pixels != NULL};
    const int queries = queries_of(gpu, key.tokens);
    key.tiles = tile_count(batch, queries);
    REQUIRE(ctx, !outputs->blocks, S24_ERROR_UNSUPPORTED,
            "the hidden states of every block are not given by a device");
    TRY(s24i_gpu_finish(gpu, ctx));
    TRY(s24i_gpu_plan(gpu, ctx, key.tokens));
    write_inputs(gpu, batch, &key, queries);
    TRY(s24_device_copy(ctx, gpu->device, gpu->inputs, gpu->pinned,
                        (size_t)places_of(&key).end * sizeof(int32_t), gpu->stream));
    if (key.images)
        TRY(s24_device_copy(ctx, gpu->device, gpu->pixels, batch->pixels, pixel_bytes(gpu, &key),
                            gpu->stream));
    TRY(run(gpu, ctx, &key));
    gpu->outputs = *outputs;
    gpu->submitted = key;
    return S24_OK;
}

static s24_status fetch(const s24i_gpu_session *gpu, s24_ctx *ctx, float *to, const void *from,
                        int64_t first, int64_t count)
{
    if (!to) return S24_OK;
    return s24_device_copy(ctx, gpu->device, to, (const float *)from + first,
                           (size_t)count * sizeof(float), gpu->stream);
}

s24_status s24i_gpu_finish(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_gpu_shape key = gpu->submitted;
    const s24_outputs *o = &gpu->outputs;
    const int64_t width = gpu->model->shape.width;
    if (!key.tokens) return S24_OK;
    gpu->submitted.tokens = 0;
    TRY(fetch(gpu, ctx, o->embeddings, gpu->qkv, 0, key.texts * width));
    /* Side by side they come in one copy: each costs a small pass some microseconds. */
    const int beside = o->start_logits && o->end_logits == o->start_logits + key.tokens;
    TRY(fetch(gpu, ctx, o->start_logits, gpu->context, 0, (1 + beside) * key.tokens));
    if (!beside) TRY(fetch(gpu, ctx, o->end_logits, gpu->context, key.tokens, key.tokens));
    TRY(fetch(gpu, ctx, o->hidden, gpu->outer, 0, key.tokens * width));
    TRY(fetch(gpu, ctx, o->logits, gpu->class_logits, 0, key.texts * gpu->model->shape.classes));
    return s24_device_wait(ctx, gpu->device, gpu->stream);
}
