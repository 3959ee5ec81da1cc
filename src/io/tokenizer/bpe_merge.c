// SPDX-License-Identifier: Apache-2.0
/*
 * A word's way to tokens by merges. What must stay true: of the pairs that stand in a word the one
 * with the least rank is merged first, of equal ones the leftmost. Short words are merged in place,
 * long ones with a heap, so that a text without blanks takes no more than n·log n steps.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { SHORT = S24I_SHORT_WORD };

typedef s24i_symbols symbols;

/* ---- merging --------------------------------------------------------------------------------- */

#define NO_PAIR UINT64_MAX

/* A pair's rank, and what it becomes, as one number. */
static uint64_t pair(const s24i_bpe *bpe, int32_t left, int32_t right)
{
    const s24i_merge *merge = s24i_merge_find(bpe, left, right);
    return merge ? (uint64_t)merge->rank << 32 | (uint32_t)merge->into : NO_PAIR;
}

static void merge_short(const s24i_bpe *bpe, symbols *s)
{
    uint64_t pairs[SHORT];
    size_t n = s->count;
    for (size_t i = 0; i + 1 < n; i++)
        pairs[i] = pair(bpe, s->ids[i], s->ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pairs[i] >> 32 < pairs[best] >> 32) best = i;
        if (pairs[best] == NO_PAIR) break;
        s->ids[best] = (int32_t)(uint32_t)pairs[best];
        n--;
        memmove(s->ids + best + 1, s->ids + best + 2, (n - best - 1) * sizeof *s->ids);
        memmove(s->at + best + 1, s->at + best + 2, (n - best) * sizeof *s->at);
        if (best + 1 < n)
            memmove(pairs + best + 1, pairs + best + 2, (n - best - 2) * sizeof *pairs);
        if (best + 1 < n) pairs[best] = pair(bpe, s->ids[best], s->ids[best + 1]);
        if (best > 0) pairs[best - 1] = pair(bpe, s->ids[best - 1], s->ids[best]);
    }
    s->count = n;
}

typedef struct candidate {
    uint32_t rank;
    int32_t into;
    size_t left; /* symbol */
} candidate;

/* What a long word needs next to its symbols. */
typedef struct long_word {
    const s24i_bpe *bpe;
    symbols *s;
    size_t *next, *previous; /* of a symbol; s->count: none */
    candidate *heap;
    size_t heap_count;
} long_word;

static int goes_before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void heap_push(long_word *w, size_t left)
{
    const size_t right = w->next[left];
    if (right == w->s->count) return;
    const uint64_t found = pair(w->bpe, w->s->ids[left], w->s->ids[right]);
    if (found == NO_PAIR) return;
    const candidate c = {(uint32_t)(found >> 32), (int32_t)(uint32_t)found, left};
    size_t i = w->heap_count++;
    for (; i > 0 && goes_before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate heap_pop(long_word *w)
{
    const candidate top = w->heap[0], last = w->heap[--w->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->heap_count) break;
        if (child + 1 < w->heap_count && goes_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!goes_before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* Merges the candidate unless its pair is gone. */
static void merge_candidate(long_word *w, const candidate *c)
{
    symbols *s = w->s;
    const size_t left = c->left, right = w->next[left];
    if (s->ids[left] < 0 || right == s->count) return;
    const s24i_merge *merge = s24i_merge_find(w->bpe, s->ids[left], s->ids[right]);
    if (!merge || merge->rank != c->rank) return;
    s->ids[left] = c->into;
    s->ids[right] = -1;
    w->next[left] = w->next[right];
    if (w->next[left] < s->count) w->previous[w->next[left]] = left;
    heap_push(w, left);
    if (w->previous[left] < s->count) heap_push(w, w->previous[left]);
}

/* 0 where there is no memory. */
static int merge_long(const s24_tokenizer *tokenizer, symbols *s)
{
    const size_t n = s->count;
    /* A merge takes a symbol away and adds two candidates at most. */
    const size_t each = 2 * sizeof(size_t) + 3 * sizeof(candidate);
    size_t kept = 0;
    char *memory = s24_ctx_alloc(tokenizer->ctx, n * each);
    if (!memory) return 0;
    long_word w = {&tokenizer->bpe, s, NULL, NULL, (candidate *)memory, 0};
    w.next = (size_t *)(memory + 3 * n * sizeof(candidate));
    w.previous = w.next + n;
    for (size_t i = 0; i < n; i++) {
        w.next[i] = i + 1;
        w.previous[i] = i ? i - 1 : n;
    }
    for (size_t i = 0; i < n; i++)
        heap_push(&w, i);
    while (w.heap_count > 0) {
        const candidate best = heap_pop(&w);
        merge_candidate(&w, &best);
    }
    for (size_t i = 0; i < n; i++) {
        if (s->ids[i] < 0) continue;
        s->at[kept] = s->at[i];
        s->ids[kept++] = s->ids[i];
    }
    s->at[kept] = s->at[n];
    s->count = kept;
    s24_ctx_free(tokenizer->ctx, memory);
    return 1;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* After the last one, whatever was left out between: offsets do not count what is no token, as
   those of Hugging Face's tokenizers. */
static void add_symbol(symbols *s, int32_t id, size_t bytes)
{
    const size_t begin = s->at[s->count];
    s->ids[s->count++] = id;
    s->at[s->count] = begin + bytes;
}

/* A character that is no token: its bytes', the unknown one, or nothing. */
static void add_unknown(const s24_tokenizer *t, symbols *s, const char *text, size_t begin,
                        size_t end)
{
    int has_bytes = t->bpe.fallback;
    for (size_t i = begin; has_bytes && i < end; i++)
        has_bytes = t->bpe.bytes[(unsigned char)text[i]] >= 0;
    if (has_bytes) {
        for (size_t i = begin; i < end; i++)
            add_symbol(s, t->bpe.bytes[(unsigned char)text[i]], 1);
    } else if (t->unknown >= 0 && t->bpe.fuse && s->count && s->ids[s->count - 1] == t->unknown) {
        s->at[s->count] += end - begin;
    } else if (t->unknown >= 0) {
        add_symbol(s, t->unknown, end - begin);
    }
}

/* The token of a character with what the model puts around it: a prefix if it is not the word's
   first, a suffix if it is its last. */
static int32_t find_character(const s24_tokenizer *t, const s24_text *c, int is_first, int is_last)
{
    char text[2 * S24I_AFFIX_BYTES + 4];
    size_t bytes = 0;
    const char *prefix = !is_first && t->bpe.prefix ? t->bpe.prefix : "";
    const char *suffix = is_last && t->bpe.suffix ? t->bpe.suffix : "";
    if (!*prefix && !*suffix) return s24i_vocabulary_id_of(&t->vocabulary, c->data, c->bytes);
    for (; *prefix; prefix++)
        text[bytes++] = *prefix;
    memcpy(text + bytes, c->data, c->bytes);
    for (bytes += c->bytes; *suffix; suffix++)
        text[bytes++] = *suffix;
    return s24i_vocabulary_id_of(&t->vocabulary, text, bytes);
}

void s24i_bpe_symbols(const s24_tokenizer *t, symbols *s, const char *text, size_t begin,
                      size_t end, int prefix)
{
    s->count = 0;
    s->at[0] = begin;
    if (prefix && t->bpe.blank >= 0) add_symbol(s, t->bpe.blank, 0);
    for (size_t i = begin, next; i < end; i = next) {
        uint32_t c;
        int32_t id;
        next = i + 1;
        if (t->bpe.byte_level) {
            id = t->bpe.bytes[(unsigned char)text[i]];
        } else if (t->bpe.blanks && text[i] == ' ') {
            id = t->bpe.blank;
        } else {
            next = i + s24i_utf8_next(&c, (const unsigned char *)text + i, end - i);
            const s24_text one = {text + i, next - i};
            id = find_character(t, &one, i == begin, next == end);
        }
        if (id >= 0)
            add_symbol(s, id, next - i);
        else
            add_unknown(t, s, text, i, next);
    }
}

int s24i_bpe_merge(const s24_tokenizer *t, symbols *s)
{
    if (s->count > SHORT) return merge_long(t, s);
    merge_short(&t->bpe, s);
    return 1;
}

int s24i_bpe_is_whole(const s24_tokenizer *tokenizer, const char *text, size_t bytes, int32_t id)
{
    int32_t ids[SHORT + 1];
    size_t at[SHORT + 2];
    symbols s = {ids, at, 0};
    const char *suffix = tokenizer->bpe.suffix ? tokenizer->bpe.suffix : "";
    const size_t tail = strlen(suffix);
    if (bytes > SHORT || bytes <= tail || memcmp(text + bytes - tail, suffix, tail) != 0) return 0;
    s24i_bpe_symbols(tokenizer, &s, text, 0, bytes - tail, 0);
    merge_short(&tokenizer->bpe, &s);
    return s.count == 1 && ids[0] == id;
}

/* ---- words of a chain ------------------------------------------------------------------------ */

/* The token that a word is as a whole, or −1. */
static int32_t find_whole(const s24_tokenizer *t, const char *text, size_t bytes)
{
    const char *suffix = t->bpe.suffix && !t->bpe.ignores_merges ? t->bpe.suffix : "";
    const size_t tail = strlen(suffix);
    if (bytes + tail > t->vocabulary.longest) return -1;
    uint64_t hash = s24i_hash(S24I_HASH_SEED, text, bytes);
    hash = s24i_hash(hash, suffix, tail);
    const int32_t id = s24i_vocabulary_find(&t->vocabulary, hash, text, bytes, suffix, tail);
    return id >= 0 && t->bpe.whole[id / 8] >> (id % 8) & 1 ? id : -1;
}

static int64_t write(s24_token *tokens, int64_t room, const symbols *s)
{
    int64_t count = 0;
    for (size_t i = 0; i < s->count && count < room; i++)
        tokens[count++] = (s24_token){s->ids[i], 0, (int32_t)s->at[i], (int32_t)s->at[i + 1]};
    return count;
}

static int64_t read_long(s24_token *tokens, int64_t room, const s24_tokenizer *t, const char *text,
                         size_t bytes)
{
    int64_t count = -1;
    char *memory = s24_ctx_alloc(t->ctx, (bytes + 2) * (sizeof(size_t) + sizeof(int32_t)));
    symbols s = {(int32_t *)(memory + (bytes + 2) * sizeof(size_t)), (size_t *)memory, 0};
    if (!memory) return -1;
    s24i_bpe_symbols(t, &s, text, 0, bytes, 0);
    if (s24i_bpe_merge(t, &s)) count = write(tokens, room, &s);
    s24_ctx_free(t->ctx, memory);
    return count;
}

int64_t s24i_bpe_word(s24_token *tokens, int64_t room, const s24_tokenizer *t, const char *text,
                      size_t bytes)
{
    int32_t ids[SHORT + 1];
    size_t at[SHORT + 2];
    symbols s = {ids, at, 0};
    const int32_t id = find_whole(t, text, bytes);
    if (id >= 0 && room > 0) {
        tokens[0] = (s24_token){id, 0, 0, (int32_t)bytes};
        return 1;
    }
    if (bytes >= SHORT) return read_long(tokens, room, t, text, bytes);
    s24i_bpe_symbols(t, &s, text, 0, bytes, 0);
    merge_short(&t->bpe, &s);
    return write(tokens, room, &s);
}
