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
#include "nn/session.h"

#include <string.h>

#include "nn/attention.h"

/*
 * Tokens a thread that go through the products of a block at a time: what is between the products
 * then stays in L2, and the chunks of a batch are of one size, for which the dense engine prepares
 * itself once. Three panels of 96 tokens, the 2:4 kernels' best. Only the attention needs to see
 * whole texts.
 */
enum { CHUNK_ROWS = 288 };

/* ---- create and destroy ---------------------------------------------------------------------- */

static int64_t chunk_rows(const s24_session *session)
{
    return s24i_min(session->max_tokens, CHUNK_ROWS * (int64_t)session->threads);
}

/* The products of a block; those that are not there are empty. */
enum { PRODUCTS = 6 };
static void products_of(const s24i_linear *products[PRODUCTS], const s24i_block *block)
{
    for (int i = 0; i < 3; i++)
        products[i] = &block->qkv[i];
    products[3] = &block->attention;
    products[4] = &block->intermediate;
    products[5] = &block->output;
}

/* The work memory of the most demanding 2:4 product. */
static size_t most_work(const s24_session *session)
{
    const int64_t rows = chunk_rows(session);
    const s24i_linear *products[PRODUCTS];
    size_t most = 0;
    for (int64_t b = 0; b < session->model->shape.layers; b++) {
        products_of(products, &session->model->blocks[b]);
        for (int i = 0; i < PRODUCTS; i++) {
            const s24_plan *plan = products[i]->plan;
            const size_t bytes = plan ? s24_plan_work_bytes(plan, session->ctx, rows) : 0;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static int takes_bf16(const s24i_linear *l)
{
    if (l->plan) return s24_plan_takes(l->plan, S24_BF16);
    return !l->weight || (s24i_dense_engine.takes_bf16 && s24i_dense_engine.takes_bf16(l->weight));
}

static s24_dtype choose_between(const s24_session *session)
{
    const s24_model *model = session->model;
    const s24i_linear *products[PRODUCTS];
    if (model->dtype == S24_F32) return S24_F32;
    if (!s24i_attention_takes_bf16(session->vec, model->shape.width / model->shape.heads))
        return S24_F32;
    for (int64_t b = 0; b < model->shape.layers; b++) {
        products_of(products, &model->blocks[b]);
        for (int i = 0; i < PRODUCTS; i++)
            if (!takes_bf16(products[i])) return S24_F32;
    }
    return S24_BF16;
}

static s24_status fill(s24_session *session, s24_ctx *ctx)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t tokens = session->max_tokens, rows = chunk_rows(session);
    const int64_t longest = s24i_min(tokens, shape->positions);
    const int64_t widest = s24i_max(shape->width, shape->intermediate);
    const size_t one = sizeof(float), part = s24_dtype_bytes(session->between);
    session->scratch_elems = s24i_attention_scratch(longest, shape->width / shape->heads);
    session->work_bytes = most_work(session);
    TRY(s24i_alloc_elems(&session->hidden, ctx, tokens * shape->width, one, "hidden states"));
    TRY(s24i_alloc_elems(&session->qkv, ctx, tokens * 3 * shape->width, part, "q, k and v"));
    TRY(s24i_alloc_elems(&session->context, ctx, tokens * shape->width, part, "attention"));
    TRY(s24i_alloc_elems(&session->outer, ctx, rows * shape->intermediate, part, "activations"));
    TRY(s24i_alloc_elems(&session->tiles, ctx, tokens + 1, sizeof(int64_t), "tiles"));
    TRY(s24i_alloc_elems(&session->scratch, ctx, session->scratch_elems * session->threads, one,
                         "attention's scratch"));
    TRY(s24i_alloc_elems(&session->work, ctx, (int64_t)session->work_bytes, 1, "work memory"));
    return s24i_dense_engine.runner_create(&session->runner, ctx,
                                           session->model->dtype == S24_BF16 ? rows * widest : 0);
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
                             .threads = s24_ctx_threads(ctx)};
    session->between = choose_between(session);
    const s24_status status = fill(session, ctx);
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
    s24i_dense_engine.runner_destroy(session->runner);
    s24_ctx_free(ctx, session->hidden);
    s24_ctx_free(ctx, session->qkv);
    s24_ctx_free(ctx, session->context);
    s24_ctx_free(ctx, session->outer);
    s24_ctx_free(ctx, session->tiles);
    s24_ctx_free(ctx, session->scratch);
    s24_ctx_free(ctx, session->work);
    s24_ctx_free(ctx, session);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static s24_status check_text(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                             int64_t text)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t first = batch->offsets[text], end = batch->offsets[text + 1];
    REQUIRE(ctx, first < end, S24_ERROR_ARGUMENT, "text %lld has no tokens", (long long)text);
    REQUIRE(ctx, end - first <= shape->positions, S24_ERROR_ARGUMENT,
            "text %lld has %lld tokens; the model has %lld positions", (long long)text,
            (long long)(end - first), (long long)shape->positions);
    REQUIRE(ctx, end <= session->max_tokens, S24_ERROR_ARGUMENT,
            "text %lld ends at token %lld; the session was made for %lld", (long long)text,
            (long long)end, (long long)session->max_tokens);
    for (int64_t t = first; t < end; t++)
        REQUIRE(ctx, batch->ids[t] >= 0 && batch->ids[t] < shape->vocabulary, S24_ERROR_ARGUMENT,
                "token %lld of text %lld is %d; the vocabulary has %lld", (long long)(t - first),
                (long long)text, batch->ids[t], (long long)shape->vocabulary);
    for (int64_t t = first; batch->types && t < end; t++)
        REQUIRE(ctx, batch->types[t] >= 0 && batch->types[t] < s24i_max(shape->types, 1),
                S24_ERROR_ARGUMENT, "token %lld of text %lld has type %d; the model has %lld",
                (long long)(t - first), (long long)text, batch->types[t], (long long)shape->types);
    return S24_OK;
}

/* Checks the batch and lays out the tiles of its texts. */
static s24_status begin(s24_session *session, s24_ctx *ctx, const s24_batch *batch)
{
    REQUIRE(ctx, batch && batch->texts > 0 && batch->offsets && batch->ids, S24_ERROR_ARGUMENT,
            "the batch has no texts, offsets or ids");
    REQUIRE(ctx, batch->offsets[0] == 0, S24_ERROR_ARGUMENT,
            "offsets[0] of the batch is %lld; 0 was expected", (long long)batch->offsets[0]);
    REQUIRE(ctx, s24_ctx_threads(ctx) <= session->threads, S24_ERROR_ARGUMENT,
            "the context has %d threads; the session was made for %d", s24_ctx_threads(ctx),
            session->threads);
    session->tiles[0] = 0;
    for (int64_t b = 0; b < batch->texts; b++) {
        TRY(check_text(session, ctx, batch, b));
        session->tiles[b + 1] =
            session->tiles[b] + s24i_attention_tiles(batch->offsets[b + 1] - batch->offsets[b]);
    }
    return S24_OK;
}

/* ---- embeddings ------------------------------------------------------------------------------ */

typedef struct token_job {
    const s24_session *session;
    const s24_batch *batch;
    float *hidden;
} token_job;

static int64_t text_of(const s24_batch *batch, int64_t token)
{
    int64_t low = 0, high = batch->texts;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (batch->offsets[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void embed_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const token_job *job = arg;
    const s24_batch *batch = job->batch;
    const s24_model *model = job->session->model;
    const s24i_vec *vec = job->session->vec;
    const int64_t width = model->shape.width;
    int64_t text = first < end ? text_of(batch, first) : 0;
    for (int64_t t = first; t < end; t++) {
        while (t >= batch->offsets[text + 1])
            text++;
        const int64_t position = t - batch->offsets[text];
        const int64_t type = batch->types ? batch->types[t] : 0;
        float *row = job->hidden + t * width;
        vec->add(row, model->words + batch->ids[t] * width, model->position_rows + position * width,
                 width);
        if (model->type_rows) vec->add(row, row, model->type_rows + type * width, width);
        vec->layer_norm(row, 1, &model->embedding_norm);
    }
}

static void embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch, float *hidden)
{
    token_job job = {session, batch, hidden};
    s24_ctx_parallel_for(ctx, batch->offsets[batch->texts], embed_range, &job);
}

s24_status s24i_session_embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              float *hidden)
{
    TRY(begin(session, ctx, batch));
    embed(session, ctx, batch, hidden);
    return S24_OK;
}

/* ---- a block --------------------------------------------------------------------------------- */

static s24_status linear(s24_session *session, s24_ctx *ctx, const s24i_linear *l,
                         const s24_dense *y, const s24_dense *x, int accumulate)
{
    if (l->plan) {
        const s24_linear_args args = {.y = y,
                                      .x = x,
                                      .bias = l->bias,
                                      .activation = l->activation,
                                      .residual = accumulate ? y : NULL,
                                      .work = session->work,
                                      .work_bytes = session->work_bytes};
        return s24_plan_run(ctx, l->plan, &args);
    }
    const s24i_dense_job job = {.weight = l->weight,
                                .y = y,
                                .x = x,
                                .bias = l->bias,
                                .activation = l->activation,
                                .accumulate = accumulate};
    return s24i_dense_engine.run(session->runner, ctx, &job);
}

static s24_status observe(const s24i_observer *observer, s24i_slot slot, const s24_dense *x)
{
    return observer ? observer->input(observer->user, slot, x) : S24_OK;
}

static int is_last(const s24i_observer *observer, s24i_slot slot)
{
    return observer && observer->last == 1u << slot;
}

typedef struct norm_job {
    const s24_session *session;
    const s24i_layer_norm *norm;
    float *x;
} norm_job;

static void norm_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    job->session->vec->layer_norm(job->x + first * job->norm->n, end - first, job->norm);
}

static void layer_norm(s24_session *session, s24_ctx *ctx, const s24i_layer_norm *norm,
                       const s24_dense *x)
{
    norm_job job = {session, norm, x->data};
    s24_ctx_parallel_for(ctx, x->rows, norm_range, &job);
}

static void *elem(void *data, s24_dtype dtype, int64_t i)
{
    return (char *)data + (size_t)i * s24_dtype_bytes(dtype);
}

/* Rows t … of x, as many as a chunk has. */
static s24_dense chunk(const s24_dense *x, int64_t t, int64_t rows)
{
    return (s24_dense){elem(x->data, x->dtype, t * x->cols), x->dtype, s24i_min(rows, x->rows - t),
                       x->cols, x->cols};
}

/* Query, key and value of every token, chunk by chunk. */
static s24_status project(s24_session *session, s24_ctx *ctx, const s24i_block *block,
                          const s24_dense *x)
{
    const int64_t width = x->cols, rows = chunk_rows(session);
    for (int64_t t = 0; t < x->rows; t += rows) {
        const s24_dense from = chunk(x, t, rows);
        for (int i = 0; i < block->qkv_count; i++) {
            const int64_t n = block->qkv[i].n;
            void *to = elem(session->qkv, session->between, i * x->rows * width + t * n);
            const s24_dense y = {to, session->between, from.rows, n, n};
            TRY(linear(session, ctx, &block->qkv[i], &y, &from, 0));
        }
    }
    return S24_OK;
}

static void attend(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                   const s24i_block *block)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t width = shape->width, tokens = batch->offsets[batch->texts];
    const int joined = block->qkv_count == 1; /* then q, k and v stand side by side */
    const int64_t step = joined ? width : tokens * width;
    const s24_dtype dtype = session->between;
    const s24i_attention attention = {.vec = session->vec,
                                      .dtype = dtype,
                                      .q = session->qkv,
                                      .k = elem(session->qkv, dtype, step),
                                      .v = elem(session->qkv, dtype, 2 * step),
                                      .ld = joined ? 3 * width : width,
                                      .context = session->context,
                                      .batch = batch,
                                      .tiles = session->tiles,
                                      .heads = shape->heads,
                                      .d = width / shape->heads,
                                      .scratch = session->scratch,
                                      .scratch_elems = session->scratch_elems};
    s24i_attention_run(ctx, &attention);
}

/* All that comes after the attention, for one chunk x of hidden in place. */
static s24_status finish(s24_session *session, s24_ctx *ctx, const s24i_block *block,
                         const s24_dense *x, const s24_dense *context,
                         const s24i_observer *observer)
{
    const int64_t wide = session->model->shape.intermediate;
    const s24_dense outer = {session->outer, session->between, x->rows, wide, wide};
    TRY(observe(observer, S24I_ATTENTION, context));
    if (is_last(observer, S24I_ATTENTION)) return S24_OK;
    TRY(linear(session, ctx, &block->attention, x, context, 1));
    layer_norm(session, ctx, &block->attention_norm, x);
    TRY(observe(observer, S24I_INTERMEDIATE, x));
    if (is_last(observer, S24I_INTERMEDIATE)) return S24_OK;
    TRY(linear(session, ctx, &block->intermediate, &outer, x, 0));
    TRY(observe(observer, S24I_OUTPUT, &outer));
    if (is_last(observer, S24I_OUTPUT)) return S24_OK;
    TRY(linear(session, ctx, &block->output, x, &outer, 1));
    layer_norm(session, ctx, &block->output_norm, x);
    return S24_OK;
}

static s24_status run_block(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                            const s24i_block *block, float *hidden, const s24i_observer *observer)
{
    const int64_t tokens = batch->offsets[batch->texts], width = session->model->shape.width;
    const int64_t rows = chunk_rows(session);
    const s24_dense x = {hidden, S24_F32, tokens, width, width};
    const s24_dense context = {session->context, session->between, tokens, width, width};
    TRY(observe(observer, S24I_QUERY, &x));
    if (is_last(observer, S24I_QUERY)) return S24_OK;
    TRY(project(session, ctx, block, &x));
    attend(session, ctx, batch, block);
    for (int64_t t = 0; t < tokens; t += rows) {
        const s24_dense to = chunk(&x, t, rows), from = chunk(&context, t, rows);
        TRY(finish(session, ctx, block, &to, &from, observer));
    }
    return S24_OK;
}

s24_status s24i_session_block(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                              int64_t block, float *hidden, const s24i_observer *observer)
{
    TRY(begin(session, ctx, batch));
    return run_block(session, ctx, batch, &session->model->blocks[block], hidden, observer);
}

/* ---- the whole -------------------------------------------------------------------------------- */

s24_status s24_session_forward(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               const s24_outputs *outputs)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && outputs, S24_ERROR_ARGUMENT, "%s is NULL",
            session ? "outputs" : "session");
    const s24_model *model = session->model;
    const int answers = outputs->start_logits || outputs->end_logits;
    REQUIRE(ctx, !answers || model->qa_weight, S24_ERROR_ARGUMENT,
            "answer logits were asked of a model without a question answering head");
    TRY(begin(session, ctx, batch));
    const int64_t elems = batch->offsets[batch->texts] * model->shape.width;
    const size_t bytes = (size_t)elems * sizeof(float);
    float *hidden = outputs->hidden ? outputs->hidden : session->hidden;
    embed(session, ctx, batch, hidden);
    for (int64_t b = 0; b <= model->shape.layers; b++) {
        if (b) TRY(run_block(session, ctx, batch, &model->blocks[b - 1], hidden, NULL));
        if (outputs->blocks) memcpy(outputs->blocks + b * elems, hidden, bytes);
    }
    if (outputs->embeddings) s24i_session_pool(session, ctx, batch, hidden, outputs->embeddings);
    if (answers) s24i_session_answer(session, batch, hidden, outputs);
    return S24_OK;
}
