// SPDX-License-Identifier: Apache-2.0
/* Normalisers that look at one character at a time: case, blanks, controls, ideographs. */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

/* ---- case ------------------------------------------------------------------------------------ */

void s24i_change_lower(const s24i_chain_step *step, s24i_edit *edit)
{
    enum { CAPITAL_DOTTED_I = 0x130, DOT = 0x307 }; /* whose lower case is two characters */
    (void)step;
    for (size_t i = 0; i < edit->count; i++) {
        const uint32_t c = edit->in[i].c;
        if (c == CAPITAL_DOTTED_I) {
            s24i_edit_put(edit, 'i', 0);
            s24i_edit_put(edit, DOT, 1);
        } else if (c < 0x80) {
            s24i_edit_put(edit, c >= 'A' && c <= 'Z' ? c | 0x20 : c, 0);
        } else {
            s24i_edit_put(edit, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c), 0);
        }
    }
}

s24_status s24i_normalizer_Lowercase(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, s24i_change_lower, 0);
}

/* ---- white space at the ends ----------------------------------------------------------------- */

enum { LEFT = 1, RIGHT = 2 };

static void change_strip(const s24i_chain_step *step, s24i_edit *edit)
{
    size_t begin = 0, end = edit->count;
    while (step->option & LEFT && begin < end && s24i_is_space(edit->in[begin].c))
        begin++;
    while (step->option & RIGHT && end > begin && s24i_is_space(edit->in[end - 1].c))
        end--;
    for (; begin < end; begin++)
        s24i_glyphs_put(edit->out, edit->in[begin]);
}

s24_status s24i_normalizer_Strip(s24i_chain *chain, const s24i_config *part)
{
    int left = 0, right = 0;
    TRY(s24i_config_bool(&left, part, "strip_left", S24I_OPTIONAL));
    TRY(s24i_config_bool(&right, part, "strip_right", S24I_OPTIONAL));
    return s24i_step_change(chain, part, change_strip, (left ? LEFT : 0) | (right ? RIGHT : 0));
}

/* ---- Nmt ------------------------------------------------------------------------------------- */

static int nmt_drops(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
           c == 0x9f;
}

static int nmt_blanks(uint32_t c)
{
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
}

static void change_nmt(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++) {
        s24i_glyph glyph = edit->in[i];
        if (nmt_drops(glyph.c)) continue;
        if (nmt_blanks(glyph.c)) glyph.c = ' ';
        s24i_glyphs_put(edit->out, glyph);
    }
}

s24_status s24i_normalizer_Nmt(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, change_nmt, 0);
}

/* ---- BERT ------------------------------------------------------------------------------------ */

static void change_clean(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++) {
        s24i_glyph glyph = edit->in[i];
        const s24i_class class = s24i_classify(glyph.c);
        if (class == S24I_DROP || class == S24I_DROP_SPACE) continue;
        if (class == S24I_SPACE) glyph.c = ' ';
        s24i_glyphs_put(edit->out, glyph);
    }
}

/* Ideographs have a blank on either side. */
static void change_ideographs(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++) {
        const s24i_glyph glyph = edit->in[i];
        const s24i_glyph blank = {' ', glyph.begin, glyph.end};
        const int is_padded = s24i_classify(glyph.c) == S24I_CJK;
        if (is_padded) s24i_glyphs_put(edit->out, blank);
        s24i_glyphs_put(edit->out, glyph);
        if (is_padded) s24i_glyphs_put(edit->out, blank);
    }
}

static void change_accents(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++)
        if (s24i_classify(edit->in[i].c) != S24I_MARK) s24i_glyphs_put(edit->out, edit->in[i]);
}

s24_status s24i_normalizer_BertNormalizer(s24i_chain *chain, const s24i_config *part)
{
    int clean = 1, chinese = 1, lower = 1, strip;
    TRY(s24i_config_bool(&clean, part, "clean_text", S24I_OPTIONAL));
    TRY(s24i_config_bool(&chinese, part, "handle_chinese_chars", S24I_OPTIONAL));
    TRY(s24i_config_bool(&lower, part, "lowercase", S24I_OPTIONAL));
    strip = lower;
    TRY(s24i_config_bool(&strip, part, "strip_accents", S24I_OPTIONAL));
    if (clean) TRY(s24i_step_change(chain, part, change_clean, 0));
    if (chinese) TRY(s24i_step_change(chain, part, change_ideographs, 0));
    if (strip) TRY(s24i_step_change(chain, part, s24i_change_form, 0));
    if (strip) TRY(s24i_step_change(chain, part, change_accents, 0));
    return lower ? s24i_step_change(chain, part, s24i_change_lower, 0) : S24_OK;
}
