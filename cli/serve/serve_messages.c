// SPDX-License-Identifier: Apache-2.0
/* Conversations in OpenAI's shape, as the variables of a model's chat template. */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_language.h"

static int no_memory(serve_request *r)
{
    serve_refuse(r, 503, NULL, "the server is out of memory");
    return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The text of a message: a text, or parts of type text, in whose place they then stand as lines of
   one. NULL: it is neither. */
static const json_t *content_of(json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    serve_text lines = {0};
    size_t texts = 0;
    if (json_is_string(content)) return content;
    for (; texts < json_array_size(content); texts++) {
        const json_t *text = json_object_get(json_array_get(content, texts), "text");
        if (!json_is_string(text)) break;
        if (texts) serve_puts(&lines, "\n");
        serve_put(&lines, json_string_value(text), json_string_length(text));
    }
    const int whole = texts && texts == json_array_size(content) && !lines.failed;
    if (whole) json_object_set_new(message, "content", json_stringn(lines.data, lines.bytes));
    free(lines.data);
    return whole ? json_object_get(message, "content") : NULL;
}

/* A role, by which templates know a message: a developer's is the system's. */
static int read_role(json_t *message)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *name = json_string_value(json_object_get(message, "role"));
    if (name && !strcmp(name, "developer"))
        json_object_set_new(message, "role", json_string(name = "system"));
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(roles[i], name)) return 1;
    return 0;
}

/* Calls have their arguments as a text of JSON, and templates an object. */
static void read_calls(const json_t *message)
{
    size_t i;
    json_t *call;
    json_array_foreach (json_object_get(message, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function");
        const json_t *text = json_object_get(function, "arguments");
        json_t *read = json_string_length(text)
                           ? json_loadb(json_string_value(text), json_string_length(text), 0, NULL)
                           : NULL;
        if (json_is_object(read)) json_object_set(function, "arguments", read);
        json_decref(read);
    }
}

static int read_message(json_t *message)
{
    const int calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    if (!read_role(message)) return 0;
    read_calls(message);
    if (content_of(message)) return 1;
    const json_t *content = json_object_get(message, "content");
    return calls && (!content || json_is_null(content));
}

static int check_messages(serve_request *r, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (read_message(json_array_get(list, i))) continue;
        serve_refuse(r, 422, "messages",
                     "message %zu: a role of system, developer, user, assistant and tool, and a "
                     "text as content are expected",
                     i);
        return 0;
    }
    return 1;
}

/* ---- what else the template reads ------------------------------------------------------------ */

/* Tools, which a model may or may not call: nothing makes it. */
static int add_tools(serve_request *r, json_t *out)
{
    size_t i;
    const json_t *tool, *tools = json_object_get(r->json, "tools");
    const json_t *choice = json_object_get(r->json, "tool_choice");
    const char *word = json_string_value(choice);
    if (choice && !json_is_null(choice) &&
        !(word && (!strcmp(word, "auto") || !strcmp(word, "none")))) {
        serve_refuse(r, 422, "tool_choice", "tool_choice is \"auto\" or \"none\"");
        return 0;
    }
    if (!tools || json_is_null(tools) || (word && !strcmp(word, "none"))) return 1;
    int good = json_is_array(tools);
    json_array_foreach (tools, i, tool)
        good &= json_is_object(tool);
    if (!good) {
        serve_refuse(r, 422, "tools", "tools is a list of objects");
        return 0;
    }
    if (json_array_size(tools)) json_object_set(out, "tools", (json_t *)(uintptr_t)tools);
    return 1;
}

/* How much an answer thinks, which templates read under several names. */
static int add_effort(serve_request *r, json_t *out)
{
    json_t *effort = json_object_get(r->json, "reasoning_effort");
    if (!effort || json_is_null(effort)) return 1;
    if (!json_is_string(effort)) {
        serve_refuse(r, 422, "reasoning_effort", "reasoning_effort is a word");
        return 0;
    }
    json_object_set(out, "reasoning_effort", effort);
    if (strcmp(json_string_value(effort), "none") != 0) return 1;
    json_object_set_new(out, "enable_thinking", json_false());
    json_object_set_new(out, "thinking", json_false());
    return 1;
}

static int add_kwargs(serve_request *r, json_t *out)
{
    json_t *more = json_object_get(r->json, "chat_template_kwargs");
    if (!more || json_is_null(more)) return 1;
    if (!json_is_object(more)) {
        serve_refuse(r, 422, "chat_template_kwargs", "chat_template_kwargs is an object");
        return 0;
    }
    return json_object_update(out, more) == 0 || no_memory(r);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int ends_with(const char *text, size_t bytes, const char *mark)
{
    const size_t length = strlen(mark);
    while (bytes > 0 && strchr(" \t\n\r", text[bytes - 1]))
        bytes--;
    return bytes >= length && !memcmp(text + bytes - length, mark, length);
}

/* Whether the answer begins within a thought, or after one, as the prompt has it. */
static s24_status begin_thoughts(serve_generation *g, s24_ctx *ctx, const s24_text *request)
{
    const serve_language *l = &g->model->language;
    size_t bytes = 0;
    if (!l->marks[0]) return S24_OK;
    s24_status status = s24_chat_write_json(NULL, &bytes, l->chat, ctx, request);
    char *text = status == S24_OK ? malloc(bytes + 1) : NULL;
    if (status != S24_OK) return status;
    if (!text) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "the server is out of memory");
    status = s24_chat_write_json(text, &bytes, l->chat, ctx, request);
    if (status == S24_OK)
        g->phase = ends_with(text, bytes, l->marks[0])   ? SERVE_OPENED
                   : ends_with(text, bytes, l->marks[1]) ? SERVE_AFTER
                                                         : SERVE_BEFORE;
    free(text);
    return status;
}

/* Makes the prompt's tokens, *count of them, if there is room for so many. */
static s24_status lay_out(serve_generation *g, int64_t *count, s24_ctx *ctx, const json_t *input)
{
    serve_language *language = &g->model->language;
    char *text = json_dumps(input, JSON_COMPACT);
    if (!text) return s24_ctx_fail(ctx, S24_ERROR_MEMORY, "the server is out of memory");
    const s24_text request = {text, strlen(text)};
    *count = g->model->max_tokens + 1;
    pthread_mutex_lock(&language->chat_lock);
    s24_status status = s24_chat_encode_json(g->job.ids, count, language->chat, ctx, &request);
    if (status == S24_OK) status = begin_thoughts(g, ctx, &request);
    pthread_mutex_unlock(&language->chat_lock);
    free(text);
    return status;
}

/* Gives an empty text to messages that have none; 0: all have one. */
static int fill_contents(const json_t *input)
{
    int filled = 0;
    size_t i;
    json_t *message;
    json_array_foreach (json_object_get(input, "messages"), i, message)
        if (!json_is_string(json_object_get(message, "content")))
            filled |= json_object_set_new(message, "content", json_string("")) == 0;
    return filled;
}

/* Lays messages out. A message of calls alone has null as its text, of which some templates know
   and others do not. */
static int encode(serve_request *r, serve_generation *g, const json_t *input)
{
    const serve_language *language = &g->model->language;
    s24_ctx *ctx = r->reader->ctx;
    int64_t made;
    s24_status status = lay_out(g, &made, ctx, input);
    if (status == S24_ERROR_ARGUMENT && fill_contents(input))
        status = lay_out(g, &made, ctx, input);
    g->sought = language->channels.known || (json_object_get(input, "tools") && language->calls);
    if (g->sought && g->phase == SERVE_PLAIN) g->phase = SERVE_ANSWERING;
    if (status == S24_OK) return serve_set_prompt(r, g, "messages", made);
    serve_refuse(r, status == S24_ERROR_MEMORY ? 503 : 422, "messages", "%s", s24_ctx_error(ctx));
    return 0;
}

static int read_messages(serve_request *r, serve_generation *g)
{
    json_t *list = json_object_get(r->json, "messages");
    if (!g->model->language.chat) {
        serve_refuse(r, 422, "model", "%s has no chat template that is carried out",
                     g->model->name);
        return 0;
    }
    if (!json_array_size(list)) {
        serve_refuse(r, 422, "messages", "messages is a list of messages");
        return 0;
    }
    json_t *input = json_object();
    const int good = (input || no_memory(r)) && check_messages(r, list) && add_effort(r, input) &&
                     add_kwargs(r, input) && add_tools(r, input) &&
                     (json_object_set(input, "messages", list) == 0 || no_memory(r)) &&
                     encode(r, g, input);
    json_decref(input);
    return good;
}

void serve_chat_completions(serve_request *r)
{
    serve_read_generation(r, 1, read_messages);
}
