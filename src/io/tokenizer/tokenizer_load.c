// SPDX-License-Identifier: Apache-2.0
/*
 * What every kind of tokenizer reads from tokenizer.json: vocabulary, added tokens, what stands
 * around a text. What must stay true: whatever this reader does not carry out exactly it refuses by
 * its name; a token's id is never guessed.
 *
 * Truncation and padding presets are ignored, and so is what `lstrip` and `rstrip` of an added
 * token add to its offsets: the white space they take makes no token of its own.
 */
#include "io/tokenizer/tokenizer.h"

#include <string.h>

#define TOKENIZER(name) &s24i_tokenizer_##name,
static const s24i_tokenizer_kind *const kinds[] = {
#include "io/tokenizer/tokenizers.def"
};
#undef TOKENIZER
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };

s24_status s24i_added_reserve(s24_tokenizer *tokenizer, size_t count)
{
    void *added;
    TRY(s24i_zeroed(&added, tokenizer->ctx, count * sizeof *tokenizer->added));
    tokenizer->added = added;
    return S24_OK;
}

s24_status s24i_added_add(s24_tokenizer *tokenizer, const char *text, int32_t id, int special)
{
    s24i_added *added = &tokenizer->added[tokenizer->added_count];
    TRY(s24i_copy_string(&added->text, tokenizer->ctx, text));
    added->bytes = strlen(text);
    added->id = id;
    added->special = special;
    tokenizer->added_count++;
    tokenizer->added_first[(unsigned char)*text] = 1;
    if (id >= tokenizer->count) tokenizer->count = id + 1;
    return S24_OK;
}

const s24i_added *s24i_added_find(const s24_tokenizer *t, const char *text, size_t bytes)
{
    const s24i_added *best = NULL;
    for (size_t i = 0; i < t->added_count; i++) {
        const s24i_added *added = &t->added[i];
        if (added->bytes > bytes || memcmp(added->text, text, added->bytes)) continue;
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

/* A token's bytes, which at byte level are spelled in letters of their own. */
static void add_token(s24_tokenizer *tokenizer, const char *token, int32_t id)
{
    char bytes[S24I_TOKEN_BYTES];
    size_t count = tokenizer->bpe.byte_level ? s24i_bpe_bytes(bytes, token) : SIZE_MAX;
    if (count == SIZE_MAX)
        s24i_vocabulary_add(&tokenizer->vocabulary, token, strlen(token), id);
    else
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
    TRY(s24i_zeroed(&seen, ctx, S24I_MAX_IDS / 8));
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

static s24_status read_added(s24_tokenizer *tokenizer, const s24i_config *entry)
{
    const char *text = "";
    int64_t id = 0;
    int single_word = 0, normalized = 0, special = 0;
    TRY(s24i_config_string(&text, entry, "content", S24I_REQUIRED));
    TRY(s24i_config_int(&id, entry, "id", S24I_REQUIRED, 0, S24I_MAX_IDS - 1));
    TRY(s24i_config_bool(&single_word, entry, "single_word", S24I_OPTIONAL));
    TRY(s24i_config_bool(&normalized, entry, "normalized", S24I_OPTIONAL));
    TRY(s24i_config_bool(&special, entry, "special", S24I_OPTIONAL));
    normalized &= tokenizer->normalises; /* where nothing is changed it says nothing */
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
    return s24i_added_add(tokenizer, text, (int32_t)id, special);
}

static s24_status read_all_added(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config list, entry;
    s24i_json *value;
    TRY(s24i_config_child(&list, root, "added_tokens", S24I_OPTIONAL));
    TRY(s24i_added_reserve(tokenizer, s24i_json_count(list.json)));
    s24i_json_walk walk = s24i_json_begin(list.json);
    for (size_t i = 0; (value = s24i_json_next(&walk, NULL)) != NULL; i++) {
        REQUIRE(root->ctx, s24i_config_item(&entry, &list, value), S24_ERROR_FORMAT,
                "%s: element %zu of \"added_tokens\" is not an object", root->file, i);
        TRY(read_added(tokenizer, &entry));
    }
    return S24_OK;
}

/* ---- what stands around a text --------------------------------------------------------------- */

typedef struct ends {
    const char *cls, *sep; /* NULL: none */
} ends;

static const char *special_name(const s24i_json *element)
{
    return s24i_json_string(s24i_json_get(s24i_json_get(element, "SpecialToken"), "id"));
}

/* The tokens of a template of one text: one at most before it and after it. */
static s24_status read_template(ends *out, const s24i_config *part)
{
    const s24i_json *single = s24i_json_get(part->json, "single");
    const size_t count = s24i_json_count(single);
    out->cls = special_name(s24i_json_at(single, 0));
    out->sep = count > 1 ? special_name(s24i_json_at(single, count - 1)) : NULL;
    const size_t text = out->cls ? 1 : 0;
    REQUIRE(part->ctx,
            count == text + 1 + (out->sep ? 1 : 0) &&
                s24i_json_get(s24i_json_at(single, text), "Sequence"),
            S24_ERROR_FORMAT,
            "%s: the template of post_processor is no text with one token at most at each end",
            part->file);
    return S24_OK;
}

/* One post-processor. */
static s24_status read_processor(ends *out, s24_tokenizer *tokenizer, const s24i_config *part,
                                 int is_bpe)
{
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    if (!strcmp(type, "TemplateProcessing")) return read_template(out, part);
    if (!strcmp(type, "BertProcessing") || (is_bpe && !strcmp(type, "RobertaProcessing"))) {
        out->cls = s24i_json_string(s24i_json_at(s24i_json_get(part->json, "cls"), 0));
        out->sep = s24i_json_string(s24i_json_at(s24i_json_get(part->json, "sep"), 0));
    } else if (!is_bpe || strcmp(type, "ByteLevel") != 0) {
        return s24i_tokenizer_refuse(part, "post_processor", type,
                                     is_bpe
                                         ? "TemplateProcessing, ByteLevel, RobertaProcessing and "
                                           "BertProcessing"
                                         : "TemplateProcessing and BertProcessing");
    }
    if (strcmp(type, "BertProcessing") == 0) return S24_OK;
    tokenizer->bpe.trim = tokenizer->bpe.trim_but_first = 1;
    TRY(s24i_config_bool(&tokenizer->bpe.trim_but_first, part, "add_prefix_space", S24I_OPTIONAL));
    return s24i_config_bool(&tokenizer->bpe.trim, part, "trim_offsets", S24I_OPTIONAL);
}

static s24_status read_post_processor(s24_tokenizer *tokenizer, const s24i_config *root)
{
    const int is_bpe = tokenizer->kind == &s24i_tokenizer_bpe;
    ends found = {is_bpe ? NULL : "[CLS]", is_bpe ? NULL : "[SEP]"};
    s24i_config part, list, element;
    const char *type = "";
    TRY(s24i_config_child(&part, root, "post_processor", S24I_OPTIONAL));
    if (part.json) TRY(s24i_config_string(&type, &part, "type", S24I_REQUIRED));
    if (!strcmp(type, "Sequence")) {
        TRY(s24i_config_child(&list, &part, "processors", S24I_REQUIRED));
        s24i_json_walk walk = s24i_json_begin(list.json);
        while (s24i_config_item(&element, &list, s24i_json_next(&walk, NULL)))
            TRY(read_processor(&found, tokenizer, &element, is_bpe));
    } else if (part.json) {
        TRY(read_processor(&found, tokenizer, &part, is_bpe));
    }
    REQUIRE(root->ctx, is_bpe || (found.cls && found.sep), S24_ERROR_FORMAT,
            "%s: post_processor does not put a token before a text and one behind it", root->file);
    if (found.cls) TRY(s24i_tokenizer_find(&tokenizer->cls, tokenizer, root->file, found.cls));
    if (found.sep) TRY(s24i_tokenizer_find(&tokenizer->sep, tokenizer, root->file, found.sep));
    return S24_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static s24_status read_kind(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config model;
    const char *type = NULL;
    TRY(s24i_config_child(&model, root, "model", S24I_REQUIRED));
    TRY(s24i_config_string(&type, &model, "type", S24I_REQUIRED));
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i]->name, type)) tokenizer->kind = kinds[i];
    if (!tokenizer->kind)
        return s24i_tokenizer_refuse(root, "tokenizer model", type, "WordPiece and BPE");
    return tokenizer->kind->read(tokenizer, root, &model);
}

s24_status s24i_tokenizer_read_json(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    s24_status status;
    s24i_config root;
    TRY(s24i_config_load(&root, tokenizer->ctx, folder, name, S24I_REQUIRED));
    TRY_DONE(read_kind(tokenizer, &root));
    TRY_DONE(read_all_added(tokenizer, &root));
    TRY_DONE(read_post_processor(tokenizer, &root));
done:
    s24i_config_free(&root);
    return status;
}
