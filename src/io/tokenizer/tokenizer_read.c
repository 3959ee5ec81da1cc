// SPDX-License-Identifier: Apache-2.0
/* Reads what every kind of tokenizer has: added tokens, names of parts, the vocabulary. */
#include <string.h>

#include "io/tokenizer/tokenizer.h"

s24_status s24i_added_reserve(s24_tokenizer *tokenizer, size_t count)
{
    return s24i_zeroed(&tokenizer->added, tokenizer->ctx, count * sizeof *tokenizer->added);
}

static int lower(int c)
{
    return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

s24_status s24i_added_put(s24_tokenizer *tokenizer, const s24i_added *added)
{
    s24i_added *copy = &tokenizer->added[tokenizer->added_count];
    char *text;
    TRY(s24i_copy_string(&text, tokenizer->ctx, added->text));
    *copy = *added;
    copy->text = text;
    tokenizer->added_count++;
    tokenizer->added_first[(unsigned char)*copy->text] = 1;
    for (int c = 'A'; added->normalized && c <= 'Z'; c++)
        if (lower(*copy->text) == lower(c))
            tokenizer->added_first[c] = tokenizer->added_first[lower(c)] = 1;
    /* No word is taken for it as a whole: it is found before words are, or is to be text. */
    uint8_t *whole = tokenizer->bpe.whole;
    if (whole && added->special && s24i_vocabulary_id(&tokenizer->vocabulary, text) == added->id)
        whole[added->id / 8] &= (uint8_t) ~(1u << (added->id % 8));
    if (added->id >= tokenizer->count) tokenizer->count = added->id + 1;
    return S24_OK;
}

s24_status s24i_added_add(s24_tokenizer *tokenizer, const char *text, int32_t id, int special)
{
    const s24i_added added = {.text = text, .bytes = strlen(text), .id = id, .special = special};
    return s24i_added_put(tokenizer, &added);
}

/* Does the text begin with that token? */
static int is_text(const s24_tokenizer *t, const s24i_added *added, const char *text)
{
    if (!added->normalized || !t->lower) return memcmp(added->text, text, added->bytes) == 0;
    for (size_t i = 0; i < added->bytes; i++)
        if (lower(text[i]) != lower(added->text[i])) return 0;
    return 1;
}

const s24i_added *s24i_added_find(const s24_tokenizer *t, const char *text, size_t bytes, int plain)
{
    const s24i_added *best = NULL;
    for (size_t i = 0; i < t->added_count; i++) {
        const s24i_added *added = &t->added[i];
        if (added->bytes > bytes || !is_text(t, added, text)) continue;
        if (plain && added->special) continue;
        if (!best || added->bytes > best->bytes) best = added;
    }
    return best;
}

s24_status s24i_tokenizer_find(int32_t *id, const s24_tokenizer *tokenizer, const char *file,
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

s24_status s24i_tokenizer_type(const char **type, s24i_config *part, const s24i_config *root,
                               const char *key, const char *list)
{
    s24i_config elements, element;
    *type = NULL;
    TRY(s24i_config_child(part, root, key, S24I_OPTIONAL));
    if (!part->json) return S24_OK;
    TRY(s24i_config_string(type, part, "type", S24I_REQUIRED));
    if (strcmp(*type, "Sequence") != 0) return S24_OK;
    TRY(s24i_config_child(&elements, part, list, S24I_REQUIRED));
    if (s24i_json_count(elements.json) != 1 ||
        !s24i_config_item(&element, &elements, s24i_json_at(elements.json, 0)))
        return S24_OK;
    *part = element;
    return s24i_config_string(type, part, "type", S24I_REQUIRED);
}

s24_status s24i_tokenizer_each(const s24i_config *root, const char *key, const char *list,
                               s24_status (*read)(void *user, const s24i_config *part), void *user)
{
    s24i_config part, elements, element;
    const char *type = NULL;
    TRY(s24i_config_child(&part, root, key, S24I_OPTIONAL));
    if (!part.json) return S24_OK;
    TRY(s24i_config_string(&type, &part, "type", S24I_REQUIRED));
    if (strcmp(type, "Sequence") != 0) return read(user, &part);
    TRY(s24i_config_child(&elements, &part, list, S24I_REQUIRED));
    s24i_json_walk walk = s24i_json_begin(elements.json);
    for (s24i_json *value; (value = s24i_json_next(&walk, NULL)) != NULL;) {
        s24i_config_item(&element, &elements, value);
        TRY(read(user, &element));
    }
    return S24_OK;
}

s24_status s24i_tokenizer_refuse(const s24i_config *root, const char *what, const char *type,
                                 const char *expected)
{
    return s24_ctx_fail(root->ctx, S24_ERROR_UNSUPPORTED, "%s: the %s %s is not supported, only %s",
                        root->file, what, type ? s24i_show(type).text : "null", expected);
}

/* One entry of the vocabulary. seen has a bit for each id. */
static s24_status check_entry(const s24i_config *model, const char *token, const s24i_json *value,
                              uint8_t *seen)
{
    s24_ctx *ctx = model->ctx;
    const s24i_shown shown = s24i_show(token);
    const int64_t id = s24i_json_integer(value);
    REQUIRE(ctx, s24i_json_typeof(value) == S24I_JSON_INTEGER && id >= 0 && id < S24I_MAX_IDS,
            S24_ERROR_FORMAT, "%s: the id of \"%s\" in model.vocab is no integer from 0 to %d",
            model->file, shown.text, S24I_MAX_IDS - 1);
    REQUIRE(ctx, !(seen[id / 8] >> (id % 8) & 1), S24_ERROR_FORMAT,
            "%s: the id %lld of \"%s\" in model.vocab is another token's too", model->file,
            (long long)id, shown.text);
    REQUIRE(ctx, strlen(token) <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
            "%s: \"%s\" in model.vocab has %zu bytes, at most %d are expected", model->file,
            shown.text, strlen(token), S24I_TOKEN_BYTES);
    seen[id / 8] = (uint8_t)(seen[id / 8] | 1u << (id % 8));
    return S24_OK;
}

/* Bytes for a bit of each id up to the largest that may be one. */
static size_t bytes_of_ids(const s24i_json *vocab)
{
    const s24i_json *value;
    s24i_json_walk walk = s24i_json_begin(vocab);
    int64_t largest = 0;
    while ((value = s24i_json_next(&walk, NULL)) != NULL) {
        const int64_t id = s24i_json_integer(value);
        if (id > largest && id < S24I_MAX_IDS) largest = id;
    }
    return (size_t)largest / 8 + 1;
}

/* A token's bytes, which at byte level are spelled in letters of their own. One that is spelled
   otherwise there (two blanks, an added token of CodeGen's) is no word, nor in place of one. */
static void add_token(s24_tokenizer *tokenizer, const char *token, int32_t id)
{
    char bytes[S24I_TOKEN_BYTES];
    const int level = tokenizer->bpe.byte_level;
    size_t count = level ? s24i_bpe_bytes(bytes, token) : SIZE_MAX;
    if (count == SIZE_MAX && (!level || s24i_vocabulary_id(&tokenizer->vocabulary, token) < 0))
        s24i_vocabulary_add(&tokenizer->vocabulary, token, strlen(token), id);
    else if (count != SIZE_MAX)
        s24i_vocabulary_add(&tokenizer->vocabulary, bytes, count, id);
    if (id >= tokenizer->count) tokenizer->count = id + 1;
}

s24_status s24i_tokenizer_read_vocabulary(s24_tokenizer *tokenizer, const s24i_config *vocab)
{
    s24_ctx *ctx = vocab->ctx;
    s24_status status = S24_OK;
    const char *token;
    const s24i_json *value;
    s24i_json_walk walk = s24i_json_begin(vocab->json);
    void *seen;
    size_t bytes = 0, count = 0;
    REQUIRE(ctx, walk.has_keys && walk.at < walk.end, S24_ERROR_FORMAT,
            "%s: model.vocab is not an object of tokens and ids", vocab->file);
    TRY(s24i_zeroed(&seen, ctx, bytes_of_ids(vocab->json)));
    for (; (value = s24i_json_next(&walk, &token)) != NULL; count++) {
        TRY_DONE(check_entry(vocab, token, value, seen));
        bytes += strlen(token);
    }
    TRY_DONE(s24i_vocabulary_create(&tokenizer->vocabulary, ctx, count, bytes));
    walk = s24i_json_begin(vocab->json);
    while ((value = s24i_json_next(&walk, &token)) != NULL)
        add_token(tokenizer, token, (int32_t)s24i_json_integer(value));
done:
    s24_ctx_free(ctx, seen);
    return status;
}
