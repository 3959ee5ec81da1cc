// SPDX-License-Identifier: Apache-2.0
/*
 * Forward passes on a device: one stream, buffers for max_tokens tokens, everything enqueued
 * without waiting. A shape that comes again is captured into a graph, of which a bounded number is
 * kept, the one unused longest going first: launching kernels one by one costs more than a small
 * batch.
 *
 * What the blocks do is in gpu_block.c. When the last one is done, qkv, context and outer hold the
 * outputs on their way to the host.
 */
#include "run/gpu/gpu_state.h"

#include <string.h>

#include "comm/transport.h"

/* ---- create and destroy ---------------------------------------------------------------------- */

static s24_status reserve(void **out, const s24i_gpu_session *gpu, s24_ctx *ctx, int64_t cols)
{
    return s24_device_alloc(out, ctx, gpu->device,
                            (size_t)(gpu->max_tokens * cols * S24I_GPU_ELEMENT), gpu->stream);
}

static s24_status reserve_work(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    for (int64_t b = 0; b < gpu->model->shape.layers; b++)
        for (int i = 0; i < s24i_block_products(&gpu->model->blocks[b]); i++) {
            const s24i_linear *l = s24i_block_product(&gpu->model->blocks[b], i);
            const size_t bytes = s24i_linear_work_bytes(l, ctx, gpu->max_tokens);
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
                                 .unpooled = 1,
                                 .kept = 1,
                                 .cached = S24I_GPU_MORE};
    void *inputs;
    /* f32 hidden states fit too */
    gpu->wide = s24i_max(s->intermediate * (s->gated ? 2 : 1), 2 * s->width);
    if (s->image) gpu->wide = s24i_max(gpu->wide, gpu->model->patch_map.row);
    gpu->wide = s24i_max(gpu->wide, s24i_embedding_width(s));
    gpu->input_bytes = (size_t)s24i_gpu_places_of(&most).end * sizeof(int32_t);
    TRY(s24_device_stream_create(&gpu->stream, ctx, gpu->device));
    TRY(reserve(&gpu->hidden, gpu, ctx, s->width));
    TRY(reserve(&gpu->qkv, gpu, ctx, s24i_max(s24i_qkv_outputs(s), s->width)));
    TRY(reserve(&gpu->context, gpu, ctx, s24i_max(s->heads * s->head_width, s->width)));
    TRY(reserve(&gpu->outer, gpu, ctx, gpu->wide));
    if (gpu->model->architecture->side_by_side) TRY(reserve(&gpu->normed, gpu, ctx, s->width));
    TRY(s24_device_alloc(&inputs, ctx, gpu->device, gpu->input_bytes, gpu->stream));
    gpu->inputs = inputs;
    TRY(s24_device_pinned_alloc(&inputs, ctx, gpu->device, gpu->input_bytes));
    gpu->pinned = inputs;
    if (s->image) TRY(reserve_images(gpu, ctx));
    TRY(s24i_gpu_eight_reserve(gpu, ctx));
    TRY(s24i_gpu_fold_create(gpu, ctx));
    TRY(s24i_gpu_language_create(gpu, ctx));
    TRY(s24i_gpu_latent_create(gpu, ctx));
    TRY(s24i_gpu_scores_create(gpu, ctx));
    TRY(s24i_gpu_logits_create(gpu, ctx));
    TRY(s24i_gpu_experts_create(gpu, ctx));
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
    gpu->steps = model->ranks.comm ? s24i_steps_shared(model->architecture)
                                   : s24i_steps_of(model->architecture);
    gpu->mixed = s24i_steps_mixed(model->architecture);
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
    s24i_gpu_experts_destroy(gpu);
    void *const buffers[] = {gpu->hidden,
                             gpu->qkv,
                             gpu->context,
                             gpu->outer,
                             gpu->work,
                             gpu->inputs,
                             gpu->pixels,
                             gpu->class_logits,
                             gpu->eight_scale,
                             gpu->dense_work,
                             gpu->eight,
                             gpu->moments[0],
                             gpu->moments[1],
                             gpu->terms,
                             gpu->gammas,
                             gpu->stats,
                             gpu->angles,
                             gpu->near_angles,
                             gpu->gated,
                             gpu->logits,
                             gpu->lm_bias,
                             gpu->train_work,
                             gpu->targets,
                             gpu->losses,
                             gpu->pick_work,
                             gpu->eight_bias,
                             gpu->widened,
                             gpu->normed,
                             gpu->betas,
                             gpu->head_gammas,
                             gpu->sinks,
                             gpu->latents,
                             gpu->scores.distances,
                             gpu->scores.apart_rows,
                             gpu->scores.of_queries,
                             gpu->scores.of_keys};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i]) (void)s24_device_free(ctx, gpu->device, buffers[i], gpu->stream);
    for (int i = 0; i < S24I_PRODUCTS; i++)
        s24i_gpu_drop_copies(gpu, ctx, i);
    s24_ctx_free(ctx, gpu->host_losses);
    s24_ctx_free(ctx, gpu->fixed_scales);
    s24_device_pinned_free(gpu->device, gpu->pinned);
    s24_device_pinned_free(gpu->device, gpu->picks);
    s24_device_stream_destroy(gpu->device, gpu->stream);
    s24_ctx_free(ctx, gpu);
}

/* ---- the results ----------------------------------------------------------------------------- */

/* The tokens that pooling takes, which attention's mask says unless a prompt is left out. */
static const uint8_t *pooled_of(const s24i_gpu_session *gpu, const s24i_gpu_shape *key)
{
    return key->unpooled ? (const uint8_t *)(gpu->inputs + s24i_gpu_places_of(key).pooled)
                         : s24i_gpu_mask(gpu, key);
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

/* Where logits of answers are: not where the states are that they are made of. */
static void *answers_of(const s24i_gpu_session *gpu)
{
    const s24_model *model = gpu->model;
    return model->architecture->state_normed && model->final_norm.gamma && model->qa_weight
               ? gpu->hidden
               : gpu->context;
}

/* The last block's output, of a model whose states are normed the last norm's. */
static s24_dense last_states(const s24i_gpu_session *gpu, int64_t tokens)
{
    const s24_model *model = gpu->model;
    const int normed = model->architecture->state_normed && model->final_norm.gamma;
    return s24i_gpu_view(gpu, normed ? gpu->context : gpu->hidden, tokens, model->shape.width);
}

static s24_status results(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key,
                          const s24_dense *hidden)
{
    const s24_model *model = gpu->model;
    const s24_dense last = last_states(gpu, key->tokens);
    const int64_t width = model->shape.width;
    const s24_dense normed = s24i_gpu_view(gpu, gpu->context, key->tokens, width);
    const s24_dense *states = model->final_norm.gamma ? &normed : hidden;
    if (key->hidden) {
        const s24_device_head_args args = {
            .size = sizeof args, .y = gpu->outer, .x = &last, .stream = gpu->stream};
        TRY(s24_device_head(ctx, gpu->device, &args));
    }
    if (key->logits) {
        const s24_dense w = s24i_gpu_view(
            gpu, (void *)(uintptr_t)s24i_on_device(model, model->qa_weight), 2, width);
        const s24_device_head_args args = {.size = sizeof args,
                                           .y = answers_of(gpu),
                                           .x = &last,
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
                                       .offsets = gpu->inputs + s24i_gpu_places_of(key).offsets,
                                       .texts = key->texts,
                                       .mask = pooled_of(gpu, key),
                                       .pooling = model->pooled.pooling,
                                       .normalise = model->pooled.normalise,
                                       .stream = gpu->stream};
    return s24_device_pool(ctx, gpu->device, &args);
}

static s24_status enqueue(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key)
{
    const s24_dense hidden = s24i_gpu_view(gpu, gpu->hidden, key->tokens, gpu->model->shape.width);
    TRY(s24i_gpu_encode(gpu, ctx, key));
    if (key->picks) TRY(s24i_gpu_pick(gpu, ctx, gpu->context, key->tokens));
    return results(gpu, ctx, key, &hidden);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

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
    if (known && !g->graph) TRY(s24i_gpu_capture(&g->graph, gpu, ctx, key, enqueue));
    if (g->graph) return s24_device_graph_launch(ctx, gpu->device, g->graph, gpu->stream);
    return enqueue(gpu, ctx, key);
}

/* ---- passes ---------------------------------------------------------------------------------- */

int s24i_gpu_is_known_step(const s24i_gpu_session *gpu, const s24i_gpu_pass *pass)
{
    const s24i_gpu_shape key = s24i_gpu_shape_of(gpu, pass);
    for (int i = 0; i < S24I_GPU_GRAPHS && key.cached == S24I_GPU_STEP; i++)
        if (gpu->graphs[i].graph && memcmp(&gpu->graphs[i].shape, &key, sizeof key) == 0) return 1;
    return 0;
}

static s24_status fetch(const s24i_gpu_session *gpu, s24_ctx *ctx, float *to, const void *from,
                        int64_t first, int64_t count)
{
    if (!to) return S24_OK;
    return s24_device_copy(ctx, gpu->device, to, (const float *)from + first,
                           (size_t)count * sizeof(float), gpu->stream);
}

/* Enqueues the copies of a pass's outputs, but for a language model's. */
static s24_status give(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_outputs *o,
                       const s24i_gpu_shape *shape)
{
    const s24i_gpu_shape key = *shape;
    const int64_t width = gpu->model->shape.width;
    TRY(fetch(gpu, ctx, o->embeddings, gpu->qkv, 0, key.texts * width));
    /* Side by side they come in one copy: each costs a small pass some microseconds. */
    const int beside = o->start_logits && o->end_logits == o->start_logits + key.tokens;
    TRY(fetch(gpu, ctx, o->start_logits, answers_of(gpu), 0, (1 + beside) * key.tokens));
    if (!beside) TRY(fetch(gpu, ctx, o->end_logits, answers_of(gpu), key.tokens, key.tokens));
    TRY(fetch(gpu, ctx, o->hidden, gpu->outer, 0, key.tokens * width));
    if (!key.classes) return S24_OK;
    return fetch(gpu, ctx, o->logits, gpu->class_logits, 0, key.texts * gpu->model->shape.classes);
}

s24_status s24i_gpu_submit(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_pass *pass)
{
    const s24_batch *batch = pass->batch;
    const s24_outputs *outputs = pass->outputs;
    const s24i_gpu_shape key = s24i_gpu_shape_of(gpu, pass);
    REQUIRE(ctx, !outputs->blocks, S24_ERROR_UNSUPPORTED,
            "the hidden states of every block are not given by a device");
    TRY(s24i_gpu_finish(gpu, ctx));
    TRY(s24i_gpu_write(gpu, ctx, batch, &key));
    TRY(s24i_gpu_plan(gpu, ctx, &key));
    TRY(run(gpu, ctx, &key));
    TRY(s24i_gpu_logits_begin(gpu, ctx, outputs, key.tokens));
    gpu->outputs = *outputs;
    gpu->asked = pass->picks;
    gpu->submitted = key;
    gpu->given = pass->pinned;
    if (gpu->given) TRY(give(gpu, ctx, outputs, &key));
    return S24_OK;
}

s24_status s24i_gpu_finish(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    const s24i_gpu_shape key = gpu->submitted;
    const s24_outputs *o = &gpu->outputs;
    if (!key.tokens) return S24_OK;
    gpu->submitted.tokens = 0;
    if (!gpu->given) TRY(give(gpu, ctx, o, &key));
    TRY(s24i_gpu_logits_give(gpu, ctx, o, key.tokens));
    if (gpu->asked) TRY(s24i_gpu_picks_give(gpu, ctx, &key));
    TRY(s24_device_wait(ctx, gpu->device, gpu->stream));
    return gpu->model->ranks.comm ? s24i_comm_alive(ctx, gpu->model->ranks.comm) : S24_OK;
}

/* ---- a pass among the caller's work ---------------------------------------------------------- */

static s24_status pass_there(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_pass *pass,
                             const s24i_gpu_shape *key, void *states)
{
    const s24_dense last = last_states(gpu, key->tokens);
    TRY(s24i_gpu_copy_inputs(gpu, ctx, pass->batch, key));
    TRY(s24i_gpu_plan(gpu, ctx, key));
    TRY(run(gpu, ctx, key));
    if (states)
        TRY(s24_device_copy(ctx, gpu->device, states, last.data,
                            (size_t)(last.rows * last.cols * S24I_GPU_ELEMENT), gpu->stream));
    return give(gpu, ctx, pass->outputs, key);
}

s24_status s24i_gpu_pass_in(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_pass *pass,
                            void *states, void *stream)
{
    const s24i_gpu_shape key = s24i_gpu_shape_of(gpu, pass);
    REQUIRE(ctx, !key.kept, S24_ERROR_UNSUPPORTED,
            "a pass that is enqueued leaves no share of masked tokens to the host, by which "
            "embeddings of this model are multiplied");
    TRY(s24i_gpu_finish(gpu, ctx));
    TRY(s24i_gpu_lay(gpu, ctx, pass->batch, &key));
    TRY(s24_device_stream_follow(ctx, gpu->device, gpu->stream, stream));
    gpu->running = 1;
    s24_status status = pass_there(gpu, ctx, pass, &key, states);
    if (status == S24_OK) status = s24_device_stream_follow(ctx, gpu->device, stream, gpu->stream);
    /* The caller may free what it gave. */
    if (status != S24_OK) (void)s24_device_wait(ctx, gpu->device, gpu->stream);
    return status;
}
