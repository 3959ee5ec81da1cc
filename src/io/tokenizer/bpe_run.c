// SPDX-License-Identifier: Apache-2.0
/*
 * A text's way to words whose symbols are merged (bpe_merge.c). What must stay true: a word that is
 * a token which its own merges lead to is looked up whole.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { SHORT = S24I_SHORT_WORD, MOST_BLANKS = 16 };

typedef struct reader {
    const s24_tokenizer *tokenizer;
    const s24i_run *run;
    int64_t count; /* tokens so far, ≤ run->room; −1: no memory */
    const char *text;
    size_t bytes, before; /* of another text that this one is a part of */
    /* The character that bytes at … next − 1 of the text are, and its number. */
    size_t at, next;
    int32_t index;
} reader;

/* ---- offsets --------------------------------------------------------------------------------- */

static void set_character(reader *r, size_t at)
{
    uint32_t c;
    r->at = r->next = at;
    if (at < r->bytes)
        r->next += s24i_utf8_next(&c, (const unsigned char *)r->text + at, r->bytes - at);
}

static void advance(reader *r, size_t byte)
{
    while (r->next <= byte && r->next < r->bytes) {
        set_character(r, r->next);
        r->index++;
    }
}

/* Is a byte one that trim_offsets leaves out? Of what an added token takes, all white space is. */
static int is_left_out(char c, int is_added)
{
    return c == ' ' || (is_added && c >= 9 && c <= 13);
}

/* A token of bytes begin … end − 1; of none if it is a ▁ before the text, which is counted as part
   of the character that follows. */
static void push(reader *r, int32_t id, size_t begin, size_t end, int is_added)
{
    if (r->count == r->run->room) return;
    if (!r->run->tokens) {
        r->count++;
        return;
    }
    const size_t last = end > begin ? end - 1 : begin;
    const int trim = r->tokenizer->bpe.trim;
    int32_t blanks[2] = {0, 0}; /* at its ends */
    for (size_t i = begin; trim && i < end && is_left_out(r->text[i], is_added); i++)
        blanks[0]++;
    for (size_t i = end; trim && i > begin && is_left_out(r->text[i - 1], is_added); i--)
        blanks[1]++;
    if (begin + r->before == 0 && blanks[0] == 1) blanks[0] -= r->tokenizer->bpe.trim_but_first;
    advance(r, begin);
    s24_token *token = &r->run->tokens[r->count++];
    *token = (s24_token){.id = id, .type = r->run->type, .begin = r->index + blanks[0]};
    advance(r, last);
    token->end = r->index + 1 - blanks[1];
    if (token->end < token->begin) token->end = token->begin;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The token that a word of `blanks` blanks and bytes begin … end − 1 is as a whole, or −1. */
static int32_t find_whole(const reader *r, int blanks, size_t begin, size_t end)
{
    const s24_tokenizer *t = r->tokenizer;
    char prefix[MOST_BLANKS * S24I_BLANK_BYTES] = "";
    const size_t prefix_bytes = (size_t)blanks * S24I_BLANK_BYTES, bytes = end - begin;
    if (blanks > MOST_BLANKS || prefix_bytes + bytes > t->vocabulary.longest) return -1;
    for (int i = 0; i < blanks; i++)
        memcpy(prefix + i * S24I_BLANK_BYTES, S24I_BLANK, S24I_BLANK_BYTES);
    uint64_t hash = s24i_hash(S24I_HASH_SEED, prefix, prefix_bytes);
    hash = s24i_hash(hash, r->text + begin, bytes);
    const int32_t id =
        s24i_vocabulary_find(&t->vocabulary, hash, prefix, prefix_bytes, r->text + begin, bytes);
    return id >= 0 && t->bpe.whole[id / 8] >> (id % 8) & 1 ? id : -1;
}

static void push_symbols(reader *r, const s24i_symbols *s)
{
    for (size_t i = 0; i < s->count; i++)
        push(r, s->ids[i], s->at[i], s->at[i + 1], 0);
}

static void read_long_word(reader *r, size_t begin, size_t end, int prefix)
{
    s24_ctx *ctx = r->tokenizer->ctx;
    const size_t most = end - begin + 1;
    char *memory = s24_ctx_alloc(ctx, (most + 1) * (sizeof(size_t) + sizeof(int32_t)));
    s24i_symbols s = {(int32_t *)(memory + (most + 1) * sizeof(size_t)), (size_t *)memory, 0};
    int64_t count = -1;
    if (memory) {
        s24i_bpe_symbols(r->tokenizer, &s, r->text, begin, end, prefix);
        if (s24i_bpe_merge(r->tokenizer, &s)) {
            push_symbols(r, &s);
            count = r->count;
        }
    }
    r->count = count;
    s24_ctx_free(ctx, memory);
}

static void read_word(reader *r, size_t begin, size_t end, int prefix)
{
    int32_t ids[SHORT + 1];
    size_t at[SHORT + 2];
    s24i_symbols s = {ids, at, 0};
    if (end - begin + 1 > SHORT) {
        read_long_word(r, begin, end, prefix);
        return;
    }
    s24i_bpe_symbols(r->tokenizer, &s, r->text, begin, end, prefix);
    s24i_bpe_merge(r->tokenizer, &s);
    push_symbols(r, &s);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static size_t blank_bytes(const reader *r, size_t at, size_t end)
{
    if (r->text[at] == ' ') return 1;
    return end - at >= S24I_BLANK_BYTES && !memcmp(r->text + at, S24I_BLANK, S24I_BLANK_BYTES)
               ? S24I_BLANK_BYTES
               : 0;
}

static int has_room(const reader *r)
{
    return r->count >= 0 && r->count < r->run->room;
}

/* Blanks and what follows them up to the next ones: a word, however the text goes on. */
static void read_blank_words(reader *r, size_t begin, size_t end, int prefix)
{
    while (begin < end && has_room(r)) {
        size_t at = begin, step;
        int blanks = prefix;
        for (; at < end && (step = blank_bytes(r, at, end)) > 0; at += step)
            blanks++;
        const size_t word = at;
        while (at < end && !blank_bytes(r, at, end))
            at++;
        const int32_t id = find_whole(r, blanks, word, at);
        if (id >= 0)
            push(r, id, begin, at, 0);
        else
            read_word(r, begin, at, prefix);
        begin = at;
        prefix = 0;
    }
}

/* What the splits before number `depth` leave together. */
static void read_split_words(reader *r, size_t begin, size_t end, int depth)
{
    const s24i_bpe *bpe = &r->tokenizer->bpe;
    const int32_t id = depth == bpe->split_count ? find_whole(r, 0, begin, end) : -1;
    if (id >= 0) {
        push(r, id, begin, end, 0);
    } else if (depth == bpe->split_count) {
        read_word(r, begin, end, 0);
    } else {
        for (size_t next; begin < end && has_room(r); begin = next) {
            next = begin + bpe->splits[depth](r->text + begin, end - begin);
            read_split_words(r, begin, next, depth + 1);
        }
    }
}

static void read_characters(reader *r, size_t begin, size_t end)
{
    uint32_t c;
    for (size_t next; begin < end && has_room(r); begin = next) {
        next = begin + s24i_utf8_next(&c, (const unsigned char *)r->text + begin, end - begin);
        const int32_t id = find_whole(r, 0, begin, next);
        if (id >= 0)
            push(r, id, begin, next, 0);
        else
            read_word(r, begin, next, 0);
    }
}

/* A part that is brought into form C first: its tokens' offsets are those of what it was. */
static void read_normalised(reader *r, size_t begin, size_t end)
{
    s24i_nfc nfc;
    s24_token *tokens = r->run->tokens ? r->run->tokens + r->count : NULL;
    const s24i_run run = {.tokens = tokens, .room = r->run->room - r->count, .type = r->run->type};
    if (!s24i_nfc_make(&nfc, r->tokenizer->ctx, r->text + begin, end - begin)) {
        r->count = -1;
        return;
    }
    reader inner = {.tokenizer = r->tokenizer,
                    .run = &run,
                    .text = nfc.text,
                    .bytes = nfc.bytes,
                    .before = begin};
    set_character(&inner, 0);
    read_split_words(&inner, 0, nfc.bytes, 0);
    advance(r, begin);
    for (int64_t i = 0; tokens && i < inner.count; i++) {
        s24_token *token = &tokens[i];
        const int is_empty = token->begin == token->end;
        const int32_t last = token->end - !is_empty;
        /* Of a token that is trimmed to nothing, where its last character ended. */
        const int ends = is_empty && token->begin > 0;
        token->begin =
            r->index + (ends ? nfc.from[token->begin - 1].end : nfc.from[token->begin].begin);
        token->end = is_empty ? token->begin : r->index + nfc.from[last].end;
    }
    r->count = inner.count < 0 ? -1 : r->count + inner.count;
    s24_ctx_free(r->tokenizer->ctx, nfc.from);
}

/* A part of the text without added tokens. */
static void read_segment(reader *r, size_t begin, size_t end)
{
    const s24i_bpe *bpe = &r->tokenizer->bpe;
    if (begin == end || !has_room(r)) return;
    const int prefix = (bpe->prepend == S24I_PREPEND_ALWAYS ||
                        (bpe->prepend == S24I_PREPEND_FIRST && begin == 0)) &&
                       !(bpe->unless_blank && blank_bytes(r, begin, end));
    if (bpe->nfc && !s24i_nfc_is(r->text + begin, end - begin))
        read_normalised(r, begin, end);
    else if (bpe->blanks && bpe->at_blanks)
        read_blank_words(r, begin, end, prefix);
    else if (bpe->split_count)
        read_split_words(r, begin, end, 0);
    else if (bpe->alone)
        read_characters(r, begin, end);
    else
        read_word(r, begin, end, prefix);
}

static void read_text(reader *r)
{
    const s24_text text = {r->text, r->bytes};
    s24i_added_cut cut = {.added = NULL};
    size_t begin = 0;
    while (r->count < r->run->room && s24i_added_next(&cut, r->tokenizer, r->run, &text, begin)) {
        read_segment(r, begin, cut.first);
        if (r->count < 0) return;
        push(r, cut.added->id, cut.first, cut.end, 1);
        begin = cut.end;
    }
    read_segment(r, begin, r->bytes);
}

int64_t s24i_bpe_run(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                     int part_count)
{
    reader r = {.tokenizer = tokenizer, .run = run};
    for (int i = 0; i < part_count && r.count >= 0; i++) {
        if (parts[i].bytes == 0) continue;
        if (r.bytes > 0) {
            advance(&r, r.bytes);
            r.index++;
        }
        r.text = parts[i].data;
        r.bytes = parts[i].bytes;
        set_character(&r, 0);
        read_text(&r);
    }
    return r.count;
}
