// SPDX-License-Identifier: Apache-2.0
/*
 * The public face of tokenizers: making one, and laying a text, or two, between [CLS] and [SEP].
 */
#include "io/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static s24_status is_there(int *there, s24_ctx *ctx, const char *folder, const char *name)
{
    char *path;
    TRY(s24i_join_path(&path, ctx, folder, name));
    *there = access(path, F_OK) == 0;
    s24_ctx_free(ctx, path);
    return S24_OK;
}

static s24_status read_folder(s24_tokenizer *tokenizer, const char *folder)
{
    int there;
    TRY(is_there(&there, tokenizer->ctx, folder, "tokenizer.json"));
    if (there) return s24i_tokenizer_read_json(tokenizer, folder, "tokenizer.json");
    TRY(is_there(&there, tokenizer->ctx, folder, "vocab.txt"));
    if (there) return s24i_tokenizer_read_vocab(tokenizer, folder, "vocab.txt");
    return s24_ctx_fail(tokenizer->ctx, S24_ERROR_IO,
                        "%s: tokenizer.json or vocab.txt is expected in it, and neither is there",
                        folder);
}

static s24_status read_file(s24_tokenizer *tokenizer, const char *path)
{
    const char *name = s24i_base_name(path);
    char *folder;
    TRY(s24i_copy_string(&folder, tokenizer->ctx, name == path ? "." : path));
    if (name != path) folder[name - path] = '\0';
    s24_status status = s24i_ends_with(name, ".json")
                            ? s24i_tokenizer_read_json(tokenizer, folder, name)
                            : s24i_tokenizer_read_vocab(tokenizer, folder, name);
    s24_ctx_free(tokenizer->ctx, folder);
    return status;
}

s24_status s24_tokenizer_load(s24_tokenizer **out, s24_ctx *ctx, const char *path)
{
    struct stat info;
    void *memory;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT, "path is NULL, a folder or a vocab.txt is expected");
    if (stat(path, &info) != 0) return s24i_fail_errno(ctx, "open", path);
    TRY(s24i_zeroed(&memory, ctx, sizeof **out));
    s24_tokenizer *tokenizer = memory;
    tokenizer->ctx = ctx;
    s24_status status =
        S_ISDIR(info.st_mode) ? read_folder(tokenizer, path) : read_file(tokenizer, path);
    if (status != S24_OK) {
        s24_tokenizer_destroy(tokenizer);
        return status;
    }
    *out = tokenizer;
    return S24_OK;
}

void s24_tokenizer_destroy(s24_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    s24_ctx *ctx = tokenizer->ctx;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        s24_ctx_free(ctx, tokenizer->added[i].text);
    s24_ctx_free(ctx, tokenizer->added);
    s24_ctx_free(ctx, tokenizer->prefix);
    s24i_vocabulary_free(&tokenizer->vocabulary, ctx);
    s24_ctx_free(ctx, tokenizer);
}

int32_t s24_tokenizer_vocabulary(const s24_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->count : 0;
}

int64_t s24i_tokenizer_encode(s24_token *tokens, int64_t max_tokens, const s24_tokenizer *tokenizer,
                              const s24_text *parts, int part_count)
{
    const s24i_run run = {tokens + 1, max_tokens - 2, 0};
    int64_t count = s24i_tokenizer_run(tokenizer, &run, parts, part_count);
    tokens[0] = (s24_token){tokenizer->cls, 0, 0, 0};
    tokens[count + 1] = (s24_token){tokenizer->sep, 0, 0, 0};
    return count + 2;
}

/* How many of two texts' tokens stay when together they may be `room`: the longer one gives way
   first, and when both are longer than their half, the second keeps the odd one. */
static void cut_pair(int64_t kept[2], int64_t room)
{
    const int longer = kept[0] > kept[1] ? 0 : 1;
    const int64_t least = kept[1 - longer];
    if (kept[0] + kept[1] <= room) return;
    kept[longer] = least > room - least ? least : room - least;
    if (kept[0] + kept[1] <= room) return;
    kept[1 - longer] = room / 2;
    kept[longer] = room / 2 + room % 2;
}

static int64_t encode_pair(s24_token *tokens, int64_t max_tokens, const s24_tokenizer *tokenizer,
                           const s24_text texts[2])
{
    int64_t kept[2], count = 0;
    for (int i = 0; i < 2; i++) {
        const s24i_run counting = {NULL, INT64_MAX, i};
        kept[i] = s24i_tokenizer_run(tokenizer, &counting, &texts[i], 1);
    }
    cut_pair(kept, max_tokens - 3);
    tokens[count++] = (s24_token){tokenizer->cls, 0, 0, 0};
    for (int i = 0; i < 2; i++) {
        const s24i_run run = {tokens + count, kept[i], i};
        count += s24i_tokenizer_run(tokenizer, &run, &texts[i], 1);
        tokens[count++] = (s24_token){tokenizer->sep, i, 0, 0};
    }
    return count;
}

s24_status s24_tokenizer_encode(s24_token *tokens, int64_t *count, int64_t max_tokens,
                                const s24_tokenizer *tokenizer, s24_ctx *ctx, const char *text,
                                size_t text_bytes, const char *pair, size_t pair_bytes)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, tokens && count && tokenizer && (text || !text_bytes), S24_ERROR_ARGUMENT,
            "%s is NULL",
            !tokens      ? "tokens"
            : !count     ? "count"
            : !tokenizer ? "tokenizer"
                         : "text");
    const int64_t least = pair ? 3 : 2;
    REQUIRE(ctx, max_tokens >= least, S24_ERROR_ARGUMENT,
            "max_tokens is %lld, at least %lld are expected for [CLS] and each [SEP]",
            (long long)max_tokens, (long long)least);
    const size_t most = pair && pair_bytes > text_bytes ? pair_bytes : text_bytes;
    REQUIRE(ctx, most <= INT32_MAX, S24_ERROR_ARGUMENT,
            "a text has %zu bytes, at most %d are expected", most, INT32_MAX);
    const s24_text texts[2] = {{text, text_bytes}, {pair, pair_bytes}};
    *count = pair ? encode_pair(tokens, max_tokens, tokenizer, texts)
                  : s24i_tokenizer_encode(tokens, max_tokens, tokenizer, texts, 1);
    return S24_OK;
}
