// SPDX-License-Identifier: Apache-2.0
/*
 * What a language model answers, told apart into thoughts, what it says and calls of tools, after a
 * byte that says how its template writes them, or that they are messages of channels. Whatever it
 * is, it makes JSON, and what a stream of it tells in pieces is together what the whole answer has.
 * Or a chat template, of which is found out how it writes calls.
 */
#include "fuzz.h"

#include <string.h>

#include "program_errors.h"
#include "serve/serve_language.h"

static const serve_call_way ways[] = {{"<tool_call>", "</tool_call>", SERVE_CALL_OBJECT},
                                      {"[TOOL_CALLS]", "", SERVE_CALL_LIST},
                                      {"[TOOL_CALLS]", "", SERVE_CALL_NAMED},
                                      {"", "", SERVE_CALL_OBJECT}};
enum { WAYS = sizeof ways / sizeof *ways };

int cli_status(cli_app *cli, s24_status status)
{
    CHECK(status == S24_OK);
    return cli == NULL;
}

void cli_escaped(FILE *to, const char *text, size_t bytes)
{
    CHECK(to && text && bytes);
}

/* All that an answer says, by the message's keys. */
typedef struct told {
    json_t *texts[2], *calls;
} told;

static void add_text(json_t **to, const json_t *part)
{
    const size_t before = json_string_length(*to), more = json_string_length(part);
    char *both = malloc(before + more + 1);
    CHECK(both && (before + more || 1));
    if (before) memcpy(both, json_string_value(*to), before);
    if (more) memcpy(both + before, json_string_value(part), more);
    json_decref(*to);
    *to = json_stringn(both, before + more);
    CHECK(*to);
    free(both);
}

static void add_calls(told *t, json_t *calls)
{
    json_t *call;
    size_t i;
    CHECK(json_array_size(calls) > 0);
    json_array_foreach (calls, i, call) {
        const json_t *function = json_object_get(call, "function");
        CHECK(json_string_length(json_object_get(call, "id")) > 0);
        CHECK(json_string_length(json_object_get(function, "name")) > 0);
        CHECK(json_is_string(json_object_get(function, "arguments")));
        json_array_append(t->calls, json_object_get(call, "function"));
    }
}

static void add(told *t, json_t *part)
{
    static const char *const keys[] = {"reasoning_content", "content"};
    if (json_is_string(part)) add_text(&t->texts[1], part);
    for (int k = 0; k < 2 && json_is_object(part); k++)
        if (json_is_string(json_object_get(part, keys[k])))
            add_text(&t->texts[k], json_object_get(part, keys[k]));
    if (json_object_get(part, "tool_calls")) add_calls(t, json_object_get(part, "tool_calls"));
    char *text = json_dumps(part, JSON_ENCODE_ANY);
    CHECK(text);
    free(text);
    json_decref(part);
}

/* Adds a piece of an answer; in channels each of the bytes 1 to 6 is one of their tokens. */
static void put_piece(serve_model *model, generate_text *t, const char *piece, size_t bytes)
{
    int code = CLI_OK;
    for (size_t i = 0; i < bytes && t->channels && code == CLI_OK; i++)
        if (!generate_channels_take(&model->cli, t, piece[i], &code))
            code = generate_channels_add(&model->cli, t, piece + i, 1);
    if (!t->channels) code = generate_text_put(&model->cli, t, piece, bytes);
    CHECK(code == CLI_OK);
}

/* An answer in pieces of at most so many bytes, 0: as a whole. */
static told tell(serve_model *model, int kind, const char *text, size_t bytes, size_t piece)
{
    static const char *const stops[] = {"STOP", NULL};
    told t = {{json_string(""), json_string("")}, json_array()};
    serve_generation g = {.model = model, .chat = 1, .stream = piece > 0, .id = "x"};
    g.phase = model->language.marks[0] ? SERVE_BEFORE : SERVE_PLAIN;
    g.sought = model->language.calls != NULL;
    if (model->language.channels.known) g.text.channels = &model->language.channels;
    if (g.sought && g.phase == SERVE_PLAIN) g.phase = SERVE_ANSWERING;
    if (kind & 32) g.stops[0] = stops[0];
    for (size_t at = 0; at < bytes;) {
        const size_t more = piece && bytes - at > piece ? piece : bytes - at;
        put_piece(model, &g.text, text + at, more);
        at += more;
        for (json_t *part; piece && (part = serve_part_json(&g)) != NULL;)
            add(&t, part);
    }
    g.text.stopped = "length";
    for (json_t *part; piece && (part = serve_part_json(&g)) != NULL;)
        add(&t, part);
    if (!piece) add(&t, serve_answer_json(&g));
    generate_text_free(&g.text);
    return t;
}

static const char tokenizer_json[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":["
    "{\"id\":5,\"content\":\"[TOOL_CALLS]\",\"special\":true},"
    "{\"id\":6,\"content\":\"<tool_call>\",\"special\":false},"
    "{\"id\":7,\"content\":\"<|start|>\",\"special\":true},"
    "{\"id\":8,\"content\":\"<|channel|>\",\"special\":true},"
    "{\"id\":9,\"content\":\"<|message|>\",\"special\":true},"
    "{\"id\":10,\"content\":\"<|end|>\",\"special\":true},"
    "{\"id\":11,\"content\":\"<|call|>\",\"special\":true},"
    "{\"id\":12,\"content\":\"<|constrain|>\",\"special\":true}],\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"s\":4},\"merges\":[\"a b\"]}}";

/* How a model with that chat template writes calls, if there is such a template. */
static void find(const char *text, size_t bytes)
{
    static s24_tokenizer *tokenizer;
    serve_language language = {.calls = NULL};
    s24_ctx *ctx = fuzz_ctx();
    cli_app cli = {.ctx = ctx};
    json_t *config = json_pack("{s:o}", "chat_template", generate_bytes_json(text, bytes));
    char *written = json_dumps(config, 0);
    CHECK(written);
    json_decref(config);
    fuzz_put("tokenizer_config.json", written, strlen(written));
    free(written);
    if (!tokenizer) {
        fuzz_put("tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
        CHECK(s24_tokenizer_load(&tokenizer, ctx, fuzz_folder()) == S24_OK);
    }
    language.tokenizer = tokenizer;
    if (s24_chat_load(&language.chat, ctx, fuzz_folder(), tokenizer) != S24_OK) return;
    serve_calls_find(&language, &cli);
    CHECK(language.call_id == -1 || (language.calls && language.call_id == 5));
    CHECK(!language.channels.known || (language.calls && language.marks[0]));
    s24_chat_destroy(language.chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    serve_model model = {.name = "language"};
    if (!bytes) return 0;
    const int kind = *data;
    if (kind & 64) {
        find((const char *)data + 1, bytes - 1);
        return 0;
    }
    if (kind & 8) {
        model.language.marks[0] = "<think>";
        model.language.marks[1] = "</think>";
    }
    if (kind & 4) model.language.calls = &ways[kind % WAYS];
    if (kind & 128) {
        model.language.channels = (generate_channels){.known = 1, .ids = {1, 2, 3, 4, 5, 6}};
        serve_channels_use(&model.language);
    }
    const char *text = (const char *)data + 1;
    told whole = tell(&model, kind, text, bytes - 1, 0);
    const size_t least = bytes / 32 + 1; /* what may be a call is read again with each piece */
    told parts = tell(&model, kind, text, bytes - 1, kind & 16 ? least : least + 6);
    CHECK(json_equal(whole.texts[0], parts.texts[0]) && json_equal(whole.texts[1], parts.texts[1]));
    CHECK(json_equal(whole.calls, parts.calls));
    for (int i = 0; i < 2; i++) {
        told *t = i ? &parts : &whole;
        json_decref(t->texts[0]);
        json_decref(t->texts[1]);
        json_decref(t->calls);
    }
    return 0;
}
