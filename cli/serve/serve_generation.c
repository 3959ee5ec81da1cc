// SPDX-License-Identifier: Apache-2.0
/* Goes on with one prompt at a time, on a language model's worker: tokens become text as they come,
   and of a stream events. */
#include "serve/serve_language.h"

#include <stdlib.h>
#include <string.h>

#include "model_checks.h"

enum { PASS_TOKENS = 2048 /* of a prompt's pass */, USUAL_TOKENS = 4096 /* of a text, at most */ };

/* ---- models ---------------------------------------------------------------------------------- */

/* An answer ends with the chat template's own token, too. */
static void add_end(serve_language *l, int32_t end)
{
    for (int64_t i = 0; i < l->end_count; i++)
        if (l->ends[i] == end) return;
    if (end >= 0 && l->end_count < SERVE_ENDS) l->ends[l->end_count++] = end;
}

/* Without a chat template that is known there is no chat, which requests are told. */
static void open_chat(serve_model *m)
{
    serve_language *l = &m->language;
    if (s24_chat_load(&l->chat, m->cli.ctx, m->path, l->tokenizer) == S24_OK)
        add_end(l, s24_chat_end(l->chat));
    else
        cli_note(&m->cli, "%s: no chat: %s", m->name, s24_ctx_error(m->cli.ctx));
}

static s24_status make_session(serve_model *m)
{
    const s24_cache_opts opts = {.size = sizeof opts, .texts = 1, .tokens = m->max_tokens};
    serve_language *l = &m->language;
    s24_status status =
        s24_session_create(&l->session, m->cli.ctx, l->model,
                           m->max_tokens < PASS_TOKENS ? m->max_tokens : PASS_TOKENS);
    if (status == S24_OK) status = s24_cache_create(&l->cache, m->cli.ctx, l->session, &opts);
    return status;
}

int serve_language_open(serve_model *model, s24_checkpoint *checkpoint,
                        const struct serve_options *o)
{
    cli_app *cli = &model->cli;
    serve_language *l = &model->language;
    s24_model_opts opts;
    l->end_count = SERVE_ENDS;
    int code = cli_status(cli, s24_end_ids(l->ends, &l->end_count, cli->ctx, checkpoint));
    if (l->end_count > SERVE_ENDS) l->end_count = SERVE_ENDS;
    if (code == CLI_OK)
        code = cli_status(cli, s24_tokenizer_load(&l->tokenizer, cli->ctx, model->path));
    if (code == CLI_OK) open_chat(model);
    if (code == CLI_OK) code = cli_model_opts(cli, &opts, o->dtype);
    if (code == CLI_OK)
        code = cli_status(cli, s24_model_load(&l->model, cli->ctx, checkpoint, &opts));
    if (code != CLI_OK) return code;
    s24_model_describe(&model->info, l->model);
    code = model_takes_tokenizer(cli, l->tokenizer, model->info.vocabulary);
    const int64_t most = o->max_tokens ? o->max_tokens : USUAL_TOKENS;
    model->max_tokens = most < model->info.positions ? most : model->info.positions;
    model->tokenizer = l->tokenizer;
    return code == CLI_OK ? cli_status(cli, make_session(model)) : code;
}

void serve_language_close(serve_model *model)
{
    serve_language *l = &model->language;
    s24_cache_destroy(l->cache);
    s24_session_destroy(l->session);
    s24_model_destroy(l->model);
    s24_chat_destroy(l->chat);
    s24_tokenizer_destroy(l->tokenizer);
}

/* ---- a generation ---------------------------------------------------------------------------- */

serve_generation *serve_generation_create(serve_model *model)
{
    serve_generation *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->model = model;
    g->job.texts = 1;
    g->job.offsets = g->offsets;
    atomic_init(&g->users, 2);
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void serve_generation_leave(serve_generation *generation)
{
    if (!generation || atomic_fetch_sub(&generation->users, 1) > 1) return;
    generate_text_free(&generation->text);
    free(generation->events.data);
    free(generation->job.ids);
    free(generation->stop);
    pthread_mutex_destroy(&generation->lock);
    free(generation);
}

static int take(void *user, const s24_new_token *token)
{
    static const char *const ends[] = {
        [S24_END_NONE] = NULL, [S24_END_STOP] = "stop", [S24_END_LENGTH] = "length"};
    serve_generation *g = user;
    const s24_tokenizer *tokenizer = token->end == S24_END_STOP ? NULL : g->model->tokenizer;
    const int code = generate_text_add(&g->model->cli, &g->text, tokenizer, token->id, g->stop);
    if (code != CLI_OK) snprintf(g->job.error, sizeof g->job.error, "the server is out of memory");
    if (!g->text.stopped) g->text.stopped = ends[token->end];
    if (g->stream && code == CLI_OK) {
        json_t *rest = generate_text_rest(&g->text, g->stop);
        if (json_string_length(rest) > 0)
            serve_stream_put(g, serve_generation_json(g, rest, NULL));
        else
            json_decref(rest);
    }
    return code != CLI_OK || g->text.stopped || atomic_load(&g->gone);
}

static s24_status go_on(serve_generation *g)
{
    serve_model *m = g->model;
    serve_language *l = &m->language;
    const s24_batch batch = {.texts = 1, .offsets = g->offsets, .ids = g->job.ids};
    g->opts.size = sizeof g->opts;
    g->opts.stops = l->ends;
    g->opts.stop_count = l->end_count;
    g->opts.token = take;
    g->opts.user = g;
    s24_status status = s24_cache_truncate(l->cache, m->cli.ctx, 0, 0);
    if (status == S24_OK) status = s24_generate(l->session, m->cli.ctx, l->cache, &batch, &g->opts);
    return status;
}

void serve_generation_run(serve_generation *generation)
{
    serve_generation *g = generation;
    serve_model *m = g->model;
    const generate_prompts prompt = {
        .tokenizer = m->language.tokenizer,
        .batch = {.texts = 1, .offsets = g->offsets, .ids = g->job.ids}};
    const double began = cli_seconds();
    const int code = generate_text_begin(&m->cli, &g->text, &prompt, 0);
    if ((code != CLI_OK || go_on(g) != S24_OK) && !*g->job.error)
        snprintf(g->job.error, sizeof g->job.error, "%s", s24_ctx_error(m->cli.ctx));
    if (!g->text.stopped) g->text.stopped = "stop";
    pthread_mutex_lock(&m->lock);
    m->counts.texts++;
    m->counts.tokens += g->offsets[1] + g->text.count;
    m->counts.batches++;
    m->counts.busy += cli_seconds() - began;
    pthread_mutex_unlock(&m->lock);
    g->job.ready(&g->job);
    serve_generation_leave(g);
}
