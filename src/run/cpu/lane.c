// SPDX-License-Identifier: Apache-2.0
/* Lanes and what they work on: the places of a session, and products with their memory. */
#include "run/cpu/lane.h"

#include <string.h>

#include "run/cpu/experts.h"
#include "run/cpu/latent_room.h"
#include "run/cpu/pass.h"
#include "run/load/choice.h"
#include "run/weight/weight.h"

/* ---- what they have ------------------------------------------------------------------------ */

/* The work memory of the most demanding product of `rows` tokens on ctx's threads. */
static size_t most_work(const s24_model *model, const s24_ctx *ctx, int64_t rows)
{
    size_t most = 0;
    for (int64_t b = 0; b < model->shape.layers; b++) {
        for (int i = 0; i < s24i_block_products(&model->blocks[b]); i++) {
            const s24i_linear *l = s24i_block_product(&model->blocks[b], i);
            const size_t bytes = s24i_linear_work_bytes(l, ctx, rows);
            most = bytes > most ? bytes : most;
        }
    }
    const size_t head = s24i_linear_work_bytes(&model->lm_head, ctx, rows);
    most = head > most ? head : most;
    return (most + 63) / 64 * 64;
}

/* Memory of a lane's own context, which the session's gives. */
static void *lane_alloc(void *user, size_t bytes, size_t alignment)
{
    (void)alignment; /* a context aligns to 64 bytes, which is all that one of its own asks for */
    return s24_ctx_alloc(user, bytes);
}
static void lane_free(void *user, void *memory, size_t bytes)
{
    (void)bytes;
    s24_ctx_free(user, memory);
}

static s24_status lane_create(s24i_lane *lane, s24_ctx *ctx, int64_t most_x)
{
    const s24_ctx_opts opts = {.size = sizeof opts,
                               .allocator = {lane_alloc, lane_free, ctx},
                               .threads = 1,
                               .cpu_mask = s24_ctx_cpu(ctx)};
    REQUIRE(ctx, s24_ctx_create(&lane->own, &opts) == S24_OK, S24_ERROR_MEMORY,
            "out of memory for a thread's context");
    lane->ctx = lane->own;
    return s24i_dense_engine.runner_create(&lane->runner, ctx, most_x);
}

static int64_t normed_columns(const s24_model *model)
{
    const s24i_shape *s = &model->shape;
    return s24i_max(s24i_max(s->width, s24i_embedding_width(s)),
                    s->image ? model->patch_map.row : 0);
}

/* The lanes share the memory of the whole: they never run at the same time as it. */
s24_status s24i_lanes_fill(s24_session *session, s24_ctx *ctx)
{
    const s24_model *model = session->model;
    const s24i_shape *shape = &model->shape;
    const int64_t rows = s24i_min(session->max_tokens, CHUNK_ROWS), threads = session->threads;
    const int64_t all = s24i_min(session->max_tokens, CHUNK_ROWS * threads);
    const int64_t expert = s24i_max(shape->mixture.width, shape->mixture.shared_width);
    const int64_t inner = s24i_max(s24i_max(shape->intermediate, shape->width), expert);
    const int64_t widest = s24i_max(s24i_slot_outputs(shape, S24I_QUERY), inner);
    const int64_t wide = model->dtype == S24_F32 ? 0 : widest;
    const int64_t outer_cols = shape->intermediate * (shape->gated ? 3 : 1);
    const size_t part = s24_dtype_bytes(session->between);
    s24i_lane *whole = &session->whole;
    size_t one = 0, bytes = most_work(model, ctx, all);
    TRY(s24i_alloc_elems(&session->lanes, ctx, threads, sizeof *session->lanes, "lanes"));
    memset(session->lanes, 0, (size_t)threads * sizeof *session->lanes);
    whole->rows = all;
    TRY(s24i_dense_engine.runner_create(&whole->runner, ctx, all * wide));
    for (int t = 0; t < threads && threads > 1; t++)
        TRY(lane_create(&session->lanes[t], ctx, rows * wide));
    if (threads > 1) one = most_work(model, session->lanes[0].ctx, rows);
    if (bytes < one * (size_t)threads) bytes = one * (size_t)threads;
    const int64_t outer = s24i_max(all, threads > 1 ? rows * threads : 0);
    TRY(s24i_alloc_elems(&whole->outer, ctx, outer * outer_cols, part, "activations"));
    TRY(s24i_alloc_elems(&whole->work, ctx, (int64_t)bytes, 1, "work memory"));
    const int has_normed = model->architecture->pre_norm || model->lm_head.n ||
                           s24i_projects(shape) || s24i_adds_aside(model->architecture);
    const int64_t normed = has_normed ? normed_columns(model) : 0;
    TRY(s24i_alloc_elems(&whole->normed, ctx, outer * normed, sizeof(float), "norms' results"));
    const int64_t latent = s24i_latent_room(shape, rows, 1);
    TRY(s24i_latent_reserve(session, ctx,
                            s24i_max(s24i_latent_room(shape, all, threads), threads * latent)));
    whole->work_bytes = bytes;
    for (int t = 0; t < threads; t++) {
        s24i_lane *lane = &session->lanes[t];
        lane->rows = rows;
        lane->outer = (char *)whole->outer + (size_t)(t * rows * outer_cols) * part;
        lane->normed = whole->normed + t * rows * normed;
        if (latent) lane->latent = whole->latent + t * latent;
        lane->work = (char *)whole->work + (size_t)t * one;
        lane->work_bytes = one;
    }
    return S24_OK;
}

/* ---- what they do -------------------------------------------------------------------------- */

s24_dense s24i_session_place(const s24_session *session, const s24i_lane *lane,
                             s24i_step_place place, int64_t first, int64_t rows)
{
    const s24i_shape *shape = &session->model->shape;
    const int64_t heads = shape->heads * shape->head_width;
    const s24_dense places[] = {
        [S24I_AT_SUMS] = {session->hidden, S24_F32, 0, shape->width, first},
        [S24I_AT_NORMED] = {lane->normed, S24_F32, 0, shape->width, 0},
        [S24I_AT_QKV] = {session->qkv, session->between, 0, s24i_qkv_outputs(shape), first},
        [S24I_AT_CONTEXT] = {session->context, session->between, 0, heads, first},
        [S24I_AT_VALUES] = {session->values, session->between, 0, s24i_attended(shape), first},
        [S24I_AT_OUTER] = {lane->outer, session->between, 0, shape->intermediate, 0},
    };
    s24_dense at = places[place];
    if (place == S24I_AT_NORMED && session->experts) {
        at.data = session->experts->normed; /* which tokens meet in */
        at.ld = first;
    }
    at.data = (char *)at.data + (size_t)(at.ld * at.cols) * s24_dtype_bytes(at.dtype);
    at.rows = rows;
    at.ld = at.cols;
    return at;
}

s24_status s24i_lane_linear(const s24i_lane *lane, const s24i_linear *l, const s24_dense *y,
                            const s24_dense *x, int accumulate)
{
    const s24i_product_job product = {.y = y,
                                      .x = x,
                                      .bias = l->bias,
                                      .activation = l->activation,
                                      .residual = accumulate ? y : NULL,
                                      .work = lane->work,
                                      .work_bytes = lane->work_bytes,
                                      .runner = lane->runner};
    return s24i_weight_run(l->weight[s24i_way_of(l, lane->together, lane->octave)], lane->ctx,
                           &product);
}
