// SPDX-License-Identifier: Apache-2.0
/*
 * Lets requests wait for a model in the order in which they came. What must stay true: the queue is
 * bounded, and every job that was taken becomes ready.
 */
#include "serve/serve.h"

/* The front of the queue is due when nothing runs, and else when as much waits as the newest batch
   has: smaller ones would cost the device more for each text than waiting does. */
int serve_queue_is_due(const serve_model *m)
{
    if (!m->first) return m->ending;
    if (!m->on_way) return 1;
    if (m->on_way == m->most_on_way || m->first->images) return 0;
    const int64_t waits = m->counts.waiting_tokens;
    return waits >= m->newest_tokens || waits >= m->batch_tokens;
}

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
        if (serve_queue_is_due(model)) pthread_cond_signal(&model->change);
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

serve_job *serve_queue_take(serve_model *model, int waits)
{
    serve_model *m = model;
    pthread_mutex_lock(&m->lock);
    while (waits && !m->first && !m->ending)
        pthread_cond_wait(&m->change, &m->lock);
    serve_job *job = m->first;
    if (job) {
        m->first = job->next;
        if (!m->first) m->last = &m->first;
        m->counts.waiting_texts -= job->texts;
        m->counts.waiting_tokens -= job->offsets[job->texts];
    }
    pthread_mutex_unlock(&m->lock);
    return job;
}
