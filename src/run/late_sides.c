// SPDX-License-Identifier: Apache-2.0
/*
 * What a folder says of late interaction. Three kinds of folders say it: PyLate's, by keys of
 * config_sentence_transformers.json; Stanford's ColBERT, by HF_ColBERT in config.json and
 * artifact.metadata; and sentence-transformers' MultiVectorEncoder, by sentence_bert_config.json
 * and a module MultiVectorMask, whose prompts are plain text.
 */
#include "run/late_sides.h"

#include <string.h>

#include "io/checkpoint/config.h"

const char *const s24i_late_sides[S24I_SIDES + 1] = {"query", "document", NULL};

#define THEIRS    "config_sentence_transformers.json"
#define SENTENCE  "sentence_bert_config.json"
#define TOKENIZER "tokenizer_config.json"
static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

enum { USUAL_QUERY = 32 };

typedef struct reader {
    s24_ctx *ctx;
    const s24i_late_source *source;
    s24i_late *late;
    s24i_config theirs, sentence, model, metadata, modules, mask;
    int pylate, stanford; /* the kind of folder; neither: MultiVectorEncoder's */
} reader;

/* ---- which folders --------------------------------------------------------------------------- */

static const char *text_at(const s24i_config *config, const char *key)
{
    const char *text = s24i_json_string(s24i_json_get(config->json, key));
    return text ? text : "";
}

static int has_key_of_pylate(const s24i_config *theirs)
{
    static const char *const keys[] = {"query_prefix",       "document_prefix",
                                       "query_length",       "document_length",
                                       "do_query_expansion", "attend_to_expansion_tokens",
                                       "skiplist_words"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (s24i_json_get(theirs->json, keys[i])) return 1;
    return !strcmp(text_at(theirs, "model_type"), "ColBERT");
}

static s24_status load_kind(reader *r, const char *folder, const char *place)
{
    s24i_config names = {.json = NULL};
    TRY(s24i_config_load(&r->theirs, r->ctx, folder, THEIRS, S24I_OPTIONAL));
    TRY(s24i_config_load(&r->model, r->ctx, place, "config.json", S24I_OPTIONAL));
    r->pylate = has_key_of_pylate(&r->theirs);
    TRY(s24i_config_child(&names, &r->model, "architectures", S24I_OPTIONAL));
    const char *name = s24i_json_string(s24i_json_at(names.json, 0));
    r->stanford = !r->pylate && name && !strcmp(name, "HF_ColBERT");
    return S24_OK;
}

static void free_reader(reader *r)
{
    s24i_config *const all[] = {&r->theirs,   &r->sentence, &r->model,
                                &r->metadata, &r->modules,  &r->mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        s24i_config_free(all[i]);
}

s24_status s24i_late_said(int *is_late, s24_ctx *ctx, const char *folder, const char *place)
{
    reader r = {.ctx = ctx};
    const s24_status status = load_kind(&r, folder, place);
    *is_late =
        status == S24_OK &&
        (r.pylate || r.stanford || !strcmp(text_at(&r.theirs, "model_type"), "MultiVectorEncoder"));
    free_reader(&r);
    return status;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The id of a token's bytes, an added one's too; −1: there is none. */
static int32_t find_token(const s24_tokenizer *t, const char *text, size_t bytes)
{
    for (size_t i = 0; i < t->added_count; i++)
        if (t->added[i].bytes == bytes && !memcmp(t->added[i].text, text, bytes))
            return t->added[i].id;
    return s24i_vocabulary_id_of(&t->vocabulary, text, bytes);
}

/* A side's prefix is one token, or its first word is; what is left of it is text. */
static s24_status read_prefix(reader *r, s24i_side side, const char *prefix, int spaced)
{
    const s24_tokenizer *t = r->source->tokenizer;
    const size_t all = strlen(prefix), word = strcspn(prefix, " ");
    size_t taken = all;
    int32_t id = all ? find_token(t, prefix, all) : -1;
    if (id < 0 && word) id = find_token(t, prefix, taken = word);
    if (id < 0) taken = 0;
    r->late->marker[side] = id;
    const char *rest = prefix + taken;
    return s24i_copy_string(&r->late->lead[side], r->ctx, spaced && !*rest ? " " : rest);
}

static s24_status skip_word(reader *r, const char *word, size_t bytes, unsigned sides)
{
    const s24_tokenizer *t = r->source->tokenizer;
    const int32_t id = find_token(t, word, bytes);
    if (id >= 0 && id < t->count) r->late->skipped[id] |= (uint8_t)sides;
    return S24_OK;
}

static s24_status skip_punctuation(reader *r)
{
    for (const char *c = punctuation; *c; c++)
        TRY(skip_word(r, c, 1, 1u << S24I_SIDE_DOCUMENT));
    return S24_OK;
}

/* *said: there is a list. */
static s24_status skip_listed(reader *r, int *said, const s24i_config *config, unsigned sides)
{
    s24i_config words;
    TRY(s24i_config_child(&words, config, "skiplist_words", S24I_OPTIONAL));
    s24i_json_walk walk = s24i_json_begin(words.json);
    *said = words.json != NULL;
    for (const s24i_json *value; (value = s24i_json_next(&walk, NULL)) != NULL;) {
        const char *word = s24i_json_string(value);
        REQUIRE(r->ctx, word, S24_ERROR_FORMAT, "%s: skiplist_words has what is no string",
                config->file);
        TRY(skip_word(r, word, strlen(word), sides));
    }
    return S24_OK;
}

/* The token that fills queries: its name, or the tokenizer's that masks, or that ends a text. */
static s24_status find_filler(reader *r, const char *name)
{
    static const char *const usual[] = {"[MASK]", "<mask>", "</s>", "<|endoftext|>", NULL};
    s24i_config config;
    const s24_tokenizer *t = r->source->tokenizer;
    int32_t *id = &r->late->filler;
    TRY(s24i_config_load(&config, r->ctx, r->source->place, TOKENIZER, S24I_OPTIONAL));
    for (int i = 0; !name && i < 2; i++) {
        const s24i_json *value = s24i_json_get(config.json, i ? "eos_token" : "mask_token");
        name = s24i_json_string(value) ? s24i_json_string(value)
                                       : s24i_json_string(s24i_json_get(value, "content"));
    }
    *id = name ? find_token(t, name, strlen(name)) : -1;
    for (int i = 0; !name && *id < 0 && usual[i]; i++)
        *id = find_token(t, usual[i], strlen(usual[i]));
    const s24_status status =
        *id >= 0 ? S24_OK
                 : s24_ctx_fail(r->ctx, S24_ERROR_FORMAT,
                                "%s: queries are filled up with %s, which the vocabulary has not",
                                r->source->folder, name ? s24i_show(name).text : "a mask");
    s24i_config_free(&config);
    return status;
}

/* ---- lengths --------------------------------------------------------------------------------- */

static s24_status read_length(int64_t *out, const s24i_config *config, const char *key)
{
    if (!config->json) return S24_OK;
    return s24i_config_int(out, config, key, S24I_OPTIONAL, 2, INT32_MAX);
}

/* query_expansion: how many tokens a query is filled up to, and whether it may have more. */
static s24_status read_expansion(reader *r, const s24i_config *config, int64_t *query)
{
    const char *strategy = "", *token = NULL;
    s24i_late *late = r->late;
    TRY(s24i_config_string(&strategy, config, "strategy", S24I_REQUIRED));
    TRY(s24i_config_string(&token, config, "token", S24I_OPTIONAL));
    TRY(s24i_config_int(&late->floor, config, "length", S24I_REQUIRED, 1, INT32_MAX));
    TRY(s24i_config_bool(&late->attends, config, "attend", S24I_OPTIONAL));
    const int fixed = !strcmp(strategy, "fixed");
    REQUIRE(r->ctx, fixed || !strcmp(strategy, "min"), S24_ERROR_UNSUPPORTED,
            "%s: query_expansion's strategy is '%s'; fixed or min was expected", config->file,
            s24i_show(strategy).text);
    *query = fixed ? late->floor : s24i_max(*query ? *query : r->source->most, late->floor);
    return find_filler(r, token);
}

/* PyLate's keys; queries are filled unless they say otherwise. */
static s24_status read_flat(reader *r, const s24i_config *config, const char *key_attends,
                            int64_t *query)
{
    int fills = 1;
    TRY(s24i_config_bool(&fills, config, "do_query_expansion", S24I_OPTIONAL));
    if (!fills) return S24_OK;
    TRY(s24i_config_bool(&r->late->attends, config, key_attends, S24I_OPTIONAL));
    if (!*query) *query = USUAL_QUERY;
    r->late->floor = *query;
    return find_filler(r, NULL);
}

static s24_status read_lengths(reader *r)
{
    s24i_config expansion = {.json = NULL};
    s24i_late *late = r->late;
    int64_t query = 0, document = 0;
    const s24i_config *flat = r->stanford ? &r->metadata : &r->theirs;
    TRY(read_length(&query, flat, r->stanford ? "query_maxlen" : "query_length"));
    TRY(read_length(&document, flat, r->stanford ? "doc_maxlen" : "document_length"));
    TRY(read_length(&query, &r->sentence, "query_length"));
    TRY(read_length(&document, &r->sentence, "document_length"));
    TRY(s24i_config_child(&expansion, &r->sentence, "query_expansion", S24I_OPTIONAL));
    if (!expansion.json && r->pylate)
        TRY(s24i_config_child(&expansion, &r->theirs, "query_expansion", S24I_OPTIONAL));
    if (expansion.json)
        TRY(read_expansion(r, &expansion, &query));
    else if (r->pylate || r->stanford)
        TRY(read_flat(r, flat, r->stanford ? "attend_to_mask_tokens" : "attend_to_expansion_tokens",
                      &query));
    const int64_t said[] = {query, document}, least[] = {s24i_max(late->floor, 2), 2};
    for (int side = 0; side < S24I_SIDES; side++) {
        const int64_t asked = side == S24I_SIDE_QUERY && late->floor ? 0 : r->source->asked;
        late->limit[side] = asked ? asked : said[side] ? said[side] : r->source->most;
        late->limit[side] = s24i_max(late->limit[side], least[side]);
    }
    return S24_OK;
}

/* ---- one folder ------------------------------------------------------------------------------ */

static s24_status read_prefixes(reader *r)
{
    static const char *const keys[2][S24I_SIDES] = {{"query_prefix", "document_prefix"},
                                                    {"query_token_id", "doc_token_id"}};
    static const char *const usual[S24I_SIDES] = {"[unused0]", "[unused1]"};
    for (int side = 0; side < S24I_SIDES; side++) {
        const char *prefix = r->stanford ? usual[side] : "";
        if (r->pylate) TRY(s24i_config_string(&prefix, &r->theirs, keys[0][side], S24I_OPTIONAL));
        if (r->stanford && r->metadata.json)
            TRY(s24i_config_string(&prefix, &r->metadata, keys[1][side], S24I_OPTIONAL));
        TRY(read_prefix(r, (s24i_side)side, prefix, r->stanford));
        if (!r->pylate && !r->stanford) r->late->marker[side] = -1;
    }
    return S24_OK;
}

/* The module MultiVectorMask of a MultiVectorEncoder. */
static s24_status read_mask(reader *r)
{
    s24i_config module, tasks;
    s24i_json *value;
    char *place = NULL;
    int said = 0;
    unsigned sides = 0;
    s24i_json_walk walk = s24i_json_begin(r->modules.json);
    while (!r->mask.json && (value = s24i_json_next(&walk, NULL)) != NULL) {
        s24i_module_kind kind;
        if (!s24i_config_item(&module, &r->modules, value)) continue;
        TRY(s24i_module_kind_read(&kind, &module));
        if (kind != S24I_MODULE_VECTOR_MASK) continue;
        const s24_status status =
            s24i_module_load(&r->mask, &place, &module, r->source->folder, S24I_OPTIONAL);
        s24_ctx_free(r->ctx, place);
        TRY(status);
    }
    if (!r->mask.json) return S24_OK;
    REQUIRE(r->ctx,
            s24i_json_typeof(s24i_json_get(r->mask.json, "keep_only_token_ids")) <= S24I_JSON_NULL,
            S24_ERROR_UNSUPPORTED, "%s: keep_only_token_ids is of images, which are not read",
            r->mask.file);
    TRY(s24i_config_child(&tasks, &r->mask, "skiplist_tasks", S24I_OPTIONAL));
    for (size_t i = 0; i < s24i_json_count(tasks.json); i++) {
        const char *task = s24i_json_string(s24i_json_at(tasks.json, i));
        for (int side = 0; task && side < S24I_SIDES; side++)
            if (!strcmp(task, s24i_late_sides[side])) sides |= 1u << side;
    }
    return skip_listed(r, &said, &r->mask, tasks.json ? sides : 1u << S24I_SIDE_DOCUMENT);
}

static s24_status read_skipped(reader *r)
{
    int said = 0, masks = 1;
    if (r->pylate) {
        TRY(skip_listed(r, &said, &r->theirs, 1u << S24I_SIDE_DOCUMENT));
        return said ? S24_OK : skip_punctuation(r);
    }
    if (!r->stanford) return read_mask(r);
    if (r->metadata.json)
        TRY(s24i_config_bool(&masks, &r->metadata, "mask_punctuation", S24I_OPTIONAL));
    return masks ? skip_punctuation(r) : S24_OK;
}

static s24_status read_all(reader *r)
{
    const char *folder = r->source->folder, *place = r->source->place;
    s24i_late *late = r->late;
    TRY(load_kind(r, folder, place));
    TRY(s24i_config_load(&r->sentence, r->ctx, place, SENTENCE, S24I_OPTIONAL));
    TRY(s24i_config_load(&r->modules, r->ctx, folder, "modules.json", S24I_OPTIONAL));
    if (r->stanford)
        TRY(s24i_config_load(&r->metadata, r->ctx, place, "artifact.metadata", S24I_OPTIONAL));
    late->by_mean = !strcmp(text_at(&r->theirs, "similarity_fn_name"), "meanmaxsim");
    late->normalises = r->pylate || r->stanford;
    late->inline_dense = r->stanford && !r->modules.json;
    TRY(s24i_zeroed(&late->skipped, r->ctx, (size_t)r->source->tokenizer->count));
    TRY(read_prefixes(r));
    TRY(read_skipped(r));
    return read_lengths(r);
}

s24_status s24i_late_read(s24i_late **out, s24_ctx *ctx, const s24i_late_source *source)
{
    TRY(s24i_zeroed(out, ctx, sizeof **out));
    reader r = {.ctx = ctx, .source = source, .late = *out};
    const s24_status status = read_all(&r);
    free_reader(&r);
    return status;
}

void s24i_late_destroy(s24i_late *late, s24_ctx *ctx)
{
    if (!late) return;
    for (int side = 0; side < S24I_SIDES; side++)
        s24_ctx_free(ctx, late->lead[side]);
    s24_ctx_free(ctx, late->skipped);
    s24_ctx_free(ctx, late);
}

/* ---- a text's tokens ------------------------------------------------------------------------- */

int64_t s24i_late_encode(s24_token *tokens, const s24i_late *late, s24i_side side,
                         const s24_tokenizer *tokenizer, const s24_text both[2])
{
    const int marked = late->marker[side] >= 0;
    const s24_text lead = {late->lead[side], strlen(late->lead[side])};
    s24_text parts[3];
    int part_count = 0;
    if (lead.bytes) parts[part_count++] = lead;
    if (both[0].bytes) parts[part_count++] = both[0];
    parts[part_count++] = both[1];
    int64_t count =
        s24i_tokenizer_encode(tokens, late->limit[side] - marked, tokenizer, parts, part_count);
    if (count < 0) return count;
    if (marked) {
        const int64_t at = s24i_min(tokenizer->single.count[S24I_BEFORE], count);
        memmove(tokens + at + 1, tokens + at, (size_t)(count++ - at) * sizeof *tokens);
        tokens[at] = (s24_token){.id = late->marker[side]};
    }
    for (; side == S24I_SIDE_QUERY && count < late->floor; count++)
        tokens[count] = (s24_token){.id = late->filler, .end = S24I_FILLS};
    return count;
}
