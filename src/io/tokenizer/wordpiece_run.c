// SPDX-License-Identifier: Apache-2.0
/*
 * A text's way to tokens, one character at a time. What must stay true: nothing is allocated, every
 * character carries the range of original code points it came from, and ASCII takes no look-up in
 * Unicode tables. The steps and their order are those of the Hugging Face tokenizers library
 * (BertNormalizer, BertPreTokenizer, WordPiece), whose ids and offsets are the truth.
 */
#include <string.h>

#include <utf8proc.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* Marks that wait for their canonical order. A longer run is ordered in pieces of this size. */
#define MARKS              32
#define FIRST_DECOMPOSABLE 0xc0

typedef struct span {
    int32_t begin, end;
} span;

typedef struct mark {
    uint32_t character;
    int order;      /* canonical combining class, over 0 */
    int is_replica; /* 1: a later part of a decomposed character, which has no range of its own */
} mark;

typedef struct reader {
    const s24_tokenizer *tokenizer;
    const s24i_run *run;
    int64_t count; /* tokens so far, ≤ run->room */
    int32_t index; /* code points read */
    /* The word being read; chars may be word_chars + 1, then its text is incomplete. */
    int chars;
    int32_t word_end;
    uint32_t start[S24I_WORD_CHARS + 1]; /* byte of each character, and the end */
    span spans[S24I_WORD_CHARS];
    char text[4 * S24I_WORD_CHARS];
    /* Marks since the last character of class 0, and the ranges they take in their order. */
    int mark_count, span_count;
    span last; /* range of that character */
    mark marks[MARKS];
    span mark_spans[MARKS];
} reader;

static void push(reader *r, int32_t id, span s)
{
    if (r->count == r->run->room) return;
    if (r->run->tokens) r->run->tokens[r->count] = (s24_token){id, r->run->type, s.begin, s.end};
    r->count++;
}

/* The longest piece of the vocabulary that begins at character `first`: its id, and *end. */
static int32_t longest_piece(const reader *r, int first, int *end)
{
    const s24_tokenizer *t = r->tokenizer;
    const char *prefix = first ? t->prefix : "";
    const size_t prefix_bytes = first ? t->prefix_bytes : 0;
    const char *text = r->text + r->start[first];
    uint64_t hashes[S24I_WORD_CHARS];
    uint64_t hash = first ? t->prefix_hash : S24I_HASH_SEED;
    int last = first;
    while (last < r->chars &&
           prefix_bytes + (r->start[last + 1] - r->start[first]) <= t->vocabulary.longest) {
        hash = s24i_hash(hash, r->text + r->start[last], r->start[last + 1] - r->start[last]);
        hashes[last++] = hash;
    }
    for (; last > first; last--) {
        int32_t id = s24i_vocabulary_find(&t->vocabulary, hashes[last - 1], prefix, prefix_bytes,
                                          text, r->start[last] - r->start[first]);
        *end = last;
        if (id >= 0) return id;
    }
    return -1;
}

/* The word ends: its pieces, or one unknown token. */
static void end_word(reader *r)
{
    const int64_t count = r->count;
    if (r->chars == 0) return;
    int first = r->chars > r->tokenizer->word_chars ? -1 : 0;
    while (first >= 0 && first < r->chars) {
        int end = 0;
        int32_t id = longest_piece(r, first, &end);
        if (id >= 0) push(r, id, (span){r->spans[first].begin, r->spans[end - 1].end});
        first = id >= 0 ? end : -1;
    }
    if (first < 0) {
        r->count = count;
        push(r, r->tokenizer->unknown, (span){r->spans[0].begin, r->word_end});
    }
    r->chars = 0;
}

static inline void extend_word(reader *r, uint32_t character, span s)
{
    r->word_end = s.end;
    if (r->chars >= r->tokenizer->word_chars) {
        r->chars = r->tokenizer->word_chars + 1;
        return;
    }
    const uint32_t start = r->start[r->chars];
    r->spans[r->chars++] = s;
    r->start[r->chars] = start + (uint32_t)s24i_utf8_put(r->text + start, character);
}

static inline void lone_word(reader *r, uint32_t character, span s)
{
    end_word(r);
    extend_word(r, character, s);
    end_word(r);
}

/* A normalised character other than a letter of ASCII: at what does it split? */
static void split(reader *r, uint32_t character, span s)
{
    switch (s24i_classify(character)) {
    case S24I_SPACE:
    case S24I_DROP_SPACE:
        end_word(r);
        break;
    case S24I_PUNCT:
        lone_word(r, character, s);
        break;
    default:
        extend_word(r, character, s);
    }
}

static void lower(reader *r, uint32_t character, span s)
{
    if (!r->tokenizer->lower) {
        split(r, character, s);
    } else if (character == 0x130) {
        /* The one character whose lower case is two, whatever the language. */
        split(r, 'i', s);
        split(r, 0x307, s);
    } else {
        split(r, (uint32_t)utf8proc_tolower((utf8proc_int32_t)character), s);
    }
}

/* The marks that wait come in canonical order. The ranges stay in the order of the text, so that a
   mark that overtakes another takes its range; that is how the library counts. */
static void settle(reader *r)
{
    int next = 0;
    span s = r->last;
    for (int i = 1; i < r->mark_count; i++) {
        mark moving = r->marks[i];
        int j = i;
        for (; j > 0 && r->marks[j - 1].order > moving.order; j--)
            r->marks[j] = r->marks[j - 1];
        r->marks[j] = moving;
    }
    for (int i = 0; i < r->mark_count; i++) {
        if (!r->marks[i].is_replica) s = r->mark_spans[next++];
        if (s24i_classify(r->marks[i].character) != S24I_MARK) lower(r, r->marks[i].character, s);
    }
    r->last = s;
    r->mark_count = r->span_count = 0;
}

static int combining_class(uint32_t character, s24i_class class)
{
    if (character < 0x300 || class == S24I_NEWER) return 0;
    return utf8proc_get_property((utf8proc_int32_t)character)->combining_class;
}

/* Decomposes, drops the marks, passes on the rest. */
static void strip(reader *r, uint32_t character, s24i_class class, span s)
{
    utf8proc_int32_t parts[8];
    utf8proc_ssize_t count = 0;
    int boundary = 0;
    if (character >= FIRST_DECOMPOSABLE && class != S24I_NEWER)
        count = utf8proc_decompose_char((utf8proc_int32_t)character, parts, 8, UTF8PROC_DECOMPOSE,
                                        &boundary);
    if (count < 1 || count > 8) {
        parts[0] = (utf8proc_int32_t)character;
        count = 1;
    }
    for (int i = 0; i < count; i++) {
        const uint32_t part = (uint32_t)parts[i];
        const s24i_class part_class = part == character ? class : s24i_classify(part);
        const int order = combining_class(part, part_class);
        if (order == 0 || r->mark_count == MARKS) settle(r);
        if (order == 0) {
            r->last = s;
            if (part_class != S24I_MARK) lower(r, part, s);
        } else {
            r->marks[r->mark_count++] = (mark){part, order, i > 0};
            if (i == 0) r->mark_spans[r->span_count++] = s;
        }
    }
}

/* A character of the raw text. */
static void read_character(reader *r, uint32_t character)
{
    const s24_tokenizer *t = r->tokenizer;
    const span s = {r->index, r->index + 1};
    const s24i_class class = s24i_classify(character);
    if (t->clean && (class == S24I_DROP || class == S24I_DROP_SPACE)) return;
    if (class == S24I_SPACE) {
        settle(r);
        end_word(r);
        return;
    }
    const int is_padded = t->chinese && class == S24I_CJK;
    if (is_padded) {
        settle(r);
        end_word(r);
    }
    if (t->strip)
        strip(r, character, class, s);
    else
        lower(r, character, s);
    if (is_padded) end_word(r);
}

static inline void read_ascii(reader *r, unsigned char c)
{
    const unsigned char letter = c | 0x20;
    const int is_letter = letter >= 'a' && letter <= 'z';
    if (is_letter || (c >= '0' && c <= '9')) {
        const span s = {r->index, r->index + 1};
        if (r->mark_count) settle(r);
        r->last = s;
        extend_word(r, is_letter && r->tokenizer->lower ? letter : c, s);
    } else if (c == ' ') {
        if (r->mark_count) settle(r);
        end_word(r);
    } else {
        read_character(r, c);
    }
}

static int32_t count_characters(const s24_text *text, size_t begin, size_t end)
{
    uint32_t character;
    int32_t count = 0;
    for (size_t i = begin; i < end; count++)
        i += s24i_utf8_next(&character, (const unsigned char *)text->data + i, end - i);
    return count;
}

/* Passes an added token at a byte whole, with the white space that it takes: none of what is
   before `from`. Returns where it ends. */
static size_t read_added(reader *r, const s24i_added *added, const s24_text *text, size_t at,
                         size_t from)
{
    size_t end = at + added->bytes;
    span s = {r->index, r->index};
    settle(r);
    end_word(r);
    /* What takes_* add trim_offsets takes away again, but before a text's first token. */
    const s24i_bpe *bpe = &r->tokenizer->bpe;
    const int is_first = bpe->trim_but_first && r->count == 0;
    if (added->takes_before && (!bpe->trim || is_first))
        s.begin -= count_characters(text, s24i_space_before(text->data, from, at), at);
    if (added->takes_after) end += s24i_space_bytes(text->data + end, text->bytes - end);
    const int32_t next = s.end + count_characters(text, at, end);
    s.end = bpe->trim ? s.end + count_characters(text, at, at + added->bytes) : next;
    push(r, added->id, s);
    r->index = next;
    return end;
}

static void read_part(reader *r, const s24_text *text)
{
    const unsigned char *p = (const unsigned char *)text->data;
    size_t from = 0;
    size_t i = 0;
    while (i < text->bytes && r->count < r->run->room) {
        if (r->tokenizer->added_first[p[i]]) {
            const s24i_added *added =
                s24i_added_find(r->tokenizer, text->data + i, text->bytes - i, r->run->plain);
            if (added) {
                i = from = read_added(r, added, text, i, from);
                continue;
            }
        }
        if (p[i] < 0x80) {
            read_ascii(r, p[i++]);
        } else {
            uint32_t character;
            i += s24i_utf8_next(&character, p + i, text->bytes - i);
            read_character(r, character == S24I_UTF8_INVALID ? 0xfffd : character);
        }
        r->index++;
    }
}

int64_t s24i_wordpiece_run(const s24_tokenizer *tokenizer, const s24i_run *run,
                           const s24_text *parts, int part_count)
{
    reader r;
    r.tokenizer = tokenizer;
    r.run = run;
    r.count = 0;
    r.index = 0;
    r.chars = r.mark_count = r.span_count = 0;
    r.start[0] = 0;
    r.last = (span){0, 0};
    for (int i = 0; i < part_count; i++)
        read_part(&r, &parts[i]);
    settle(&r);
    end_word(&r);
    return r.count;
}
