// SPDX-License-Identifier: Apache-2.0
/*
 * The models that are served, all of one reading of their folders. A signal has them read anew:
 * others take their place when they are ready, and those that were go when the last request that
 * began with them is answered. What must stay true: a request has one set from its body to its end.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/serve.h"

enum { TOKENIZE_ROOM = 1 << 16, LOOK_NS = 100000000 /* for a signal */ };

/* ---- models --------------------------------------------------------------------------------- */

static int open_models(cli_app *cli, serve_set *s, const struct serve_options *o)
{
    int code = CLI_OK;
    s->models = calloc((size_t)cli->operand_count, sizeof *s->models);
    if (!s->models) return cli_fail(cli, CLI_IO, "out of memory");
    for (int i = 0; i < cli->operand_count && code == CLI_OK; i++) {
        serve_model *m = &s->models[s->model_count++];
        code = serve_model_open(cli, m, cli->operands[i], o);
        for (int64_t j = 0; j < i && code == CLI_OK; j++)
            if (!strcmp(s->models[j].name, m->name))
                code = cli_fail(cli, CLI_USAGE,
                                "%s and %s are both named '%s'; requests could not tell them apart",
                                s->models[j].path, m->path, m->name);
        if (m->max_tokens >= s->token_room) s->token_room = m->max_tokens + 1;
    }
    return code;
}

/* Embeds the documents with the first encoder. */
static int open_documents(cli_app *cli, serve_set *s, const struct serve_options *o)
{
    serve_model *m = s->models;
    if (!o->documents) return CLI_OK;
    while (m < s->models + s->model_count && !m->batch_count)
        m++;
    if (m == s->models + s->model_count)
        return cli_fail(cli, CLI_USAGE, "--documents: none of the models is an encoder");
    s->searched = m;
    return serve_model_documents(m, o);
}

static int make_readers(cli_app *cli, serve_set *s, int64_t count)
{
    int code = CLI_OK;
    s->readers = calloc((size_t)count, sizeof *s->readers);
    if (!s->readers) return cli_fail(cli, CLI_IO, "out of memory");
    for (; s->reader_count < count && code == CLI_OK; s->reader_count++) {
        serve_reader *reader = &s->readers[s->reader_count];
        reader->tokens = malloc((size_t)s->token_room * sizeof *reader->tokens);
        code = reader->tokens ? cli_context_whole(cli, &reader->ctx, 1)
                              : cli_fail(cli, CLI_IO, "out of memory");
        reader->next = s->idle;
        s->idle = reader;
    }
    return code;
}

int serve_set_open(serve_set **out, cli_app *cli, const struct serve_options *o)
{
    serve_set *s = *out = calloc(1, sizeof *s);
    if (!s) return cli_fail(cli, CLI_IO, "out of memory");
    s->token_room = TOKENIZE_ROOM;
    int code = open_models(cli, s, o);
    if (code == CLI_OK) code = open_documents(cli, s, o);
    if (code == CLI_OK) code = make_readers(cli, s, o->http_threads);
    return code;
}

int serve_set_start(serve_set *set)
{
    int code = CLI_OK;
    for (int64_t i = 0; i < set->model_count && code == CLI_OK; i++)
        code = serve_model_start(&set->models[i]);
    return code;
}

void serve_set_close(serve_set *set)
{
    if (!set) return;
    for (int64_t i = 0; i < set->model_count; i++)
        serve_model_close(&set->models[i]);
    for (int64_t i = 0; i < set->reader_count; i++) {
        s24_ctx_destroy(set->readers[i].ctx);
        free(set->readers[i].tokens);
    }
    free(set->models);
    free(set->readers);
    free(set);
}

/* ---- who has it ------------------------------------------------------------------------------ */

serve_set *serve_set_enter(serve_server *server, serve_reader **reader)
{
    pthread_mutex_lock(&server->lock);
    serve_set *set = server->set;
    set->users++;
    *reader = set->idle; /* there is one: a thread reads one request at a time */
    set->idle = set->idle->next;
    pthread_mutex_unlock(&server->lock);
    return set;
}

void serve_set_give(serve_set *set, serve_reader *reader)
{
    reader->next = set->idle;
    set->idle = reader;
}

/* Moves what was counted so far from each model to the one that has its place. */
static void move_counts(serve_set *to, serve_set *from)
{
    for (int64_t i = 0; i < from->model_count; i++) {
        serve_model *old = &from->models[i], *m = &to->models[i];
        serve_counts c;
        pthread_mutex_lock(&old->lock);
        c = old->counts;
        old->counts = (serve_counts){.waiting_texts = c.waiting_texts,
                                     .waiting_tokens = c.waiting_tokens,
                                     .running_texts = c.running_texts};
        pthread_mutex_unlock(&old->lock);
        pthread_mutex_lock(&m->lock);
        m->counts.texts += c.texts;
        m->counts.tokens += c.tokens;
        m->counts.batches += c.batches;
        m->counts.truncated += c.truncated;
        m->counts.prefix_texts += c.prefix_texts;
        m->counts.prefix_tokens += c.prefix_tokens;
        m->counts.busy += c.busy;
        pthread_mutex_unlock(&m->lock);
    }
}

serve_set *serve_set_exchange(serve_server *server, serve_set *set)
{
    pthread_mutex_lock(&server->lock);
    serve_set *old = server->set;
    move_counts(set, old);
    server->set = set;
    server->reloads++;
    pthread_mutex_unlock(&server->lock);
    return old;
}

int serve_set_wait(serve_server *server, serve_set *set)
{
    struct timespec until;
    pthread_mutex_lock(&server->lock);
    while (set->users > 0 && !cli_interrupted()) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&server->change, &server->lock, &until);
    }
    const int free_now = set->users == 0;
    move_counts(server->set, set);
    pthread_mutex_unlock(&server->lock);
    return free_now;
}
