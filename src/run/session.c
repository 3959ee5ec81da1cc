// SPDX-License-Identifier: Apache-2.0
/*
 * Sessions: the buffers of forward passes, and the passes themselves. Everything is allocated at
 * create for max_tokens tokens and the context's threads; a pass allocates nothing of its own (the
 * dense engine may prepare itself when it meets a number of tokens for the first time).
 *
 * hidden [tokens, width] is one buffer of f32 that a block updates in place: both of its residual
 * sums are fused into the products that write them. What stands between two products and is not
 * summed up (q, k and v, the attention's result, the activations) is bf16 where the model computes
 * in less than f32 and everybody takes it.
 */
#include "run/session.h"

#include <string.h>

#include "model/distances.h"
#include "model/rotary.h"
#include "run/cpu/attention.h"
#include "run/cpu/attention_apart.h"
#include "run/cpu/attention_grid.h"
#include "run/cpu/experts.h"
#include "run/cpu/kv_cache.h"
#include "run/cpu/lane.h"
#include "run/cpu/pass.h"
#include "run/gpu/gpu_model.h"
#include "run/tail.h"
#include "run/weight/weight.h"

/* ---- create and destroy ---------------------------------------------------------------------- */

/* Cores that shuffle where they multiply take two cycles for pairs of bf16, and without tiles
   attention is faster in f32 there. */
static s24_dtype choose_between(const s24_session *session, uint32_t cpu)
{
    const s24_model *model = session->model;
    if (cpu & S24_CPU_PORT5 && !(cpu & S24_CPU_AMX)) return S24_F32;
    if (model->dtype == S24_F32 || model->shape.grid || model->apart) return S24_F32;
    if (!s24i_attention_takes_bf16(session->vec, model->shape.head_width)) return S24_F32;
    if (model->architecture->query_norm && !model->shape.latent.rank &&
        s24i_head_norm(model->architecture, &model->shape, 0) > S24I_MOST_NORMED_HEAD)
        return S24_F32;
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++)
            if (!s24i_linear_takes_bf16(s24i_block_product(&model->blocks[b], i))) return S24_F32;
    return S24_BF16;
}

static s24_status fill_head(s24_session *session, s24_ctx *ctx)
{
    enum { LOGITS = 1 << 23, ROWS = 16 }; /* made at a time; a multiple of what kernels like */
    s24i_head_rows *head = &session->head;
    const int64_t n = session->model->lm_head.n;
    head->rows = s24i_min(session->whole.rows, s24i_round_up(s24i_max(1, LOGITS / n), ROWS));
    TRY(s24i_alloc_elems(&head->logits, ctx, head->rows * n, sizeof(float), "logits"));
    TRY(s24i_alloc_elems(&head->losses, ctx, head->rows, sizeof(float), "losses"));
    return s24i_alloc_elems(&head->tokens, ctx, head->rows, sizeof(int64_t), "tokens");
}

static s24_status fill_angles(float **angles, s24_ctx *ctx, const s24i_shape *shape,
                              const s24i_rope *rope, int64_t longest)
{
    const int64_t d = s24i_turned(shape);
    TRY(s24i_alloc_elems(angles, ctx, longest * d, sizeof **angles, "rotary positions"));
    s24i_rotary_fill(*angles, rope, d, longest);
    return S24_OK;
}

/* Whether tokens are near, or what the model's table says of their distance. */
static s24_status fill_distances(s24_session *session, s24_ctx *ctx, int64_t longest)
{
    const s24_model *model = session->model;
    const int64_t all =
        s24i_distance_tables(&session->distances_head, &session->distance_zero, model, longest);
    session->distances_block = model->shape.tables ? all / model->shape.tables : 0;
    TRY(s24i_alloc_elems(&session->distances, ctx, all, sizeof(float), "distances"));
    s24i_distance_tables_fill(session->distances, model, longest);
    return S24_OK;
}

/* The row of the table of distances for each that two tokens can have. */
static s24_status fill_apart(s24_session *session, s24_ctx *ctx, int64_t longest)
{
    const s24i_apart *apart = &session->model->shape.apart;
    if (!apart->span) return S24_OK;
    session->apart_zero = longest - 1;
    TRY(s24i_alloc_elems(&session->apart_rows, ctx, 2 * longest - 1, sizeof(int32_t), "distances"));
    for (int64_t by = 1 - longest; by < longest; by++)
        session->apart_rows[by + longest - 1] = (int32_t)s24i_apart_row(apart, by);
    return S24_OK;
}

static s24_status fill(s24_session *session, s24_ctx *ctx)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t tokens = session->max_tokens, longest = s24i_min(tokens, shape->positions);
    const int64_t heads = shape->heads * shape->head_width;
    const size_t one = sizeof(float), part = s24_dtype_bytes(session->between);
    session->scratch_elems =
        shape->grid ? s24i_attention_grid_scratch(shape)
        : shape->apart.span
            ? s24i_attention_apart_scratch(&shape->apart, longest, shape->head_width)
            : s24i_attention_scratch(longest, shape->head_width);
    TRY(s24i_alloc_elems(&session->qkv, ctx, tokens * s24i_qkv_outputs(shape), part, "q, k and v"));
    TRY(s24i_alloc_elems(&session->context, ctx, tokens * heads, part, "attention"));
    TRY(s24i_alloc_elems(&session->tiles, ctx, tokens + 1, sizeof(int64_t), "tiles"));
    TRY(s24i_alloc_elems(&session->scratch, ctx, session->scratch_elems * session->threads, one,
                         "attention's scratch"));
    if (session->model->architecture->rotary)
        TRY(fill_angles(&session->angles, ctx, shape, &shape->rope, longest));
    if (shape->near_rope.theta != 0.0f)
        TRY(fill_angles(&session->near_angles, ctx, shape, &shape->near_rope, longest));
    if (s24i_has_distances(session->model->architecture) || shape->near)
        TRY(fill_distances(session, ctx, longest));
    TRY(fill_apart(session, ctx, longest));
    TRY(s24i_tail_reserve(session, ctx));
    TRY(s24i_lanes_fill(session, ctx));
    TRY(s24i_experts_create(&session->experts, ctx, session));
    return session->model->lm_head.n ? fill_head(session, ctx) : S24_OK;
}

static s24_status lay_out_images(s24_session *session, s24_ctx *ctx)
{
    const s24i_shape *shape = &session->model->shape;
    if (!shape->image) return S24_OK;
    const int64_t count = session->max_tokens / shape->positions;
    REQUIRE(ctx, count > 0, S24_ERROR_ARGUMENT,
            "max_tokens is %lld; an image of this model has %lld", (long long)session->max_tokens,
            (long long)shape->positions);
    TRY(s24i_alloc_elems(&session->images, ctx, count + 1, sizeof *session->images, "offsets"));
    for (int64_t i = 0; i <= count; i++)
        session->images[i] = i * shape->positions;
    return S24_OK;
}

s24_status s24_session_create(s24_session **out, s24_ctx *ctx, const s24_model *model,
                              int64_t max_tokens)
{
    s24_session *session;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, model, S24_ERROR_ARGUMENT, "model is NULL");
    REQUIRE(ctx, max_tokens > 0 && max_tokens <= 1 << 24, S24_ERROR_ARGUMENT,
            "max_tokens is %lld; 1 to %d was expected", (long long)max_tokens, 1 << 24);
    TRY(s24i_alloc_elems(&session, ctx, 1, sizeof *session, "a session"));
    *session = (s24_session){.ctx = ctx,
                             .model = model,
                             .vec = s24i_vec_find(s24_ctx_cpu(ctx)),
                             .max_tokens = max_tokens,
                             .threads = s24_ctx_threads(ctx),
                             .steps = model->ranks.comm ? s24i_steps_shared(model->architecture)
                                                        : s24i_steps_of(model->architecture),
                             .mixed = s24i_steps_mixed(model->architecture)};
    s24_status status = lay_out_images(session, ctx);
    if (status == S24_OK && model->device) {
        status = s24i_gpu_session_create(&session->gpu, ctx, model, max_tokens);
        if (status == S24_OK && s24i_tail_is_here(model)) status = s24i_tail_reserve(session, ctx);
    } else if (status == S24_OK) {
        session->between = choose_between(session, s24_ctx_cpu(ctx));
        status = fill(session, ctx);
    }
    if (status != S24_OK) {
        s24_session_destroy(session);
        return status;
    }
    *out = session;
    return S24_OK;
}

void s24_session_destroy(s24_session *session)
{
    if (!session) return;
    s24_ctx *ctx = session->ctx;
    s24i_gpu_session_destroy(session->gpu);
    for (int t = 0; session->lanes && t < session->threads; t++) {
        s24i_dense_engine.runner_destroy(session->lanes[t].runner);
        s24_ctx_destroy(session->lanes[t].own);
    }
    s24i_dense_engine.runner_destroy(session->whole.runner);
    s24i_experts_destroy(session->experts, ctx);
    s24_ctx_free(ctx, session->lanes);
    s24_ctx_free(ctx, session->hidden);
    s24_ctx_free(ctx, session->qkv);
    s24_ctx_free(ctx, session->context);
    s24_ctx_free(ctx, session->whole.outer);
    s24_ctx_free(ctx, session->whole.normed);
    s24_ctx_free(ctx, session->whole.latent);
    s24_ctx_free(ctx, session->values);
    s24_ctx_free(ctx, session->images);
    s24_ctx_free(ctx, session->tiles);
    s24_ctx_free(ctx, session->scratch);
    s24_ctx_free(ctx, session->angles);
    s24_ctx_free(ctx, session->near_angles);
    s24_ctx_free(ctx, session->distances);
    s24_ctx_free(ctx, session->apart_rows);
    s24_ctx_free(ctx, session->probe_rows);
    s24_ctx_free(ctx, session->class_rows);
    s24_ctx_free(ctx, session->head.logits);
    s24_ctx_free(ctx, session->head.losses);
    s24_ctx_free(ctx, session->head.tokens);
    s24_ctx_free(ctx, session->whole.work);
    s24_ctx_free(ctx, session);
}

typedef struct of_pass {
    const s24_session *session;
    int64_t tokens;
    s24_format format; /* 0: any, and 2:4 */
} of_pass;

static int runs_sparse(const s24i_linear *linear, const void *arg)
{
    const of_pass *p = arg;
    return s24i_is_sparse(linear, p->format) &&
           s24i_pass_runs_sparse(linear, p->session, p->tokens);
}

static int runs_eight(const s24i_linear *linear, const void *arg)
{
    const of_pass *p = arg;
    const s24i_weight *weight = linear->weight[s24i_pass_way(linear, p->session, p->tokens)];
    return weight && weight->kind->is_eight && weight->kind->is_eight(weight);
}

int64_t s24_session_sparse_layers(const s24_session *session, int64_t tokens)
{
    if (!session) return 0;
    if (tokens < 1) return s24i_model_sparse_layers(session->model);
    if (session->gpu) return s24i_gpu_sparse_layers(session->gpu, tokens, 0);
    return s24i_model_layers(session->model, runs_sparse, &(of_pass){session, tokens, 0});
}

int64_t s24_session_format_layers(const s24_session *session, int64_t tokens, s24_format format)
{
    if (!session || !format) return 0;
    if (tokens < 1) return s24_model_format_layers(session->model, format);
    if (session->gpu) return s24i_gpu_sparse_layers(session->gpu, tokens, format);
    return s24i_model_layers(session->model, runs_sparse, &(of_pass){session, tokens, format});
}

int64_t s24_session_read_bytes(const s24_session *session, int64_t tokens)
{
    if (!session || tokens < 1) return 0;
    const s24_model *model = session->model;
    int64_t bytes = 0;
    for (int64_t b = 0; b < model->shape.layers; b++)
        bytes += s24i_experts_read_bytes(model, &model->blocks[b], tokens);
    if (session->gpu) return bytes + s24i_gpu_read_bytes(session->gpu, tokens);
    for (int64_t b = 0; b < model->shape.layers; b++)
        for (int i = 0; i < S24I_PRODUCTS; i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            bytes += s24i_weight_bytes(l->weight[s24i_pass_way(l, session, tokens)]);
        }
    return bytes + s24i_linear_bytes(&model->lm_head);
}

int64_t s24_session_narrow_layers(const s24_session *session, int64_t tokens)
{
    if (!session || tokens < 1) return 0;
    if (session->gpu) return s24i_gpu_eight_layers(session->gpu, tokens);
    return s24i_model_layers(session->model, runs_eight, &(of_pass){session, tokens, 0});
}

/* ---- checks ---------------------------------------------------------------------------------- */

static s24_status check_images(const s24_session *session, s24_ctx *ctx, const s24_batch *batch)
{
    const int64_t most = session->max_tokens / session->model->shape.positions;
    REQUIRE(ctx, batch && batch->pixels, S24_ERROR_ARGUMENT,
            "the batch has no pixels, which this model reads");
    REQUIRE(ctx, batch->texts > 0 && batch->texts <= most, S24_ERROR_ARGUMENT,
            "the batch has %lld images; 1 to %lld were expected, for so many the session was made",
            (long long)batch->texts, (long long)most);
    REQUIRE(ctx, !batch->types && !batch->mask, S24_ERROR_ARGUMENT,
            "the batch has %s, which images have not", batch->types ? "types" : "a mask");
    return S24_OK;
}

typedef s24_status batch_check(s24_ctx *ctx, const s24_batch *batch, const s24i_shape *shape,
                               int64_t most, const char *reader);

/* Checks the batch, completes it to *whole, and lays out the tiles of its texts. */
static s24_status begin(s24_session *session, s24_ctx *ctx, s24_batch *whole,
                        const s24_batch *batch, batch_check *check)
{
    if (session->images)
        TRY(check_images(session, ctx, batch));
    else
        TRY(check(ctx, batch, &session->model->shape, session->max_tokens, "session"));
    if (session->cache) TRY(s24i_cache_begin(session->cache, ctx, session, batch));
    REQUIRE(ctx, s24_ctx_threads(ctx) <= session->threads, S24_ERROR_ARGUMENT,
            "the context has %d threads; the session was made for %d", s24_ctx_threads(ctx),
            session->threads);
    *whole = *batch;
    if (session->images) whole->offsets = session->images;
    if (!session->tiles) return S24_OK; /* on a device */
    session->tiles[0] = 0;
    for (int64_t b = 0; b < whole->texts; b++)
        session->tiles[b + 1] =
            session->tiles[b] + s24i_attention_tiles(whole->offsets[b + 1] - whole->offsets[b]);
    return S24_OK;
}

/* ---- the steps ------------------------------------------------------------------------------- */

s24_status s24i_session_embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              float *hidden)
{
    s24_batch whole;
    TRY(begin(session, ctx, &whole, batch, s24i_batch_check));
    return s24i_embed(session, ctx, &whole, hidden);
}

s24_status s24i_session_block(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              int64_t block, float *hidden, const s24i_observer *observer)
{
    s24_batch whole;
    const s24i_pass pass = {session, ctx, &whole, hidden, observer};
    TRY(begin(session, ctx, &whole, batch, s24i_batch_check));
    TRY(s24i_pass_start(&pass, block));
    return s24i_pass_block(&pass, block, 0);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static s24_status forward(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                          const s24_outputs *outputs)
{
    const s24_model *model = session->model;
    const int64_t elems = batch->offsets[batch->texts] * model->shape.width;
    const size_t bytes = (size_t)elems * sizeof(float);
    float *hidden = outputs->hidden ? outputs->hidden : session->hidden;
    TRY(s24i_embed(session, ctx, batch, hidden));
    if (outputs->blocks) memcpy(outputs->blocks, hidden, bytes);
    const s24i_pass pass = {.session = session, .ctx = ctx, .batch = batch, .hidden = hidden};
    if (model->shape.layers) TRY(s24i_pass_start(&pass, 0));
    for (int64_t b = 0; b < model->shape.layers; b++) {
        const int more = b + 1 < model->shape.layers;
        TRY(s24i_pass_block(&pass, b, more));
        if (!more && model->architecture->state_normed)
            s24i_session_norm(session, ctx, hidden, batch->offsets[batch->texts]);
        if (outputs->blocks) memcpy(outputs->blocks + (b + 1) * elems, hidden, bytes);
    }
    const float *states = s24i_session_states(session, ctx, batch, hidden, outputs);
    if (outputs->embeddings) s24i_session_pool(session, ctx, batch, states, outputs->embeddings);
    if (outputs->start_logits || outputs->end_logits)
        s24i_session_answer(session, batch, states, outputs);
    if (model->lm_head.n) return s24i_session_language(session, ctx, batch, states, outputs);
    if (outputs->logits) s24i_session_classify(session, ctx, batch, states, outputs->logits);
    return S24_OK;
}

static s24_status check_outputs(const s24_session *session, s24_ctx *ctx,
                                const s24_outputs *outputs)
{
    const int answers = outputs->start_logits || outputs->end_logits;
    REQUIRE(ctx, !answers || session->model->qa_weight, S24_ERROR_ARGUMENT,
            "answer logits were asked of a model without a question answering head");
    const int language = session->model->lm_head.n > 0;
    REQUIRE(
        ctx, !outputs->logits || session->model->class_weight || language, S24_ERROR_ARGUMENT,
        "logits were asked of a model without a classifier and without a head of the next token");
    REQUIRE(ctx, (!outputs->loss && !outputs->losses) || language, S24_ERROR_ARGUMENT,
            "a loss was asked of a model without a head of the next token");
    REQUIRE(ctx, !outputs->embeddings || session->model->pooled.pooling != S24I_POOL_WORDS,
            S24_ERROR_UNSUPPORTED,
            "the model pools to weights of words, which an encoder does alone");
    const int further = session->model->pooled.further_count;
    REQUIRE(ctx, !outputs->embeddings || !further || session->takes_ways, S24_ERROR_UNSUPPORTED,
            "the model pools in %d ways side by side, which an encoder does alone", further + 1);
    return S24_OK;
}

s24_status s24i_session_submit(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs)
{
    s24_batch whole;
    s24_status status = check_outputs(session, ctx, outputs);
    if (status == S24_OK) status = begin(session, ctx, &whole, batch, s24i_batch_check);
    if (status == S24_OK && session->model->lm_head.n)
        status = s24i_language_check(ctx, session->model, &whole, outputs);
    const s24i_gpu_pass pass = {&whole,         outputs,        session->unpooled,
                                session->cache, session->picks, session->pinned};
    /* A comparison costs as much as a step on a device, whose texts were compared before. */
    if (status == S24_OK && session->gpu && session->model->ranks.comm &&
        s24i_gpu_is_known_step(session->gpu, &pass))
        return s24i_gpu_submit(session->gpu, ctx, &pass);
    TRY(s24i_session_meet(session, ctx, &whole, status));
    if (session->gpu && s24i_tail_is_here(session->model))
        return s24i_tail_run(session, ctx, &pass);
    if (session->gpu) return s24i_gpu_submit(session->gpu, ctx, &pass);
    return forward(session, ctx, &whole, outputs);
}

s24_status s24i_session_finish(s24_session *session, s24_ctx *ctx)
{
    return session->gpu ? s24i_gpu_finish(session->gpu, ctx) : S24_OK;
}

s24_status s24_session_forward(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && outputs, S24_ERROR_ARGUMENT, "%s is NULL",
            session ? "outputs" : "session");
    TRY(s24i_session_submit(session, ctx, batch, outputs));
    return s24i_session_finish(session, ctx);
}

s24_status s24_session_enqueue(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs, void *states, void *stream)
{
    s24_batch whole;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && outputs, S24_ERROR_ARGUMENT, "%s is NULL",
            session ? "outputs" : "session");
    REQUIRE(ctx, session->gpu, S24_ERROR_UNSUPPORTED,
            "a pass is enqueued on a device; s24_session_forward runs one of a model on the CPU");
    REQUIRE(ctx, !session->model->ranks.comm, S24_ERROR_UNSUPPORTED,
            "a pass of a model that %d ranks hold together is not enqueued; s24_session_forward "
            "runs one, and all ranks call it",
            session->model->ranks.world);
    const int language = session->model->lm_head.n && (outputs->logits || outputs->loss);
    REQUIRE(ctx, !outputs->blocks && !language && !outputs->losses, S24_ERROR_UNSUPPORTED,
            "a pass that is enqueued gives no states of every block, and no logits or losses of a "
            "language model");
    TRY(check_outputs(session, ctx, outputs));
    REQUIRE(ctx, !s24i_tail_is_here(session->model) || (!outputs->embeddings && !outputs->logits),
            S24_ERROR_UNSUPPORTED,
            "a pass that is enqueued gives no vectors or logits that the host makes of the states, "
            "as of this model");
    TRY(begin(session, ctx, &whole, batch, s24i_batch_check_texts));
    const s24i_gpu_pass pass = {.batch = &whole, .outputs = outputs};
    return s24i_gpu_pass_in(session->gpu, ctx, &pass, states, stream);
}
