// SPDX-License-Identifier: Apache-2.0
/*
 * Runs the texts of a language model together, a token of each in a pass: requests join between
 * passes and leave with their last token, and the next that waits has the place at once. A client
 * who went away has none.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include <poll.h>

#include "serve/serve_language.h"

/* Has the client gone? One whose answer is streamed is missed when it is sent something; another's
   connection is not read meanwhile, and its end looked for here. */
static int is_gone(const serve_generation *g)
{
    struct pollfd end = {.fd = g->watched, .events = POLLRDHUP};
    if (atomic_load(&g->gone)) return 1;
    return g->watched >= 0 && poll(&end, 1, 0) > 0;
}

static void drop_gone(serve_model *m)
{
    serve_language *l = &m->language;
    for (int64_t i = 0; i < l->slot_count; i++) {
        serve_generation *g = l->slots[i].generation;
        if (!g || !is_gone(g)) continue;
        s24_generator_leave(l->generator, i);
        atomic_store(&g->gone, 1);
        serve_generation_end(g, "the client closed its side before the text was whole");
    }
}

/* A pass that failed has ended all texts. */
static void end_all(serve_model *m)
{
    serve_language *l = &m->language;
    for (int64_t i = 0; i < l->slot_count; i++)
        if (l->slots[i].generation)
            serve_generation_end(l->slots[i].generation, s24_ctx_error(m->cli.ctx));
}

static void step(serve_model *m)
{
    const double began = cli_seconds();
    if (s24_generator_step(m->language.generator, m->cli.ctx) != S24_OK) end_all(m);
    pthread_mutex_lock(&m->lock);
    m->counts.batches++;
    m->counts.busy += cli_seconds() - began;
    pthread_mutex_unlock(&m->lock);
}

void *serve_generations_work(void *model)
{
    const serve_language *l = &((serve_model *)model)->language;
    for (;;) {
        serve_job *job = NULL;
        while (l->running < l->most_running && (job = serve_queue_take(model, !l->running)))
            serve_generation_join((serve_generation *)job);
        if (!l->running) return NULL;
        drop_gone(model);
        step(model);
    }
}
