// SPDX-License-Identifier: Apache-2.0
/*
 * Loads tokenizer.json: its kind by tokenizers.def's rows, then added tokens and what stands around
 * a text. What must stay true: whatever this reader does not carry out exactly it refuses by its
 * name; a token's id is never guessed.
 *
 * Truncation and padding presets are ignored.
 */
#include "io/tokenizer/tokenizer.h"

#include <string.h>

#define TOKENIZER(name) &s24i_tokenizer_##name,
static const s24i_tokenizer_kind *const kinds[] = {
#include "io/tokenizer/tokenizers.def"
};
#undef TOKENIZER
enum { KINDS = (int)(sizeof kinds / sizeof *kinds) };

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* Does a normaliser leave these bytes as they are wherever they stand, but for their case?
   WordPiece does so with what is seen of ASCII, and form C, but that letters and <, = and > may
   join a mark that follows. */
static int is_kept(const s24_tokenizer *tokenizer, const char *text)
{
    const int is_wordpiece = tokenizer->kind == &s24i_tokenizer_wordpiece;
    const s24i_bpe *bpe = &tokenizer->bpe;
    const size_t bytes = strlen(text);
    if ((!is_wordpiece && (!bpe->nfc || bpe->blanks)) || !bytes) return 0;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] & 0x80 || (is_wordpiece && (text[i] <= ' ' || text[i] == 0x7f))) return 0;
    if (is_wordpiece) return 1;
    const char last = text[bytes - 1], letter = last | 0x20;
    return !(letter >= 'a' && letter <= 'z') && !(last >= '<' && last <= '>');
}

/* Of a token as the file spells it; −1: none, or at byte level none in its letters. */
static int32_t id_in_vocabulary(const s24_tokenizer *tokenizer, const char *token)
{
    char bytes[S24I_TOKEN_BYTES];
    if (!tokenizer->bpe.byte_level) return s24i_vocabulary_id(&tokenizer->vocabulary, token);
    const size_t count = s24i_bpe_bytes(bytes, token);
    return count == SIZE_MAX ? -1 : s24i_vocabulary_id_of(&tokenizer->vocabulary, bytes, count);
}

static s24_status read_added(s24_tokenizer *tokenizer, const s24i_config *entry)
{
    const char *text = "";
    int64_t id = 0;
    int single_word = 0, normalized = 0;
    s24i_added added = {.text = NULL};
    TRY(s24i_config_string(&text, entry, "content", S24I_REQUIRED));
    TRY(s24i_config_int(&id, entry, "id", S24I_REQUIRED, 0, S24I_MAX_IDS - 1));
    TRY(s24i_config_bool(&single_word, entry, "single_word", S24I_OPTIONAL));
    TRY(s24i_config_bool(&normalized, entry, "normalized", S24I_OPTIONAL));
    TRY(s24i_config_bool(&added.special, entry, "special", S24I_OPTIONAL));
    TRY(s24i_config_bool(&added.takes_before, entry, "lstrip", S24I_OPTIONAL));
    TRY(s24i_config_bool(&added.takes_after, entry, "rstrip", S24I_OPTIONAL));
    added.normalized = normalized;
    added.single = single_word;
    const s24i_shown shown = s24i_show(text);
    REQUIRE(entry->ctx, *text, S24_ERROR_FORMAT, "%s: an added token's content is empty",
            entry->file);
    REQUIRE(entry->ctx, strlen(text) <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
            "%s: the added token \"%s\" has %zu bytes, at most %d are expected", entry->file,
            shown.text, strlen(text), S24I_TOKEN_BYTES);
    const int32_t known = id_in_vocabulary(tokenizer, text);
    REQUIRE(entry->ctx, known < 0 || known == id, S24_ERROR_FORMAT,
            "%s: the added token \"%s\" has the id %lld, but %d in model.vocab", entry->file,
            shown.text, (long long)id, (int)known);
    added.text = text;
    added.bytes = strlen(text);
    added.id = (int32_t)id;
    return s24i_added_put(tokenizer, &added);
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

/* ---- the file -------------------------------------------------------------------------------- */

/* May two texts share characters where they stand in one? */
static int may_overlap(const char *a, const char *b)
{
    const size_t bytes[2] = {strlen(a), strlen(b)};
    for (size_t i = 0; i < bytes[0]; i++) {
        const size_t least = bytes[0] - i < bytes[1] ? bytes[0] - i : bytes[1];
        if (!memcmp(a + i, b, least)) return 1;
    }
    return strstr(b, a) != NULL;
}

/* White space between two, where they stand side by side. */
static int both_take(const s24i_json *a, const s24i_json *b)
{
    return (s24i_json_is_true(s24i_json_get(a, "lstrip")) &&
            s24i_json_is_true(s24i_json_get(b, "rstrip"))) ||
           (s24i_json_is_true(s24i_json_get(a, "rstrip")) &&
            s24i_json_is_true(s24i_json_get(b, "lstrip")));
}

/* Those that are looked for in the raw text are found before those in the normalised one. Would it
   make a difference to look for all of them at once? Of very many it is not asked. */
static int come_in_turn(const s24i_json *list)
{
    enum { MOST = 8192 };
    if (s24i_json_count(list) > MOST) return 0;
    s24i_json_walk walk = s24i_json_begin(list);
    for (const s24i_json *late; (late = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *text = s24i_json_string(s24i_json_get(late, "content"));
        if (!text || !s24i_json_is_true(s24i_json_get(late, "normalized"))) continue;
        s24i_json_walk others = s24i_json_begin(list);
        for (const s24i_json *early; (early = s24i_json_next(&others, NULL)) != NULL;) {
            const char *other = s24i_json_string(s24i_json_get(early, "content"));
            if (!other || s24i_json_is_true(s24i_json_get(early, "normalized"))) continue;
            if (may_overlap(text, other) || may_overlap(other, text) || both_take(early, late))
                return 1;
        }
    }
    return 0;
}

/* Does a post_processor trim offsets, by how tokens are spelled? Own ways do so at byte level, and
   WordPiece's tokens have no white space. */
static int trims(const s24i_json *part)
{
    const s24i_json *type = s24i_json_get(part, "type"), *inner;
    const char *name = s24i_json_string(type);
    const s24i_json *says = s24i_json_get(part, "trim_offsets");
    s24i_json_walk walk = s24i_json_begin(s24i_json_get(part, "processors"));
    while ((inner = s24i_json_next(&walk, NULL)) != NULL)
        if (trims(inner)) return 1;
    return name && (!strcmp(name, "RobertaProcessing") || !strcmp(name, "ByteLevel")) &&
           (!says || s24i_json_is_true(says));
}

/* May the kind's own way find every added token in the raw text? */
static int is_plain(const s24_tokenizer *tokenizer, const s24i_config *root)
{
    const s24i_json *list = s24i_json_get(root->json, "added_tokens");
    s24i_json_walk walk = s24i_json_begin(list);
    const s24i_json *value;
    const int is_wordpiece = tokenizer->kind == &s24i_tokenizer_wordpiece;
    if (!is_wordpiece && !tokenizer->bpe.byte_level &&
        trims(s24i_json_get(root->json, "post_processor")))
        return 0;
    if (come_in_turn(list)) return 0;
    while ((value = s24i_json_next(&walk, NULL)) != NULL) {
        const char *text = s24i_json_string(s24i_json_get(value, "content"));
        const int single = s24i_json_is_true(s24i_json_get(value, "single_word"));
        /* Where nothing is changed it says nothing. */
        const int normalized =
            tokenizer->normalises && s24i_json_is_true(s24i_json_get(value, "normalized"));
        if (single || (normalized && text && !is_kept(tokenizer, text))) return 0;
    }
    return 1;
}

static void forget_way(s24_tokenizer *tokenizer)
{
    s24_ctx_free(tokenizer->ctx, tokenizer->unigram.rules.bytes);
    tokenizer->bpe = (s24i_bpe){.split_count = 0};
    tokenizer->unigram = (s24i_unigram){.nodes = NULL};
    tokenizer->clean = tokenizer->chinese = tokenizer->strip = tokenizer->lower = 0;
    tokenizer->normalises = 0;
}

/* The kind's own way where it has one for all that the file says, else a chain. */
static s24_status choose_way(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24_status status = S24_ERROR_UNSUPPORTED;
    if (tokenizer->kind->plan) status = tokenizer->kind->plan(tokenizer, root);
    if (status == S24_OK && is_plain(tokenizer, root)) return S24_OK;
    if (status != S24_OK && status != S24_ERROR_UNSUPPORTED) return status;
    forget_way(tokenizer);
    return s24i_chain_read(&tokenizer->chain, tokenizer->ctx, root);
}

/* Files of 2020 (bert-base-uncased's, gpt2's, roberta-base's) leave the model's type out. Hugging
   Face's tokenizers tell it by its keys, in this order; NULL: none has them. */
static const char *type_by_keys(const s24i_json *model)
{
    static const struct {
        const char *type, *keys[4];
    } rows[] = {{"BPE", {"vocab", "merges"}},
                {"WordPiece",
                 {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"}},
                {"WordLevel", {"vocab", "unk_token"}},
                {"Unigram", {"vocab", "unk_id"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int there = 1;
        for (int k = 0; k < 4 && rows[i].keys[k]; k++)
            there &= s24i_json_get(model, rows[i].keys[k]) != NULL;
        if (there) return rows[i].type;
    }
    return NULL;
}

static s24_status read_kind(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_config model;
    const char *type = NULL;
    TRY(s24i_config_child(&model, root, "model", S24I_REQUIRED));
    TRY(s24i_config_string(&type, &model, "type", S24I_OPTIONAL));
    if (!type) type = type_by_keys(model.json);
    if (!type) TRY(s24i_config_string(&type, &model, "type", S24I_REQUIRED));
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i]->name, type)) tokenizer->kind = kinds[i];
    if (!tokenizer->kind)
        return s24i_tokenizer_refuse(root, "tokenizer model", type,
                                     "WordPiece, BPE, Unigram and WordLevel");
    TRY(choose_way(tokenizer, root));
    return tokenizer->kind->read(tokenizer, root, &model);
}

/* A kind's own way spells tokens as its decoder would: WordPiece's, at byte level, of blanks. */
static s24_status read_decoder(s24_tokenizer *tokenizer, const s24i_config *root)
{
    const s24i_bpe *bpe = &tokenizer->bpe;
    const int is_said = s24i_json_typeof(s24i_json_get(root->json, "decoder")) == S24I_JSON_OBJECT;
    const int is_bare = tokenizer->kind == &s24i_tokenizer_bpe && !bpe->byte_level && !bpe->blanks;
    const int is_unigram = tokenizer->kind == &s24i_tokenizer_unigram;
    tokenizer->decodes = tokenizer->chain || (is_said && (is_bare || is_unigram));
    return tokenizer->decodes ? s24i_decoder_read(tokenizer, root) : S24_OK;
}

s24_status s24i_tokenizer_read_json(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    s24_status status;
    s24i_config root;
    TRY(s24i_config_load(&root, tokenizer->ctx, folder, name, S24I_REQUIRED));
    TRY_DONE(read_kind(tokenizer, &root));
    TRY_DONE(read_all_added(tokenizer, &root));
    if (tokenizer->chain) TRY_DONE(s24i_chain_read_added(tokenizer, root.file));
    TRY_DONE(read_decoder(tokenizer, &root));
    TRY_DONE(s24i_post_processor_read(tokenizer, &root));
done:
    s24i_config_free(&root);
    return status;
}
