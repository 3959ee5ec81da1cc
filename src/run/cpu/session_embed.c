// SPDX-License-Identifier: Apache-2.0
/* From a batch to the first block's input: rows of tables for tokens, a product for patches. */
#include "run/cpu/kv_cache.h"
#include "run/cpu/pass.h"
#include "run/weight/weight.h"

#include <string.h>

typedef struct token_job {
    const s24_session *session;
    const s24_batch *batch;
    float *hidden;
    int64_t first; /* token at hidden's begin */
} token_job;

/* ---- texts ----------------------------------------------------------------------------------- */

static void put_word(float *row, const s24_model *model, int32_t id)
{
    const int64_t width = s24i_embedding_width(&model->shape);
    if (model->narrow_words)
        s24_convert(row, S24_F32, model->narrow_words + id * width, S24_BF16, width);
    else if (model->words)
        memcpy(row, model->words + id * width, (size_t)width * sizeof *row);
    else
        s24i_weight_row(row, model->lm_head.weight[S24I_WAY_DENSE], id);
}

/* How many tokens of a text before `end` pad. */
static int64_t pads_before(const s24i_shape *shape, const s24_batch *batch, int64_t text,
                           int64_t end)
{
    int64_t pads = 0;
    for (int64_t t = batch->offsets[text]; shape->pads && t < end; t++)
        (void)s24i_place_of(shape, batch->ids[t], 0, &pads);
    return pads;
}

/* A token's word, times the model's factor and the text's. */
static void put_scaled(float *row, const s24_session *session, int32_t id, float kept)
{
    const s24_model *model = session->model;
    const int64_t width = s24i_embedding_width(&model->shape);
    if (model->shape.masked_grows && id == model->shape.masked) {
        memset(row, 0, (size_t)width * sizeof *row);
        return;
    }
    put_word(row, model, id);
    if (model->shape.embedding_factor > 0.0f)
        session->vec->scale(row, model->shape.embedding_factor, width);
    if (kept > 0.0f) session->vec->scale(row, kept, width);
}

static void embed_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const token_job *job = arg;
    const s24_batch *batch = job->batch;
    const s24_model *model = job->session->model;
    const s24i_vec *vec = job->session->vec;
    const int64_t width = s24i_embedding_width(&model->shape);
    first += job->first;
    end += job->first;
    int64_t text = first < end ? s24i_batch_text(batch, first) : 0, pads = 0;
    float kept = first < end ? s24i_kept_factor(&model->shape, batch, text) : 0.0f;
    if (first < end) pads = pads_before(&model->shape, batch, text, first);
    for (int64_t t = first; t < end; t++) {
        for (; t >= batch->offsets[text + 1]; kept = s24i_kept_factor(&model->shape, batch, text))
            text++, pads = 0;
        const int64_t i = s24i_cache_before(job->session->cache, text) + t - batch->offsets[text];
        const int64_t position = s24i_place_of(&model->shape, batch->ids[t], i, &pads);
        const int64_t type = batch->types ? batch->types[t] : 0;
        float *row = job->hidden + (t - job->first) * width;
        put_scaled(row, job->session, batch->ids[t], kept);
        if (model->position_rows)
            vec->add(row, row, model->position_rows + position * width, width);
        if (model->type_rows) vec->add(row, row, model->type_rows + type * width, width);
        if (model->embedding_norm.gamma) vec->layer_norm(row, 1, &model->embedding_norm);
    }
}

/* ---- images ---------------------------------------------------------------------------------- */

static void unfold_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const token_job *job = arg;
    const s24i_patches *p = &job->session->model->patch_map;
    (void)thread;
    s24i_unfold(job->session->whole.normed + begin * p->row, job->batch->pixels, p,
                job->first + begin, job->first + end);
}

static void place_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const token_job *job = arg;
    const s24_model *model = job->session->model;
    const int64_t width = model->shape.width;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *row = job->hidden + t * width;
        const int64_t position = (job->first + t) % model->shape.positions;
        job->session->vec->add(row, row, model->position_rows + position * width, width);
        if (model->embedding_norm.gamma)
            job->session->vec->layer_norm(row, 1, &model->embedding_norm);
    }
}

static s24_status embed_images(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                               float *hidden)
{
    const s24_model *model = session->model;
    const int64_t width = model->shape.width, tokens = batch->offsets[batch->texts];
    s24i_lane lane = session->whole;
    lane.ctx = ctx;
    for (int64_t t = 0; t < tokens; t += lane.rows) {
        const int64_t rows = s24i_min(lane.rows, tokens - t), row = model->patch_map.row;
        token_job job = {session, batch, hidden + t * width, t};
        const s24_dense x = {lane.normed, S24_F32, rows, row, row};
        const s24_dense y = {job.hidden, S24_F32, rows, width, width};
        s24_ctx_parallel_for(ctx, rows, unfold_range, &job);
        TRY(s24i_lane_linear(&lane, &model->patches, &y, &x, 0));
        s24_ctx_parallel_for(ctx, rows, place_range, &job);
    }
    return S24_OK;
}

/* Embeddings that another layer makes as wide as the blocks. */
static s24_status embed_projected(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                  float *hidden)
{
    const s24_model *model = session->model;
    const int64_t width = model->shape.width, tokens = batch->offsets[batch->texts];
    const int64_t narrow = model->shape.embedding;
    s24i_lane lane = session->whole;
    lane.ctx = ctx;
    for (int64_t t = 0; t < tokens; t += lane.rows) {
        const int64_t rows = s24i_min(lane.rows, tokens - t);
        token_job job = {session, batch, lane.normed, t};
        const s24_dense x = {lane.normed, S24_F32, rows, narrow, narrow};
        const s24_dense y = {hidden + t * width, S24_F32, rows, width, width};
        s24_ctx_parallel_for(ctx, rows, embed_range, &job);
        TRY(s24i_lane_linear(&lane, &model->project, &y, &x, 0));
    }
    return S24_OK;
}

s24_status s24i_embed(s24_session *session, s24_ctx *ctx, const s24_batch *batch, float *hidden)
{
    token_job job = {session, batch, hidden, 0};
    if (session->images) return embed_images(session, ctx, batch, hidden);
    if (s24i_projects(&session->model->shape)) return embed_projected(session, ctx, batch, hidden);
    s24_ctx_parallel_for(ctx, batch->offsets[batch->texts], embed_range, &job);
    return S24_OK;
}
