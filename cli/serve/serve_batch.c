// SPDX-License-Identifier: Apache-2.0
/*
 * Runs what waits for an encoder: the worker takes as many texts from the front as fit a batch's
 * tokens, whosever they are, and waits for nothing else. On a device two batches may be on their
 * way, one that runs and the next; another thread ends them, so that the worker makes up the
 * next while answers are given out. What a head reads runs a request at a time. What must stay
 * true: a batch's memory is the worker's until it is begun, and then the giver's until it has been
 * given and the others that there are have had their turn.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

enum {
    MOST_TEXTS = 1024,     /* of a batch */
    BATCH_WORDS = 1 << 21, /* that a batch has room for, where texts become words */
    MOST_WORDS = 1 << 20   /* of a request */
};

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
    float *vectors; /* [batch_texts, width], or: */
    s24_word_weights words;
    serve_job *whole[MOST_TEXTS];
    serve_job *images; /* a job of images, which is a batch by itself; or NULL */
    double began;
    s24_status status; /* of its begin, then of its end */
    char error[256];
};

static void destroy(struct serve_batch *batch)
{
    if (!batch) return;
    free(batch->ids);
    free(batch->vectors);
    free(batch->words.ids);
    free(batch->words.weights);
    free(batch->words.counts);
    free(batch);
}

void serve_batches_destroy(serve_model *model)
{
    for (int i = 0; i < model->batch_count; i++)
        destroy(model->batches[i]);
}

/* Makes room for what a batch gives; 0: no memory. */
static int make_results(const serve_model *m, struct serve_batch *b)
{
    const size_t texts = (size_t)m->batch_texts, all = texts * (size_t)m->width;
    if (!m->weighs) return (b->vectors = malloc(all * sizeof *b->vectors)) != NULL;
    b->words.most = m->width;
    b->words.ids = malloc(all * sizeof *b->words.ids);
    b->words.weights = malloc(all * sizeof *b->words.weights);
    b->words.counts = malloc(texts * sizeof *b->words.counts);
    return b->words.ids && b->words.weights && b->words.counts;
}

int serve_batches_create(serve_model *model)
{
    serve_model *m = model;
    m->most_on_way = s24_encoder_most_begun(m->encoder, &m->batch_texts, &m->batch_tokens);
    if (m->images == m->encoder) m->most_on_way = 1; /* of images alone */
    if (m->batch_texts > MOST_TEXTS) m->batch_texts = MOST_TEXTS;
    if (m->weighs && m->batch_texts > BATCH_WORDS / m->width)
        m->batch_texts = BATCH_WORDS / m->width + (m->width > BATCH_WORDS);
    const int count = m->most_on_way + (m->most_on_way > 1);
    for (; m->batch_count < count; m->batch_count++) {
        struct serve_batch *b = m->batches[m->batch_count] = calloc(1, sizeof *b);
        if (!b) return 0;
        b->ids = malloc((size_t)m->batch_tokens * sizeof *b->ids);
        if (!b->ids || !make_results(m, b)) return 0;
    }
    return 1;
}

/* ---- making up ------------------------------------------------------------------------------ */

/* Takes what fits of the job at the front; 0: nothing more of anything does. */
static int take_piece(const serve_model *m, struct serve_batch *b, serve_job *job)
{
    const int64_t first = job->taken;
    int64_t tokens = b->offsets[b->texts];
    for (; job->taken < job->texts && b->texts < m->batch_texts; job->taken++) {
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

static void drop_first(serve_model *m)
{
    m->first = m->first->next;
    if (!m->first) m->last = &m->first;
}

/* Fills a batch from the front of the queue, once it is due. NULL: the model ends. */
static struct serve_batch *form(serve_model *m)
{
    pthread_mutex_lock(&m->lock);
    while (!serve_queue_is_due(m))
        pthread_cond_wait(&m->change, &m->lock);
    struct serve_batch *b = m->batches[(m->oldest + m->on_way) % m->batch_count];
    const int goes_on = m->first != NULL;
    b->piece_count = b->texts = 0;
    b->images = NULL;
    while (m->first && !m->first->images && take_piece(m, b, m->first))
        drop_first(m);
    if (m->first && m->first->images && !b->texts) {
        b->images = m->first;
        drop_first(m);
        m->counts.waiting_texts -= b->images->texts;
    }
    m->counts.waiting_texts -= b->texts;
    m->counts.waiting_tokens -= b->offsets[b->texts];
    pthread_mutex_unlock(&m->lock);
    return goes_on ? b : NULL;
}

/* Keeps what the context says of a step that failed. */
static void keep_error(struct serve_batch *b, const s24_ctx *ctx)
{
    if (b->status != S24_OK) snprintf(b->error, sizeof b->error, "%s", s24_ctx_error(ctx));
}

/* Sends the batch on its way; one of words has ended then. */
static void begin(serve_model *m, struct serve_batch *b)
{
    const s24_batch batch = {.texts = b->texts, .offsets = b->offsets, .ids = b->ids};
    b->began = cli_seconds();
    b->status = m->weighs ? s24_encoder_weigh_ids(&b->words, NULL, m->encoder, m->cli.ctx, &batch)
                          : s24_encoder_begin_ids(m->encoder, m->cli.ctx, &batch);
    keep_error(b, m->cli.ctx);
    pthread_mutex_lock(&m->lock);
    m->on_way++;
    m->newest_tokens = b->offsets[b->texts];
    pthread_cond_signal(&m->sent);
    pthread_mutex_unlock(&m->lock);
}

/* Counts what ran, with the lock. */
static void count_batch(serve_model *m, int64_t texts, int64_t tokens, double seconds)
{
    m->counts.texts += texts;
    m->counts.tokens += tokens;
    m->counts.batches++;
    m->counts.busy += seconds;
}

/* The same of what ran by itself since `began`, whose answer is ready. */
static void end_alone(serve_model *m, serve_job *job, int64_t tokens, double began)
{
    pthread_mutex_lock(&m->lock);
    count_batch(m, job->texts, tokens, cli_seconds() - began);
    pthread_mutex_unlock(&m->lock);
    job->ready(job);
}

/* ---- giving out ----------------------------------------------------------------------------- */

static void find_nearest(serve_model *m, s24_ctx *ctx, serve_job *job)
{
    for (int64_t i = 0; m->weighs && i < job->texts; i++)
        (void)postings_nearest(job->lines + i * job->nearest, job->scores + i * job->nearest,
                               &m->lists, &job->words, i, job->nearest);
    if (m->weighs) return;
    const s24_dense queries = {
        .data = job->vectors, .dtype = S24_F32, .rows = job->texts, .cols = m->width};
    const s24_dense documents = embedded_view(&m->documents);
    if (s24_nearest(job->lines, job->scores, ctx, &queries, &documents, job->nearest) != S24_OK)
        snprintf(job->error, sizeof job->error, "%s", s24_ctx_error(ctx));
}

/* Gives a job a text's words, those of the batch from `first` on. */
static void give_words(const piece *p, const struct serve_batch *b, int64_t first)
{
    serve_job *job = p->job;
    if (b->status != S24_OK || *job->error) return;
    if (!weighed_add(&job->words, &b->words, first, p->count))
        snprintf(job->error, sizeof job->error, "the server is out of memory");
    else if (job->words.offsets[job->words.count] > MOST_WORDS) {
        job->refused = 1;
        snprintf(job->error, sizeof job->error,
                 "the texts have more than %d weights of words; ask for fewer texts at once",
                 MOST_WORDS);
    }
}

/* Gives each job its vectors. Returns how many jobs are whole, in batch->whole. */
static int64_t share_out(serve_model *m, struct serve_batch *b, s24_ctx *ctx)
{
    int64_t whole = 0, first = 0;
    for (int64_t i = 0; i < b->piece_count; i++) {
        const piece *p = &b->pieces[i];
        serve_job *job = p->job;
        if (m->weighs)
            give_words(p, b, first);
        else
            memcpy(job->vectors + p->first * m->width, b->vectors + first * m->width,
                   (size_t)(p->count * m->width) * sizeof *b->vectors);
        first += p->count;
        job->done += p->count;
        if (b->status != S24_OK) memcpy(job->error, b->error, sizeof job->error);
        if (job->done < job->texts) continue;
        if (job->nearest && !*job->error) find_nearest(m, ctx, job);
        b->whole[whole++] = job;
    }
    return whole;
}

/* Waits for the oldest batch on its way, makes room for the next, and lets those go on whose texts
   are ready. ended: when the one before was; this one's is the result. */
static double end_oldest(serve_model *m, struct serve_batch *b, s24_ctx *ctx, double ended)
{
    if (b->status == S24_OK && !m->weighs) {
        b->status = s24_encoder_end(b->vectors, m->encoder, ctx);
        keep_error(b, ctx);
    }
    const double now = cli_seconds();
    pthread_mutex_lock(&m->lock);
    count_batch(m, b->texts, b->offsets[b->texts], now - (b->began > ended ? b->began : ended));
    m->on_way--;
    m->oldest++;
    if (serve_queue_is_due(m)) pthread_cond_signal(&m->change);
    pthread_mutex_unlock(&m->lock);
    const int64_t whole = share_out(m, b, ctx);
    for (int64_t i = 0; i < whole; i++)
        b->whole[i]->ready(b->whole[i]);
    return now;
}

void *serve_batches_give(void *model)
{
    serve_model *m = model;
    double ended = 0;
    for (;;) {
        pthread_mutex_lock(&m->lock);
        while (!m->on_way && !m->formed)
            pthread_cond_wait(&m->sent, &m->lock);
        struct serve_batch *b = m->on_way ? m->batches[m->oldest % m->batch_count] : NULL;
        pthread_mutex_unlock(&m->lock);
        if (!b) return NULL;
        ended = end_oldest(m, b, m->giver_ctx, ended);
    }
}

/* ---- the worker ----------------------------------------------------------------------------- */

/* Runs a job's texts through the model's head. */
static void run_head(serve_model *m, serve_job *job)
{
    const double began = cli_seconds();
    int64_t tokens = 0;
    const s24_status status =
        s24_encoder_classify(job->vectors, &tokens, m->encoder, m->cli.ctx, &job->pairs);
    job->refused = status == S24_ERROR_ARGUMENT;
    if (status != S24_OK) snprintf(job->error, sizeof job->error, "%s", s24_ctx_error(m->cli.ctx));
    end_alone(m, job, tokens, began);
}

/* Runs a job of images. */
static void run_images(serve_model *m, serve_job *job)
{
    const double began = cli_seconds();
    serve_run_images(m, job);
    if (job->nearest && !*job->error) find_nearest(m, m->cli.ctx, job);
    end_alone(m, job, 0, began);
}

void *serve_batches_work(void *model)
{
    serve_model *m = model;
    struct serve_batch *b;
    serve_job *job;
    while (m->classifies && (job = serve_queue_take(m, 1)))
        run_head(m, job);
    while (!m->classifies && (b = form(m))) {
        if (b->images) {
            run_images(m, b->images);
            continue;
        }
        begin(m, b);
        if (!m->gives) (void)end_oldest(m, b, m->cli.ctx, 0);
    }
    pthread_mutex_lock(&m->lock);
    m->formed = 1;
    pthread_cond_signal(&m->sent);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}
