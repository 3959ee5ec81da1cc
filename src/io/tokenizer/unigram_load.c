// SPDX-License-Identifier: Apache-2.0
/* Loads Unigram from tokenizer.json, and makes the trie of a vocabulary; and back from tokens to
   text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* ---- the trie -------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    const s24i_unigram_entry *left = a, *right = b;
    const size_t both = left->text.bytes < right->text.bytes ? left->text.bytes : right->text.bytes;
    const int order = memcmp(left->text.data, right->text.data, both);
    if (order) return order;
    if (left->text.bytes != right->text.bytes) return left->text.bytes < right->text.bytes ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* The sorted entries below a node that is being made, which share their first `depth` bytes. */
typedef struct below {
    size_t first, end, depth;
} below;

static uint8_t byte_at(const s24i_unigram_entry *entry, size_t depth)
{
    return (uint8_t)entry->text.data[depth];
}

/* Nodes level by level, so that each finds its children one after the other. */
static void fill_nodes(s24i_trie_node *nodes, below *of, const s24i_unigram_entry *entries,
                       size_t count)
{
    size_t made = 1;
    nodes[0] = (s24i_trie_node){.id = -1};
    of[0] = (below){0, count, 0};
    for (size_t i = 0; i < made; i++) {
        below b = of[i];
        for (; b.first < b.end && entries[b.first].text.bytes == b.depth; b.first++)
            nodes[i].id = entries[b.first].id;
        nodes[i].first = (uint32_t)made;
        while (b.first < b.end) {
            const uint8_t byte = byte_at(&entries[b.first], b.depth);
            below child = {b.first, b.first, b.depth + 1};
            while (child.end < b.end && byte_at(&entries[child.end], b.depth) == byte)
                child.end++;
            nodes[made] = (s24i_trie_node){.id = -1, .byte = byte};
            of[made++] = child;
            nodes[i].count++;
            b.first = child.end;
        }
    }
}

static size_t node_count(const s24i_unigram_entry *entries, size_t count)
{
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        while (i && same < entries[i].text.bytes && same < entries[i - 1].text.bytes &&
               entries[i].text.data[same] == entries[i - 1].text.data[same])
            same++;
        nodes += entries[i].text.bytes - same;
    }
    return nodes;
}

static s24_status make_trie(s24_tokenizer *t, const s24i_unigram_entry *entries, size_t count)
{
    const int64_t nodes = (int64_t)node_count(entries, count);
    below *of;
    TRY(s24i_alloc_elems(&t->unigram.nodes, t->ctx, nodes, sizeof *t->unigram.nodes, "a trie"));
    TRY(s24i_alloc_elems(&of, t->ctx, nodes, sizeof *of, "a trie"));
    fill_nodes(t->unigram.nodes, of, entries, count);
    s24_ctx_free(t->ctx, of);
    return S24_OK;
}

static void find_bytes(s24_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        t->unigram.bytes[b] = s24i_vocabulary_id_of(&t->vocabulary, text, 6);
    }
}

/* A character that is no token costs as much more than the dearest one. */
s24_status s24i_unigram_build(s24_tokenizer *t, const char *file, s24i_unigram_entry *entries,
                              size_t count)
{
    enum { UNKNOWN_COSTS = 10 };
    size_t bytes = 0;
    double least = 0;
    for (size_t i = 0; i < count; i++) {
        const s24i_unigram_entry *e = &entries[i];
        REQUIRE(t->ctx, e->text.bytes > 0 && e->text.bytes <= S24I_TOKEN_BYTES, S24_ERROR_FORMAT,
                "%s: token %d has %zu bytes, 1 to %d are expected", file, (int)e->id, e->text.bytes,
                S24I_TOKEN_BYTES);
        bytes += e->text.bytes;
        least = e->score < least ? e->score : least;
        if (e->id >= t->count) t->count = e->id + 1;
    }
    TRY(s24i_vocabulary_create(&t->vocabulary, t->ctx, count, bytes));
    TRY(s24i_zeroed(&t->unigram.scores, t->ctx, (size_t)(t->count + 1) * sizeof(double)));
    for (size_t i = 0; i < count; i++) {
        s24i_vocabulary_add(&t->vocabulary, entries[i].text.data, entries[i].text.bytes,
                            entries[i].id);
        t->unigram.scores[entries[i].id] = entries[i].score;
    }
    t->unigram.unknown = least - UNKNOWN_COSTS;
    find_bytes(t);
    qsort(entries, count, sizeof *entries, by_text);
    return make_trie(t, entries, count);
}

void s24i_unigram_free(s24i_unigram *unigram, s24_ctx *ctx)
{
    s24_ctx_free(ctx, unigram->nodes);
    s24_ctx_free(ctx, unigram->scores);
    s24_ctx_free(ctx, unigram->rules.bytes);
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static s24_status read_precompiled(s24_tokenizer *t, const s24i_config *part)
{
    REQUIRE(part->ctx, !t->unigram.rules.bytes, S24_ERROR_UNSUPPORTED,
            "%s: a second normalizer Precompiled is not supported", part->file);
    return s24i_rules_load(&t->unigram.rules, t->ctx, part);
}

static s24_status read_replace(s24_tokenizer *t, const s24i_config *part)
{
    const char *content = "";
    const char *regex =
        s24i_json_string(s24i_json_get(s24i_json_get(part->json, "pattern"), "Regex"));
    TRY(s24i_config_string(&content, part, "content", S24I_REQUIRED));
    REQUIRE(part->ctx,
            regex && !strcmp(regex, " {2,}") &&
                (!strcmp(content, " ") || !strcmp(content, S24I_BLANK)),
            S24_ERROR_UNSUPPORTED,
            "%s: the normalizer Replace of \"%s\" is not supported with Unigram, only that of "
            "\" {2,}\" by a blank",
            part->file, s24i_show(regex ? regex : "a string").text);
    t->unigram.collapses = 1;
    return S24_OK;
}

static s24_status read_strip(s24_tokenizer *t, const s24i_config *part)
{
    TRY(s24i_config_bool(&t->unigram.trims_begin, part, "strip_left", S24I_OPTIONAL));
    return s24i_config_bool(&t->unigram.trims_end, part, "strip_right", S24I_OPTIONAL);
}

static s24_status read_metaspace(s24_tokenizer *t, const s24i_config *part)
{
    s24i_metaspace meta;
    TRY(s24i_metaspace_read(&meta, part));
    REQUIRE(part->ctx, !strcmp(meta.mark, S24I_BLANK), S24_ERROR_UNSUPPORTED,
            "%s: pre_tokenizer Metaspace is not supported with replacement %s", part->file,
            s24i_show(meta.mark).text);
    t->unigram.marks = 1;
    t->unigram.splits = meta.split;
    t->unigram.prepend = meta.prepend;
    return S24_OK;
}

static s24_status read_whitespace_split(s24_tokenizer *t, const s24i_config *part)
{
    REQUIRE(part->ctx, !t->unigram.marks, S24_ERROR_UNSUPPORTED,
            "%s: pre_tokenizer WhitespaceSplit after Metaspace is not supported", part->file);
    t->unigram.drops_space = 1;
    return S24_OK;
}

/* A part of the file by its type. */
typedef struct part_row {
    const char *type;
    s24_status (*read)(s24_tokenizer *tokenizer, const s24i_config *part);
} part_row;

static s24_status read_row(s24_tokenizer *t, const s24i_config *part, const part_row *rows,
                           const char *what, const char *known)
{
    const char *type = NULL;
    TRY(s24i_config_string(&type, part, "type", S24I_REQUIRED));
    for (; rows->type; rows++)
        if (!strcmp(rows->type, type)) return rows->read(t, part);
    return s24i_tokenizer_refuse(part, what, type, known);
}

static s24_status read_normalizer(void *tokenizer, const s24i_config *part)
{
    static const part_row rows[] = {{"Precompiled", read_precompiled},
                                    {"Replace", read_replace},
                                    {"Strip", read_strip},
                                    {NULL, NULL}};
    ((s24_tokenizer *)tokenizer)->normalises = 1;
    return read_row(tokenizer, part, rows, "normalizer",
                    "Precompiled, Replace and Strip with Unigram");
}

static s24_status read_pre_tokenizer(void *tokenizer, const s24i_config *part)
{
    static const part_row rows[] = {
        {"Metaspace", read_metaspace}, {"WhitespaceSplit", read_whitespace_split}, {NULL, NULL}};
    return read_row(tokenizer, part, rows, "pre_tokenizer",
                    "WhitespaceSplit and Metaspace with Unigram");
}

static s24_status read_entries(s24i_unigram_entry *entries, const s24i_config *model,
                               const s24i_json *vocab)
{
    s24i_json_walk walk = s24i_json_begin(vocab);
    const s24i_json *value;
    for (int32_t id = 0; (value = s24i_json_next(&walk, NULL)) != NULL; id++) {
        const s24i_json *score = s24i_json_at(value, 1);
        const char *text = s24i_json_string(s24i_json_at(value, 0));
        const s24i_json_type kind = s24i_json_typeof(score);
        REQUIRE(model->ctx, text && (kind == S24I_JSON_REAL || kind == S24I_JSON_INTEGER),
                S24_ERROR_FORMAT, "%s: element %d of model.vocab is no token with a score",
                model->file, (int)id);
        entries[id] = (s24i_unigram_entry){{text, strlen(text)}, s24i_json_number(score), id};
    }
    return S24_OK;
}

static s24_status plan(s24_tokenizer *t, const s24i_config *root)
{
    TRY(s24i_tokenizer_each(root, "normalizer", "normalizers", read_normalizer, t));
    const s24i_unigram *u = &t->unigram;
    REQUIRE(root->ctx, !(u->trims_begin || u->trims_end) || (u->rules.bytes && u->collapses),
            S24_ERROR_UNSUPPORTED,
            "%s: normalizer Strip without Precompiled and Replace is not supported with Unigram",
            root->file);
    return s24i_tokenizer_each(root, "pre_tokenizer", "pretokenizers", read_pre_tokenizer, t);
}

static s24_status read(s24_tokenizer *t, const s24i_config *root, const s24i_config *model)
{
    s24i_config vocab;
    s24i_unigram_entry *entries;
    int64_t unknown = -1;
    TRY(s24i_config_bool(&t->unigram.fallback, model, "byte_fallback", S24I_OPTIONAL));
    TRY(s24i_config_child(&vocab, model, "vocab", S24I_REQUIRED));
    const size_t count = s24i_json_count(vocab.json);
    REQUIRE(root->ctx, count > 0 && count <= S24I_MAX_IDS, S24_ERROR_FORMAT,
            "%s: model.vocab has %zu tokens, 1 to %d are expected", root->file, count,
            S24I_MAX_IDS);
    TRY(s24i_config_int(&unknown, model, "unk_id", S24I_OPTIONAL, 0, (int64_t)count - 1));
    t->unknown = (int32_t)unknown;
    TRY(s24i_alloc_elems(&entries, t->ctx, (int64_t)count, sizeof *entries, "a vocabulary"));
    s24_status status = read_entries(entries, model, vocab.json);
    if (status == S24_OK) status = s24i_unigram_build(t, root->file, entries, count);
    s24_ctx_free(t->ctx, entries);
    return status;
}

/* ▁ becomes a blank again; the one that was put before the text drops. */
static size_t decode(char *out, const s24_tokenizer *t, const s24i_piece *piece)
{
    const s24_text *text = &piece->text;
    size_t count = 0;
    for (size_t i = 0; i < text->bytes;) {
        if (text->bytes - i < S24I_BLANK_BYTES ||
            memcmp(text->data + i, S24I_BLANK, S24I_BLANK_BYTES) != 0) {
            out[count++] = text->data[i++];
            continue;
        }
        if (i > 0 || !piece->first || !t->unigram.prepend) out[count++] = ' ';
        i += S24I_BLANK_BYTES;
    }
    return count;
}

const s24i_tokenizer_kind s24i_tokenizer_unigram = {
    "Unigram", plan, read, s24i_unigram_run, decode, s24i_unigram_word, 1, 1};
