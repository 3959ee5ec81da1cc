// SPDX-License-Identifier: Apache-2.0
/*
 * How a template ends an answer, and between which marks it puts what the answer thought: found by
 * running it on a conversation whose words are known. A template that refuses that tells nothing.
 */
#include "io/chat/chat.h"

#include <string.h>

#define ANSWER  "sparse24answer"
#define THOUGHT "sparse24thought"

static const char answered[] =
    "{\"add_generation_prompt\":false,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"assistant\",\"content\":\"" ANSWER "\"}]}";
static const char thought[] =
    "{\"add_generation_prompt\":false,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
    "{\"role\":\"assistant\",\"content\":\"" ANSWER "\",\"reasoning_content\":\"" THOUGHT "\"}]}";

/* The byte at which a word stands last; SIZE_MAX: nowhere. */
static size_t last_of(s24i_jrun *run, s24i_jvalue text, const char *word)
{
    size_t found = SIZE_MAX;
    for (size_t at = 0; (at = s24i_jfind(run, text, s24i_jword(word), at)) != SIZE_MAX; at++)
        found = at;
    return found;
}

/* The token that follows an answer. */
static s24_status find_end(s24_chat *chat, s24i_jrun *run, s24i_jvalue text)
{
    const size_t at = last_of(run, text, ANSWER);
    if (at == SIZE_MAX) return S24_OK;
    const s24i_jvalue rest =
        s24i_jstripped(s24i_jcut(text, at + strlen(ANSWER), text.bytes), S24I_JLEFT);
    const s24i_added *added = s24i_added_find(chat->tokenizer, rest.as.text, rest.bytes, 0);
    if (added) chat->end = added->id;
    return S24_OK;
}

/* The last mark of a text, <…> or […]; 0: it does not end with one. */
static int last_mark(s24i_jvalue *text)
{
    *text = s24i_jstripped(*text, S24I_JLEFT | S24I_JRIGHT);
    const char last = text->bytes ? text->as.text[text->bytes - 1] : ' ';
    const char open = last == '>' ? '<' : last == ']' ? '[' : '\0';
    size_t begin = text->bytes;
    while (begin > 0 && text->as.text[begin - 1] != open)
        begin--;
    if (!open || !begin) return 0;
    begin--;
    *text = s24i_jcut(*text, begin, text->bytes);
    return 1;
}

static s24_status keep_mark(char **out, s24_ctx *ctx, const char *text, size_t bytes)
{
    TRY(s24i_zeroed(out, ctx, bytes + 1));
    memcpy(*out, text, bytes);
    return S24_OK;
}

static s24_status keep_marks(s24_chat *chat, s24i_jvalue before, s24i_jvalue after)
{
    TRY(keep_mark(&chat->thoughts[0], chat->ctx, before.as.text, before.bytes));
    return keep_mark(&chat->thoughts[1], chat->ctx, after.as.text, after.bytes);
}

/* What stands before a thought, and between it and the answer, where that is a mark alone. */
static s24_status find_thoughts(s24_chat *chat, s24i_jrun *run, s24i_jvalue text)
{
    const size_t at = last_of(run, text, THOUGHT), answer = last_of(run, text, ANSWER);
    if (at == SIZE_MAX || answer == SIZE_MAX || answer < at) return S24_OK;
    s24i_jvalue before = s24i_jcut(text, 0, at);
    s24i_jvalue after = s24i_jcut(text, at + strlen(THOUGHT), answer), mark;
    after = s24i_jstripped(after, S24I_JLEFT | S24I_JRIGHT);
    mark = after;
    if (!last_mark(&before) || !last_mark(&mark) || mark.bytes != after.bytes) return S24_OK;
    return keep_marks(chat, before, after);
}

/* Templates that take thoughts out of answers name the marks. */
static s24_status find_marks(s24_chat *chat)
{
    static const char *const pairs[][2] = {
        {"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !chat->thoughts[0]; i++)
        if (s24i_jinja_has(chat->usual, pairs[i][1]))
            TRY(keep_marks(chat, s24i_jword(pairs[i][0]), s24i_jword(pairs[i][1])));
    return S24_OK;
}

/* Runs the template on a conversation, if it takes that. */
static s24_status look(s24_chat *chat, const char *request,
                       s24_status (*find)(s24_chat *chat, s24i_jrun *run, s24i_jvalue text))
{
    s24i_jvalue text;
    s24i_jrun *run;
    s24i_json *json;
    TRY(s24i_json_parse(&json, chat->ctx, "a conversation", request, strlen(request)));
    const s24i_chat_input input = {.json = json, .bytes = strlen(request)};
    s24_status status = s24i_chat_render(&text, &run, chat, chat->ctx, &input);
    if (status == S24_OK)
        status = find(chat, run, text);
    else if (status == S24_ERROR_ARGUMENT)
        status = S24_OK;
    s24i_jinja_close(run);
    s24_ctx_free(chat->ctx, json);
    return status;
}

s24_status s24i_chat_probe(s24_chat *chat)
{
    TRY(look(chat, answered, find_end));
    TRY(look(chat, thought, find_thoughts));
    return find_marks(chat);
}
