// SPDX-License-Identifier: Apache-2.0
/*
 * What stands around a text and between two, as tokenizer.json's post_processor says: templates of
 * any special tokens, and the ones that BERT and RoBERTa have by their names; and what is left out
 * of offsets at byte level. Of a sequence one post-processor at most adds tokens.
 */
#include "io/tokenizer/tokenizer.h"

#include <string.h>

typedef struct reader {
    s24_tokenizer *tokenizer;
    const char *adds; /* the type of the post-processor that adds tokens; NULL: none was there */
} reader;

/* A token of a template, which the file spells as one or more ids, or by its name. */
static s24_status put_special(s24i_template *to, s24i_end end, const s24_tokenizer *tokenizer,
                              const s24i_config *part, const s24i_json *special)
{
    const char *name = s24i_json_string(s24i_json_get(special, "id"));
    const int64_t type = s24i_json_integer(s24i_json_get(special, "type_id"));
    const s24i_json *known = s24i_json_get(part->json, "special_tokens"), *id;
    const s24i_json *ids = name ? s24i_json_get(s24i_json_get(known, name), "ids") : NULL;
    int32_t found = -1;
    REQUIRE(part->ctx, name && type >= 0 && type <= 1, S24_ERROR_FORMAT,
            "%s: the template of post_processor has a special token without a name, or of a type "
            "other than 0 and 1",
            part->file);
    if (!ids) TRY(s24i_tokenizer_find(&found, tokenizer, part->file, name));
    int fits = ids || s24i_template_put(to, end, found, (int32_t)type);
    s24i_json_walk walk = s24i_json_begin(ids);
    while (ids && fits && (id = s24i_json_next(&walk, NULL)) != NULL) {
        const int64_t number = s24i_json_integer(id);
        REQUIRE(part->ctx,
                s24i_json_typeof(id) == S24I_JSON_INTEGER && number >= 0 &&
                    number < tokenizer->count,
                S24_ERROR_FORMAT,
                "%s: an id of special token %s in post_processor is none of the vocabulary's",
                part->file, s24i_show(name).text);
        fits = s24i_template_put(to, end, (int32_t)number, (int32_t)type);
    }
    REQUIRE(part->ctx, fits, S24_ERROR_UNSUPPORTED,
            "%s: the template of post_processor has more than %d special tokens side by side",
            part->file, S24I_MOST_END);
    return S24_OK;
}

/* Where tokens of a template stand after so many of its texts. */
static s24i_end end_after(int texts, int of)
{
    if (texts == of) return S24I_AFTER;
    return texts ? S24I_BETWEEN : S24I_BEFORE;
}

/* The template of `of` texts in that order; *is_one 0: it is something else. */
static s24_status read_template_of(s24i_template *out, int *is_one, int of,
                                   const s24_tokenizer *tokenizer, const s24i_config *part)
{
    const s24i_json *list = s24i_json_get(part->json, of == 1 ? "single" : "pair"), *element;
    int texts = 0;
    *is_one = 0;
    s24i_json_walk walk = s24i_json_begin(list);
    while (list && (element = s24i_json_next(&walk, NULL)) != NULL) {
        const s24i_json *text = s24i_json_get(element, "Sequence");
        const s24i_json *special = s24i_json_get(element, "SpecialToken");
        const char *name = s24i_json_string(s24i_json_get(text, "id"));
        const int64_t type = s24i_json_integer(s24i_json_get(text, "type_id"));
        if (special) {
            TRY(put_special(out, end_after(texts, of), tokenizer, part, special));
            continue;
        }
        if (!name || texts == of || strcmp(name, texts ? "B" : "A") != 0 || type < 0 || type > 1)
            return S24_OK;
        out->text_types[texts++] = (int32_t)type;
    }
    *is_one = texts == of;
    return S24_OK;
}

static s24_status read_template(reader *r, const s24i_config *part)
{
    s24_tokenizer *t = r->tokenizer;
    int is_one;
    t->single = t->pair = (s24i_template){.count = {0}};
    TRY(read_template_of(&t->single, &is_one, 1, t, part));
    REQUIRE(part->ctx, is_one, S24_ERROR_FORMAT,
            "%s: the template of post_processor for one text is no list of special tokens and of "
            "one Sequence A",
            part->file);
    return read_template_of(&t->pair, &t->pairs, 2, t, part);
}

/* The token that a post-processor has at a key. */
static s24_status find_piece(int32_t *id, const s24_tokenizer *tokenizer, const s24i_config *part,
                             const char *key)
{
    const char *name = s24i_json_string(s24i_json_at(s24i_json_get(part->json, key), 0));
    REQUIRE(part->ctx, name, S24_ERROR_FORMAT, "%s: %s of post_processor is no token and its id",
            part->file, key);
    return s24i_tokenizer_find(id, tokenizer, part->file, name);
}

static s24_status read_usual(reader *r, const s24i_config *part, int middle, int alike)
{
    s24i_usual_ends ends = {.middle = middle, .alike = alike};
    TRY(find_piece(&ends.cls, r->tokenizer, part, "cls"));
    TRY(find_piece(&ends.sep, r->tokenizer, part, "sep"));
    s24i_template_ends(r->tokenizer, &ends);
    return S24_OK;
}

static s24_status read_bert(reader *r, const s24i_config *part)
{
    return read_usual(r, part, 1, 0);
}

/* What is left out of offsets at byte level. Who does it twice leaves out letters. */
static s24_status read_trims(reader *r, const s24i_config *part)
{
    s24i_bpe *bpe = &r->tokenizer->bpe;
    int trim = 1, but_first = 1;
    TRY(s24i_config_bool(&but_first, part, "add_prefix_space", S24I_OPTIONAL));
    TRY(s24i_config_bool(&trim, part, "trim_offsets", S24I_OPTIONAL));
    if (!trim) return S24_OK;
    REQUIRE(part->ctx, !bpe->trim, S24_ERROR_UNSUPPORTED,
            "%s: post_processor has two steps whose trim_offsets is on; one is supported",
            part->file);
    bpe->trim_but_first = but_first;
    bpe->trim = 1;
    return S24_OK;
}

/* Two texts have two tokens between them and are of one type. */
static s24_status read_roberta(reader *r, const s24i_config *part)
{
    TRY(read_usual(r, part, 2, 1));
    return read_trims(r, part);
}

/* One post-processor. */
static s24_status read_processor(void *user, const s24i_config *part)
{
    static const struct {
        const char *type;
        s24_status (*read)(reader *r, const s24i_config *part);
        int adds;
    } rows[] = {{"TemplateProcessing", read_template, 1},
                {"BertProcessing", read_bert, 1},
                {"RobertaProcessing", read_roberta, 1},
                {"ByteLevel", read_trims, 0}};
    reader *r = user;
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, type) != 0) continue;
        REQUIRE(part->ctx, !rows[i].adds || !r->adds, S24_ERROR_UNSUPPORTED,
                "%s: post_processor has a %s after a %s; one that adds tokens is supported",
                part->file, type, r->adds);
        if (rows[i].adds) r->adds = rows[i].type;
        return rows[i].read(r, part);
    }
    return s24i_tokenizer_refuse(
        part, "post_processor", type,
        "TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel");
}

s24_status s24i_post_processor_read(s24_tokenizer *tokenizer, const s24i_config *root)
{
    s24i_usual_ends ends = {.cls = -1, .sep = -1, .middle = 1};
    reader r = {tokenizer, NULL};
    TRY(s24i_tokenizer_each(root, "post_processor", "processors", read_processor, &r));
    /* WordPiece has BERT's where nothing is said, but not in a chain. */
    const s24i_json *said = s24i_json_get(root->json, "post_processor");
    const int is_said = said && s24i_json_typeof(said) != S24I_JSON_NULL;
    if (is_said || tokenizer->kind != &s24i_tokenizer_wordpiece || tokenizer->chain) return S24_OK;
    TRY(s24i_tokenizer_find(&ends.cls, tokenizer, root->file, "[CLS]"));
    TRY(s24i_tokenizer_find(&ends.sep, tokenizer, root->file, "[SEP]"));
    s24i_template_ends(tokenizer, &ends);
    return S24_OK;
}
