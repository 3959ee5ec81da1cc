// SPDX-License-Identifier: Apache-2.0
/* Tells log probabilities of new tokens in the shapes of OpenAI's API: of conversations a list, of
   other texts a list for each thing that is told. */
#include "serve/serve_language.h"

#include <stdlib.h>

/* Makes a token's object: its text, what it stands for in bytes, and its log probability. */
static int rate_json(json_t **out, serve_generation *g, const int32_t both[2],
                     float log_probability)
{
    char *piece;
    size_t count;
    const int code =
        generate_token_bytes(&g->model->cli, &piece, &count, g->model->tokenizer, both);
    json_t *object = json_object(), *bytes = json_array(),
           *text = generate_bytes_json(piece, count);
    g->lost |= !text;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    json_object_set_new(object, "token", text);
    json_object_set_new(object, "logprob", cli_real((double)log_probability));
    json_object_set_new(object, "bytes", bytes);
    free(piece);
    *out = object;
    return code;
}

/* Counts the characters that begin in the bytes. */
static int64_t characters(const char *bytes, size_t count)
{
    int64_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return found;
}

int serve_rates_add(serve_generation *generation, const s24_new_token *token, int32_t anchor,
                    size_t before)
{
    serve_generation *g = generation;
    int32_t both[2] = {anchor, token->id};
    json_t *rate, *top = json_array(), *one;
    int code = rate_json(&rate, g, both, token->log_probability);
    for (int64_t i = 0; i < token->likeliest_count && code == CLI_OK; i++) {
        both[1] = token->likeliest[i].id;
        code = rate_json(&one, g, both, token->likeliest[i].log_probability);
        json_array_append_new(top, one);
    }
    json_object_set_new(rate, "top_logprobs", top);
    if (!g->rates) g->rates = json_array();
    if (!g->places) g->places = json_array();
    json_array_append_new(g->rates, rate);
    json_array_append_new(g->places, json_integer(g->characters));
    if (g->text.bytes > before)
        g->characters += characters(g->text.text + before, g->text.bytes - before);
    return code;
}

/* The likeliest by their texts, of equal ones the likelier. */
static json_t *by_text(const json_t *top)
{
    json_t *object = json_object();
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *one = json_array_get(top, i);
        const char *text = json_string_value(json_object_get(one, "token"));
        if (text && !json_object_get(object, text))
            json_object_set(object, text, json_object_get(one, "logprob"));
    }
    return object;
}

/* The shape of /v1/completions; what was kept is let go. */
static json_t *lists_json(json_t *rates, json_t *places, int likeliest)
{
    json_t *object = json_object(), *tokens = json_array(), *own = json_array(),
           *top = json_array();
    for (size_t i = 0; i < json_array_size(rates); i++) {
        const json_t *rate = json_array_get(rates, i);
        json_array_append(tokens, json_object_get(rate, "token"));
        json_array_append(own, json_object_get(rate, "logprob"));
        json_array_append_new(top, by_text(json_object_get(rate, "top_logprobs")));
    }
    if (!likeliest) {
        json_decref(top);
        top = json_null();
    }
    json_object_set_new(object, "tokens", tokens);
    json_object_set_new(object, "token_logprobs", own);
    json_object_set_new(object, "top_logprobs", top);
    json_object_set_new(object, "text_offset", places);
    json_decref(rates);
    return object;
}

json_t *serve_rates_json(serve_generation *generation)
{
    serve_generation *g = generation;
    json_t *rates = g->rates ? g->rates : json_array();
    json_t *places = g->places ? g->places : json_array();
    g->rates = g->places = NULL;
    if (g->rated && !g->chat) return lists_json(rates, places, g->opts.likeliest > 0);
    json_decref(places);
    if (!g->rated) {
        json_decref(rates);
        return json_null();
    }
    return json_pack("{s:o,s:n}", "content", rates, "refusal");
}
