// SPDX-License-Identifier: Apache-2.0
/*
 * A GGUF file's tokenizer in a folder's files: byte pair encoding at byte level as tokenizer.json,
 * SentencePiece's as tokenizer.model; and tokenizer_config.json, which has the chat template. How
 * texts are cut before merging GGUF says by a name alone, of which gguf_words.def knows some.
 */
#include <stdio.h>
#include <string.h>

#include "io/gguf/gguf.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, TYPES };

enum { MOST_PATTERNS = 5 };

typedef struct cuts {
    const char *name;
    const char *patterns[MOST_PATTERNS]; /* as many as there are, then NULL */
    int digits;                          /* each is a word */
    int nfc, whole_words;
    int first; /* texts begin with a token where no key says so */
} cuts;

#define WORDS(called, ...) {.name = called, __VA_ARGS__},
static const cuts rows[] = {
#include "io/gguf/gguf_words.def"
};
#undef WORDS
enum { ROWS = (int)(sizeof rows / sizeof *rows) };

typedef struct words {
    const s24i_gguf *g;
    const s24i_gguf_model *model;
    const s24i_gguf_value *tokens, *types, *scores, *merges;
    const cuts *cuts; /* NULL: SentencePiece */
    s24i_names names;
    s24_text template;
    int first, last, prefix; /* put before and after a text; a blank before it */
    int64_t unknown, padding;
} words;

/* ---- reading --------------------------------------------------------------------------------- */

static int type_of(const words *w, uint64_t id)
{
    return w->types ? (int)s24i_gguf_word(w->types, id) : NORMAL;
}

static s24_status check_text(const words *w, const s24_text *text, const char *key, uint64_t index)
{
    REQUIRE(w->g->ctx,
            text->bytes <= 2 * S24I_TOKEN_BYTES && !memchr(text->data, 0, text->bytes) &&
                s24i_utf8_valid(text->data, text->bytes) == text->bytes,
            S24_ERROR_FORMAT, "%s: element %llu of \"%s\" is no text of at most %d bytes",
            w->g->path, (unsigned long long)index, key, 2 * S24I_TOKEN_BYTES);
    return S24_OK;
}

/* Every token is a text that stands there once. */
static s24_status read_tokens(words *w)
{
    static const char key[] = "tokenizer.ggml.tokens";
    char text[2 * S24I_TOKEN_BYTES + 1];
    s24_text token;
    s24i_gguf_walk walk = s24i_gguf_begin(w->tokens);
    for (uint64_t i = 0; s24i_gguf_next(&token, &walk); i++) {
        TRY(check_text(w, &token, key, i));
        memcpy(text, token.data, token.bytes);
        text[token.bytes] = '\0';
        const int type = type_of(w, i);
        REQUIRE(w->g->ctx, type >= NORMAL && type < TYPES, S24_ERROR_FORMAT,
                "%s: element %llu of \"tokenizer.ggml.token_type\" is %d, 1 to 6 is expected",
                w->g->path, (unsigned long long)i, type);
        REQUIRE(w->g->ctx, token.bytes && s24i_names_find(&w->names, text, "") < 0,
                S24_ERROR_FORMAT, "%s: element %llu of \"%s\", \"%s\", %s", w->g->path,
                (unsigned long long)i, key, s24i_show(text).text,
                token.bytes ? "stands there twice" : "is empty");
        TRY(s24i_names_add(&w->names, text, ""));
    }
    return S24_OK;
}

static s24_status read_merges(const words *w)
{
    s24_text merge;
    s24i_gguf_walk walk = s24i_gguf_begin(w->merges);
    for (uint64_t i = 0; s24i_gguf_next(&merge, &walk); i++)
        TRY(check_text(w, &merge, "tokenizer.ggml.merges", i));
    return S24_OK;
}

static s24_status check_count(const words *w, const s24i_gguf_value *array, const char *key)
{
    REQUIRE(w->g->ctx, !array || array->count == w->tokens->count, S24_ERROR_FORMAT,
            "%s: key \"%s\" has %llu elements, for %llu tokens", w->g->path, key,
            (unsigned long long)array->count, (unsigned long long)w->tokens->count);
    return S24_OK;
}

static s24_status read_arrays(words *w)
{
    const s24i_gguf *g = w->g;
    TRY(s24i_gguf_array(&w->tokens, g, "tokenizer.ggml.tokens", S24I_GGUF_STRING, S24I_REQUIRED));
    REQUIRE(g->ctx, w->tokens->count >= 1 && w->tokens->count <= (uint64_t)w->model->vocabulary,
            S24_ERROR_FORMAT,
            "%s: key \"tokenizer.ggml.tokens\" has %llu elements, for a table "
            "of %lld words",
            g->path, (unsigned long long)w->tokens->count, (long long)w->model->vocabulary);
    TRY(s24i_gguf_array(&w->types, g, "tokenizer.ggml.token_type", S24I_GGUF_I32, S24I_OPTIONAL));
    TRY(check_count(w, w->types, "tokenizer.ggml.token_type"));
    TRY(read_tokens(w));
    if (w->cuts) {
        TRY(s24i_gguf_array(&w->merges, g, "tokenizer.ggml.merges", S24I_GGUF_STRING,
                            S24I_REQUIRED));
        return read_merges(w);
    }
    TRY(s24i_gguf_array(&w->scores, g, "tokenizer.ggml.scores", S24I_GGUF_F32, S24I_REQUIRED));
    return check_count(w, w->scores, "tokenizer.ggml.scores");
}

/* What kind it is, and how texts are cut before merging. */
static s24_status read_kind(words *w)
{
    const s24i_gguf *g = w->g;
    char known[320] = "";
    s24_text kind, name = {"gpt-2", 5};
    const int is_gpt2 = !strcmp(g->architecture, "gpt2");
    TRY(s24i_gguf_text(&kind, g, "tokenizer.ggml.model", S24I_REQUIRED));
    if (s24i_text_is(&kind, "llama")) return S24_OK;
    REQUIRE(g->ctx, s24i_text_is(&kind, "gpt2"), S24_ERROR_UNSUPPORTED,
            "%s: key \"tokenizer.ggml.model\" is not supported, only gpt2 and llama", g->path);
    TRY(s24i_gguf_text(&name, g, "tokenizer.ggml.pre", is_gpt2 ? S24I_OPTIONAL : S24I_REQUIRED));
    for (int i = 0; i < ROWS; i++) {
        if (s24i_text_is(&name, rows[i].name)) w->cuts = &rows[i];
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", rows[i].name);
    }
    REQUIRE(g->ctx, w->cuts, S24_ERROR_UNSUPPORTED,
            "%s: key \"tokenizer.ggml.pre\" is not supported, only %s", g->path, known);
    return S24_OK;
}

static s24_status read_ends(words *w)
{
    const s24i_gguf *g = w->g;
    const int64_t most = (int64_t)w->tokens->count - 1;
    w->first = w->cuts ? w->cuts->first : 1;
    w->prefix = !w->cuts;
    w->unknown = w->padding = -1;
    TRY(s24i_gguf_bool(&w->first, g, "tokenizer.ggml.add_bos_token"));
    TRY(s24i_gguf_bool(&w->last, g, "tokenizer.ggml.add_eos_token"));
    TRY(s24i_gguf_bool(&w->prefix, g, "tokenizer.ggml.add_space_prefix"));
    TRY(s24i_gguf_int(&w->unknown, g, "tokenizer.ggml.unknown_token_id", S24I_OPTIONAL, most));
    TRY(s24i_gguf_int(&w->padding, g, "tokenizer.ggml.padding_token_id", S24I_OPTIONAL, most));
    REQUIRE(g->ctx,
            (!w->first || w->model->first >= 0) && (!w->last || w->model->last[0] >= 0) &&
                w->model->first <= most && w->model->last[0] <= most,
            S24_ERROR_FORMAT,
            "%s: keys \"tokenizer.ggml.bos_token_id\" and \"…eos_token_id\" are no tokens that can "
            "stand at a text's ends",
            g->path);
    REQUIRE(g->ctx, !w->cuts || !w->prefix, S24_ERROR_UNSUPPORTED,
            "%s: key \"tokenizer.ggml.add_space_prefix\" is not supported at byte level", g->path);
    TRY(s24i_gguf_text(&w->template, g, "tokenizer.chat_template", S24I_OPTIONAL));
    REQUIRE(g->ctx,
            !w->template.bytes ||
                (!memchr(w->template.data, 0, w->template.bytes) &&
                 s24i_utf8_valid(w->template.data, w->template.bytes) == w->template.bytes),
            S24_ERROR_FORMAT, "%s: key \"tokenizer.chat_template\" is not UTF-8", g->path);
    return S24_OK;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static void put_token(s24i_json_text *text, const words *w, int64_t id)
{
    const char *token = w->names.names[id];
    s24i_json_put_string(text, token, strlen(token));
}

static void put_added(s24i_json_text *text, const words *w)
{
    int count = 0;
    for (int64_t id = 0; id < w->names.count; id++) {
        const int type = type_of(w, (uint64_t)id);
        if (type != CONTROL && type != USER_DEFINED) continue;
        s24i_json_put(text, count++ ? ",\n    {\"id\":" : "\n    {\"id\":");
        s24i_json_put_integer(text, id);
        s24i_json_put(text, ",\"content\":");
        put_token(text, w, id);
        s24i_json_put(text, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                            "\"normalized\":false,\"special\":");
        s24i_json_put(text, type == CONTROL ? "true}" : "false}");
    }
}

#define LEVEL                                                                                      \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"

static void put_pre_tokenizer(s24i_json_text *text, const cuts *p)
{
    s24i_json_put(text, ",\n  \"normalizer\":");
    s24i_json_put(text, p->nfc ? "{\"type\":\"NFC\"}" : "null");
    s24i_json_put(text, ",\n  \"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    if (p->digits) s24i_json_put(text, "{\"type\":\"Digits\",\"individual_digits\":true},");
    for (int i = 0; i < MOST_PATTERNS && p->patterns[i]; i++) {
        s24i_json_put(text, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        s24i_json_put_string(text, p->patterns[i], strlen(p->patterns[i]));
        s24i_json_put(text, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    s24i_json_put(text, p->patterns[0] ? LEVEL "false}]}" : LEVEL "true}]}");
}

/* One text of a template, with its number at its tokens. */
static void put_sequence(s24i_json_text *text, const words *w, const char *name, int type)
{
    const int64_t ends[2] = {w->first ? w->model->first : -1, w->last ? w->model->last[0] : -1};
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            s24i_json_put(text, i ? ",{\"SpecialToken\":{\"id\":" : "{\"SpecialToken\":{\"id\":");
            put_token(text, w, ends[i]);
            s24i_json_put(text, ",\"type_id\":");
            s24i_json_put_integer(text, type);
            s24i_json_put(text, i ? "}}" : "}},");
        }
        if (i) break;
        s24i_json_put(text, "{\"Sequence\":{\"id\":\"");
        s24i_json_put(text, name);
        s24i_json_put(text, "\",\"type_id\":");
        s24i_json_put_integer(text, type);
        s24i_json_put(text, "}}");
    }
}

static void put_special(s24i_json_text *text, const words *w, int64_t id)
{
    put_token(text, w, id);
    s24i_json_put(text, ":{\"id\":");
    put_token(text, w, id);
    s24i_json_put(text, ",\"ids\":[");
    s24i_json_put_integer(text, id);
    s24i_json_put(text, "],\"tokens\":[");
    put_token(text, w, id);
    s24i_json_put(text, "]}");
}

static void put_template(s24i_json_text *text, const words *w)
{
    const int two = w->first && w->last && w->model->first != w->model->last[0];
    s24i_json_put(text, ",\n  \"post_processor\":");
    if (!w->first && !w->last) {
        s24i_json_put(text, "null");
        return;
    }
    s24i_json_put(text, "{\"type\":\"TemplateProcessing\",\"single\":[");
    put_sequence(text, w, "A", 0);
    s24i_json_put(text, "],\"pair\":[");
    put_sequence(text, w, "A", 0);
    s24i_json_put(text, ",");
    put_sequence(text, w, "B", 1);
    s24i_json_put(text, "],\"special_tokens\":{");
    put_special(text, w, w->first ? w->model->first : w->model->last[0]);
    if (two) {
        s24i_json_put(text, ",");
        put_special(text, w, w->model->last[0]);
    }
    s24i_json_put(text, "}}");
}

static void write_json(s24i_json_text *text, const void *user)
{
    const words *w = user;
    s24_text merge;
    s24i_gguf_walk walk = s24i_gguf_begin(w->merges);
    s24i_json_put(text, "{\n  \"version\":\"1.0\",\n  \"truncation\":null,\n  \"padding\":null,\n  "
                        "\"added_tokens\":[");
    put_added(text, w);
    s24i_json_put(text, "]");
    put_pre_tokenizer(text, w->cuts);
    put_template(text, w);
    s24i_json_put(text, ",\n  \"decoder\":" LEVEL "true},\n  \"model\":{\"type\":\"BPE\","
                        "\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
                        "\"ignore_merges\":");
    s24i_json_put(text,
                  w->cuts->whole_words ? "true,\n    \"vocab\":{" : "false,\n    \"vocab\":{");
    for (int64_t id = 0; id < w->names.count; id++) {
        s24i_json_put(text, id ? "," : "");
        put_token(text, w, id);
        s24i_json_put(text, ":");
        s24i_json_put_integer(text, id);
    }
    s24i_json_put(text, "},\n    \"merges\":[");
    for (int i = 0; s24i_gguf_next(&merge, &walk); i = 1) {
        s24i_json_put(text, i ? "," : "");
        s24i_json_put_string(text, merge.data, merge.bytes);
    }
    s24i_json_put(text, "]}\n}\n");
}

/* ---- tokenizer.model ------------------------------------------------------------------------- */

static void put_byte(s24i_json_text *text, unsigned byte)
{
    if (text->data) text->data[text->bytes] = (char)byte;
    text->bytes++;
}

/* Seven bits a byte, the low ones first. */
static void put_varint(s24i_json_text *text, uint64_t value)
{
    for (; value > 127; value >>= 7)
        put_byte(text, (unsigned)(value & 127) | 128);
    put_byte(text, (unsigned)value);
}

static void put_number(s24i_json_text *text, unsigned field, int64_t value)
{
    put_varint(text, field << 3);
    put_varint(text, (uint64_t)value);
}

static void put_piece(s24i_json_text *text, const words *w, int64_t id)
{
    const char *token = w->names.names[id];
    const uint32_t score = s24i_gguf_word(w->scores, (uint64_t)id);
    put_varint(text, 1 << 3 | 2);
    put_varint(text, strlen(token));
    s24i_json_put(text, token);
    put_varint(text, 2 << 3 | 5);
    for (int i = 0; i < 4; i++)
        put_byte(text, score >> 8 * i & 255);
    put_number(text, 3, type_of(w, (uint64_t)id));
}

/* How it was trained: the kind, bytes for what is unknown, the special ids (−1 in ten bytes). */
static void put_trainer(s24i_json_text *text, const words *w)
{
    put_number(text, 3, 2);
    put_number(text, 4, w->names.count);
    put_number(text, 35, 1);
    put_number(text, 40, w->unknown < 0 ? 0 : w->unknown);
    put_number(text, 41, w->model->first);
    put_number(text, 42, w->model->last[0]);
    put_number(text, 43, w->padding);
}

/* No character is replaced and no blank dropped; blanks become U+2581. */
static void put_normaliser(s24i_json_text *text, const words *w)
{
    put_number(text, 3, w->prefix);
    put_number(text, 4, 0);
    put_number(text, 5, 1);
}

static void write_model(s24i_json_text *text, const void *user)
{
    const words *w = user;
    for (int64_t id = 0; id < w->names.count + 2; id++) {
        s24i_json_text length = {NULL, 0};
        const int64_t last = id - w->names.count;
        for (int pass = 0; pass < 2; pass++) {
            s24i_json_text *out = pass ? text : &length;
            if (pass) put_varint(text, last < 0 ? 1 << 3 | 2 : (unsigned)(last + 2) << 3 | 2);
            if (pass) put_varint(text, length.bytes);
            if (last < 0)
                put_piece(out, w, id);
            else
                (last ? put_normaliser : put_trainer)(out, w);
        }
    }
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

static void put_named(s24i_json_text *text, const words *w, const char *key, int64_t id)
{
    if (id < 0 || id >= w->names.count) return;
    s24i_json_put(text, ",\n  \"");
    s24i_json_put(text, key);
    s24i_json_put(text, "\": ");
    put_token(text, w, id);
}

static void write_tokenizer_config(s24i_json_text *text, const void *user)
{
    const words *w = user;
    s24i_json_put(text, w->cuts
                            ? "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\""
                            : "{\n  \"tokenizer_class\": \"LlamaTokenizer\",\n  \"legacy\": true");
    s24i_json_put(text,
                  w->first ? ",\n  \"add_bos_token\": true" : ",\n  \"add_bos_token\": false");
    s24i_json_put(text, w->last ? ",\n  \"add_eos_token\": true" : ",\n  \"add_eos_token\": false");
    s24i_json_put(text, ",\n  \"clean_up_tokenization_spaces\": false");
    put_named(text, w, "bos_token", w->model->first);
    put_named(text, w, "eos_token", w->model->last[0]);
    put_named(text, w, "pad_token", w->padding);
    put_named(text, w, "unk_token", w->unknown);
    if (w->template.bytes) {
        s24i_json_put(text, ",\n  \"chat_template\": ");
        s24i_json_put_string(text, w->template.data, w->template.bytes);
    }
    s24i_json_put(text, "\n}\n");
}

static s24_status add_files(s24_writer *writer, words *w)
{
    TRY(read_kind(w));
    TRY(read_arrays(w));
    TRY(read_ends(w));
    if (w->cuts)
        TRY(s24i_writer_add_text(writer, "tokenizer.json", write_json, w));
    else
        TRY(s24i_writer_add_text(writer, "tokenizer.model", write_model, w));
    return s24i_writer_add_text(writer, "tokenizer_config.json", write_tokenizer_config, w);
}

s24_status s24i_gguf_add_tokenizer(s24_writer *writer, const s24i_gguf *g,
                                   const s24i_gguf_model *model)
{
    words w = {.g = g, .model = model, .names = s24i_names_of(g->ctx)};
    const s24_status status = add_files(writer, &w);
    s24i_names_free(&w.names);
    return status;
}
