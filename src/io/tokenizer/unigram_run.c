// SPDX-License-Identifier: Apache-2.0
/*
 * A text's way to Unigram's pieces, one character at a time. What must stay true: every character
 * that is made carries the original code points that it came from, as Hugging Face's tokenizers
 * counts them, and nothing is allocated but for words of hundreds of bytes.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { SHORT = 384 /* bytes of a word on the stack */, MOST_RULED = 6 };

/* A word's bytes, with what each came from. */
typedef struct word {
    char *text;
    s24i_span *from; /* NULL: they are the text's own */
    size_t bytes, room;
    void *memory; /* of a long one */
} word;

typedef struct reader {
    const s24_tokenizer *tokenizer;
    const s24i_run *run;
    int64_t count; /* tokens so far, ≤ run->room; −1: no memory */
    const char *text;
    size_t end;      /* of the segment */
    int32_t index;   /* of the next original character */
    int32_t lag;     /* how many before it the rules are: what vanishes first is not counted */
    s24i_span blank; /* a blank that is held back; begin −1: none */
    int is_first;    /* no character of the piece was seen */
    int emitted;     /* one of the segment was */
    int added;       /* and the last of them came next to one, in place of none */
    word word;
    char stack_text[SHORT];
    s24i_span stack_from[SHORT];
} reader;

/* ---- tokens ---------------------------------------------------------------------------------- */

static void push(reader *r, int32_t id, s24i_span span)
{
    if (r->count < 0 || r->count == r->run->room) return;
    if (r->run->tokens)
        r->run->tokens[r->count] = (s24_token){id, r->run->type, span.begin, span.end};
    r->count++;
}

static s24i_span span_of(const word *w, size_t begin, size_t end)
{
    if (!w->from) return (s24i_span){(int32_t)begin, (int32_t)end};
    return (s24i_span){w->from[begin].begin, w->from[end - 1].end};
}

/* A piece that is no token: its bytes', or the unknown one. */
static void push_unknown(reader *r, size_t begin, size_t end)
{
    const s24i_unigram *u = &r->tokenizer->unigram;
    const word *w = &r->word;
    int has_bytes = u->fallback;
    for (size_t i = begin; has_bytes && i < end; i++)
        has_bytes = u->bytes[(unsigned char)w->text[i]] >= 0;
    if (!has_bytes && r->tokenizer->unknown >= 0)
        push(r, r->tokenizer->unknown, span_of(w, begin, end));
    for (size_t i = begin; has_bytes && i < end; i++)
        push(r, u->bytes[(unsigned char)w->text[i]], span_of(w, begin, end));
}

/* ---- the best pieces ------------------------------------------------------------------------- */

/* The best way to a byte of a word: its score, where its last piece begins and which it is. */
typedef struct way {
    double score;
    size_t from;
    int32_t id; /* −1: no token */
} way;

static const s24i_trie_node *child_of(const s24i_trie_node *nodes, const s24i_trie_node *node,
                                      uint8_t byte)
{
    const s24i_trie_node *low = nodes + node->first;
    size_t count = node->count;
    while (count > 1) {
        const size_t half = count / 2;
        if (low[half].byte <= byte) low += half;
        count -= half;
    }
    return count && low->byte == byte ? low : NULL;
}

static void better(way *to, double score, size_t from, int32_t id)
{
    if (to->from != SIZE_MAX && score <= to->score) return;
    *to = (way){score, from, id};
}

/* Every piece that begins at a byte, and the character there if it is none of them. */
static void extend(way *ways, const s24_tokenizer *t, const word *w, size_t begin)
{
    const s24i_unigram *u = &t->unigram;
    const s24i_trie_node *node = u->nodes;
    const double score = ways[begin].score;
    uint32_t c;
    const size_t one = s24i_utf8_next(&c, (const unsigned char *)w->text + begin, w->bytes - begin);
    int single = 0;
    for (size_t i = begin; i < w->bytes; i++) {
        node = child_of(u->nodes, node, (uint8_t)w->text[i]);
        if (!node) break;
        if (node->id < 0) continue;
        better(&ways[i + 1], score + u->scores[node->id], begin, node->id);
        single |= i + 1 - begin == one;
    }
    if (!single) better(&ways[begin + one], score + u->unknown, begin, -1);
}

/* The ways back from a word's end become the ways on from its begin. */
static void turn(way *ways, size_t bytes)
{
    size_t at = bytes, next = SIZE_MAX;
    int32_t id = -1;
    for (;;) {
        const way back = ways[at];
        ways[at].from = next;
        ways[at].id = id;
        if (at == 0) return;
        next = at;
        id = back.id;
        at = back.from;
    }
}

/* Unknown neighbours are one piece. */
static void push_pieces(reader *r, const way *ways)
{
    const int32_t unknown = r->tokenizer->unknown;
    for (size_t at = 0, next; at < r->word.bytes; at = next) {
        next = ways[at].from;
        if (ways[at].id >= 0 && ways[at].id != unknown) {
            push(r, ways[at].id, span_of(&r->word, at, next));
            continue;
        }
        while (next < r->word.bytes && (ways[next].id < 0 || ways[next].id == unknown))
            next = ways[next].from;
        push_unknown(r, at, next);
    }
}

static void find_pieces(reader *r, way *ways)
{
    const word *w = &r->word;
    uint32_t c;
    for (size_t i = 0; i <= w->bytes; i++)
        ways[i].from = SIZE_MAX;
    ways[0] = (way){0, 0, -1};
    for (size_t i = 0; i < w->bytes;
         i += s24i_utf8_next(&c, (const unsigned char *)w->text + i, w->bytes - i))
        if (ways[i].from != SIZE_MAX) extend(ways, r->tokenizer, w, i);
    turn(ways, w->bytes);
    push_pieces(r, ways);
}

/* Ends a word. */
static void flush(reader *r)
{
    way ways[SHORT + 1];
    word *w = &r->word;
    if (w->bytes && w->bytes <= SHORT && r->count >= 0 && r->count < r->run->room) {
        find_pieces(r, ways);
    } else if (w->bytes && r->count >= 0 && r->count < r->run->room) {
        way *more = s24_ctx_alloc(r->tokenizer->ctx, (w->bytes + 1) * sizeof *more);
        if (more)
            find_pieces(r, more);
        else
            r->count = -1;
        s24_ctx_free(r->tokenizer->ctx, more);
    }
    w->bytes = 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Room for a few more bytes; 0 where there is none. */
static int grow(reader *r)
{
    word *w = &r->word;
    const size_t room = 2 * w->room;
    char *memory = s24_ctx_alloc(r->tokenizer->ctx, room * (sizeof *w->from + 1));
    if (!memory) {
        r->count = -1;
        return 0;
    }
    memcpy(memory, w->from, w->bytes * sizeof *w->from);
    memcpy(memory + room * sizeof *w->from, w->text, w->bytes);
    s24_ctx_free(r->tokenizer->ctx, w->memory);
    w->memory = memory;
    w->from = (s24i_span *)memory;
    w->text = memory + room * sizeof *w->from;
    w->room = room;
    return 1;
}

static void append(reader *r, const char *text, size_t bytes, s24i_span span)
{
    word *w = &r->word;
    if (w->bytes + bytes > w->room && !grow(r)) return;
    memcpy(w->text + w->bytes, text, bytes);
    for (size_t i = 0; i < bytes; i++)
        w->from[w->bytes++] = span;
}

/* A character that is normalised, on its way into words. */
static void take(reader *r, const char *text, size_t bytes, s24i_span span)
{
    const s24i_unigram *u = &r->tokenizer->unigram;
    const int is_blank = u->marks && *text == ' ';
    const int is_mark =
        is_blank || (bytes == S24I_BLANK_BYTES && !memcmp(text, S24I_BLANK, S24I_BLANK_BYTES));
    const int prefix =
        u->prepend == S24I_PREPEND_ALWAYS || (u->prepend == S24I_PREPEND_FIRST && span.begin == 0);
    if (is_mark && u->splits) flush(r);
    if (r->is_first && prefix && !is_mark) append(r, S24I_BLANK, S24I_BLANK_BYTES, span);
    r->is_first = 0;
    append(r, is_blank ? S24I_BLANK : text, is_blank ? S24I_BLANK_BYTES : bytes, span);
}

static int is_space(const char *text, size_t bytes)
{
    return s24i_space_bytes(text, bytes) == bytes;
}

/* ---- blanks ---------------------------------------------------------------------------------- */

static void release_blank(reader *r)
{
    if (r->blank.begin < 0) return;
    const s24i_span span = r->blank;
    r->blank.begin = -1;
    take(r, " ", 1, span);
}

/* A character that the rules have made or left as it is. */
static void emit(reader *r, const char *text, size_t bytes, s24i_span span)
{
    const s24i_unigram *u = &r->tokenizer->unigram;
    r->emitted = 1;
    if (u->drops_space && is_space(text, bytes)) {
        flush(r);
        r->is_first = 1;
        return;
    }
    if (u->trims_begin && r->is_first && is_space(text, bytes)) return;
    if (*text == ' ' && (u->collapses || u->trims_end)) {
        if (!u->collapses) release_blank(r);
        r->blank = span;
        return;
    }
    release_blank(r);
    take(r, text, bytes, span);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static s24i_span original(const reader *r)
{
    const int32_t at = r->index - r->lag;
    return (s24i_span){at, at + 1};
}

/* What was made last comes from there. */
static void move_last(reader *r, s24i_span span)
{
    word *w = &r->word;
    if (r->blank.begin >= 0) {
        r->blank = span;
        return;
    }
    for (size_t i = w->bytes; i-- > 0;) {
        w->from[i] = span;
        if ((w->text[i] & 0xc0) != 0x80) return;
    }
}

/* `count` characters of the text become those of `to`: each takes the place of one, what is more
   comes from the last of them, and what is left over is gone. What was one more before such a one
   that is gone takes its place, as it does in Hugging Face's tokenizers. */
static void replace(reader *r, const char *to, size_t bytes, int32_t count)
{
    uint32_t c;
    int32_t made = 0;
    for (size_t i = 0, length; i < bytes; i += length, made++) {
        length = s24i_utf8_next(&c, (const unsigned char *)to + i, bytes - i);
        s24i_span span = original(r);
        if (made < count)
            r->index++;
        else
            span = (s24i_span){span.begin - 1, span.end - 1};
        emit(r, to + i, length, span);
    }
    if (made == 0 && r->added) move_last(r, original(r));
    r->added = made > count;
    if (made < count && !r->emitted) r->lag += count - made;
    if (made < count) r->index += count - made;
}

/* A character of the text by the rules; ill-formed bytes are U+FFFD. */
static void read_character(reader *r, const char *text, size_t bytes, uint32_t c)
{
    static const char invalid[] = "\xef\xbf\xbd";
    if (c == S24I_UTF8_INVALID) text = invalid, bytes = 3;
    size_t length = bytes;
    const char *to = s24i_rules_find(&length, &r->tokenizer->unigram.rules, text, bytes);
    replace(r, to ? to : text, to ? length : bytes, 1);
}

/* Where the cluster of characters that begins at a byte ends, and how many they are. */
static size_t cluster_end(const reader *r, size_t begin, int32_t *count)
{
    const unsigned char *p = (const unsigned char *)r->text;
    utf8proc_int32_t state = 0;
    uint32_t before, c;
    size_t at = begin + s24i_utf8_next(&before, p + begin, r->end - begin);
    for (*count = 1; at < r->end; ++*count) {
        const size_t length = s24i_utf8_next(&c, p + at, r->end - at);
        if (before == S24I_UTF8_INVALID || c == S24I_UTF8_INVALID ||
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state))
            break;
        at += length;
        before = c;
    }
    return at;
}

/* A cluster as a whole where a rule knows its begin and it is short, else each character. */
static void read_cluster(reader *r, size_t begin, size_t end, int32_t count)
{
    size_t length;
    uint32_t c;
    const char *to = NULL;
    if (count > 1 && end - begin < MOST_RULED)
        to = s24i_rules_find(&length, &r->tokenizer->unigram.rules, r->text + begin, end - begin);
    if (to) {
        replace(r, to, length, count);
        return;
    }
    for (size_t step; begin < end; begin += step) {
        step = s24i_utf8_next(&c, (const unsigned char *)r->text + begin, end - begin);
        read_character(r, r->text + begin, step, c);
    }
}

/* Is the character at a byte one that stays as it is, and a cluster by itself? */
static int is_plain(const reader *r, size_t at)
{
    const s24i_rules *rules = &r->tokenizer->unigram.rules;
    const unsigned char *p = (const unsigned char *)r->text + at;
    if (!rules->units) return 1;
    return p[0] < 0x80 && rules->plain[p[0]] && (at + 1 == r->end || p[1] < 0x80);
}

/* ---- segments -------------------------------------------------------------------------------- */

/* A part of the text without added tokens. */
static void read_segment(reader *r, size_t begin, size_t end)
{
    uint32_t c;
    r->end = end;
    r->is_first = 1;
    r->emitted = r->added = r->lag = 0;
    r->blank.begin = -1;
    for (size_t next; begin < end && r->count >= 0 && r->count < r->run->room; begin = next) {
        int32_t count = 1;
        if (is_plain(r, begin)) {
            next = begin + s24i_utf8_next(&c, (const unsigned char *)r->text + begin, end - begin);
            const s24i_span span = original(r);
            r->index++;
            r->added = 0;
            if (c == S24I_UTF8_INVALID)
                emit(r, "\xef\xbf\xbd", 3, span);
            else
                emit(r, r->text + begin, next - begin, span);
            continue;
        }
        next = cluster_end(r, begin, &count);
        read_cluster(r, begin, next, count);
    }
    if (!r->tokenizer->unigram.trims_end) release_blank(r);
    flush(r);
}

static void read_added(reader *r, const s24i_added_cut *cut)
{
    const unsigned char *p = (const unsigned char *)r->text;
    s24i_span span = {r->index, r->index};
    uint32_t c;
    for (size_t i = cut->first; i < cut->end; span.end++)
        i += s24i_utf8_next(&c, p + i, cut->end - i);
    push(r, cut->added->id, span);
    r->index = span.end;
}

int64_t s24i_unigram_run(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                         int part_count)
{
    reader r;
    r.tokenizer = tokenizer;
    r.run = run;
    r.count = 0;
    r.index = 0;
    r.word = (word){r.stack_text, r.stack_from, 0, SHORT, NULL};
    for (int i = 0; i < part_count && r.count >= 0; i++) {
        s24i_added_cut cut = {.added = NULL};
        size_t begin = 0;
        r.text = parts[i].data;
        while (r.count >= 0 && r.count < run->room &&
               s24i_added_next(&cut, tokenizer, run, &parts[i], begin)) {
            read_segment(&r, begin, cut.first);
            read_added(&r, &cut);
            begin = cut.end;
        }
        read_segment(&r, begin, parts[i].bytes);
    }
    s24_ctx_free(tokenizer->ctx, r.word.memory);
    return r.count;
}

int64_t s24i_unigram_word(s24_token *tokens, int64_t room, const s24_tokenizer *tokenizer,
                          const char *text, size_t bytes)
{
    const s24i_run run = {.tokens = tokens, .room = room};
    reader r;
    r.tokenizer = tokenizer;
    r.run = &run;
    r.count = 0;
    r.word = (word){(char *)(uintptr_t)text, NULL, bytes, bytes, NULL};
    flush(&r);
    return r.count;
}
