// SPDX-License-Identifier: Apache-2.0
/*
 * A conversation to tokens: written out as its template has it, then tokenized as one text in which
 * special tokens stand where the template has put them alone.
 */
#include "io/chat/chat.h"

#include <string.h>

static s24_status check_messages(s24_ctx *ctx, const s24_message *messages, int64_t count,
                                 size_t *bytes)
{
    for (int64_t i = 0; i < count; i++) {
        const s24_message *m = &messages[i];
        REQUIRE(ctx, m->role >= S24_ROLE_SYSTEM && m->role <= S24_ROLE_TOOL, S24_ERROR_ARGUMENT,
                "messages[%lld].role is %d, which is none", (long long)i, (int)m->role);
        REQUIRE(ctx, m->text.data || !m->text.bytes, S24_ERROR_ARGUMENT,
                "messages[%lld].text.data is NULL", (long long)i);
        REQUIRE(ctx, m->text.bytes <= INT32_MAX / 4, S24_ERROR_ARGUMENT,
                "messages[%lld] has %zu bytes, at most %d are expected", (long long)i,
                m->text.bytes, INT32_MAX / 4);
        *bytes += m->text.bytes;
    }
    return S24_OK;
}

size_t s24i_chat_places(size_t *places, const s24_chat *chat, s24i_jvalue text)
{
    const s24_tokenizer *tokenizer = chat->tokenizer;
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        if (!tokenizer->added_first[(unsigned char)text.as.text[i]]) continue;
        const s24i_added *added = s24i_added_find(tokenizer, text.as.text + i, text.bytes - i, 0);
        if (!added || !added->special || !s24i_chat_is_own(text, i, added->bytes)) continue;
        if (places) places[count] = i;
        count++;
        i += added->bytes - 1;
    }
    return count;
}

/* Tokenizes what is written: into ids as far as there is room. */
static s24_status tokenize(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                           const s24i_run *places, s24i_jvalue string)
{
    const s24_text text = {string.as.text, string.bytes};
    s24i_run run = *places;
    const int64_t room = *count, all = s24i_tokenizer_run(chat->tokenizer, &run, &text, 1);
    if (all < 0) return s24i_tokenizer_no_memory(ctx);
    *count = all;
    if (!room) return S24_OK;
    TRY(s24i_alloc_elems(&run.tokens, ctx, all, sizeof *run.tokens, "a conversation's tokens"));
    run.room = all;
    const int64_t made = s24i_tokenizer_run(chat->tokenizer, &run, &text, 1);
    for (int64_t i = 0; i < made && i < room; i++)
        ids[i] = run.tokens[i].id;
    s24_ctx_free(ctx, run.tokens);
    return made < 0 ? s24i_tokenizer_no_memory(ctx) : S24_OK;
}

static s24_status encode_text(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                              s24i_jvalue text)
{
    size_t *places;
    const size_t place_count = s24i_chat_places(NULL, chat, text);
    TRY(s24i_alloc_elems(&places, ctx, (int64_t)place_count + 1, sizeof *places,
                         "a conversation's special tokens"));
    s24i_chat_places(places, chat, text);
    const s24i_run run = {
        .room = INT64_MAX, .plain = 1, .places = places, .place_count = place_count};
    const s24_status status = tokenize(ids, count, chat, ctx, &run, text);
    s24_ctx_free(ctx, places);
    return status;
}

static s24_status encode(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                         const s24i_chat_input *input)
{
    s24i_jvalue text;
    s24i_jrun *run;
    s24_status status = s24i_chat_render(&text, &run, chat, ctx, input);
    if (status == S24_OK) status = encode_text(ids, count, chat, ctx, text);
    s24i_jinja_close(run);
    return status;
}

s24_status s24_chat_encode(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                           const s24_message *messages, int64_t message_count)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, count && (ids || !*count) && chat && messages && message_count > 0,
            S24_ERROR_ARGUMENT, "%s",
            !count      ? "count is NULL"
            : !chat     ? "chat is NULL"
            : !messages ? "messages is NULL"
            : ids       ? "there is no message"
                        : "ids or messages is NULL, or there is no message");
    s24i_chat_input input = {.messages = messages, .count = message_count};
    TRY(check_messages(ctx, messages, message_count, &input.bytes));
    return encode(ids, count, chat, ctx, &input);
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* Reads a request, which is to be freed with the context. */
static s24_status read_request(s24i_json **json, s24i_chat_input *input, const s24_chat *chat,
                               s24_ctx *ctx, const s24_text *request)
{
    REQUIRE(ctx, chat && request && request->data, S24_ERROR_ARGUMENT, "%s is NULL",
            chat ? "request" : "chat");
    TRY(s24i_json_parse(json, ctx, "the conversation", request->data, request->bytes));
    *input = (s24i_chat_input){.json = *json, .bytes = request->bytes};
    if (s24i_json_typeof(s24i_json_get(*json, "messages")) == S24I_JSON_ARRAY) return S24_OK;
    s24_ctx_free(ctx, *json);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "the conversation: an object with a list \"messages\" was expected");
}

s24_status s24_chat_encode_json(int32_t *ids, int64_t *count, const s24_chat *chat, s24_ctx *ctx,
                                const s24_text *request)
{
    s24i_json *json;
    s24i_chat_input input;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, count && (ids || !*count), S24_ERROR_ARGUMENT, "%s is NULL",
            count ? "ids" : "count");
    TRY(read_request(&json, &input, chat, ctx, request));
    const s24_status status = encode(ids, count, chat, ctx, &input);
    s24_ctx_free(ctx, json);
    return status;
}

s24_status s24_chat_write_json(char *text, size_t *bytes, const s24_chat *chat, s24_ctx *ctx,
                               const s24_text *request)
{
    s24i_json *json;
    s24i_chat_input input;
    s24i_jvalue string;
    s24i_jrun *run;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, bytes && (text || !*bytes), S24_ERROR_ARGUMENT, "%s is NULL",
            bytes ? "text" : "bytes");
    TRY(read_request(&json, &input, chat, ctx, request));
    const s24_status status = s24i_chat_render(&string, &run, chat, ctx, &input);
    if (status == S24_OK) {
        const size_t fits = *bytes < string.bytes ? *bytes : string.bytes;
        if (fits) memcpy(text, string.as.text, fits);
        *bytes = string.bytes;
    }
    s24i_jinja_close(run);
    s24_ctx_free(ctx, json);
    return status;
}
