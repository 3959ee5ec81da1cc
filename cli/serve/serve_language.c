// SPDX-License-Identifier: Apache-2.0
/* The routes of language models, in the shapes of OpenAI's completions and chat completions: their
   options and prompts. */
#include "serve/serve_language.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RATES = 32768 }; /* log probabilities of an answer */
#define LEAST_TOP_P 1e-9     /* the likeliest alone, where options take 0 as their default */

/* ---- options --------------------------------------------------------------------------------- */

/* Keys, OpenAI's and then other servers', that are not carried out, but for the value that asks for
   nothing. */
static const struct {
    const char *key;
    double nothing;
} left_out[] = {{"n", 1},
                {"best_of", 1},
                {"presence_penalty", 0},
                {"frequency_penalty", 0},
                {"echo", 0},
                {"suffix", 0},
                {"tools", 0},
                {"functions", 0},
                {"logit_bias", 0},
                {"audio", 0},
                {"min_tokens", 0},
                {"ignore_eos", 0},
                {"stop_token_ids", 0},
                {"bad_words", 0},
                {"structured_outputs", 0},
                {"guided_json", 0},
                {"guided_regex", 0},
                {"guided_choice", 0},
                {"guided_grammar", 0},
                {"grammar", 0},
                {"json_schema", 0},
                {"continue_final_message", 0}};

static int check_left_out(serve_request *r, int chat)
{
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const json_t *found = json_object_get(r->json, left_out[i].key);
        const int nothing =
            !found || (chat && !strcmp(left_out[i].key, "tools")) || json_is_null(found) ||
            json_is_false(found) ||
            (json_is_number(found) && json_number_value(found) == left_out[i].nothing) ||
            (json_is_object(found) && !json_object_size(found)) ||
            (json_is_array(found) && !json_array_size(found));
        if (nothing) continue;
        serve_refuse(r, 422, left_out[i].key, "%s is not carried out here", left_out[i].key);
        return 0;
    }
    if (chat && json_is_false(json_object_get(r->json, "add_generation_prompt"))) {
        serve_refuse(r, 422, "add_generation_prompt", "add_generation_prompt is true");
        return 0;
    }
    const json_t *format = json_object_get(r->json, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format || json_is_null(format) || (type && !strcmp(type, "text"))) return 1;
    serve_refuse(r, 422, "response_format", "response_format other than text is not carried out");
    return 0;
}

static int read_real(serve_request *r, const char *key, double *value, double most)
{
    const json_t *found = json_object_get(r->json, key);
    if (!found || json_is_null(found)) return 1;
    const double number = json_number_value(found);
    if (!json_is_number(found) || !(number >= 0 && number <= most)) {
        serve_refuse(r, 422, key, "%s is a number of 0 to %g", key, most);
        return 0;
    }
    *value = number;
    return 1;
}

/* Counts the bytes of the texts to stop at, each with its zero; 0: one is no text to stop at. */
static size_t stop_bytes(const json_t *stop, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(stop) ? json_array_get(stop, i) : stop;
        const char *text = json_string_value(one);
        if (!text || !*text || strlen(text) != json_string_length(one)) return 0;
        bytes += strlen(text) + 1;
    }
    return bytes;
}

static int read_stop(serve_request *r, serve_generation *g)
{
    const json_t *stop = json_object_get(r->json, "stop");
    const size_t count = json_is_array(stop) ? json_array_size(stop) : 1;
    if (!stop || json_is_null(stop) || !count) return 1;
    const size_t bytes = count <= SERVE_STOPS ? stop_bytes(stop, count) : 0;
    if (!bytes) {
        serve_refuse(r, 422, "stop", "stop is a text that is not empty, or up to %d of them",
                     SERVE_STOPS);
        return 0;
    }
    char *at = g->stop_bytes = malloc(bytes);
    if (!at) {
        serve_refuse(r, 503, NULL, "the server is out of memory");
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_is_array(stop) ? json_array_get(stop, i) : stop);
        g->stops[i] = memcpy(at, text, strlen(text) + 1);
        at += strlen(text) + 1;
    }
    return 1;
}

/* Reads how many of the likeliest are told with each token. */
static int read_likeliest(serve_request *r, serve_generation *g, const char *key)
{
    const json_t *found = json_object_get(r->json, key);
    if (!found || json_is_null(found)) return 1;
    const json_int_t count = json_integer_value(found);
    if (json_is_integer(found) && count >= 0 && count <= SERVE_LIKELIEST && g->rated) {
        g->opts.likeliest = count;
        return 1;
    }
    serve_refuse(r, 422, key, "%s is a whole number of 0 to %d%s", key, SERVE_LIKELIEST,
                 g->chat ? ", with logprobs: true" : "");
    return 0;
}

static int read_rates(serve_request *r, serve_generation *g)
{
    const json_t *found = json_object_get(r->json, "logprobs");
    if (g->chat && !serve_read_flag(r, "logprobs", &g->rated)) return 0;
    if (!g->chat) g->rated = found && !json_is_null(found) && !json_is_false(found);
    if (g->rated || g->chat)
        if (!read_likeliest(r, g, g->chat ? "top_logprobs" : "logprobs")) return 0;
    const int64_t told = g->opts.max_new * (g->opts.likeliest + 1);
    if (!g->rated || told <= MOST_RATES) return 1;
    serve_refuse(
        r, 422, "logprobs",
        "%lld tokens and the likeliest in their places are more log probabilities than %d, "
        "which are told",
        (long long)g->opts.max_new, MOST_RATES);
    return 0;
}

static int read_seed(serve_request *r, serve_generation *g)
{
    struct timespec now;
    const json_t *seed = json_object_get(r->json, "seed");
    clock_gettime(CLOCK_REALTIME, &now);
    g->created = now.tv_sec;
    g->opts.seed = (uint64_t)now.tv_nsec + (uint64_t)now.tv_sec;
    if (!seed || json_is_null(seed)) return 1;
    g->opts.seed = (uint64_t)json_integer_value(seed);
    if (!json_is_integer(seed)) serve_refuse(r, 422, "seed", "seed is a whole number");
    return json_is_integer(seed);
}

static int read_stream(serve_request *r, serve_generation *g)
{
    const json_t *options = json_object_get(r->json, "stream_options");
    g->says_usage = json_is_true(json_object_get(options, "include_usage"));
    return serve_read_flag(r, "stream", &g->stream);
}

/* 0 and −1 are other servers' words for all of them. */
static int read_top_k(serve_request *r, int64_t *top_k)
{
    const json_t *found = json_object_get(r->json, "top_k");
    const json_int_t number = json_integer_value(found);
    if (json_is_integer(found) && (number == 0 || number == -1)) return 1;
    return serve_read_count(r, "top_k", top_k, INT32_MAX);
}

static int read_options(serve_request *r, serve_generation *g)
{
    s24_generate_opts *o = &g->opts;
    const int64_t most = g->model->max_tokens;
    *o = (s24_generate_opts){.max_new = 128, .temperature = 1, .top_p = 1, .repeat_penalty = 1};
    const int good = check_left_out(r, g->chat) &&
                     serve_read_count(r, "max_tokens", &o->max_new, most) &&
                     serve_read_count(r, "max_completion_tokens", &o->max_new, most) &&
                     read_top_k(r, &o->top_k) && read_real(r, "temperature", &o->temperature, 2) &&
                     read_real(r, "top_p", &o->top_p, 1) && read_real(r, "min_p", &o->min_p, 1) &&
                     read_real(r, "repetition_penalty", &o->repeat_penalty, 10) &&
                     read_seed(r, g) && read_stop(r, g) && read_rates(r, g) && read_stream(r, g);
    if (o->top_p == 0) o->top_p = LEAST_TOP_P;
    return good;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Makes room for the prompt's ids, as many as the model takes and one. */
static int32_t *make_ids(serve_request *r, serve_generation *g)
{
    g->job.ids = malloc((size_t)(g->model->max_tokens + 1) * sizeof *g->job.ids);
    if (!g->job.ids) serve_refuse(r, 503, NULL, "the server is out of memory");
    return g->job.ids;
}

int serve_set_prompt(serve_request *r, serve_generation *g, const char *key, int64_t count)
{
    g->offsets[1] = r->tokens = count;
    if (count >= 1 && count <= g->model->max_tokens) return 1;
    serve_refuse(r, 422, key, "%s has %s%lld tokens; 1 to %lld are taken", key,
                 count > g->model->max_tokens ? "more than " : "",
                 (long long)(count ? count - 1 : 0), (long long)g->model->max_tokens);
    return 0;
}

static int read_text(serve_request *r, serve_generation *g, const json_t *text)
{
    int64_t count = 0;
    const s24_status status = s24_tokenizer_encode(
        r->reader->tokens, &count, g->model->max_tokens + 1, g->model->tokenizer, r->reader->ctx,
        json_string_value(text), json_string_length(text), NULL, 0);
    if (status != S24_OK) {
        serve_refuse(r, 503, "prompt", "%s", s24_ctx_error(r->reader->ctx));
        return 0;
    }
    for (int64_t i = 0; i < count; i++)
        g->job.ids[i] = r->reader->tokens[i].id;
    return serve_set_prompt(r, g, "prompt", count);
}

static int read_ids(serve_request *r, serve_generation *g, const json_t *ids)
{
    const int64_t all = (int64_t)json_array_size(ids), most = g->model->max_tokens + 1;
    const int64_t count = all < most ? all : most;
    for (int64_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= g->model->info.vocabulary) {
            serve_refuse(r, 422, "prompt", "prompt is a text or a list of token ids");
            return 0;
        }
        g->job.ids[i] = (int32_t)json_integer_value(id);
    }
    return serve_set_prompt(r, g, "prompt", count);
}

static int read_prompt(serve_request *r, serve_generation *g)
{
    const json_t *prompt = json_object_get(r->json, "prompt");
    const json_t *first = json_array_get(prompt, 0);
    if (json_array_size(prompt) == 1 && !json_is_integer(first)) prompt = first;
    if (json_is_string(prompt)) return read_text(r, g, prompt);
    if (json_is_array(prompt)) return read_ids(r, g, prompt);
    serve_refuse(r, 422, "prompt", "prompt is a text or a list of token ids, one of them");
    return 0;
}

void serve_read_generation(serve_request *r, int chat,
                           int (*read)(serve_request *r, serve_generation *g))
{
    static atomic_llong number;
    if (!serve_read_json(r) || !serve_read_model(r, SERVE_LANGUAGE)) return;
    serve_generation *g = r->generation = serve_generation_create(r->model);
    if (!g) {
        serve_refuse(r, 503, NULL, "the server is out of memory");
        return;
    }
    g->chat = chat;
    g->mhd = r->server->mhd;
    g->connection = r->connection;
    snprintf(g->id, sizeof g->id, "%scmpl-%lld", chat ? "chat" : "",
             (long long)atomic_fetch_add(&number, 1));
    if (read_options(r, g) && make_ids(r, g)) (void)read(r, g);
}

void serve_completions(serve_request *r)
{
    serve_read_generation(r, 0, read_prompt);
}
