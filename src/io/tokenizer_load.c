// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenizers from tokenizer.json, or from vocab.txt and the tokenizer_config.json beside it. What
 * must stay true: whatever this reader does not carry out exactly it refuses by its name; a token's
 * id is never guessed.
 *
 * Truncation and padding presets are ignored, and so is what `lstrip` and `rstrip` of an added
 * token add to its offsets: the white space they take makes no token of its own.
 */
#include "io/config.h"
#include "io/tokenizer.h"
#include "io/utf8.h"

#include <string.h>

#define CLS             "[CLS]"
#define SEP             "[SEP]"
#define VOCAB_MAX_BYTES ((size_t)1 << 30) /* offsets in the pool are 32 bits */

static s24_status set_prefix(s24_tokenizer *tokenizer, const char *prefix)
{
    TRY(s24i_copy_string(&tokenizer->prefix, tokenizer->ctx, prefix));
    tokenizer->prefix_bytes = strlen(prefix);
    tokenizer->prefix_hash = s24i_hash(S24I_HASH_SEED, prefix, tokenizer->prefix_bytes);
    return S24_OK;
}

/* Room for count added tokens. */
static s24_status reserve_added(s24_tokenizer *tokenizer, size_t count)
{
    void *added;
    TRY(s24i_zeroed(&added, tokenizer->ctx, count * sizeof *tokenizer->added));
    tokenizer->added = added;
    return S24_OK;
}

static s24_status add_special(s24_tokenizer *tokenizer, const char *text, int32_t id)
{
    s24i_added *added = &tokenizer->added[tokenizer->added_count];
    TRY(s24i_copy_string(&added->text, tokenizer->ctx, text));
    added->bytes = strlen(text);
    added->id = id;
    tokenizer->added_count++;
    tokenizer->added_first[(unsigned char)*text] = 1;
    if (id >= tokenizer->count) tokenizer->count = id + 1;
    return S24_OK;
}

/* *id = that of a token which every text or many need. */
static s24_status find_special(int32_t *id, const s24_tokenizer *tokenizer, const char *file,
                               const char *token)
{
    *id = s24i_vocabulary_id(&tokenizer->vocabulary, token);
    for (size_t i = 0; i < tokenizer->added_count; i++)
        if (!strcmp(tokenizer->added[i].text, token)) *id = tokenizer->added[i].id;
    REQUIRE(tokenizer->ctx, *id >= 0, S24_ERROR_FORMAT, "%s: the vocabulary has no %s", file,
            s24i_show(token).text);
    return S24_OK;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* The "type" of what stands at key, or of the only element of a Sequence there; *part is that
   object. *type is NULL when there is nothing. */
static s24_status read_type(const char **type, s24i_config *part, const s24i_config *root,
                            const char *key, const char *list)
{
    s24i_config elements, element;
    *type = NULL;
    TRY(s24i_config_child(part, root, key, S24I_OPTIONAL));
    if (!part->json) return S24_OK;
    TRY(s24i_config_string(type, part, "type", S24I_REQUIRED));
    if (strcmp(*type, "Sequence") != 0) return S24_OK;
    TRY(s24i_config_child(&elements, part, list, S24I_REQUIRED));
    if (json_array_size(elements.json) != 1 || !s24i_config_item(&element, &elements, 0))
        return S24_OK;
    *part = element;
    return s24i_config_string(type, part, "type", S24I_REQUIRED);
}

static s24_status refuse(const s24i_config *root, const char *what, const char *type,
                         const char *expected)
{
    return s24_ctx_fail(root->ctx, S24_ERROR_UNSUPPORTED, "%s: the %s %s is not supported, only %s",
                        root->file, what, type ? s24i_show(type).text : "null", expected);
}

static s24_status read_normalizer(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config part;
    const char *type;
    TRY(read_type(&type, &part, root, "normalizer", "normalizers"));
    if (!type) return S24_OK;
    if (strcmp(type, "BertNormalizer") != 0)
        return refuse(root, "normalizer", type, "BertNormalizer");
    tokenizer->clean = tokenizer->chinese = tokenizer->lower = 1;
    TRY(s24i_config_bool(&tokenizer->clean, &part, "clean_text", S24I_OPTIONAL));
    TRY(s24i_config_bool(&tokenizer->chinese, &part, "handle_chinese_chars", S24I_OPTIONAL));
    TRY(s24i_config_bool(&tokenizer->lower, &part, "lowercase", S24I_OPTIONAL));
    tokenizer->strip = tokenizer->lower;
    return s24i_config_bool(&tokenizer->strip, &part, "strip_accents", S24I_OPTIONAL);
}

/* One entry of the vocabulary. seen has a bit for each id. */
static s24_status check_entry(const s24i_config *model, const char *token, json_t *value,
                              uint8_t *seen)
{
    s24_ctx *ctx = model->ctx;
    const s24i_shown shown = s24i_show(token);
    const json_int_t id = json_integer_value(value);
    REQUIRE(ctx, json_is_integer(value) && id >= 0 && id < S24I_MAX_IDS, S24_ERROR_FORMAT,
            "%s: the id of \"%s\" in model.vocab is no integer from 0 to %d", model->file,
            shown.text, S24I_MAX_IDS - 1);
    REQUIRE(ctx, !(seen[id / 8] >> (id % 8) & 1), S24_ERROR_FORMAT,
            "%s: the id %lld of \"%s\" in model.vocab is another token's too", model->file,
            (long long)id, shown.text);
    REQUIRE(ctx, strlen(token) <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
            "%s: \"%s\" in model.vocab has %zu bytes, at most %d are expected", model->file,
            shown.text, strlen(token), S24I_TOKEN_BYTES);
    seen[id / 8] = (uint8_t)(seen[id / 8] | 1u << (id % 8));
    return S24_OK;
}

static s24_status read_vocabulary(s24_tokenizer *tokenizer, const s24i_config *model)
{
    s24_status status = S24_OK;
    s24i_config vocab;
    const char *token;
    json_t *value;
    void *seen;
    size_t bytes = 0;
    TRY(s24i_config_child(&vocab, model, "vocab", S24I_REQUIRED));
    REQUIRE(model->ctx, json_object_size(vocab.json) > 0, S24_ERROR_FORMAT,
            "%s: model.vocab is not an object of tokens and ids", model->file);
    TRY(s24i_zeroed(&seen, model->ctx, S24I_MAX_IDS / 8));
    json_object_foreach (vocab.json, token, value) {
        TRY_DONE(check_entry(model, token, value, seen));
        bytes += strlen(token);
    }
    TRY_DONE(s24i_vocabulary_create(&tokenizer->vocabulary, model->ctx,
                                    json_object_size(vocab.json), bytes));
    json_object_foreach (vocab.json, token, value) {
        const int32_t id = (int32_t)json_integer_value(value);
        s24i_vocabulary_add(&tokenizer->vocabulary, token, strlen(token), id);
        if (id >= tokenizer->count) tokenizer->count = id + 1;
    }
done:
    s24_ctx_free(model->ctx, seen);
    return status;
}

static s24_status read_model(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config model;
    const char *type = "", *unknown = "[UNK]", *prefix = "##";
    int64_t chars = 100;
    TRY(s24i_config_child(&model, root, "model", S24I_REQUIRED));
    TRY(s24i_config_string(&type, &model, "type", S24I_REQUIRED));
    if (strcmp(type, "WordPiece") != 0) return refuse(root, "tokenizer model", type, "WordPiece");
    TRY(s24i_config_string(&unknown, &model, "unk_token", S24I_OPTIONAL));
    TRY(s24i_config_string(&prefix, &model, "continuing_subword_prefix", S24I_OPTIONAL));
    TRY(s24i_config_int(&chars, &model, "max_input_chars_per_word", S24I_OPTIONAL, 1,
                        S24I_WORD_CHARS));
    tokenizer->word_chars = (int)chars;
    TRY(set_prefix(tokenizer, prefix));
    TRY(read_vocabulary(tokenizer, &model));
    return find_special(&tokenizer->unknown, tokenizer, root->file, unknown);
}

static s24_status read_added(s24_tokenizer *tokenizer, const s24i_config *entry)
{
    const char *text = "";
    int64_t id = 0;
    int single_word = 0, normalized = 0;
    TRY(s24i_config_string(&text, entry, "content", S24I_REQUIRED));
    TRY(s24i_config_int(&id, entry, "id", S24I_REQUIRED, 0, S24I_MAX_IDS - 1));
    TRY(s24i_config_bool(&single_word, entry, "single_word", S24I_OPTIONAL));
    TRY(s24i_config_bool(&normalized, entry, "normalized", S24I_OPTIONAL));
    const s24i_shown shown = s24i_show(text);
    REQUIRE(entry->ctx, *text, S24_ERROR_FORMAT, "%s: an added token's content is empty",
            entry->file);
    REQUIRE(entry->ctx, !single_word && !normalized, S24_ERROR_UNSUPPORTED,
            "%s: the added token \"%s\" is %s, which is not supported", entry->file, shown.text,
            single_word ? "single_word" : "normalized");
    int32_t known = s24i_vocabulary_id(&tokenizer->vocabulary, text);
    REQUIRE(entry->ctx, known < 0 || known == id, S24_ERROR_FORMAT,
            "%s: the added token \"%s\" has the id %lld, but %d in model.vocab", entry->file,
            shown.text, (long long)id, (int)known);
    return add_special(tokenizer, text, (int32_t)id);
}

static s24_status read_all_added(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config list, entry;
    TRY(s24i_config_child(&list, root, "added_tokens", S24I_OPTIONAL));
    TRY(reserve_added(tokenizer, json_array_size(list.json)));
    for (size_t i = 0; i < json_array_size(list.json); i++) {
        REQUIRE(root->ctx, s24i_config_item(&entry, &list, i), S24_ERROR_FORMAT,
                "%s: element %zu of \"added_tokens\" is not an object", root->file, i);
        TRY(read_added(tokenizer, &entry));
    }
    return S24_OK;
}

/* The token names at the ends of a post-processor's single template. */
static void template_ends(const char **cls, const char **sep, json_t *single)
{
    size_t count = json_array_size(single);
    json_t *first = json_object_get(json_array_get(single, 0), "SpecialToken");
    json_t *last =
        count ? json_object_get(json_array_get(single, count - 1), "SpecialToken") : NULL;
    *cls = json_string_value(json_object_get(first, "id"));
    *sep = json_string_value(json_object_get(last, "id"));
}

/* Which tokens stand before and behind a text. */
static s24_status read_post_processor(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config part;
    const char *type, *cls = CLS, *sep = SEP;
    TRY(read_type(&type, &part, root, "post_processor", "processors"));
    if (type && !strcmp(type, "BertProcessing")) {
        cls = json_string_value(json_array_get(json_object_get(part.json, "cls"), 0));
        sep = json_string_value(json_array_get(json_object_get(part.json, "sep"), 0));
    } else if (type && !strcmp(type, "TemplateProcessing")) {
        template_ends(&cls, &sep, json_object_get(part.json, "single"));
    } else if (type) {
        return refuse(root, "post_processor", type, "TemplateProcessing and BertProcessing");
    }
    REQUIRE(root->ctx, cls && sep, S24_ERROR_FORMAT,
            "%s: post_processor does not put a token before a text and one behind it", root->file);
    TRY(find_special(&tokenizer->cls, tokenizer, root->file, cls));
    return find_special(&tokenizer->sep, tokenizer, root->file, sep);
}

s24_status s24i_tokenizer_read_json(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    s24_status status;
    s24i_config root, part;
    const char *type;
    TRY(s24i_config_load(&root, tokenizer->ctx, folder, name, S24I_REQUIRED));
    TRY_DONE(read_model(tokenizer, &root));
    TRY_DONE(read_normalizer(tokenizer, &root));
    TRY_DONE(read_type(&type, &part, &root, "pre_tokenizer", "pretokenizers"));
    if (!type || strcmp(type, "BertPreTokenizer") != 0) {
        status = refuse(&root, "pre_tokenizer", type, "BertPreTokenizer");
        goto done;
    }
    TRY_DONE(read_all_added(tokenizer, &root));
    TRY_DONE(read_post_processor(tokenizer, &root));
done:
    s24i_config_free(&root);
    return status;
}

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

/* The line that begins at *at, its end cut off; *at goes behind it. */
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
    REQUIRE(tokenizer->ctx, map->bytes <= VOCAB_MAX_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes, at most %zu are expected of a vocabulary", file, map->bytes,
            VOCAB_MAX_BYTES);
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
    TRY(find_special(&tokenizer->unknown, tokenizer, path, "[UNK]"));
    TRY(find_special(&tokenizer->cls, tokenizer, path, CLS));
    TRY(find_special(&tokenizer->sep, tokenizer, path, SEP));
    TRY(reserve_added(tokenizer, count));
    for (size_t i = 0; i < count; i++) {
        int32_t id = s24i_vocabulary_id(&tokenizer->vocabulary, specials[i]);
        if (id >= 0) TRY(add_special(tokenizer, specials[i], id));
    }
    return S24_OK;
}

s24_status s24i_tokenizer_read_vocab(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    char *path;
    TRY(read_options(tokenizer, folder));
    TRY(set_prefix(tokenizer, "##"));
    TRY(s24i_join_path(&path, tokenizer->ctx, folder, name));
    s24_status status = read_vocab_file(tokenizer, path);
    s24_ctx_free(tokenizer->ctx, path);
    return status;
}
