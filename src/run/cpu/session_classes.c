// SPDX-License-Identifier: Apache-2.0
/* Heads that classify images, texts or tokens: a state, a square layer and a norm where there are
   some, and the last layer. */
#include "run/session.h"

#include <math.h>
#include <string.h>

typedef struct class_job {
    const s24_session *session;
    const s24_batch *batch;
    const float *hidden;
    float *logits;
} class_job;

static float bend(float x, s24i_bend how)
{
    if (how == S24I_BEND_TANH) return tanhf(x);
    if (how == S24I_BEND_RELU) return x > 0.0f ? x : 0.0f;
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

/* The mean of a text's states that no mask hides. */
static void mean_of(float *y, const class_job *job, int64_t text)
{
    const s24i_vec *vec = job->session->vec;
    const int64_t width = job->session->model->shape.width;
    int64_t count = 0;
    memset(y, 0, (size_t)width * sizeof *y);
    for (int64_t t = job->batch->offsets[text]; t < job->batch->offsets[text + 1]; t++) {
        if (job->batch->mask && !job->batch->mask[t]) continue;
        vec->axpy(y, 1.0f, job->hidden + t * width, width);
        count++;
    }
    if (count) vec->scale(y, 1.0f / (float)count, width);
}

/* What the last layer reads: the state itself, or what is made of it in `room`. */
static const float *read_by_last(const class_job *job, float *room, const float *state)
{
    const s24_model *model = job->session->model;
    const s24i_vec *vec = job->session->vec;
    const int64_t width = model->shape.width;
    if (!model->square_weight) return state;
    for (int64_t i = 0; i < width; i++)
        room[i] =
            bend(vec->dot(state, model->square_weight + i * width, width) + model->square_bias[i],
                 model->architecture->text_head.bend);
    if (model->class_norm.gamma) vec->layer_norm(room, 1, &model->class_norm);
    return room;
}

static void class_range(void *arg, int64_t first, int64_t end, int thread)
{
    const class_job *job = arg;
    const s24_model *model = job->session->model;
    const int64_t width = model->shape.width, classes = model->shape.classes;
    float *room = job->session->class_rows + thread * 2 * width;
    for (int64_t i = first; i < end; i++) {
        const int64_t token =
            model->classifies == S24I_CLASSIFIES_TOKENS ? i : job->batch->offsets[i];
        const float *x = job->hidden + token * width;
        if (model->class_mean) mean_of(room + width, job, i);
        x = read_by_last(job, room, model->class_mean ? room + width : x);
        for (int64_t c = 0; c < classes; c++)
            job->logits[i * classes + c] =
                job->session->vec->dot(x, model->class_weight + c * width, width) +
                model->class_bias[c];
    }
}

void s24i_session_classify(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                           const float *hidden, float *logits)
{
    class_job job = {session, batch, hidden, logits};
    const int tokens = session->model->classifies == S24I_CLASSIFIES_TOKENS;
    s24_ctx_parallel_for(ctx, tokens ? batch->offsets[batch->texts] : batch->texts, class_range,
                         &job);
}
