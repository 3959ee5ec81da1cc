// SPDX-License-Identifier: Apache-2.0
/*
 * A text's way through a chain of steps (chain.h). It is held as characters with their origins and
 * a list of segments, which steps rewrite from one of two lines into the other. What must stay
 * true: order and effect of the steps are those of Hugging Face's tokenizers, ids and offsets too.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* Characters begin … end − 1 of a line: text, or the added token of that index. */
typedef struct segment {
    size_t begin, end;
    size_t added; /* SIZE_MAX: text */
} segment;

typedef struct line {
    s24i_glyphs text;
    segment *at;
    size_t count, room;
    int failed;
} line;

typedef struct runner {
    const s24_tokenizer *tokenizer;
    const s24i_run *run;
    int64_t count; /* tokens so far, ≤ run->room */
    line lines[2], *now, *next;
    char *word; /* in UTF-8 */
    size_t word_room;
    int failed;
} runner;

static void add_segment(line *l, size_t begin, size_t end, size_t added)
{
    if (begin >= end || l->failed) return;
    if (l->count == l->room) {
        const size_t room = l->room ? 2 * l->room : 16;
        segment *at = s24_ctx_alloc(l->text.ctx, room * sizeof *at);
        if (!at) {
            l->failed = 1;
            return;
        }
        if (l->count) memcpy(at, l->at, l->count * sizeof *at);
        s24_ctx_free(l->text.ctx, l->at);
        l->at = at;
        l->room = room;
    }
    l->at[l->count++] = (segment){begin, end, added};
}

void s24i_cuts_put(s24i_cuts *cuts, size_t begin, size_t end, int matched)
{
    if (cuts->failed) return;
    if (cuts->count == cuts->room) {
        const size_t room = cuts->room ? 2 * cuts->room : 64;
        s24i_cut *at = s24_ctx_alloc(cuts->ctx, room * sizeof *at);
        if (!at) {
            cuts->failed = 1;
            return;
        }
        if (cuts->count) memcpy(at, cuts->at, cuts->count * sizeof *at);
        s24_ctx_free(cuts->ctx, cuts->at);
        cuts->at = at;
        cuts->room = room;
    }
    cuts->at[cuts->count++] = (s24i_cut){begin, end, matched};
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Where special tokens may stand (s24i_run.places), told by bytes. */
typedef struct placed {
    size_t glyph, byte, place;
} placed;

static int may_stand(placed *p, const runner *r, const s24i_glyph *text, size_t at)
{
    const s24i_run *run = r->run;
    if (!run->plain) return 1;
    for (; p->glyph < at; p->glyph++)
        p->byte += s24i_utf8_length(text[p->glyph].c);
    while (p->place < run->place_count && run->places[p->place] < p->byte)
        p->place++;
    return p->place < run->place_count && run->places[p->place] == p->byte;
}

/* The longest added token that the text begins with, of equal ones the last; NULL: none. */
static const s24i_chain_added *find_added(const runner *r, const s24i_glyph *text, size_t count,
                                          int normalized, int special)
{
    const s24i_chain *chain = r->tokenizer->chain;
    const s24i_chain_added *best = NULL;
    for (size_t i = 0; i < chain->added_count; i++) {
        const s24i_chain_added *added = &chain->added[i];
        const s24i_added *token = &r->tokenizer->added[added->index];
        size_t same = 0;
        if (token->normalized != normalized || added->count > count || !added->count) continue;
        if (token->special && !special) continue;
        while (same < added->count && text[same].c == added->text[same])
            same++;
        if (same < added->count) continue;
        if (!best || best->count <= same) best = added;
    }
    return best;
}

/* Is what lies between begin and end a word by itself? */
static int is_single(const segment *s, const s24i_glyph *text, size_t begin, size_t end)
{
    return (begin == s->begin || !s24i_is_word(text[begin - 1].c)) &&
           (end == s->end || !s24i_is_word(text[end].c));
}

static void cut_segment(runner *r, const segment *s, int normalized, placed *p)
{
    const s24i_glyph *text = r->now->text.at;
    const s24i_chain *chain = r->tokenizer->chain;
    size_t before = s->begin;
    for (size_t i = s->begin, length; i < s->end; i += length) {
        length = 1;
        if (!chain->first[normalized][text[i].c & 0xff]) continue;
        const int special = normalized || may_stand(p, r, text, i);
        const s24i_chain_added *added = find_added(r, text + i, s->end - i, normalized, special);
        if (!added) continue;
        length = added->count;
        const s24i_added *token = &r->tokenizer->added[added->index];
        size_t first = i, end = i + length;
        if (token->single && !is_single(s, text, first, end)) continue;
        while (token->takes_before && first > before && s24i_is_space(text[first - 1].c))
            first--;
        while (token->takes_after && end < s->end && s24i_is_space(text[end].c))
            end++;
        /* White space that the one before has taken is another's all the same, unless it looks
           before itself. */
        if (token->takes_before && first < before) first = before;
        add_segment(r->next, before, first, SIZE_MAX);
        add_segment(r->next, first, end, added->index);
        before = end;
    }
    add_segment(r->next, before, s->end, SIZE_MAX);
}

/* Segments become others of the same characters. */
static void take_text(runner *r)
{
    const s24i_glyphs text = r->next->text;
    r->next->text = r->now->text;
    r->now->text = text;
    line *now = r->now;
    r->now = r->next;
    r->next = now;
    now->count = 0;
    now->text.count = 0;
}

static void cut_added(runner *r, int normalized)
{
    placed p = {0, 0, 0};
    for (size_t i = 0; i < r->now->count; i++) {
        const segment s = r->now->at[i];
        if (s.added == SIZE_MAX)
            cut_segment(r, &s, normalized, &p);
        else
            add_segment(r->next, s.begin, s.end, s.added);
    }
    take_text(r);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void change(const s24i_chain_step *step, s24i_edit *edit)
{
    const int stays = step->begins && edit->count && edit->in[0].begin != 0;
    if (!stays) {
        step->change(step, edit);
        return;
    }
    for (size_t i = 0; i < edit->count; i++)
        s24i_glyphs_put(edit->out, edit->in[i]);
}

void s24i_chain_change(const s24i_chain_step *step, s24i_glyphs *text)
{
    s24i_glyphs out = {.ctx = text->ctx};
    s24i_edit edit = {&out, text->at, text->count, 0};
    change(step, &edit);
    out.failed |= text->failed;
    s24i_glyphs_free(text);
    *text = out;
}

static void change_segments(runner *r, const s24i_chain_step *step)
{
    line *now = r->now, *next = r->next;
    for (size_t i = 0; i < now->count; i++) {
        const segment s = now->at[i];
        const size_t begin = next->text.count;
        s24i_edit edit = {&next->text, now->text.at + s.begin, s.end - s.begin, 0};
        if (s.added == SIZE_MAX)
            change(step, &edit);
        else
            for (size_t k = 0; k < edit.count; k++)
                s24i_glyphs_put(edit.out, edit.in[k]);
        add_segment(next, begin, next->text.count, s.added);
    }
    r->now = next;
    r->next = now;
    now->count = now->text.count = 0;
}

/* Do two neighbours of a list become one? `last` is the one that was kept. */
static int joins(s24i_behaviour behaviour, int last, int matched)
{
    if (behaviour == S24I_CONTIGUOUS) return last == matched;
    return matched && !last;
}

static void put_cuts(runner *r, const s24i_chain_step *step, const segment *s,
                     const s24i_cuts *cuts)
{
    const s24i_behaviour behaviour = step->behaviour;
    size_t begin = 0, end = 0;
    int last = 0;
    for (size_t i = 0; i < cuts->count; i++) {
        const s24i_cut *cut = &cuts->at[i];
        const int matched = cut->matched != step->invert;
        if (behaviour == S24I_ISOLATED || behaviour == S24I_REMOVED) {
            if (behaviour == S24I_ISOLATED || !matched)
                add_segment(r->next, s->begin + cut->begin, s->begin + cut->end, SIZE_MAX);
            continue;
        }
        if (i > 0 && joins(behaviour, last, matched)) {
            end = cut->end;
        } else {
            add_segment(r->next, s->begin + begin, s->begin + end, SIZE_MAX);
            begin = cut->begin;
            end = cut->end;
        }
        last = matched;
    }
    add_segment(r->next, s->begin + begin, s->begin + end, SIZE_MAX);
}

/* The same from the end: a match goes with what follows it. */
static void turn(s24i_cuts *cuts, int invert)
{
    size_t kept = cuts->count;
    int last = 0;
    for (size_t i = cuts->count; i-- > 0;) {
        const s24i_cut cut = cuts->at[i];
        const int matched = cut.matched != invert;
        if (i + 1 < cuts->count && matched && !last)
            cuts->at[kept].begin = cut.begin;
        else
            cuts->at[--kept] = cut;
        last = matched;
    }
    memmove(cuts->at, cuts->at + kept, (cuts->count - kept) * sizeof *cuts->at);
    cuts->count -= kept;
}

static void cut_words(runner *r, const s24i_chain_step *step)
{
    s24i_cuts cuts = {.ctx = r->tokenizer->ctx};
    const s24i_chain_step isolated = {.behaviour = S24I_ISOLATED};
    const int turns = step->behaviour == S24I_MERGED_WITH_NEXT;
    for (size_t i = 0; i < r->now->count; i++) {
        const segment s = r->now->at[i];
        if (s.added != SIZE_MAX) {
            add_segment(r->next, s.begin, s.end, s.added);
            continue;
        }
        cuts.count = 0;
        step->find(step, &cuts, r->now->text.at + s.begin, s.end - s.begin);
        if (turns && cuts.count) turn(&cuts, step->invert);
        put_cuts(r, turns ? &isolated : step, &s, &cuts);
    }
    r->failed |= cuts.failed;
    s24_ctx_free(cuts.ctx, cuts.at);
    take_text(r);
}

static void take_step(runner *r, const s24i_chain_step *step)
{
    if (step->change)
        change_segments(r, step);
    else
        cut_words(r, step);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* White space at the ends of a token's spelling, letters at byte level, is left out of its offsets,
   but a single blank that a text begins with where one was put there. An added token is
   spelled as it stands in the text. */
static void trim(const runner *r, s24_token *token, const s24_text *spelling)
{
    enum { BLANK = 0x120 };
    const s24i_bpe *bpe = &r->tokenizer->bpe;
    int32_t before = 0, after = 0, count = 0;
    uint32_t c;
    for (size_t i = 0; i < spelling->bytes; count++) {
        i += s24i_utf8_next(&c, (const unsigned char *)spelling->data + i, spelling->bytes - i);
        const int is_blank = c == BLANK || s24i_is_space(c);
        after = is_blank ? after + 1 : 0;
        if (is_blank && before == count) before++;
    }
    if (before == 1 && bpe->trim_but_first && (r->count == 0 || token->begin == 0)) before = 0;
    if (token->begin + before > token->end) before = token->end - token->begin;
    token->begin += before;
    if (after && token->end >= after)
        token->end = token->end - after > token->begin ? token->end - after : token->begin;
}

static void push(runner *r, s24_token token, const s24_text *spelling)
{
    if (r->count == r->run->room) return;
    if (r->tokenizer->bpe.trim) trim(r, &token, spelling);
    if (r->run->tokens) r->run->tokens[r->count] = token;
    r->count++;
}

/* Offsets that are bytes of a word become those of the text. */
static void push_pieces(runner *r, const s24_token *pieces, int64_t count, const s24i_glyph *text,
                        const char *word)
{
    const int as_text = r->tokenizer->kind->spelled_as_text;
    size_t first = 0, byte = 0;
    for (int64_t i = 0; i < count; i++) {
        const s24_token *piece = &pieces[i];
        while (byte + s24i_utf8_length(text[first].c) <= (size_t)piece->begin)
            byte += s24i_utf8_length(text[first++].c);
        size_t end = first, at = byte;
        do
            at += s24i_utf8_length(text[end++].c);
        while (at < (size_t)piece->end);
        const s24_token token = {piece->id, r->run->type, text[first].begin, text[end - 1].end};
        const s24_text part = {word + piece->begin, (size_t)(piece->end - piece->begin)};
        push(r, token, as_text ? &part : &r->tokenizer->pieces[piece->id]);
    }
}

static int reserve_word(runner *r, size_t characters)
{
    const size_t room = 4 * characters;
    if (room <= r->word_room) return 1;
    s24_ctx_free(r->tokenizer->ctx, r->word);
    r->word_room = 2 * room;
    r->word = s24_ctx_alloc(r->tokenizer->ctx, r->word_room * (1 + sizeof(s24_token)) + 64);
    r->failed |= !r->word;
    if (!r->word) r->word_room = 0;
    return r->word != NULL;
}

static void push_word(runner *r, const s24i_glyph *text, size_t count)
{
    size_t bytes = 0;
    if (!reserve_word(r, count)) return;
    /* Tokens stand first, where memory is aligned for them. */
    s24_token *tokens = (s24_token *)(void *)r->word;
    char *word = r->word + r->word_room * sizeof *tokens;
    for (size_t i = 0; i < count; i++)
        bytes += (size_t)s24i_utf8_put(word + bytes, text[i].c);
    const int64_t made =
        r->tokenizer->kind->word(tokens, (int64_t)r->word_room, r->tokenizer, word, bytes);
    r->failed |= made < 0;
    push_pieces(r, tokens, made, text, word);
}

/* An added token, with the white space that it takes. */
static void push_added(runner *r, const segment *s, const s24i_glyph *text)
{
    const size_t count = s->end - s->begin;
    if (!reserve_word(r, count)) return;
    s24_text spelling = {r->word, 0};
    for (size_t i = 0; i < count; i++)
        spelling.bytes += (size_t)s24i_utf8_put(r->word + spelling.bytes, text[i].c);
    const s24_token token = {r->tokenizer->added[s->added].id, r->run->type, text[0].begin,
                             text[count - 1].end};
    push(r, token, &spelling);
}

static void push_segments(runner *r)
{
    const s24i_glyph *text = r->now->text.at;
    for (size_t i = 0; i < r->now->count && r->count < r->run->room && !r->failed; i++) {
        const segment s = r->now->at[i];
        if (s.added == SIZE_MAX)
            push_word(r, text + s.begin, s.end - s.begin);
        else
            push_added(r, &s, text + s.begin);
    }
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Characters from `index` on; what is no UTF-8 is U+FFFD. */
static void read_text(runner *r, const s24_text *text, int32_t *index)
{
    const s24i_chain *chain = r->tokenizer->chain;
    line *l = r->now;
    s24i_glyphs_reserve(&l->text, text->bytes);
    for (size_t i = 0; i < text->bytes; ++*index) {
        uint32_t c;
        i += s24i_utf8_next(&c, (const unsigned char *)text->data + i, text->bytes - i);
        s24i_glyphs_put(&l->text,
                        (s24i_glyph){c == S24I_UTF8_INVALID ? 0xfffd : c, *index, *index + 1});
    }
    add_segment(l, 0, l->text.count, SIZE_MAX);
    cut_added(r, 0);
    for (int i = 0; i < chain->normalizers; i++)
        take_step(r, &chain->steps[i]);
    cut_added(r, 1);
    for (int i = chain->normalizers; i < chain->count; i++)
        take_step(r, &chain->steps[i]);
    for (int i = 0; i < 2; i++)
        r->failed |= r->lines[i].failed | r->lines[i].text.failed;
    if (!r->failed) push_segments(r);
    for (int i = 0; i < 2; i++)
        r->lines[i].count = r->lines[i].text.count = 0;
}

int64_t s24i_chain_run(const s24_tokenizer *tokenizer, const s24i_run *run, const s24_text *parts,
                       int part_count)
{
    s24_ctx *ctx = tokenizer->ctx;
    runner r = {.tokenizer = tokenizer, .run = run};
    int32_t index = 0;
    r.lines[0].text.ctx = r.lines[1].text.ctx = ctx;
    r.now = &r.lines[0];
    r.next = &r.lines[1];
    for (int i = 0; i < part_count && !r.failed; i++)
        read_text(&r, &parts[i], &index);
    for (int i = 0; i < 2; i++) {
        s24i_glyphs_free(&r.lines[i].text);
        s24_ctx_free(ctx, r.lines[i].at);
    }
    s24_ctx_free(ctx, r.word);
    return r.failed ? -1 : r.count;
}
