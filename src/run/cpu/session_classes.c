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

/* The last of a text's tokens that is no padding, or else its first. */
static int64_t last_of(const class_job *job, int64_t text)
{
    const s24_batch *batch = job->batch;
    const int64_t first = batch->offsets[text], padding = job->session->model->reading.padding;
    int64_t t = batch->offsets[text + 1] - 1;
    while (padding >= 0 && t > first && batch->ids[t] == padding)
        t--;
    return t;
}

/* logits of what the last layer reads. */
static void run_last(const class_job *job, float *logits, const float *x)
{
    const s24_model *model = job->session->model;
    const int64_t width = model->shape.width;
    for (int64_t c = 0; c < model->shape.classes; c++)
        logits[c] = job->session->vec->dot(x, model->class_weight + c * width, width) +
                    model->class_bias[c];
}

/* The last layer of a mean is the mean of the last layer's results. */
static const float *mean_of_each(const class_job *job, float *room, int64_t text)
{
    const s24_batch *batch = job->batch;
    const s24i_vec *vec = job->session->vec;
    const int64_t width = job->session->model->shape.width;
    float *sum = room + width;
    int64_t count = 0;
    memset(sum, 0, (size_t)width * sizeof *sum);
    for (int64_t t = batch->offsets[text]; t < batch->offsets[text + 1]; t++) {
        if (batch->mask && !batch->mask[t]) continue;
        vec->axpy(sum, 1.0f, read_by_last(job, room, job->hidden + t * width), width);
        count++;
    }
    if (count) vec->scale(sum, 1.0f / (float)count, width);
    return sum;
}

static const float *read_of_text(const class_job *job, float *room, int64_t text)
{
    const int64_t width = job->session->model->shape.width, first = job->batch->offsets[text];
    switch (job->session->model->reading.reads) {
    case S24I_READS_MEAN:
        mean_of(room + width, job, text);
        return read_by_last(job, room, room + width);
    case S24I_READS_EACH:
        return mean_of_each(job, room, text);
    case S24I_READS_LAST:
        return read_by_last(job, room, job->hidden + last_of(job, text) * width);
    case S24I_READS_FIRST:
        break;
    }
    return read_by_last(job, room, job->hidden + first * width);
}

static void class_range(void *arg, int64_t first, int64_t end, int thread)
{
    const class_job *job = arg;
    const s24_model *model = job->session->model;
    const int64_t width = model->shape.width, classes = model->shape.classes;
    const int of_tokens = model->reading.whom == S24I_CLASSIFIES_TOKENS;
    float *room = job->session->class_rows + thread * 2 * width;
    for (int64_t i = first; i < end; i++)
        run_last(job, job->logits + i * classes,
                 of_tokens ? read_by_last(job, room, job->hidden + i * width)
                           : read_of_text(job, room, i));
}

void s24i_session_classify(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                           const float *hidden, float *logits)
{
    class_job job = {session, batch, hidden, logits};
    const int tokens = session->model->reading.whom == S24I_CLASSIFIES_TOKENS;
    s24_ctx_parallel_for(ctx, tokens ? batch->offsets[batch->texts] : batch->texts, class_range,
                         &job);
}
