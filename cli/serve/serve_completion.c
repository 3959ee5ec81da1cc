// SPDX-License-Identifier: Apache-2.0
/* Writes what language models answer, in OpenAI's shapes: whole texts, and parts of a stream. */
#include <string.h>

#include "serve/serve_language.h"

static json_t *choice_json(serve_generation *generation, json_t *text, const char *reason)
{
    const serve_generation *g = generation;
    json_t *choice = json_object(), *message = json_object();
    json_object_set_new(choice, "index", json_integer(0));
    json_object_set_new(choice, "logprobs", serve_rates_json(generation));
    json_object_set_new(choice, "finish_reason", reason ? json_string(reason) : json_null());
    if (!g->chat) {
        json_object_set_new(choice, "text", text);
        json_decref(message);
        return choice;
    }
    /* Clients join the words of a stream's parts, those of the role too. */
    if (!g->introduced) json_object_set_new(message, "role", json_string("assistant"));
    generation->introduced = g->stream;
    if (json_is_object(text)) {
        json_object_update(message, text);
        json_decref(text);
    } else {
        json_object_set_new(message, "content", text);
    }
    json_object_set_new(choice, g->stream ? "delta" : "message", message);
    return choice;
}

const char *serve_why(const serve_generation *g)
{
    const char *stopped = g->text.stopped;
    return g->call_count && stopped && !strcmp(stopped, "stop") ? "tool_calls" : stopped;
}

static json_t *usage_json(const serve_generation *g)
{
    json_t *usage = json_object();
    const int64_t prompt = g->offsets[1], made = g->text.count;
    json_object_set_new(usage, "prompt_tokens", json_integer(prompt));
    json_object_set_new(usage, "completion_tokens", json_integer(made));
    json_object_set_new(usage, "total_tokens", json_integer(prompt + made));
    return usage;
}

json_t *serve_generation_json(serve_generation *generation, json_t *text, const char *reason)
{
    const serve_generation *g = generation;
    json_t *object = json_object(), *choices = json_array();
    const char *kind = !g->chat    ? "text_completion"
                       : g->stream ? "chat.completion.chunk"
                                   : "chat.completion";
    json_object_set_new(object, "id", json_string(g->id));
    json_object_set_new(object, "object", json_string(kind));
    json_object_set_new(object, "created", json_integer(g->created));
    json_object_set_new(object, "model", json_string(g->model->name));
    if (text) json_array_append_new(choices, choice_json(generation, text, reason));
    json_object_set_new(object, "choices", choices);
    if (!g->stream || g->says_usage)
        json_object_set_new(object, "usage", g->stream && text ? json_null() : usage_json(g));
    return object;
}

void serve_write_completion(serve_request *r)
{
    serve_generation *g = r->generation;
    json_t *answer = serve_answer_json(g);
    const int is_whole = answer && !g->lost;
    serve_put_json(&r->answer, is_whole ? serve_generation_json(g, answer, serve_why(g)) : NULL);
    if (!is_whole) json_decref(answer);
}
