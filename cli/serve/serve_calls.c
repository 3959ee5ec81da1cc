// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of tools in what a language model answers, as OpenAI's tool_calls. How a model writes a
 * call is found out by its chat template, which is run on a conversation that has one: the marks
 * around it and the names of its parts.
 */
#include <stdlib.h>
#include <string.h>

#include "serve/serve_language.h"

#define NAME  "sparse24name"
#define KEY   "sparse24key"
#define VALUE "sparse24value"

/* ---- how a model writes them ----------------------------------------------------------------- */

/* The ways that are read: what stands before the calls ("": the answer begins with one), after each
   (""), and in which shape they come. */
static const serve_call_way ways[] = {
    {"<tool_call>", "</tool_call>", SERVE_CALL_OBJECT}, /* Hermes', Qwen's */
    {"[TOOL_CALLS]", "", SERVE_CALL_LIST},              /* Mistral's */
    {"[TOOL_CALLS]", "", SERVE_CALL_NAMED},             /* since its 11th tokenizer */
    {"", "", SERVE_CALL_OBJECT},                        /* Llama 3's */
};
enum { WAYS = sizeof ways / sizeof *ways };

static const char probe[] =
    "{\"add_generation_prompt\":false,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"sparse240\","
    "\"type\":\"function\",\"function\":{\"name\":\"" NAME "\",\"arguments\":{\"" KEY "\":\"" VALUE
    "\"}}}]},{\"role\":\"tool\",\"name\":\"" NAME "\",\"tool_call_id\":\"sparse240\","
    "\"content\":\"b\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"c\","
    "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}";

/* Where the call's JSON begins, before its name; the name itself where it stands without one. */
static const char *begin_of(const char *text, const char *name, serve_call_shape *shape)
{
    const char *at = name;
    *shape = SERVE_CALL_NAMED;
    if (at == text || at[-1] != '"') return name;
    while (at > text && *at != '{')
        at--;
    *shape = SERVE_CALL_OBJECT;
    if (at == text) return NULL;
    /* Some wrap it: {"type": "function", "function": {"name": … */
    if (at > text && at[-1] == '[') {
        *shape = SERVE_CALL_LIST;
        at--;
    }
    return at;
}

/* Does the text before `at` end with the mark, but for white space? */
static int ends_with(const char *text, const char *at, const char *mark)
{
    const size_t bytes = strlen(mark);
    while (at > text && strchr(" \n", at[-1]))
        at--;
    return (size_t)(at - text) >= bytes && !memcmp(at - bytes, mark, bytes);
}

void serve_channels_use(serve_language *language)
{
    serve_language *l = language;
    static const generate_marks marks = {.thought = {"\xff\1", "\xff\2"},
                                         .call = {"\xff\3", "\xff\4", "\xff\5"}};
    static const serve_call_way way = {"\xff\3", "\xff\5", SERVE_CALL_MESSAGE};
    l->channels.marks = &marks;
    l->calls = &way;
    for (int i = 0; i < 2; i++) {
        l->marks[i] = marks.thought[i];
        l->mark_ids[i] = -1;
    }
}

/* Finds the way in which the template writes the probe's call. */
static void find_way(serve_language *l, cli_app *cli)
{
    char *text = generate_chat_text(cli, l->chat, &(s24_text){probe, sizeof probe - 1});
    const char *name = text ? strstr(text, NAME) : NULL;
    serve_call_shape shape = SERVE_CALL_OBJECT;
    const char *begin = name ? begin_of(text, name, &shape) : NULL;
    const int whole = begin && strstr(name, KEY) && strstr(name, VALUE);
    for (int i = 0; whole && !l->calls && i < WAYS; i++)
        if (ways[i].shape == shape && ends_with(text, begin, ways[i].begin) &&
            (*ways[i].begin || strstr(name, "\"parameters\"")))
            l->calls = &ways[i];
    free(text);
}

void serve_calls_find(serve_language *language, cli_app *cli)
{
    serve_language *l = language;
    l->call_id = -1;
    if (generate_channels_find(&l->channels, cli, l->chat, l->tokenizer)) {
        serve_channels_use(l);
        return;
    }
    find_way(l, cli);
    if (!l->calls || !*l->calls->begin) return;
    /* A mark that is one token may be a special one, which has no text. */
    const int32_t id = generate_mark_id(cli, l->tokenizer, l->calls->begin);
    size_t bytes = 0;
    if (id >= 0 && s24_tokenizer_decode(NULL, &bytes, l->tokenizer, cli->ctx, &id, 1) == S24_OK &&
        !bytes)
        l->call_id = id;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A text on its way. */
typedef struct reading {
    const char *at, *end;
    int is_all;    /* nothing more comes */
    int *lost;     /* set where memory ended */
    json_t *calls; /* [{name,arguments}] */
} reading;

static void skip_space(reading *r)
{
    while (r->at < r->end && is_space(*r->at))
        r->at++;
}

static int skip_mark(reading *r, const char *mark)
{
    const size_t bytes = strlen(mark);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, mark, bytes) != 0) return 0;
    r->at += bytes;
    return 1;
}

/* The next value of JSON; NULL: there is no whole one. */
static json_t *read_json(reading *r)
{
    json_error_t error;
    json_t *value = json_loadb(r->at, (size_t)(r->end - r->at), JSON_DISABLE_EOF_CHECK, &error);
    if (value) r->at += error.position;
    return value;
}

/* Takes over a call's name and arguments; 0: it has none, or they are no text. */
static int add_call(reading *r, const char *name, json_t *arguments)
{
    char *text = json_is_string(arguments) ? strdup(json_string_value(arguments))
                                           : json_dumps(arguments, JSON_COMPACT);
    json_t *call =
        name && *name && text ? json_pack("{s:s,s:s}", "name", name, "arguments", text) : NULL;
    *r->lost |= !text;
    free(text);
    return call && json_array_append_new(r->calls, call) == 0;
}

static int add_object(reading *r, const json_t *object)
{
    json_t *arguments = json_object_get(object, "arguments");
    const json_t *name = json_object_get(object, "name");
    if (!arguments) arguments = json_object_get(object, "parameters");
    return arguments && add_call(r, json_string_value(name), arguments);
}

static int read_object(reading *r)
{
    json_t *object = read_json(r);
    const int good = json_is_object(object) && add_object(r, object);
    json_decref(object);
    return good;
}

static int read_list(reading *r)
{
    json_t *list = read_json(r);
    int good = json_array_size(list) > 0;
    for (size_t i = 0; good && i < json_array_size(list); i++)
        good = add_object(r, json_array_get(list, i));
    json_decref(list);
    return good;
}

/* A name, marks or none, and its arguments. */
static int read_named(reading *r)
{
    char name[128];
    const char *from = r->at;
    size_t bytes = 0;
    while (r->at < r->end && *r->at != '[' && *r->at != '{')
        r->at++;
    while (from + bytes < r->at && bytes + 1 < sizeof name && !is_space(from[bytes]))
        bytes++;
    memcpy(name, from, bytes);
    name[bytes] = '\0';
    if (from + bytes < r->at && !is_space(from[bytes])) return 0; /* no function is called so */
    while (r->at < r->end && *r->at != '{')
        r->at++;
    json_t *arguments = r->at < r->end ? read_json(r) : NULL;
    const int good = json_is_object(arguments) && add_call(r, name, arguments);
    json_decref(arguments);
    return good;
}

/* Where a mark stands, NULL: nowhere. */
static const char *find_mark(const char *at, const char *end, const char *mark)
{
    const size_t bytes = strlen(mark);
    for (; (size_t)(end - at) >= bytes; at++)
        if (!memcmp(at, mark, bytes)) return at;
    return NULL;
}

/* A message's name and what stands in it: JSON, or any text. A cut one ends where the text does. */
static int read_message(reading *r, const generate_marks *marks)
{
    const char *told = find_mark(r->at, r->end, marks->call[1]);
    const char *end = told ? find_mark(told, r->end, marks->call[2]) : NULL;
    const char *last = end ? end : r->end;
    if (!told || (!end && !r->is_all)) return 0;
    json_t *name = generate_bytes_json(r->at, (size_t)(told - r->at));
    told += strlen(marks->call[1]);
    json_t *arguments = json_loadb(told, (size_t)(last - told), JSON_REJECT_DUPLICATES, NULL);
    if (!arguments) arguments = generate_bytes_json(told, (size_t)(last - told));
    const int good = name && arguments && add_call(r, json_string_value(name), arguments);
    *r->lost |= !name || !arguments;
    r->at = end ? end + strlen(marks->call[2]) : r->end;
    json_decref(name);
    json_decref(arguments);
    return good;
}

static int read_calls(reading *r, const serve_language *l)
{
    const serve_call_way *way = l->calls;
    if (way->shape == SERVE_CALL_MESSAGE) return read_message(r, l->channels.marks);
    skip_space(r);
    const int good = way->shape == SERVE_CALL_LIST    ? read_list(r)
                     : way->shape == SERVE_CALL_NAMED ? read_named(r)
                                                      : read_object(r);
    if (!good) return 0;
    const char *after = r->at;
    skip_space(r);
    if (!*way->end || skip_mark(r, way->end)) return 1;
    const size_t left = (size_t)(r->end - r->at);
    const int may_come = left < strlen(way->end) && !memcmp(r->at, way->end, left);
    if (!may_come || r->is_all) r->at = after;
    return !may_come || r->is_all;
}

/* OpenAI's objects of calls, numbered on. */
static json_t *calls_json(serve_generation *g, json_t *read)
{
    json_t *calls = json_array(), *call;
    size_t i;
    json_array_foreach (read, i, call) {
        char id[80];
        snprintf(id, sizeof id, "call_%s_%lld", g->id, (long long)g->call_count);
        json_t *made = json_pack("{s:s,s:s,s:O}", "id", id, "type", "function", "function", call);
        if (g->stream) json_object_set_new(made, "index", json_integer(g->call_count));
        json_array_append_new(calls, made);
        g->call_count++;
    }
    return calls;
}

json_t *serve_calls_read(serve_generation *generation, size_t *next, size_t begin, size_t end)
{
    serve_generation *g = generation;
    const serve_call_way *way = g->model->language.calls;
    const char *text = g->text.text;
    reading r = {text + begin, text + end, g->text.stopped != NULL, &g->lost, json_array()};
    skip_mark(&r, way->begin);
    json_t *calls = NULL;
    if (r.calls && read_calls(&r, &g->model->language)) {
        calls = calls_json(g, r.calls);
        *next = (size_t)(r.at - text);
    }
    json_decref(r.calls);
    return calls;
}
