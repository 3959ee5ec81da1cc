// SPDX-License-Identifier: Apache-2.0
/*
 * The blocks of a forward pass. Tokens meet in the attention only: before and behind it every token
 * goes its own way through products and norms. So threads with tokens enough take a share of them
 * each, from the attention's result to the next attention's input, and wait for nobody in between;
 * few tokens are worked on by all threads together, product by product.
 */
#include "run/cpu/pass.h"

#include <string.h>

#include "run/cpu/attention.h"
#include "run/cpu/attention_grid.h"
#include "run/load/choice.h"

enum { ALIGNED = 16 }; /* of a share */

s24_status s24i_lane_linear(const s24i_lane *lane, const s24i_linear *l, const s24_dense *y,
                            const s24_dense *x, int accumulate)
{
    if (!s24i_runs_dense(l, lane->together, lane->octave)) {
        const s24_linear_args args = {.y = y,
                                      .x = x,
                                      .bias = l->bias,
                                      .activation = l->activation,
                                      .residual = accumulate ? y : NULL,
                                      .work = lane->work,
                                      .work_bytes = lane->work_bytes};
        return s24_plan_run(lane->ctx, l->plan, &args);
    }
    const s24i_dense_job job = {.weight = l->weight,
                                .y = y,
                                .x = x,
                                .bias = l->bias,
                                .activation = l->activation,
                                .accumulate = accumulate};
    return s24i_dense_engine.run(lane->runner, lane->ctx, &job);
}

static s24_status observe(const s24i_pass *pass, s24i_slot slot, const s24_dense *x)
{
    return pass->observer ? pass->observer->input(pass->observer->user, slot, x) : S24_OK;
}

static int is_last(const s24i_pass *pass, s24i_slot slot)
{
    return pass->observer && pass->observer->last == 1u << slot;
}

typedef struct norm_job {
    const s24i_vec *vec;
    const s24i_layer_norm *norm;
    float *x;
} norm_job;

static void norm_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    job->vec->layer_norm(job->x + first * job->norm->n, end - first, job->norm);
}

static void layer_norm(const s24i_pass *pass, const s24i_lane *lane, const s24i_layer_norm *norm,
                       const s24_dense *x)
{
    norm_job job = {pass->session->vec, norm, x->data};
    s24_ctx_parallel_for(lane->ctx, x->rows, norm_range, &job);
}

/* What a layer reads of the sums x: themselves, or in the lane's memory their norm. */
static s24_dense input_of(const s24i_pass *pass, const s24i_lane *lane, const s24i_layer_norm *norm,
                          const s24_dense *x)
{
    s24_dense normed = *x;
    if (!pass->session->model->architecture->pre_norm) return normed;
    normed.data = lane->normed;
    memcpy(normed.data, x->data, (size_t)(x->rows * x->cols) * sizeof(float));
    layer_norm(pass, lane, norm, &normed);
    return normed;
}

/* The sums x are complete; with norms behind the layers their norm takes their place. */
static void sum_done(const s24i_pass *pass, const s24i_lane *lane, const s24i_layer_norm *norm,
                     const s24_dense *x)
{
    if (!pass->session->model->architecture->pre_norm) layer_norm(pass, lane, norm, x);
}

static void *elem(void *data, s24_dtype dtype, int64_t i)
{
    return (char *)data + (size_t)i * s24_dtype_bytes(dtype);
}

/* Rows t … end of a [tokens, cols] matrix without stride, no more than the lane takes. */
static s24_dense chunk(const s24i_lane *lane, void *data, s24_dtype dtype, int64_t cols, int64_t t,
                       int64_t end)
{
    return (s24_dense){elem(data, dtype, t * cols), dtype, s24i_min(lane->rows, end - t), cols,
                       cols};
}

/* Query, key and value of the tokens begin … end, chunk by chunk. */
static s24_status project(const s24i_pass *pass, const s24i_lane *lane, const s24i_block *block,
                          int64_t begin, int64_t end)
{
    const s24_session *session = pass->session;
    const int64_t width = session->model->shape.width;
    const int64_t tokens = pass->batch->offsets[pass->batch->texts];
    for (int64_t t = begin; t < end; t += lane->rows) {
        const s24_dense sums = chunk(lane, pass->hidden, S24_F32, width, t, end);
        const s24_dense x = input_of(pass, lane, &block->attention_norm, &sums);
        TRY(observe(pass, S24I_QUERY, &x));
        if (is_last(pass, S24I_QUERY)) continue;
        for (int i = 0; i < block->qkv_count; i++) {
            const int64_t n = block->qkv[i].n;
            void *to = elem(session->qkv, session->between, i * tokens * width + t * n);
            const s24_dense y = {to, session->between, x.rows, n, n};
            TRY(s24i_lane_linear(lane, &block->qkv[i], &y, &x, 0));
        }
    }
    return S24_OK;
}

/* The block reads q, k and v of one product in f32. */
static void attend_grid(const s24i_pass *pass, const s24i_block *block)
{
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const s24i_attention_grid job = {.vec = session->vec,
                                     .qkv = session->qkv,
                                     .bias = block->bias[S24I_QUERY],
                                     .rel_h = block->rel_h,
                                     .rel_w = block->rel_w,
                                     .context = session->context,
                                     .images = pass->batch->texts,
                                     .grid = shape->grid,
                                     .side =
                                         s24i_attended_side(shape, block - session->model->blocks),
                                     .heads = shape->heads,
                                     .d = shape->head_width,
                                     .scratch = session->scratch,
                                     .scratch_elems = session->scratch_elems};
    s24i_attention_grid_run(pass->ctx, &job);
}

static void attend(const s24i_pass *pass, const s24i_block *block)
{
    if (block->rel_h) {
        attend_grid(pass, block);
        return;
    }
    const s24_session *session = pass->session;
    const s24i_shape *shape = &session->model->shape;
    const int64_t width = shape->width, tokens = pass->batch->offsets[pass->batch->texts];
    const int joined = block->qkv_count == 1; /* then q, k and v stand side by side */
    const int64_t step = joined ? width : tokens * width;
    int64_t at[3];
    for (int i = 0; i < 3; i++)
        at[i] = step * (joined ? block->place[i] : i);
    const s24_dtype dtype = session->between;
    const s24i_attention attention = {.vec = session->vec,
                                      .dtype = dtype,
                                      .q = elem(session->qkv, dtype, at[S24I_QUERY]),
                                      .k = elem(session->qkv, dtype, at[S24I_KEY]),
                                      .v = elem(session->qkv, dtype, at[S24I_VALUE]),
                                      .ld = joined ? 3 * width : width,
                                      .context = session->context,
                                      .batch = pass->batch,
                                      .tiles = session->tiles,
                                      .heads = shape->heads,
                                      .d = width / shape->heads,
                                      .scratch = session->scratch,
                                      .scratch_elems = session->scratch_elems};
    s24i_attention_run(pass->ctx, &attention);
}

/* All that comes after the attention, for one chunk x of hidden in place. */
static s24_status finish_chunk(const s24i_pass *pass, const s24i_lane *lane,
                               const s24i_block *block, const s24_dense *x,
                               const s24_dense *context)
{
    const int64_t wide = pass->session->model->shape.intermediate;
    const s24_dense outer = {lane->outer, pass->session->between, x->rows, wide, wide};
    TRY(observe(pass, S24I_ATTENTION, context));
    if (is_last(pass, S24I_ATTENTION)) return S24_OK;
    TRY(s24i_lane_linear(lane, &block->attention, x, context, 1));
    sum_done(pass, lane, &block->attention_norm, x);
    const s24_dense y = input_of(pass, lane, &block->output_norm, x);
    TRY(observe(pass, S24I_INTERMEDIATE, &y));
    if (is_last(pass, S24I_INTERMEDIATE)) return S24_OK;
    TRY(s24i_lane_linear(lane, &block->intermediate, &outer, &y, 0));
    TRY(observe(pass, S24I_OUTPUT, &outer));
    if (is_last(pass, S24I_OUTPUT)) return S24_OK;
    TRY(s24i_lane_linear(lane, &block->output, x, &outer, 1));
    sum_done(pass, lane, &block->output_norm, x);
    return S24_OK;
}

static s24_status finish(const s24i_pass *pass, const s24i_lane *lane, const s24i_block *block,
                         int64_t begin, int64_t end)
{
    const s24_session *session = pass->session;
    const int64_t width = session->model->shape.width;
    for (int64_t t = begin; t < end; t += lane->rows) {
        const s24_dense x = chunk(lane, pass->hidden, S24_F32, width, t, end);
        const s24_dense context = chunk(lane, session->context, session->between, width, t, end);
        TRY(finish_chunk(pass, lane, block, &x, &context));
    }
    return S24_OK;
}

/* ---- who does it ----------------------------------------------------------------------------- */

/* The first token of a thread's share. */
static int64_t share_begin(int64_t tokens, int lane, int lanes)
{
    const int64_t vectors = (tokens + ALIGNED - 1) / ALIGNED;
    return s24i_min(vectors * lane / lanes * ALIGNED, tokens);
}

static int is_shared(int threads, int64_t tokens)
{
    return threads > 1 && tokens >= s24i_least_shared(threads);
}

/* All chunks of a pass run as the largest would, so that one number of tokens says which layers run
   dense. most: of a chunk of all threads together. */
static int octave_of(int shared, int threads, int64_t tokens, int64_t most)
{
    const int64_t share = s24i_round_up((tokens + threads - 1) / threads, ALIGNED);
    return s24i_row_octave(shared ? s24i_min(share, CHUNK_ROWS) : s24i_min(tokens, most));
}

int s24i_pass_runs_sparse(const s24i_linear *l, const s24_session *session, int64_t tokens)
{
    const int threads = session->threads, shared = is_shared(threads, tokens);
    const int octave = octave_of(shared, threads, tokens, session->whole.rows);
    return l->sparse && !s24i_runs_dense(l, threads > 1 && !shared, octave);
}

int s24_choice_is_dense(const char *note, int threads, int64_t tokens)
{
    s24i_choice choice;
    if (!s24i_choice_read(&choice, note) || threads < 1 || tokens < 1) return -1;
    const int shared = is_shared(threads, tokens);
    const int octave = octave_of(shared, threads, tokens, (int64_t)threads * CHUNK_ROWS);
    return choice.dense[threads > 1 && !shared] >> octave & 1;
}

/* What lies between two attentions: the end of one block, the begin of the next; NULL: nothing. */
typedef struct stretch {
    const s24i_pass *pass;
    const s24i_block *finish, *project;
    int64_t tokens;
    int lanes, octave;
} stretch;

static s24_status run_tokens(const stretch *s, const s24i_lane *lane, int64_t begin, int64_t end)
{
    if (s->finish) TRY(finish(s->pass, lane, s->finish, begin, end));
    return s->project ? project(s->pass, lane, s->project, begin, end) : S24_OK;
}

static void run_shares(void *arg, int64_t first, int64_t last, int thread)
{
    const stretch *s = arg;
    (void)thread;
    for (int i = (int)first; i < last; i++) {
        s24i_lane *lane = &s->pass->session->lanes[i];
        lane->octave = s->octave;
        lane->status =
            run_tokens(s, lane, share_begin(s->tokens, i, s->lanes),
                       i + 1 < s->lanes ? share_begin(s->tokens, i + 1, s->lanes) : s->tokens);
    }
}

static s24_status run_stretch(const s24i_pass *pass, const s24i_block *finish,
                              const s24i_block *project)
{
    s24_session *session = pass->session;
    const int threads = s24_ctx_threads(pass->ctx);
    const int64_t tokens = pass->batch->offsets[pass->batch->texts];
    const int shared = !pass->observer && is_shared(threads, tokens);
    const int octave = octave_of(shared, threads, tokens, session->whole.rows);
    const stretch s = {pass, finish, project, tokens, threads, octave};
    if (!shared) {
        s24i_lane whole = session->whole;
        whole.ctx = pass->ctx;
        whole.together = threads > 1;
        whole.octave = s.octave;
        return run_tokens(&s, &whole, 0, s.tokens);
    }
    s24_ctx_parallel_for(pass->ctx, threads, run_shares, (void *)(uintptr_t)&s);
    for (int i = 0; i < threads; i++) {
        const s24i_lane *lane = &session->lanes[i];
        REQUIRE(pass->ctx, lane->status == S24_OK, lane->status, "%s", s24_ctx_error(lane->ctx));
    }
    return S24_OK;
}

s24_status s24i_pass_start(const s24i_pass *pass, int64_t block)
{
    return run_stretch(pass, NULL, &pass->session->model->blocks[block]);
}

s24_status s24i_pass_block(const s24i_pass *pass, int64_t block, int more)
{
    const s24i_block *b = &pass->session->model->blocks[block];
    if (is_last(pass, S24I_QUERY)) return S24_OK;
    attend(pass, b);
    return run_stretch(pass, b, more ? b + 1 : NULL);
}
