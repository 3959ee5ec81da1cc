// SPDX-License-Identifier: Apache-2.0
/*
 * Loads WordPiece tokenizers from tokenizer.json, or from vocab.txt and the tokenizer_config.json
 * next to it; and back from tokens to text.
 */
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

#include <string.h>

#define CLS "[CLS]"
#define SEP "[SEP]"

static s24_status set_prefix(s24_tokenizer *tokenizer, const char *prefix)
{
    TRY(s24i_copy_string(&tokenizer->prefix, tokenizer->ctx, prefix));
    tokenizer->prefix_bytes = strlen(prefix);
    tokenizer->prefix_hash = s24i_hash(S24I_HASH_SEED, prefix, tokenizer->prefix_bytes);
    return S24_OK;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static s24_status read_normalizer(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config part;
    const char *type;
    TRY(s24i_tokenizer_type(&type, &part, root, "normalizer", "normalizers"));
    if (!type) return S24_OK;
    if (strcmp(type, "BertNormalizer") != 0)
        return s24i_tokenizer_refuse(root, "normalizer", type, "BertNormalizer");
    tokenizer->normalises = 1;
    tokenizer->clean = tokenizer->chinese = tokenizer->lower = 1;
    TRY(s24i_config_bool(&tokenizer->clean, &part, "clean_text", S24I_OPTIONAL));
    TRY(s24i_config_bool(&tokenizer->chinese, &part, "handle_chinese_chars", S24I_OPTIONAL));
    TRY(s24i_config_bool(&tokenizer->lower, &part, "lowercase", S24I_OPTIONAL));
    tokenizer->strip = tokenizer->lower;
    return s24i_config_bool(&tokenizer->strip, &part, "strip_accents", S24I_OPTIONAL);
}

static s24_status read(s24_tokenizer *tokenizer, const s24i_config *root, const s24i_config *model)
{
    s24i_config vocab, part;
    const char *type, *unknown = "[UNK]", *prefix = "##";
    int64_t chars = 100;
    TRY(s24i_config_string(&unknown, model, "unk_token", S24I_OPTIONAL));
    TRY(s24i_config_string(&prefix, model, "continuing_subword_prefix", S24I_OPTIONAL));
    TRY(s24i_config_int(&chars, model, "max_input_chars_per_word", S24I_OPTIONAL, 1,
                        S24I_WORD_CHARS));
    tokenizer->word_chars = (int)chars;
    TRY(set_prefix(tokenizer, prefix));
    TRY(s24i_config_child(&vocab, model, "vocab", S24I_REQUIRED));
    TRY(s24i_tokenizer_read_vocabulary(tokenizer, &vocab));
    TRY(s24i_tokenizer_find(&tokenizer->unknown, tokenizer, root->file, unknown));
    TRY(read_normalizer(tokenizer, root));
    TRY(s24i_tokenizer_type(&type, &part, root, "pre_tokenizer", "pretokenizers"));
    if (type && strcmp(type, "BertPreTokenizer") == 0) return S24_OK;
    return s24i_tokenizer_refuse(root, "pre_tokenizer", type, "BertPreTokenizer");
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Words have a blank between them, but before the marks that end a clause. */
static size_t decode(char *out, const s24_tokenizer *tokenizer, const s24i_piece *piece)
{
    const s24_text *text = &piece->text;
    const size_t prefix = tokenizer->prefix_bytes;
    if (piece->first) {
        memcpy(out, text->data, text->bytes);
        return text->bytes;
    }
    if (prefix && text->bytes >= prefix && !memcmp(text->data, tokenizer->prefix, prefix)) {
        memcpy(out, text->data + prefix, text->bytes - prefix);
        return text->bytes - prefix;
    }
    const size_t blank = text->bytes != 1 || !strchr(".?!,", *text->data);
    if (blank) *out = ' ';
    memcpy(out + blank, text->data, text->bytes);
    return text->bytes + blank;
}

const s24i_tokenizer_kind s24i_tokenizer_wordpiece = {"WordPiece", read, s24i_wordpiece_run,
                                                      decode};

/* ---- vocab.txt ------------------------------------------------------------------------------- */

static s24_status read_options(s24_tokenizer *tokenizer, const char *folder)
{
    s24_status status;
    s24i_config config;
    tokenizer->clean = tokenizer->chinese = tokenizer->lower = 1;
    tokenizer->word_chars = 100;
    TRY(s24i_config_load(&config, tokenizer->ctx, folder, "tokenizer_config.json", S24I_OPTIONAL));
    TRY_DONE(s24i_config_bool(&tokenizer->lower, &config, "do_lower_case", S24I_OPTIONAL));
    TRY_DONE(
        s24i_config_bool(&tokenizer->chinese, &config, "tokenize_chinese_chars", S24I_OPTIONAL));
    tokenizer->strip = tokenizer->lower;
    TRY_DONE(s24i_config_bool(&tokenizer->strip, &config, "strip_accents", S24I_OPTIONAL));
done:
    s24i_config_free(&config);
    return status;
}

/* A line's token: without its end and the white space before that. */
static s24_status check_line(s24_ctx *ctx, const char *file, const s24_text *line, int32_t number)
{
    REQUIRE(ctx, line->bytes <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
            "%s: line %d has %zu bytes, at most %d are expected of a token", file, number,
            line->bytes, S24I_TOKEN_BYTES);
    REQUIRE(ctx, s24i_utf8_valid(line->data, line->bytes) == line->bytes, S24_ERROR_FORMAT,
            "%s: line %d is not UTF-8", file, number);
    REQUIRE(ctx, !memchr(line->data, 0, line->bytes), S24_ERROR_FORMAT,
            "%s: line %d has a NUL byte", file, number);
    return S24_OK;
}

/* Takes the line that begins at *at, its end cut off; *at goes past it. */
static s24_text next_line(size_t *at, const s24i_map *map)
{
    const char *data = (const char *)map->data + *at;
    const char *end = memchr(data, '\n', map->bytes - *at);
    size_t bytes = end ? (size_t)(end - data) : map->bytes - *at;
    *at += bytes + (end != NULL);
    while (bytes > 0 && strchr(" \t\r\v\f", data[bytes - 1]) && data[bytes - 1])
        bytes--;
    return (s24_text){data, bytes};
}

static s24_status read_lines(s24_tokenizer *tokenizer, const char *file, const s24i_map *map)
{
    size_t at = 0;
    int32_t count = 0;
    REQUIRE(tokenizer->ctx, map->bytes <= S24I_VOCAB_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes, at most %zu are expected of a vocabulary", file, map->bytes,
            S24I_VOCAB_BYTES);
    for (; at < map->bytes; count++) {
        REQUIRE(tokenizer->ctx, count < S24I_MAX_IDS, S24_ERROR_FORMAT,
                "%s: more than %d lines, no vocabulary has so many tokens", file, S24I_MAX_IDS);
        const s24_text line = next_line(&at, map);
        TRY(check_line(tokenizer->ctx, file, &line, count));
    }
    TRY(s24i_vocabulary_create(&tokenizer->vocabulary, tokenizer->ctx, (size_t)count, map->bytes));
    at = 0;
    for (int32_t id = 0; id < count; id++) {
        const s24_text line = next_line(&at, map);
        s24i_vocabulary_add(&tokenizer->vocabulary, line.data, line.bytes, id);
    }
    tokenizer->count = count;
    return S24_OK;
}

static s24_status read_vocab_file(s24_tokenizer *tokenizer, const char *path)
{
    static const char *const specials[] = {"[PAD]", "[UNK]", CLS, SEP, "[MASK]"};
    const size_t count = sizeof specials / sizeof *specials;
    s24i_map map;
    TRY(s24i_map_open(&map, tokenizer->ctx, path));
    s24_status status = read_lines(tokenizer, path, &map);
    s24i_map_close(&map);
    TRY(status);
    TRY(s24i_tokenizer_find(&tokenizer->unknown, tokenizer, path, "[UNK]"));
    TRY(s24i_tokenizer_find(&tokenizer->cls, tokenizer, path, CLS));
    TRY(s24i_tokenizer_find(&tokenizer->sep, tokenizer, path, SEP));
    TRY(s24i_added_reserve(tokenizer, count));
    for (size_t i = 0; i < count; i++) {
        int32_t id = s24i_vocabulary_id(&tokenizer->vocabulary, specials[i]);
        if (id >= 0) TRY(s24i_added_add(tokenizer, specials[i], id, 1));
    }
    return S24_OK;
}

s24_status s24i_tokenizer_read_vocab(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    char *path;
    tokenizer->kind = &s24i_tokenizer_wordpiece;
    TRY(read_options(tokenizer, folder));
    TRY(set_prefix(tokenizer, "##"));
    TRY(s24i_join_path(&path, tokenizer->ctx, folder, name));
    s24_status status = read_vocab_file(tokenizer, path);
    s24_ctx_free(tokenizer->ctx, path);
    return status;
}
