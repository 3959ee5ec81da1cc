// SPDX-License-Identifier: Apache-2.0
/* Steps that look for a pattern, which reads UTF-8: words by a regular expression. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* ---- \w+|[^\w\s]+ ---------------------------------------------------------------------------- */

typedef enum word_class { SPACE, WORD, OTHER } word_class;

static word_class class_of(uint32_t c)
{
    enum { NO_JOINER = 0x200c, JOINER = 0x200d };
    if (s24i_is_word(c) || c == NO_JOINER || c == JOINER) return WORD;
    return s24i_is_space(c) ? SPACE : OTHER;
}

static void find_words(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                       size_t count)
{
    (void)step;
    for (size_t i = 0, end; i < count; i = end) {
        const word_class class = class_of(text[i].c);
        for (end = i + 1; end < count && class_of(text[end].c) == class;)
            end++;
        s24i_cuts_put(out, i, end, class != SPACE);
    }
}

s24_status s24i_pretokenizer_Whitespace(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->find = find_words;
    step->behaviour = S24I_REMOVED;
    step->invert = 1;
    return S24_OK;
}

/* ---- patterns over UTF-8 --------------------------------------------------------------------- */

/* A text in UTF-8; byte `byte` begins character `glyph` of it. */
typedef struct spelled {
    char *bytes;
    size_t count;
    const s24i_glyph *text;
    size_t glyph, byte;
} spelled;

static int spell(spelled *out, s24_ctx *ctx, const s24i_glyph *text, size_t count)
{
    *out = (spelled){.text = text, .bytes = s24_ctx_alloc(ctx, 4 * count + 1)};
    for (size_t i = 0; out->bytes && i < count; i++)
        out->count += (size_t)s24i_utf8_put(out->bytes + out->count, text[i].c);
    return out->bytes != NULL;
}

/* The character that begins at a byte, none of which is before the last one asked for. */
static size_t glyph_at(spelled *s, size_t byte)
{
    while (s->byte < byte)
        s->byte += s24i_utf8_length(s->text[s->glyph++].c);
    return s->glyph;
}

void s24i_find_split(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                     size_t count)
{
    spelled s;
    if (!spell(&s, out->ctx, text, count)) {
        out->failed = 1;
        return;
    }
    for (size_t at = 0; at < s.count && !out->failed;) {
        const size_t begin = glyph_at(&s, at);
        at += step->split(s.bytes + at, s.count - at);
        s24i_cuts_put(out, begin, glyph_at(&s, at), 1);
    }
    s24_ctx_free(out->ctx, s.bytes);
}

/* Matches from left to right. An empty one is none where another ended. */
static void find_regex(const s24i_chain_step *step, s24i_cuts *out, const s24i_glyph *text,
                       size_t count)
{
    spelled s;
    size_t before = 0, last = SIZE_MAX;
    if (!spell(&s, out->ctx, text, count)) {
        out->failed = 1;
        return;
    }
    for (size_t at = 0, glyph = 0; at <= s.count && s.count && !out->failed;) {
        const size_t end = s24i_regex_match(step->regex, s.bytes, s.count, at);
        glyph = glyph_at(&s, at);
        if (end == SIZE_MAX || (end == at && end == last)) {
            at += glyph < count ? s24i_utf8_length(text[glyph].c) : 1;
            continue;
        }
        if (glyph > before) s24i_cuts_put(out, before, glyph, 0);
        before = glyph_at(&s, end);
        s24i_cuts_put(out, glyph, before, 1);
        last = end;
        at = end;
    }
    if (before < count) s24i_cuts_put(out, before, count, 0);
    s24_ctx_free(out->ctx, s.bytes);
}

s24_status s24i_step_regex(s24i_chain_step *step, s24i_chain *chain, const s24i_config *part,
                           const char *pattern)
{
    step->split = s24i_split_find(pattern);
    step->find = step->split ? s24i_find_split : find_regex;
    if (step->split) return S24_OK;
    return s24i_regex_create(&step->regex, chain->ctx, part->file, pattern);
}
