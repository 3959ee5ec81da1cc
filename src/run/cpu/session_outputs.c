// SPDX-License-Identifier: Apache-2.0
/* From the last block's output to what is asked for: pooled vectors, answer logits. */
#include "run/session.h"

#include <math.h>
#include <string.h>

typedef struct norm_job {
    const s24_session *session;
    float *states;
} norm_job;

static void norm_range(void *arg, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const norm_job *job = arg;
    const s24i_layer_norm *norm = &job->session->model->final_norm;
    job->session->vec->layer_norm(job->states + first * norm->n, end - first, norm);
}

void s24i_session_norm(const s24_session *session, s24_ctx *ctx, float *states, int64_t tokens)
{
    norm_job job = {session, states};
    s24_ctx_parallel_for(ctx, tokens, norm_range, &job);
}

const float *s24i_session_states(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                                 float *hidden, const s24_outputs *outputs)
{
    const int64_t tokens = batch->offsets[batch->texts];
    if (!session->model->final_norm.gamma || session->model->architecture->state_normed)
        return hidden;
    if (!outputs->embeddings && !outputs->start_logits && !outputs->end_logits && !outputs->logits)
        return hidden;
    if (hidden != session->hidden)
        memcpy(session->hidden, hidden,
               (size_t)(tokens * session->model->shape.width) * sizeof(float));
    s24i_session_norm(session, ctx, session->hidden, tokens);
    return session->hidden;
}

typedef struct pool_job {
    const s24_session *session;
    const s24_batch *batch;
    const float *hidden;
    float *embeddings; /* [texts, ways, width] */
} pool_job;

/* The token that ends a text: the first of the model's id, or of the text's highest. */
static int64_t end_of(const pool_job *job, int64_t text)
{
    const int64_t first = job->batch->offsets[text], end = job->batch->offsets[text + 1];
    const int64_t id = job->session->model->shape.end;
    const int32_t *ids = job->batch->ids;
    int64_t at = first;
    for (int64_t t = first; t < end; t++) {
        if (id && ids[t] == id) return t;
        if (!id && ids[t] > ids[at]) at = t;
    }
    return at;
}

/* The tokens that may be in a text's vector: all, the first, the one that ends it, or the last that
   is pooled. */
typedef struct span {
    int64_t first, end;
} span;

static int is_pooled(const pool_job *job, s24i_pooling pooling, int64_t text, int64_t t)
{
    return pooling == S24I_POOL_CLS || pooling == S24I_POOL_END ||
           s24i_is_pooled(job->batch, t, t - job->batch->offsets[text], job->session->unpooled);
}

static span span_of(const pool_job *job, s24i_pooling pooling, int64_t text)
{
    span s = {job->batch->offsets[text], job->batch->offsets[text + 1]};
    if (pooling == S24I_POOL_CLS) s.end = s.first + 1;
    if (pooling == S24I_POOL_END) {
        s.first = end_of(job, text);
        s.end = s.first + 1;
    }
    if (pooling != S24I_POOL_LAST) return s;
    while (s.end - 1 > s.first && !is_pooled(job, pooling, text, s.end - 1))
        s.end--;
    s.first = s.end - 1;
    return s;
}

/* y: [width], of one way. */
static void pool_way(const pool_job *job, s24i_pooling pooling, int64_t text, float *y)
{
    const s24i_vec *vec = job->session->vec;
    const int64_t width = job->session->model->shape.width;
    const span at = span_of(job, pooling, text);
    int64_t counted = 0, weights = 0;
    memset(y, 0, (size_t)width * sizeof(float));
    for (int64_t t = at.first; t < at.end; t++) {
        const float *x = job->hidden + t * width;
        if (!is_pooled(job, pooling, text, t)) continue;
        const int64_t weight = pooling == S24I_POOL_WEIGHTED ? t - at.first + 1 : 1;
        if (pooling == S24I_POOL_MAX && counted)
            vec->maximum(y, x, width);
        else
            vec->axpy(y, (float)weight, x, width);
        counted++;
        weights += weight;
    }
    if ((pooling == S24I_POOL_MEAN || pooling == S24I_POOL_WEIGHTED) && counted)
        vec->scale(y, 1.0f / (float)weights, width);
    if (pooling == S24I_POOL_ROOT && counted) vec->scale(y, 1.0f / sqrtf((float)counted), width);
}

static void probe(const pool_job *job, int64_t text, float *y, int thread)
{
    const s24i_shape *shape = &job->session->model->shape;
    const int64_t first = job->batch->offsets[text], tokens = job->batch->offsets[text + 1] - first;
    s24i_session_probe(job->session, y, job->hidden + first * shape->width, tokens,
                       job->session->probe_rows + thread * s24i_probe_room(shape));
}

static void pool_text(const pool_job *job, int64_t text, int thread)
{
    const s24i_pooled *pooled = &job->session->model->pooled;
    const s24i_vec *vec = job->session->vec;
    const int64_t width = job->session->model->shape.width;
    const int ways = 1 + pooled->further_count;
    float *y = job->embeddings + text * ways * width;
    for (int i = 0; i < ways; i++)
        if (s24i_pooling_way(pooled, i) == S24I_POOL_PROBE)
            probe(job, text, y + i * width, thread);
        else
            pool_way(job, s24i_pooling_way(pooled, i), text, y + i * width);
    if (!pooled->normalise) return;
    const float norm = sqrtf(vec->dot(y, y, ways * width));
    vec->scale(y, 1.0f / (norm > 1e-12f ? norm : 1e-12f), ways * width);
}

static void pool_range(void *arg, int64_t first, int64_t end, int thread)
{
    for (int64_t text = first; text < end; text++)
        pool_text(arg, text, thread);
}

void s24i_session_pool(s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                       const float *hidden, float *embeddings)
{
    pool_job job = {session, batch, hidden, embeddings};
    s24_ctx_parallel_for(ctx, batch->texts, pool_range, &job);
}

void s24i_session_answer(const s24_session *session, const s24_batch *batch, const float *hidden,
                         const s24_outputs *outputs)
{
    const s24_model *model = session->model;
    const int64_t width = model->shape.width;
    for (int64_t t = 0; t < batch->offsets[batch->texts]; t++) {
        const float *x = hidden + t * width;
        if (outputs->start_logits)
            outputs->start_logits[t] =
                session->vec->dot(x, model->qa_weight, width) + model->qa_bias[0];
        if (outputs->end_logits)
            outputs->end_logits[t] =
                session->vec->dot(x, model->qa_weight + width, width) + model->qa_bias[1];
    }
}
