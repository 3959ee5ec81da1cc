// SPDX-License-Identifier: Apache-2.0
/* Goes on with prompts on a language model's worker: tokens become text as they come, and of a
   stream events. */
#include "serve/serve_language.h"

#include <stdlib.h>
#include <string.h>

#include "model_checks.h"

enum {
    PASS_TOKENS = 512,   /* of prompts alone */
    JOINING_TOKENS = 64, /* of prompts next to texts that go on, which wait so long */
    USUAL_TOKENS = 4096  /* of a text, at most */
};

/* ---- models ---------------------------------------------------------------------------------- */

/* An answer ends with the chat template's own token, too. */
static void add_end(serve_language *l, int32_t end)
{
    for (int64_t i = 0; i < l->end_count; i++)
        if (l->ends[i] == end) return;
    if (end >= 0 && l->end_count < SERVE_ENDS) l->ends[l->end_count++] = end;
}

/* Without a chat template that is carried out there is no chat, which requests are told. */
static void open_chat(serve_model *m)
{
    serve_language *l = &m->language;
    s24_status status = s24_chat_load(&l->chat, m->cli.ctx, m->path, l->tokenizer);
    s24_chat_thoughts(l->marks, l->mark_ids, l->chat);
    if (status != S24_OK) cli_note(&m->cli, "%s: no chat: %s", m->name, s24_ctx_error(m->cli.ctx));
    serve_calls_find(l, &m->cli);
    add_end(l, s24_chat_end(l->chat));
    add_end(l, generate_channels_end(&l->channels));
}

/* Makes what runs `texts` at a time. */
static s24_status make_session(serve_model *m, int64_t texts)
{
    const int64_t pass = m->max_tokens < PASS_TOKENS ? m->max_tokens : PASS_TOKENS;
    const s24_cache_opts cache = {.size = sizeof cache,
                                  .texts = texts,
                                  .tokens = m->max_tokens,
                                  .dtype = cli_cache_dtype(&m->cli)};
    const s24_generator_opts joining = {.size = sizeof joining,
                                        .prompt_tokens =
                                            pass < JOINING_TOKENS ? pass : JOINING_TOKENS,
                                        .likeliest = SERVE_LIKELIEST};
    serve_language *l = &m->language;
    s24_ctx *ctx = m->cli.ctx;
    s24_status status = s24_session_create(&l->session, ctx, l->model, pass + texts);
    if (status == S24_OK) status = s24_cache_create(&l->cache, ctx, l->session, &cache);
    if (status == S24_OK)
        status = s24_generator_create(&l->generator, ctx, l->session, l->cache, &joining);
    return status;
}

static int open_batch(serve_model *m, const struct serve_options *o)
{
    char bytes[32];
    int code = serve_slots_create(m, o);
    if (code == CLI_OK) code = cli_status(&m->cli, make_session(m, m->language.slot_count));
    if (code != CLI_OK) return code;
    cli_note(&m->cli,
             "%s: %lld %s of up to %lld tokens at a time, %lld kept; keys and values take up to %s",
             m->name, (long long)o->texts, cli_plural(o->texts, "text", "texts"),
             (long long)m->max_tokens, (long long)(m->language.slot_count - o->texts),
             cli_bytes(bytes, sizeof bytes, (double)s24_cache_bytes(m->language.cache)));
    return CLI_OK;
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
    return code == CLI_OK ? open_batch(model, o) : code;
}

void serve_language_close(serve_model *model)
{
    serve_language *l = &model->language;
    serve_slots_free(model);
    s24_generator_destroy(l->generator);
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
    g->watched = -1;
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
    free(generation->stop_bytes);
    json_decref(generation->rates);
    json_decref(generation->places);
    pthread_mutex_destroy(&generation->lock);
    free(generation);
}

/* Adds a token to the text. Non-zero: it is the last. */
static int take(void *user, const s24_new_token *token)
{
    static const char *const ends[] = {
        [S24_END_NONE] = NULL, [S24_END_STOP] = "stop", [S24_END_LENGTH] = "length"};
    serve_generation *g = user;
    const s24_tokenizer *tokenizer = token->end == S24_END_STOP ? NULL : g->model->tokenizer;
    const int32_t anchor = g->text.anchor;
    const size_t before = g->text.bytes;
    cli_json_anew();
    int code = generate_text_add(&g->model->cli, &g->text, tokenizer, token->id, g->stops);
    if (code == CLI_OK && tokenizer) code = serve_thoughts_add(g, token->id);
    if (code == CLI_OK && g->rated && tokenizer) code = serve_rates_add(g, token, anchor, before);
    serve_slots_add(g->model, g->slot, token->id);
    if (!g->text.stopped) g->text.stopped = ends[token->end];
    for (json_t *part; g->stream && code == CLI_OK && (part = serve_part_json(g)) != NULL;)
        serve_stream_put(g, part, NULL);
    g->lost |= !cli_json_is_whole();
    const int lost = code != CLI_OK || g->lost, last = lost || g->text.stopped;
    if (last) serve_generation_end(g, lost ? "the server is out of memory" : NULL);
    return last;
}

static s24_status join(serve_generation *g)
{
    serve_model *m = g->model;
    serve_language *l = &m->language;
    g->opts.size = sizeof g->opts;
    g->opts.stops = l->ends;
    g->opts.stop_count = l->end_count;
    g->opts.token = take;
    g->opts.user = g;
    return s24_generator_join(l->generator, m->cli.ctx, g->slot, g->job.ids, g->offsets[1],
                              &g->opts);
}

static void count_running(serve_model *m, int64_t more)
{
    m->language.running += more;
    pthread_mutex_lock(&m->lock);
    m->counts.running_texts += more;
    pthread_mutex_unlock(&m->lock);
}

void serve_generation_join(serve_generation *generation)
{
    serve_generation *g = generation;
    serve_model *m = g->model;
    serve_language *l = &m->language;
    const generate_prompts prompt = {
        .tokenizer = l->tokenizer,
        .channels = g->chat && l->channels.known ? &l->channels : NULL,
        .batch = {.texts = 1, .offsets = g->offsets, .ids = g->job.ids}};
    s24_status status = serve_slots_take(m, g);
    count_running(m, 1);
    const int code = generate_text_begin(&m->cli, &g->text, &prompt, 0);
    if (status == S24_OK) status = join(g);
    if (code != CLI_OK || status != S24_OK) serve_generation_end(g, s24_ctx_error(m->cli.ctx));
}

void serve_generation_end(serve_generation *generation, const char *error)
{
    serve_generation *g = generation;
    serve_model *m = g->model;
    if (error) snprintf(g->job.error, sizeof g->job.error, "%s", error);
    if (!g->text.stopped) g->text.stopped = "stop";
    serve_slots_give(m, g->slot);
    count_running(m, -1);
    pthread_mutex_lock(&m->lock);
    m->counts.texts++;
    m->counts.tokens += g->offsets[1] + g->text.count;
    pthread_mutex_unlock(&m->lock);
    g->job.ready(&g->job);
    serve_generation_leave(g);
}
