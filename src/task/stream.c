// SPDX-License-Identifier: Apache-2.0
/* Text files to one stream of tokens. */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"
#include "sparse24/task.h"

struct s24_stream {
    s24_ctx *ctx;
    int32_t *tokens;
    int64_t count, room, bytes;
};

/* The number of the line that a byte stands in, from 0. */
static long long line_of(const char *text, size_t byte)
{
    long long line = 0;
    for (size_t i = 0; i < byte; i++)
        line += text[i] == '\n';
    return line;
}

/* A tokenizer that can neither spell a character nor call it unknown drops it: not here. */
static s24_status check_whole(const s24_tokenizer *tokenizer, s24_ctx *ctx, const char *path,
                              const s24_text *text, const s24_token *tokens, int64_t count)
{
    int64_t at = 0;
    if (tokenizer->chain || tokenizer->kind != &s24i_tokenizer_bpe || tokenizer->unknown >= 0 ||
        tokenizer->bpe.byte_level || tokenizer->bpe.trim)
        return S24_OK;
    for (int64_t i = tokenizer->single.count[S24I_BEFORE]; i < count && tokens[i].begin <= at; i++)
        at = tokens[i].end > at ? tokens[i].end : at;
    const size_t byte = s24i_utf8_skip(text->data, text->bytes, at);
    uint32_t c = 0;
    if (byte == text->bytes) return S24_OK;
    s24i_utf8_next(&c, (const unsigned char *)text->data + byte, text->bytes - byte);
    return s24_ctx_fail(ctx, S24_ERROR_FORMAT,
                        "%s: line %lld: the tokenizer has no token for the character U+%04X", path,
                        line_of(text->data, byte), (unsigned)c);
}

static s24_status add_text(s24_stream *s, const s24_tokenizer *tokenizer, const char *path,
                           const s24_text *text)
{
    s24_token *tokens;
    const size_t valid = s24i_utf8_valid(text->data, text->bytes);
    REQUIRE(s->ctx, text->bytes <= INT32_MAX, S24_ERROR_ARGUMENT,
            "%s has %zu bytes, at most %d are expected of a file", path, text->bytes, INT32_MAX);
    REQUIRE(s->ctx, valid == text->bytes, S24_ERROR_FORMAT,
            "%s: line %lld is not UTF-8 at byte %zu of the file", path, line_of(text->data, valid),
            valid);
    /* No kind makes more tokens than bytes, but for one before a text and those around it; steps of
       a chain may. */
    const s24i_run counting = {.room = INT64_MAX};
    const int64_t made =
        tokenizer->chain ? s24i_tokenizer_run(tokenizer, &counting, text, 1) : (int64_t)text->bytes;
    if (made < 0) return s24i_tokenizer_no_memory(s->ctx);
    const int64_t most = made + s24i_template_tokens(&tokenizer->single) + 1;
    TRY(s24i_alloc_elems(&tokens, s->ctx, most, sizeof *tokens, "a file's tokens"));
    const int64_t count = s24i_tokenizer_encode(tokens, most, tokenizer, text, 1);
    s24_status status = count < 0 ? s24i_tokenizer_no_memory(s->ctx)
                                  : check_whole(tokenizer, s->ctx, path, text, tokens, count);
    if (status == S24_OK)
        status = s24i_reserve_elems(&s->tokens, &s->room, s->ctx, s->count + count,
                                    sizeof *s->tokens, "tokens");
    for (int64_t i = 0; status == S24_OK && i < count; i++)
        s->tokens[s->count + i] = tokens[i].id;
    if (status == S24_OK) {
        s->count += count;
        s->bytes += (int64_t)text->bytes;
    }
    s24_ctx_free(s->ctx, tokens);
    return status;
}

static s24_status add_file(s24_stream *s, const s24_tokenizer *tokenizer, const char *path)
{
    s24i_map map;
    TRY(s24i_map_open(&map, s->ctx, path));
    const s24_text text = {(const char *)map.data, map.bytes};
    const s24_status status = add_text(s, tokenizer, path, &text);
    s24i_map_close(&map);
    return status;
}

static s24_status add_files(s24_stream *s, const s24_tokenizer *tokenizer, const char *const *paths,
                            int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        REQUIRE(s->ctx, paths[i], S24_ERROR_ARGUMENT, "paths[%lld] is NULL", (long long)i);
        TRY(add_file(s, tokenizer, paths[i]));
        TRY(s24_ctx_progress(s->ctx, "files", i + 1, count));
    }
    REQUIRE(s->ctx, s->bytes > 0, S24_ERROR_FORMAT, "%s: there is no text in it", paths[count - 1]);
    return S24_OK;
}

s24_status s24_stream_read(s24_stream **out, s24_ctx *ctx, const s24_tokenizer *tokenizer,
                           const char *const *paths, int64_t count)
{
    s24_stream *stream;
    if (!out || !ctx) return S24_ERROR_ARGUMENT;
    *out = NULL;
    REQUIRE(ctx, tokenizer && paths && count > 0, S24_ERROR_ARGUMENT, "%s",
            !tokenizer ? "tokenizer is NULL"
            : !paths   ? "paths is NULL"
                       : "there is no file to read");
    TRY(s24i_zeroed(&stream, ctx, sizeof *stream));
    stream->ctx = ctx;
    GIVE(out, stream, s24_stream_destroy, add_files(stream, tokenizer, paths, count));
}

void s24_stream_destroy(s24_stream *stream)
{
    if (!stream) return;
    s24_ctx_free(stream->ctx, stream->tokens);
    s24_ctx_free(stream->ctx, stream);
}

int64_t s24_stream_count(const s24_stream *stream)
{
    return stream ? stream->count : 0;
}

const int32_t *s24_stream_tokens(const s24_stream *stream)
{
    return stream ? stream->tokens : NULL;
}

int64_t s24_stream_bytes(const s24_stream *stream)
{
    return stream ? stream->bytes : 0;
}
