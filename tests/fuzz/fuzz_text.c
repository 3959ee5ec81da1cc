// SPDX-License-Identifier: Apache-2.0
/*
 * Texts through a tokenizer, whole and cut, and through the reader of lines. Offsets must lie in
 * order inside the text, a shorter limit must give the same tokens, fewer of them, lines must be
 * UTF-8 that has no line feed, the same from a file and from a stream, and lines of token ids must
 * hold numbers below their limit.
 */
#include "fuzz.h"

#include <string.h>

#include "io/tokenizer/utf8.h"
#include "sparse24/task.h"

enum { MOST = 4096, FEW = 7 };

static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\n##ab\nab\n,\n\xe4\xb8\xad\n";

static void check_offsets(const s24_token *tokens, int64_t count, int64_t characters)
{
    int32_t last = 0;
    for (int64_t i = 1; i + 1 < count; i++) {
        CHECK(tokens[i].begin >= last && tokens[i].end > tokens[i].begin);
        CHECK(tokens[i].end <= characters);
        last = tokens[i].begin;
    }
}

static void encode(s24_ctx *ctx, const s24_tokenizer *tokenizer, const char *text, size_t bytes)
{
    static s24_token all[MOST], few[FEW];
    int64_t count, cut, characters = 0;
    uint32_t character;
    for (size_t i = 0; i < bytes; characters++)
        i += s24i_utf8_next(&character, (const unsigned char *)text + i, bytes - i);
    CHECK(s24_tokenizer_encode(all, &count, MOST, tokenizer, ctx, text, bytes, NULL, 0) == S24_OK);
    CHECK(count >= 2 && count <= MOST);
    check_offsets(all, count, characters);
    CHECK(s24_tokenizer_encode(few, &cut, FEW, tokenizer, ctx, text, bytes, NULL, 0) == S24_OK);
    CHECK(cut == (count < FEW ? count : FEW));
    CHECK(!memcmp(all, few, (size_t)(cut - 1) * sizeof *all));
    CHECK(s24_tokenizer_encode(all, &cut, FEW, tokenizer, ctx, text, bytes, text, bytes / 2) ==
          S24_OK);
    CHECK(cut >= 3 && cut <= FEW);
}

static void read_ids(s24_ctx *ctx, const s24_lines *lines)
{
    const s24_id_lines_opts opts = {.size = sizeof opts, .vocabulary = 1000, .allow_empty = 1};
    const int64_t count = s24_lines_count(lines);
    s24_id_lines *ids;
    if (s24_id_lines_create(&ids, ctx, s24_lines_texts(lines), count, &opts) != S24_OK) {
        CHECK(!ids && strstr(s24_ctx_error(ctx), "is not a token id, 0 to 999 is expected"));
        return;
    }
    const s24_batch batch = s24_id_lines_batch(ids);
    CHECK(batch.texts == count && batch.offsets[0] == 0);
    for (int64_t i = 0; i < batch.offsets[count]; i++)
        CHECK(batch.ids[i] >= 0 && batch.ids[i] < 1000);
    s24_id_lines_destroy(ids);
}

/* As from a pipe, a few at a time: the same lines, or none of them whole. */
static void read_stream(s24_ctx *ctx, const char *path, const s24_lines *lines)
{
    const int64_t all = lines ? s24_lines_count(lines) : 0;
    s24_line_reader *reader;
    const s24_text *texts;
    int64_t count, at = 0;
    CHECK(s24_line_reader_open(&reader, ctx, path) == S24_OK);
    s24_status status = s24_line_reader_next(&texts, &count, reader, 3);
    while (status == S24_OK && count) {
        for (int64_t i = 0; lines && i < count; i++) {
            CHECK(at + i < all);
            const s24_text *line = &s24_lines_texts(lines)[at + i];
            CHECK(texts[i].bytes == line->bytes && !memcmp(texts[i].data, line->data, line->bytes));
        }
        at += count;
        status = s24_line_reader_next(&texts, &count, reader, 3);
    }
    CHECK((status == S24_OK) == (lines != NULL));
    CHECK(!lines || at == all);
    s24_line_reader_close(reader);
}

static void read_lines(s24_ctx *ctx, const char *path)
{
    s24_lines *lines;
    const s24_status status = s24_lines_read(&lines, ctx, path);
    if (status != S24_OK) CHECK(!lines && *s24_ctx_error(ctx));
    read_stream(ctx, path, lines);
    if (status != S24_OK) return;
    for (int64_t i = 0; i < s24_lines_count(lines); i++) {
        const s24_text *line = &s24_lines_texts(lines)[i];
        CHECK(s24i_utf8_valid(line->data, line->bytes) == line->bytes);
        CHECK(!memchr(line->data, '\n', line->bytes));
    }
    read_ids(ctx, lines);
    s24_lines_destroy(lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static s24_tokenizer *tokenizer;
    if (!tokenizer)
        CHECK(s24_tokenizer_load(&tokenizer, fuzz_ctx(),
                                 fuzz_put("vocab.txt", vocab, sizeof vocab - 1)) == S24_OK);
    encode(fuzz_ctx(), tokenizer, (const char *)data, bytes);
    read_lines(fuzz_ctx(), fuzz_put("lines.txt", data, bytes));
    return 0;
}
