// SPDX-License-Identifier: Apache-2.0
/*
 * Lets requests wait for a model in the order in which they came, and runs them: the worker takes
 * as many texts from the front as fit a batch's tokens, whosever they are, and waits for nothing
 * else. What a head reads runs a request at a time. What must stay true: the queue is bounded, and
 * every job that was taken becomes ready.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

enum { MOST_TEXTS = 1024 /* of a batch */ };

/* Says which texts of a job stand where in a batch. */
typedef struct piece {
    serve_job *job;
    int64_t first, count;
} piece;

struct serve_batch {
    piece pieces[MOST_TEXTS];
    int64_t piece_count, texts;
    int64_t offsets[MOST_TEXTS + 1];
    int32_t *ids;   /* [tokens of a batch] */
    float *vectors; /* [MOST_TEXTS, width] */
    serve_job *whole[MOST_TEXTS];
    serve_job *images; /* a job of images, which is a batch by itself; or NULL */
};

struct serve_batch *serve_batch_create(const serve_model *model)
{
    struct serve_batch *batch = calloc(1, sizeof *batch);
    if (!batch) return NULL;
    batch->ids = malloc((size_t)model->batch_tokens * sizeof *batch->ids);
    batch->vectors = malloc(MOST_TEXTS * (size_t)model->width * sizeof *batch->vectors);
    if (batch->ids && batch->vectors) return batch;
    serve_batch_destroy(batch);
    return NULL;
}

void serve_batch_destroy(struct serve_batch *batch)
{
    if (!batch) return;
    free(batch->ids);
    free(batch->vectors);
    free(batch);
}

/* ---- the queue ------------------------------------------------------------------------------ */

int serve_queue_add(serve_model *model, serve_job *job)
{
    pthread_mutex_lock(&model->lock);
    serve_counts *c = &model->counts;
    const int fits = !model->ending && c->waiting_texts + job->texts <= model->most_waiting;
    if (fits) {
        job->next = NULL;
        *model->last = job;
        model->last = &job->next;
        c->waiting_texts += job->texts;
        c->waiting_tokens += job->offsets[job->texts];
        pthread_cond_signal(&model->change);
    }
    pthread_mutex_unlock(&model->lock);
    return fits;
}

void serve_queue_counts(serve_model *model, serve_counts *counts)
{
    pthread_mutex_lock(&model->lock);
    *counts = model->counts;
    pthread_mutex_unlock(&model->lock);
}

int64_t serve_queue_seconds(serve_model *model)
{
    serve_counts c;
    serve_queue_counts(model, &c);
    if (!c.tokens) return 1;
    return 1 + (int64_t)((double)c.waiting_tokens * c.busy / (double)c.tokens);
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Takes what fits of the job at the front; 0: nothing more of anything does. */
static int take_piece(serve_model *m, serve_job *job)
{
    struct serve_batch *b = m->batch;
    const int64_t first = job->taken;
    int64_t tokens = b->offsets[b->texts];
    for (; job->taken < job->texts && b->texts < MOST_TEXTS; job->taken++) {
        const int64_t begin = job->offsets[job->taken];
        const int64_t count = job->offsets[job->taken + 1] - begin;
        if (tokens + count > m->batch_tokens) break;
        memcpy(b->ids + tokens, job->ids + begin, (size_t)count * sizeof *b->ids);
        tokens += count;
        b->offsets[++b->texts] = tokens;
    }
    if (job->taken > first) b->pieces[b->piece_count++] = (piece){job, first, job->taken - first};
    return job->taken == job->texts;
}

/* Waits until there is a job or the model ends, in the lock. 0: it ends, and nothing waits. */
static int await(serve_model *m)
{
    while (!m->first && !m->ending)
        pthread_cond_wait(&m->change, &m->lock);
    return m->first != NULL;
}

static void drop_first(serve_model *m)
{
    m->first = m->first->next;
    if (!m->first) m->last = &m->first;
}

/* Fills the batch from the front of the queue, once there is something. 0: the model ends. */
static int form(serve_model *m)
{
    struct serve_batch *b = m->batch;
    b->piece_count = b->texts = 0;
    b->offsets[0] = 0;
    b->images = NULL;
    pthread_mutex_lock(&m->lock);
    const int goes_on = await(m);
    while (m->first && !m->first->images && take_piece(m, m->first))
        drop_first(m);
    if (m->first && m->first->images && !b->texts) {
        b->images = m->first;
        drop_first(m);
        m->counts.waiting_texts -= b->images->texts;
    }
    m->counts.waiting_texts -= b->texts;
    m->counts.waiting_tokens -= b->offsets[b->texts];
    pthread_mutex_unlock(&m->lock);
    return goes_on;
}

serve_job *serve_queue_take(serve_model *model, int waits)
{
    serve_model *m = model;
    pthread_mutex_lock(&m->lock);
    if (waits) (void)await(m);
    serve_job *job = m->first;
    if (job) {
        drop_first(m);
        m->counts.waiting_texts -= job->texts;
        m->counts.waiting_tokens -= job->offsets[job->texts];
    }
    pthread_mutex_unlock(&m->lock);
    return job;
}

/* Runs a job's texts through the model's head. */
static void run_head(serve_model *m, serve_job *job)
{
    const double began = cli_seconds();
    int64_t tokens = 0;
    const s24_status status =
        s24_encoder_classify(job->vectors, &tokens, m->encoder, m->cli.ctx, &job->pairs);
    job->refused = status == S24_ERROR_ARGUMENT;
    if (status != S24_OK) snprintf(job->error, sizeof job->error, "%s", s24_ctx_error(m->cli.ctx));
    pthread_mutex_lock(&m->lock);
    m->counts.texts += job->texts;
    m->counts.tokens += tokens;
    m->counts.batches++;
    m->counts.busy += cli_seconds() - began;
    pthread_mutex_unlock(&m->lock);
    job->ready(job);
}

static void find_nearest(serve_model *m, serve_job *job)
{
    const s24_dense queries = {
        .data = job->vectors, .dtype = S24_F32, .rows = job->texts, .cols = m->width};
    const s24_dense documents = embedded_view(&m->documents);
    if (s24_nearest(job->lines, job->scores, m->cli.ctx, &queries, &documents, job->nearest) !=
        S24_OK)
        snprintf(job->error, sizeof job->error, "%s", s24_ctx_error(m->cli.ctx));
}

/* Gives each job its vectors. Returns how many jobs are whole, in batch->whole. */
static int64_t give(serve_model *m, s24_status status)
{
    struct serve_batch *b = m->batch;
    const float *from = b->vectors;
    int64_t whole = 0;
    for (int64_t i = 0; i < b->piece_count; i++) {
        const piece *p = &b->pieces[i];
        serve_job *job = p->job;
        memcpy(job->vectors + p->first * m->width, from,
               (size_t)(p->count * m->width) * sizeof *from);
        from += p->count * m->width;
        job->done += p->count;
        if (status != S24_OK)
            snprintf(job->error, sizeof job->error, "%s", s24_ctx_error(m->cli.ctx));
        if (job->done < job->texts) continue;
        if (job->nearest && !*job->error) find_nearest(m, job);
        b->whole[whole++] = job;
    }
    return whole;
}

/* Runs the batch, out of the lock, counts it in the lock, and lets those who wait go on. */
static void run_batch(serve_model *m)
{
    struct serve_batch *b = m->batch;
    const double began = cli_seconds();
    const s24_batch batch = {.texts = b->texts, .offsets = b->offsets, .ids = b->ids};
    const s24_status status =
        s24_encoder_embed_ids(b->vectors, NULL, m->encoder, m->cli.ctx, &batch);
    const int64_t whole = give(m, status);
    pthread_mutex_lock(&m->lock);
    m->counts.texts += b->texts;
    m->counts.tokens += b->offsets[b->texts];
    m->counts.batches++;
    m->counts.busy += cli_seconds() - began;
    pthread_mutex_unlock(&m->lock);
    for (int64_t i = 0; i < whole; i++)
        b->whole[i]->ready(b->whole[i]);
}

/* Runs a job of images. */
static void run_images(serve_model *m)
{
    serve_job *job = m->batch->images;
    const double began = cli_seconds();
    serve_run_images(m, job);
    if (job->nearest && !*job->error) find_nearest(m, job);
    pthread_mutex_lock(&m->lock);
    m->counts.texts += job->texts;
    m->counts.batches++;
    m->counts.busy += cli_seconds() - began;
    pthread_mutex_unlock(&m->lock);
    job->ready(job);
}

void *serve_queue_work(void *model)
{
    serve_model *m = model;
    serve_job *job;
    if (m->classifies)
        while ((job = serve_queue_take(m, 1)))
            run_head(m, job);
    else
        while (form(m))
            (m->batch->images ? run_images : run_batch)(m);
    return NULL;
}
