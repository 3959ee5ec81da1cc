// SPDX-License-Identifier: Apache-2.0
/*
 * SentencePiece's tokenizer.model, as Llama 1 and 2 have it, and sentencepiece.bpe.model, as
 * XLM-RoBERTa has it, which is Unigram in spite of its name: a Protocol Buffers message of pieces
 * with scores. What must stay true: of BPE a pair may merge if both together are a piece, and the
 * piece with the greatest score comes first; what this reader does not carry out it refuses by its
 * name.
 */
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- Protocol Buffers ------------------------------------------------------------------------ */

typedef struct field {
    uint32_t number;
    uint64_t value;   /* of a varint, or the bits of a fixed one */
    s24_text content; /* of a length-delimited one */
} field;

/* A number of seven bits per byte, the low ones first. 0 at the message's end or if it is too
   long. */
static int read_varint(uint64_t *value, s24_text *rest)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && rest->bytes; shift += 7) {
        const unsigned char byte = (unsigned char)*rest->data++;
        rest->bytes--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return 1;
    }
    return 0;
}

/* Reads the next field of a message, which then begins after it; 0 where it is malformed. */
static int read_field(field *out, s24_text *rest)
{
    static const unsigned fixed[8] = {0, 8, 0, 0, 0, 4, 0, 0};
    uint64_t tag, length;
    if (!read_varint(&tag, rest)) return 0;
    *out = (field){.number = (uint32_t)(tag >> 3)};
    const unsigned kind = tag & 7;
    if (kind == 0) return read_varint(&out->value, rest);
    length = fixed[kind];
    if (kind == 2 && !read_varint(&length, rest)) return 0;
    if ((kind != 2 && !length) || length > rest->bytes) return 0;
    out->content = (s24_text){rest->data, (size_t)length};
    for (unsigned i = 0; kind != 2 && i < length; i++)
        out->value |= (uint64_t)(unsigned char)rest->data[i] << 8 * i;
    rest->data += length;
    rest->bytes -= length;
    return 1;
}

/* ---- the model ------------------------------------------------------------------------------- */

enum { UNIGRAM = 1, BPE = 2 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct piece {
    s24_text text;
    float score;
    int type;
    int32_t id;
} piece;

typedef struct model {
    s24_ctx *ctx;
    const char *path;
    s24_text bytes;
    piece *pieces;
    int32_t count;
    uint64_t kind; /* 1: unigram, 2: BPE */
    uint64_t fallback, prefix, trims, escapes;
    s24_text rules; /* a table of characters to replace; empty: none */
} model;

static s24_status malformed(const model *m)
{
    return s24_ctx_fail(m->ctx, S24_ERROR_FORMAT,
                        "%s: a SentencePiece model is expected, and its bytes are malformed",
                        m->path);
}

static s24_status read_piece(model *m, s24_text rest)
{
    piece p = {.type = NORMAL, .id = m->count};
    field f;
    while (rest.bytes) {
        if (!read_field(&f, &rest)) return malformed(m);
        if (f.number == 1) p.text = f.content;
        if (f.number == 3) p.type = (int)(f.value & 0xff);
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 2) memcpy(&p.score, &bits, sizeof p.score);
    }
    REQUIRE(m->ctx, m->count < S24I_MAX_IDS, S24_ERROR_FORMAT, "%s: more than %d pieces", m->path,
            S24I_MAX_IDS);
    REQUIRE(m->ctx,
            p.text.bytes > 0 && p.text.bytes <= S24I_TOKEN_BYTES &&
                s24i_utf8_valid(p.text.data, p.text.bytes) == p.text.bytes &&
                !memchr(p.text.data, 0, p.text.bytes) && p.score == p.score,
            S24_ERROR_FORMAT, "%s: piece %d is no text of 1 to %d bytes with a score", m->path,
            (int)m->count, S24I_TOKEN_BYTES);
    if (m->pieces) m->pieces[m->count] = p;
    m->count++;
    return S24_OK;
}

/* The trainer's and the normaliser's fields that matter here. */
static s24_status read_spec(model *m, s24_text rest, int is_trainer)
{
    field f;
    while (rest.bytes) {
        if (!read_field(&f, &rest)) return malformed(m);
        if (is_trainer && f.number == 3) m->kind = f.value;
        if (is_trainer && f.number == 35) m->fallback = f.value;
        if (is_trainer) continue;
        if (f.number == 2) m->rules = f.content;
        if (f.number == 3) m->prefix = f.value;
        if (f.number == 4) m->trims = f.value;
        if (f.number == 5) m->escapes = f.value;
    }
    return S24_OK;
}

static s24_status read_model(model *m)
{
    s24_text rest = m->bytes;
    field f;
    m->count = 0;
    m->kind = m->prefix = m->trims = m->escapes = 1; /* what is not there */
    m->fallback = 0;
    while (rest.bytes) {
        if (!read_field(&f, &rest)) return malformed(m);
        if (f.number == 1) TRY(read_piece(m, f.content));
        if (f.number == 2 || f.number == 3) TRY(read_spec(m, f.content, f.number == 2));
    }
    return m->count ? S24_OK : malformed(m);
}

static s24_status check_model(const model *m)
{
    REQUIRE(m->ctx, m->kind == BPE, S24_ERROR_UNSUPPORTED,
            "%s: a SentencePiece model of kind %llu is not supported, only 2, BPE, and in "
            "sentencepiece.bpe.model 1, Unigram",
            m->path, (unsigned long long)m->kind);
    REQUIRE(m->ctx, !m->rules.bytes && !m->trims && m->escapes, S24_ERROR_UNSUPPORTED,
            "%s: a SentencePiece model that %s is not supported", m->path,
            m->rules.bytes ? "replaces characters (precompiled_charsmap)"
            : m->trims     ? "drops white space (remove_extra_whitespaces)"
                           : "leaves blanks as they are (escape_whitespaces)");
    return S24_OK;
}

/* ---- vocabulary and merges ------------------------------------------------------------------- */

/* The greatest score first, equal ones by id. */
static int by_score(const void *a, const void *b)
{
    const piece *left = a, *right = b;
    if (left->score != right->score) return left->score > right->score ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

/* The ways to make a piece of two, into the table; with no table they are counted. */
static size_t add_merges(s24_tokenizer *t, const piece *p, uint32_t rank)
{
    const s24i_vocabulary *words = &t->vocabulary;
    const unsigned char *text = (const unsigned char *)p->text.data;
    size_t count = 0;
    uint32_t c;
    for (size_t i = s24i_utf8_next(&c, text, p->text.bytes); i < p->text.bytes;
         i += s24i_utf8_next(&c, text + i, p->text.bytes - i)) {
        const int32_t left = s24i_vocabulary_id_of(words, p->text.data, i);
        const int32_t right =
            left < 0 ? -1 : s24i_vocabulary_id_of(words, p->text.data + i, p->text.bytes - i);
        if (right < 0) continue;
        const s24i_merge merge = {left, right, rank, p->id};
        if (t->bpe.merges) s24i_merges_add(&t->bpe, &merge);
        count++;
    }
    return count;
}

static s24_status make_merges(s24_tokenizer *t, model *m)
{
    qsort(m->pieces, (size_t)m->count, sizeof *m->pieces, by_score);
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        uint32_t rank = 0;
        for (int32_t i = 0; i < m->count; i++) {
            if (i > 0 && m->pieces[i].score != m->pieces[i - 1].score) rank++;
            if (m->pieces[i].type == NORMAL) count += add_merges(t, &m->pieces[i], rank);
        }
        if (pass == 0) TRY(s24i_merges_create(t, count));
    }
    return S24_OK;
}

static s24_status make_vocabulary(s24_tokenizer *t, const model *m)
{
    size_t bytes = 0, added = 0;
    for (int32_t i = 0; i < m->count; i++)
        bytes += m->pieces[i].text.bytes;
    TRY(s24i_vocabulary_create(&t->vocabulary, m->ctx, (size_t)m->count, bytes));
    for (int32_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[i];
        const int type = p->type;
        added += type == CONTROL || type == UNKNOWN || type == USER_DEFINED;
        if (type == UNKNOWN) t->unknown = p->id;
        if (type != NORMAL && type != BYTE) continue;
        REQUIRE(m->ctx, s24i_vocabulary_id_of(&t->vocabulary, p->text.data, p->text.bytes) < 0,
                S24_ERROR_FORMAT, "%s: piece %d stands there twice", m->path, (int)p->id);
        s24i_vocabulary_add(&t->vocabulary, p->text.data, p->text.bytes, p->id);
    }
    t->count = m->count;
    return s24i_added_reserve(t, added);
}

/* Control pieces are no text, but are known by their names; user-defined ones are taken whole. */
static s24_status make_added(s24_tokenizer *t, const model *m)
{
    char name[S24I_TOKEN_BYTES + 1];
    for (int32_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[i];
        if (p->type != CONTROL && p->type != UNKNOWN && p->type != USER_DEFINED) continue;
        memcpy(name, p->text.data, p->text.bytes);
        name[p->text.bytes] = '\0';
        TRY(s24i_added_add(t, name, p->id, p->type != USER_DEFINED));
    }
    return S24_OK;
}

/* Llama puts <s> before a text and nothing after it, unless the folder says otherwise. */
static s24_status read_ends(s24_tokenizer *t, const char *folder, const char *path)
{
    s24i_config config;
    s24i_usual_ends ends = {.cls = -1, .sep = -1, .middle = 1};
    int first = 1, last = 0;
    s24_status status;
    TRY(s24i_config_load(&config, t->ctx, folder, "tokenizer_config.json", S24I_OPTIONAL));
    TRY_DONE(s24i_config_bool(&first, &config, "add_bos_token", S24I_OPTIONAL));
    TRY_DONE(s24i_config_bool(&last, &config, "add_eos_token", S24I_OPTIONAL));
    if (first) TRY_DONE(s24i_tokenizer_find(&ends.cls, t, path, "<s>"));
    if (last) TRY_DONE(s24i_tokenizer_find(&ends.sep, t, path, "</s>"));
    s24i_template_ends(t, &ends);
done:
    s24i_config_free(&config);
    return status;
}

/* ---- XLM-RoBERTa's --------------------------------------------------------------------------- */

/* Its ids are fairseq's: four of its own, then the pieces from the fourth on, then <mask>. */
static const char *const own[] = {"<s>", "<pad>", "</s>", "<unk>"};
enum { OWN = sizeof own / sizeof *own, SKIPPED = 3 };

static s24_status make_entries(s24_tokenizer *t, const model *m)
{
    s24i_unigram_entry *entries;
    int32_t count = 0;
    TRY(s24i_alloc_elems(&entries, m->ctx, m->count + OWN, sizeof *entries, "pieces"));
    for (; count < OWN; count++)
        entries[count] = (s24i_unigram_entry){{own[count], strlen(own[count])}, 0, count};
    for (int32_t i = SKIPPED; i < m->count; i++, count++)
        entries[count] = (s24i_unigram_entry){m->pieces[i].text, (double)m->pieces[i].score, count};
    entries[count] = (s24i_unigram_entry){{"<mask>", 6}, 0, count};
    const s24_status status = s24i_unigram_build(t, m->path, entries, (size_t)count + 1);
    s24_ctx_free(m->ctx, entries);
    return status;
}

static s24_status check_xlm(const model *m)
{
    static const char *const names[SKIPPED] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < SKIPPED; i++) {
        const s24_text text = i < m->count ? m->pieces[i].text : (s24_text){"", 0};
        REQUIRE(m->ctx, text.bytes == strlen(names[i]) && !memcmp(text.data, names[i], text.bytes),
                S24_ERROR_UNSUPPORTED,
                "%s: a Unigram model whose piece %d is not %s is not supported, only "
                "XLM-RoBERTa's order",
                m->path, i, names[i]);
    }
    REQUIRE(m->ctx, m->escapes, S24_ERROR_UNSUPPORTED,
            "%s: a SentencePiece model that leaves blanks as they are (escape_whitespaces) is not "
            "supported",
            m->path);
    return S24_OK;
}

static s24_status make_xlm(s24_tokenizer *t, const model *m)
{
    s24i_unigram *u = &t->unigram;
    char *bytes;
    TRY(check_xlm(m));
    t->kind = &s24i_tokenizer_unigram;
    t->normalises = u->collapses = u->marks = u->splits = 1;
    u->prepend = m->prefix ? S24I_PREPEND_ALWAYS : S24I_PREPEND_NEVER;
    TRY(s24i_alloc_elems(&bytes, m->ctx, (int64_t)m->rules.bytes + 1, 1, "rules of characters"));
    u->rules.bytes = bytes;
    if (m->rules.bytes) memcpy(bytes, m->rules.data, m->rules.bytes);
    TRY(s24i_rules_read(&u->rules, m->ctx, m->path, bytes, m->rules.bytes));
    TRY(make_entries(t, m));
    s24i_template_ends(t, &(s24i_usual_ends){.cls = 0, .sep = 2, .middle = 2, .alike = 1});
    t->unknown = OWN - 1;
    return S24_OK;
}

static s24_status make_tokenizer(s24_tokenizer *t, model *m, const char *folder)
{
    TRY(read_model(m));
    const int is_xlm = m->kind == UNIGRAM && s24i_ends_with(m->path, "sentencepiece.bpe.model");
    if (!is_xlm) TRY(check_model(m));
    TRY(s24i_alloc_elems(&m->pieces, m->ctx, m->count, sizeof *m->pieces, "pieces"));
    TRY(read_model(m));
    if (is_xlm) return make_xlm(t, m);
    t->kind = &s24i_tokenizer_bpe;
    t->normalises = t->bpe.blanks = t->bpe.fuse = 1;
    t->bpe.fallback = m->fallback != 0;
    t->bpe.prepend = m->prefix ? S24I_PREPEND_ALWAYS : S24I_PREPEND_NEVER;
    TRY(make_vocabulary(t, m));
    TRY(make_added(t, m));
    TRY(make_merges(t, m));
    TRY(s24i_bpe_finish(t, 0));
    return read_ends(t, folder, m->path);
}

s24_status s24i_tokenizer_read_model(s24_tokenizer *tokenizer, const char *folder, const char *name)
{
    model m = {.ctx = tokenizer->ctx};
    s24i_map map;
    char *path;
    TRY(s24i_join_path(&path, tokenizer->ctx, folder, name));
    s24_status status = s24i_map_open(&map, tokenizer->ctx, path);
    m.path = path;
    m.bytes = (s24_text){(const char *)map.data, map.bytes};
    if (status == S24_OK && map.bytes > S24I_VOCAB_BYTES)
        status = malformed(&m);
    else if (status == S24_OK)
        status = make_tokenizer(tokenizer, &m, folder);
    s24i_map_close(&map);
    s24_ctx_free(tokenizer->ctx, m.pieces);
    s24_ctx_free(tokenizer->ctx, path);
    return status;
}
