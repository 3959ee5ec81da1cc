// SPDX-License-Identifier: Apache-2.0
/*
 * Loads WordPiece tokenizers from tokenizer.json, or from vocab.txt and the tokenizer_config.json
 * next to it; and back from tokens to text.
 */
#include "io/tokenizer/tokenizer.h"

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

static s24_status plan(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config part;
    const char *type;
    TRY(read_normalizer(tokenizer, root));
    TRY(s24i_tokenizer_type(&type, &part, root, "pre_tokenizer", "pretokenizers"));
    if (type && strcmp(type, "BertPreTokenizer") == 0) return S24_OK;
    return s24i_tokenizer_refuse(root, "pre_tokenizer", type, "BertPreTokenizer");
}

static s24_status read(s24_tokenizer *tokenizer, const s24i_config *root, const s24i_config *model)
{
    s24i_config vocab;
    const char *unknown = "[UNK]", *prefix = "##";
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
    return S24_OK;
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

const s24i_tokenizer_kind s24i_tokenizer_wordpiece = {
    "WordPiece", plan, read, s24i_wordpiece_run, decode, s24i_wordpiece_word, 0, 0};

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

/* A line's token: without the white space at its end. */
static s24_text token_of(s24_text line)
{
    const char blanks[] = " \t\r\v\f";
    while (line.bytes > 0 && memchr(blanks, line.data[line.bytes - 1], sizeof blanks - 1))
        line.bytes--;
    return line;
}

static s24_status check_token(s24_ctx *ctx, const char *file, const s24_text *token, int64_t number)
{
    REQUIRE(ctx, token->bytes <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
            "%s: line %lld has %zu bytes, at most %d are expected of a token", file,
            (long long)number, token->bytes, S24I_TOKEN_BYTES);
    REQUIRE(ctx, !memchr(token->data, 0, token->bytes), S24_ERROR_FORMAT,
            "%s: line %lld has a NUL byte", file, (long long)number);
    return S24_OK;
}

static s24_status read_lines(s24_tokenizer *tokenizer, const char *file, const s24_lines *lines)
{
    const s24_text *texts = s24_lines_texts(lines);
    const int64_t count = s24_lines_count(lines);
    size_t bytes = 0;
    REQUIRE(tokenizer->ctx, count <= S24I_MAX_IDS, S24_ERROR_FORMAT,
            "%s: more than %d lines, no vocabulary has so many tokens", file, S24I_MAX_IDS);
    for (int64_t i = 0; i < count; i++) {
        const s24_text token = token_of(texts[i]);
        TRY(check_token(tokenizer->ctx, file, &token, i));
        bytes += token.bytes;
    }
    REQUIRE(tokenizer->ctx, bytes <= S24I_VOCAB_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes, at most %zu are expected of a vocabulary", file, bytes,
            S24I_VOCAB_BYTES);
    TRY(s24i_vocabulary_create(&tokenizer->vocabulary, tokenizer->ctx, (size_t)count, bytes));
    for (int32_t id = 0; id < count; id++) {
        const s24_text token = token_of(texts[id]);
        s24i_vocabulary_add(&tokenizer->vocabulary, token.data, token.bytes, id);
    }
    tokenizer->count = (int32_t)count;
    return S24_OK;
}

static s24_status read_vocab_file(s24_tokenizer *tokenizer, const char *path)
{
    static const char *const specials[] = {"[PAD]", "[UNK]", CLS, SEP, "[MASK]"};
    const size_t count = sizeof specials / sizeof *specials;
    s24_lines *lines;
    TRY(s24_lines_read(&lines, tokenizer->ctx, path));
    const s24_status status = read_lines(tokenizer, path, lines);
    s24_lines_destroy(lines);
    TRY(status);
    TRY(s24i_tokenizer_find(&tokenizer->unknown, tokenizer, path, "[UNK]"));
    s24i_usual_ends ends = {.middle = 1};
    TRY(s24i_tokenizer_find(&ends.cls, tokenizer, path, CLS));
    TRY(s24i_tokenizer_find(&ends.sep, tokenizer, path, SEP));
    s24i_template_ends(tokenizer, &ends);
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
