// SPDX-License-Identifier: Apache-2.0
/*
 * A text as characters that know where they came from, and how a step of normalisation makes one
 * of another. What must stay true: origins are those that Hugging Face's tokenizers counts, whose
 * rule is one of places: a new character takes the place of the next old one, is one more next to
 * the one before it, or takes several old ones' places, of which the first counts.
 */
#ifndef S24_IO_TOKENIZER_GLYPHS_H
#define S24_IO_TOKENIZER_GLYPHS_H

#include <stddef.h>
#include <stdint.h>

#include "sparse24/nn.h"

/* A code point, and the characters begin … end − 1 of the text that it came from. */
typedef struct s24i_glyph {
    uint32_t c;
    int32_t begin, end;
} s24i_glyph;

typedef struct s24i_glyphs {
    s24_ctx *ctx;
    s24i_glyph *at;
    size_t count, room;
    int failed; /* 1: there was no memory, and what was to be put is not there */
} s24i_glyphs;

/* Room for that many more; 0 where there is none. */
int s24i_glyphs_reserve(s24i_glyphs *glyphs, size_t more);
void s24i_glyphs_free(s24i_glyphs *glyphs);

static inline void s24i_glyphs_put(s24i_glyphs *out, s24i_glyph glyph)
{
    if (out->count < out->room || s24i_glyphs_reserve(out, 1)) out->at[out->count++] = glyph;
}

/* Characters `in` on their way to `out`; `at` is the next old one. */
typedef struct s24i_edit {
    s24i_glyphs *out;
    const s24i_glyph *in;
    size_t count, at;
} s24i_edit;

/* change: 0 takes the next one's place, 1 is one more, −n takes those of n more. */
static inline void s24i_edit_put(s24i_edit *edit, uint32_t c, int change)
{
    const size_t place = change > 0 && edit->at ? edit->at - 1 : edit->at;
    const s24i_glyph from = place < edit->count ? edit->in[place] : (s24i_glyph){0, 0, 0};
    s24i_glyphs_put(edit->out, (s24i_glyph){c, from.begin, from.end});
    if (change <= 0) edit->at += (size_t)(1 - change);
}

/* Text of a file as code points, which end in a 0; NULL where there is no memory. */
uint32_t *s24i_code_points(size_t *count, s24_ctx *ctx, const char *text);

#endif
