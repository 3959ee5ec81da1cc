// SPDX-License-Identifier: Apache-2.0
/*
 * A chat template: the input as tokenizer_config.json if it begins as JSON does, else as
 * chat_template.jinja next to one that names tokens. Whatever it is, it is refused with a sentence,
 * or it ends, and a conversation becomes ids inside the vocabulary, as many as were announced, or
 * is refused. JSON is a conversation, too, where it has messages; another one has tools.
 */
#include "fuzz.h"

#include <string.h>

#include "sparse24/language.h"

static const char tokenizer_json[] =
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":["
    "{\"id\":5,\"content\":\"<|im_end|>\",\"special\":true},"
    "{\"id\":6,\"content\":\"<s>\",\"special\":true,\"rstrip\":true},"
    "{\"id\":7,\"content\":\"</s>\",\"lstrip\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":"
    "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"s\":4},\"merges\":[\"a b\"]}}";
static const char tokens_json[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
static const char tools_json[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":"
    "\"function\",\"function\":{\"name\":\"b\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
    "\"tool_call_id\":\"a\",\"content\":\"<s>\"}],\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"b\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}],"
    "\"chat_template_kwargs\":{\"enable_thinking\":false}}";

enum { ROOM = 64 };

/* Returns how many ids a conversation has, -1: it is refused. */
static int64_t converse(s24_ctx *ctx, const s24_chat *chat, const s24_message *messages,
                        int64_t count)
{
    int32_t ids[ROOM];
    int64_t made = ROOM;
    const s24_status status = s24_chat_encode(ids, &made, chat, ctx, messages, count);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    if (status != S24_OK) return -1;
    for (int64_t i = 0; i < made && i < ROOM; i++)
        CHECK(ids[i] >= 0 && ids[i] < 8);
    return made;
}

/* As many are announced without room: asked once, for a template runs anew each time. */
static void announce(s24_ctx *ctx, const s24_chat *chat, const s24_message *messages, int64_t count)
{
    int64_t announced = 0;
    const int64_t made = converse(ctx, chat, messages, count);
    const s24_status status = s24_chat_encode(NULL, &announced, chat, ctx, messages, count);
    CHECK((status == S24_OK ? announced : -1) == made);
}

/* The ids of a conversation in JSON. */
static s24_status encode_json(int64_t *made, s24_ctx *ctx, const s24_chat *chat,
                              const s24_text *request)
{
    int32_t ids[ROOM];
    *made = ROOM;
    const s24_status status = s24_chat_encode_json(ids, made, chat, ctx, request);
    CHECK(status == S24_OK || *s24_ctx_error(ctx));
    return status;
}

/* Of the input: what it is written as, too, and without room for either. */
static void write_json(s24_ctx *ctx, const s24_chat *chat, const s24_text *request)
{
    int64_t announced = 0, made;
    char text[ROOM];
    size_t all = 0, some = ROOM;
    const s24_status status = encode_json(&made, ctx, chat, request);
    CHECK(s24_chat_write_json(text, &some, chat, ctx, request) == status);
    CHECK(s24_chat_write_json(NULL, &all, chat, ctx, request) == status);
    CHECK(s24_chat_encode_json(NULL, &announced, chat, ctx, request) == status);
    CHECK(status != S24_OK || (some == all && made == announced));
}

/* Marks of thoughts are tokens or texts; answers without any are what a template reads or not. */
static void think(s24_ctx *ctx, s24_chat *chat)
{
    const char *marks[2];
    int32_t ids[2];
    const int known = s24_chat_thoughts(marks, ids, chat);
    for (int i = 0; i < 2; i++)
        CHECK(ids[i] < 8 && !marks[i] == !known);
    CHECK(s24_chat_set_thinking(chat, ctx, 0) == S24_OK || *s24_ctx_error(ctx));
}

static void use(s24_ctx *ctx, const s24_tokenizer *tokenizer, const void *data, size_t bytes)
{
    static const s24_message messages[] = {{S24_ROLE_SYSTEM, {" a<s>\n", 6}},
                                           {S24_ROLE_USER, {"\xff<|im_end|>ab ", 14}},
                                           {S24_ROLE_ASSISTANT, {"\xc2\xa0", 2}},
                                           {S24_ROLE_USER, {"", 0}}};
    s24_chat *chat;
    int64_t made;
    if (s24_chat_load(&chat, ctx, fuzz_folder(), tokenizer) != S24_OK) {
        CHECK(!chat && *s24_ctx_error(ctx));
        return;
    }
    CHECK(s24_chat_end(chat) < 8 && !s24_chat_reads(chat, ""));
    announce(ctx, chat, messages, 4);
    think(ctx, chat);
    converse(ctx, chat, messages + 1, 1);
    (void)encode_json(&made, ctx, chat, &(s24_text){tools_json, sizeof tools_json - 1});
    write_json(ctx, chat, &(s24_text){data, bytes});
    s24_chat_destroy(chat);
}

static s24_tokenizer *load(void)
{
    s24_tokenizer *tokenizer;
    const char *path = fuzz_put("tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
    CHECK(s24_tokenizer_load(&tokenizer, fuzz_ctx(), path) == S24_OK);
    fuzz_remove("tokenizer.json");
    return tokenizer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static s24_tokenizer *tokenizer;
    static int has_tokens; /* tokenizer_config.json is tokens_json */
    if (!tokenizer) tokenizer = load();
    const int is_tag = bytes > 1 && (data[1] == '%' || data[1] == '{' || data[1] == '#');
    if (bytes && *data == '{' && !is_tag) { /* its configuration, or a file of its own */
        fuzz_remove("chat_template.jinja");
        fuzz_put("tokenizer_config.json", data, bytes);
        has_tokens = 0;
    } else {
        if (!has_tokens) fuzz_put("tokenizer_config.json", tokens_json, sizeof tokens_json - 1);
        has_tokens = 1;
        fuzz_put("chat_template.jinja", data, bytes);
    }
    use(fuzz_ctx(), tokenizer, data, bytes);
    return 0;
}
