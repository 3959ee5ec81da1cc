// SPDX-License-Identifier: Apache-2.0
/*
 * The public face of tokenizers: making one, laying a text, or two, between what stands around it
 * ([CLS] and [SEP]), and making a text of tokens again.
 */
#include "io/tokenizer/tokenizer.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static s24_status is_there(int *there, s24_ctx *ctx, const char *folder, const char *name)
{
    char *path;
    TRY(s24i_join_path(&path, ctx, folder, name));
    const s24_status status = s24i_path_is_there(there, ctx, path);
    s24_ctx_free(ctx, path);
    return status;
}

/* The files a tokenizer is read from, by their names in a folder or, given alone, by their ends. */
static const struct {
    const char *name, *end;
    s24_status (*read)(s24_tokenizer *tokenizer, const char *folder, const char *name);
} files[] = {
    {"tokenizer.json", ".json", s24i_tokenizer_read_json},
    {"vocab.txt", ".txt", s24i_tokenizer_read_vocab},
    {"vocab.json", "vocab.json", s24i_tokenizer_read_merges},
    {"tokenizer.model", ".model", s24i_tokenizer_read_model},
    {"sentencepiece.bpe.model", ".bpe.model", s24i_tokenizer_read_model},
};
enum { FILES = (int)(sizeof files / sizeof *files) };

static s24_status read_folder(s24_tokenizer *tokenizer, const char *folder)
{
    for (int i = 0; i < FILES; i++) {
        int there;
        TRY(is_there(&there, tokenizer->ctx, folder, files[i].name));
        if (there) return files[i].read(tokenizer, folder, files[i].name);
    }
    return s24_ctx_fail(tokenizer->ctx, S24_ERROR_IO,
                        "%s: tokenizer.json or vocab.txt is expected in it (or vocab.json and "
                        "merges.txt, tokenizer.model, or sentencepiece.bpe.model), and none is "
                        "there",
                        folder);
}

static s24_status read_file(s24_tokenizer *tokenizer, const char *path)
{
    const char *name = s24i_base_name(path);
    char *folder;
    int found = 1; /* whatever its name, lines of tokens */
    TRY(s24i_copy_string(&folder, tokenizer->ctx, name == path ? "." : path));
    if (name != path) folder[name - path] = '\0';
    for (int i = 0; i < FILES; i++)
        if (s24i_ends_with(name, files[i].end)) found = i;
    s24_status status = files[found].read(tokenizer, folder, name);
    s24_ctx_free(tokenizer->ctx, folder);
    return status;
}

/* The bytes of each id, for decoding: none for special tokens. */
static s24_status make_pieces(s24_tokenizer *t)
{
    const s24i_vocabulary *vocabulary = &t->vocabulary;
    TRY(s24i_zeroed(&t->pieces, t->ctx, (size_t)t->count * sizeof *t->pieces));
    for (size_t i = 0; i <= vocabulary->mask; i++) {
        const s24i_token_slot *slot = &vocabulary->slots[i];
        if (slot->id >= 0)
            t->pieces[slot->id] = (s24_text){vocabulary->pool + slot->offset, slot->bytes};
    }
    for (size_t i = 0; i < t->added_count; i++) {
        const s24i_added *added = &t->added[i];
        t->pieces[added->id] = (s24_text){added->text, added->special ? 0 : added->bytes};
    }
    return S24_OK;
}

s24_status s24_tokenizer_load(s24_tokenizer **out, s24_ctx *ctx, const char *path)
{
    struct stat info;
    s24_tokenizer *tokenizer;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, path, S24_ERROR_ARGUMENT,
            "path is NULL, a tokenizer's folder or file is expected");
    if (stat(path, &info) != 0) return s24i_fail_errno(ctx, "open", path);
    TRY(s24i_zeroed(&tokenizer, ctx, sizeof *tokenizer));
    tokenizer->ctx = ctx;
    tokenizer->unknown = -1;
    tokenizer->pairs = 1;
    tokenizer->pair.text_types[1] = 1;
    s24_status status =
        S_ISDIR(info.st_mode) ? read_folder(tokenizer, path) : read_file(tokenizer, path);
    if (status == S24_OK) status = make_pieces(tokenizer);
    GIVE(out, tokenizer, s24_tokenizer_destroy, status);
}

void s24_tokenizer_destroy(s24_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    s24_ctx *ctx = tokenizer->ctx;
    for (size_t i = 0; i < tokenizer->added_count; i++)
        s24_ctx_free(ctx, (char *)tokenizer->added[i].text);
    s24_ctx_free(ctx, tokenizer->added);
    s24_ctx_free(ctx, tokenizer->prefix);
    s24_ctx_free(ctx, tokenizer->pieces);
    s24_ctx_free(ctx, tokenizer->bpe.merges);
    s24_ctx_free(ctx, tokenizer->bpe.whole);
    s24_ctx_free(ctx, tokenizer->bpe.prefix);
    s24_ctx_free(ctx, tokenizer->bpe.suffix);
    s24i_chain_free(tokenizer->chain);
    s24i_decoder_free(&tokenizer->decoder, ctx);
    s24i_unigram_free(&tokenizer->unigram, ctx);
    s24i_vocabulary_free(&tokenizer->vocabulary, ctx);
    s24_ctx_free(ctx, tokenizer);
}

int32_t s24_tokenizer_vocabulary(const s24_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->count : 0;
}

int64_t s24i_tokenizer_run(const s24_tokenizer *tokenizer, const s24i_run *run,
                           const s24_text *parts, int part_count)
{
    if (tokenizer->chain) return s24i_chain_run(tokenizer, run, parts, part_count);
    return tokenizer->kind->run(tokenizer, run, parts, part_count);
}

/* Parts as the one text that they are, of a tokenizer that would take them apart. */
static int64_t run_joined(const s24_tokenizer *tokenizer, const s24i_run *run,
                          const s24_text *parts, int part_count)
{
    char stack[4096];
    s24_text all = {stack, 0};
    for (int i = 0; i < part_count; i++)
        all.bytes += parts[i].bytes;
    char *memory = all.bytes > sizeof stack ? s24_ctx_alloc(tokenizer->ctx, all.bytes) : stack;
    if (!memory) return -1;
    all.data = memory;
    for (int i = 0; i < part_count; memory += parts[i].bytes, i++)
        if (parts[i].bytes) memcpy(memory, parts[i].data, parts[i].bytes);
    const int64_t count = s24i_tokenizer_run(tokenizer, run, &all, 1);
    if (all.data != stack) s24_ctx_free(tokenizer->ctx, (char *)(uintptr_t)all.data);
    return count;
}

int64_t s24i_tokenizer_encode(s24_token *tokens, int64_t max_tokens, const s24_tokenizer *tokenizer,
                              const s24_text *parts, int part_count)
{
    const s24i_template *t = &tokenizer->single;
    const int64_t first = s24i_template_write(tokens, max_tokens, t, S24I_BEFORE);
    const int64_t room = max_tokens - first - t->count[S24I_AFTER];
    const s24i_run run = {
        .tokens = tokens + first, .room = s24i_max(room, 0), .type = t->text_types[0]};
    const int apart = tokenizer->chain || tokenizer->kind->apart;
    const int joins = apart && part_count > 1 && parts[0].bytes;
    int64_t count = joins ? run_joined(tokenizer, &run, parts, part_count)
                          : s24i_tokenizer_run(tokenizer, &run, parts, part_count);
    if (count < 0) return count;
    count += first;
    return count + s24i_template_write(tokens + count, max_tokens - count, t, S24I_AFTER);
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

int64_t s24i_tokenizer_encode_pair(s24_token *tokens, int64_t max_tokens,
                                   const s24_tokenizer *tokenizer, const s24_text texts[2])
{
    const s24i_template *t = &tokenizer->pair;
    int64_t kept[2], count = s24i_template_write(tokens, max_tokens, t, S24I_BEFORE);
    for (int i = 0; i < 2; i++) {
        const s24i_run counting = {.room = INT64_MAX};
        kept[i] = s24i_tokenizer_run(tokenizer, &counting, &texts[i], 1);
        if (kept[i] < 0) return -1;
    }
    cut_pair(kept, s24i_max(max_tokens - s24i_template_tokens(t), 0));
    for (int i = 0; i < 2; i++) {
        const s24i_run run = {.tokens = tokens + count, .room = kept[i], .type = t->text_types[i]};
        if (s24i_tokenizer_run(tokenizer, &run, &texts[i], 1) < 0) return -1;
        count += kept[i];
        count += s24i_template_write(tokens + count, max_tokens - count, t,
                                     i ? S24I_AFTER : S24I_BETWEEN);
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
    const int64_t least = s24i_template_tokens(pair ? &tokenizer->pair : &tokenizer->single);
    REQUIRE(ctx, !pair || tokenizer->pairs, S24_ERROR_UNSUPPORTED,
            "two texts need a tokenizer that says what stands around both, as one with [CLS] and "
            "[SEP] does, or one that puts nothing there");
    REQUIRE(ctx, max_tokens >= least, S24_ERROR_ARGUMENT,
            "max_tokens is %lld, at least %lld are expected for [CLS] and each [SEP]",
            (long long)max_tokens, (long long)least);
    const size_t most = pair && pair_bytes > text_bytes ? pair_bytes : text_bytes;
    REQUIRE(ctx, most <= INT32_MAX, S24_ERROR_ARGUMENT,
            "a text has %zu bytes, at most %d are expected", most, INT32_MAX);
    const s24_text texts[2] = {{text, text_bytes}, {pair, pair_bytes}};
    *count = pair ? s24i_tokenizer_encode_pair(tokens, max_tokens, tokenizer, texts)
                  : s24i_tokenizer_encode(tokens, max_tokens, tokenizer, texts, 1);
    return *count < 0 ? s24i_tokenizer_no_memory(ctx) : S24_OK;
}

s24_status s24_tokenizer_decode(char *text, size_t *bytes, const s24_tokenizer *tokenizer,
                                s24_ctx *ctx, const int32_t *ids, int64_t count)
{
    char piece[2 * S24I_TOKEN_BYTES + 1];
    size_t total = 0;
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, bytes && tokenizer && (text || !*bytes) && (ids || !count), S24_ERROR_ARGUMENT,
            "%s is NULL",
            !bytes       ? "bytes"
            : !tokenizer ? "tokenizer"
            : !ids       ? "ids"
                         : "text");
    const size_t room = *bytes;
    int first = 1;
    s24_text before = {"", 0};
    for (int64_t i = 0; i < count; i++) {
        REQUIRE(ctx, ids[i] >= 0 && ids[i] < tokenizer->count, S24_ERROR_ARGUMENT,
                "ids[%lld] is %d, 0 to %d is expected", (long long)i, (int)ids[i],
                (int)tokenizer->count - 1);
        if (!tokenizer->pieces[ids[i]].bytes) continue;
        const s24i_piece one = {tokenizer->pieces[ids[i]], ids[i], first, before};
        const size_t length = (tokenizer->decodes ? s24i_chain_decode : tokenizer->kind->decode)(
            piece, tokenizer, &one);
        before = one.text;
        for (size_t b = 0; b < length && total + b < room; b++)
            text[total + b] = piece[b];
        total += length;
        first = 0;
    }
    *bytes = total;
    return S24_OK;
}
