// SPDX-License-Identifier: Apache-2.0
/*
 * Text in Unicode's form C, with where its characters came from. A text is normalised between
 * characters that compose with none before them; what is not UTF-8 stays what it is. A text in form
 * C already, which most are, is only looked at.
 */
#include <string.h>

#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { FIRST_MARK = 0x300 /* no character before it composes with one before itself */ };

/* Asks whether a text may be cut before the character: it is neither a mark nor a later part of a
   Hangul syllable. */
static int begins_chunk(uint32_t c)
{
    if (c < FIRST_MARK || c == S24I_UTF8_INVALID) return 1;
    if ((c >= 0x1160 && c <= 0x11ff) || (c >= 0xd7b0 && c <= 0xd7ff)) return 0;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (kind < UTF8PROC_CATEGORY_MN || kind > UTF8PROC_CATEGORY_ME) return 1;
    return s24i_classify(c) == S24I_NEWER;
}

/* Writes the parts of a character, at most `room` of them, and returns their number. */
static size_t decompose(int32_t *parts, size_t room, uint32_t c)
{
    int last = 0;
    return (size_t)utf8proc_decompose_char((utf8proc_int32_t)c, parts, (utf8proc_ssize_t)room,
                                           UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
}

static size_t compose(int32_t *parts, size_t count)
{
    return (size_t)utf8proc_normalize_utf32(parts, (utf8proc_ssize_t)count,
                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

enum { MOST_PARTS = 32 /* of one character; the longest has four */ };

int s24i_nfc_is(const char *text, size_t bytes)
{
    int32_t parts[MOST_PARTS];
    uint32_t c;
    for (size_t i = 0; i < bytes;) {
        i += s24i_utf8_next(&c, (const unsigned char *)text + i, bytes - i);
        if (c < FIRST_MARK || c == S24I_UTF8_INVALID) continue;
        if (!begins_chunk(c)) return 0;
        if (compose(parts, decompose(parts, MOST_PARTS, c)) != 1 || parts[0] != (int32_t)c)
            return 0;
    }
    return 1;
}

enum { PAST_UNICODE = 0x110000 };

/* The text as characters; what is not UTF-8 is one that nothing changes, numbered by its place. */
static void spell(s24i_glyphs *out, const char *text, size_t bytes)
{
    int32_t index = 0;
    for (size_t i = 0, length; i < bytes; i += length, index++) {
        uint32_t c;
        length = s24i_utf8_next(&c, (const unsigned char *)text + i, bytes - i);
        if (c == S24I_UTF8_INVALID) c = PAST_UNICODE + (uint32_t)i;
        s24i_glyphs_put(out, (s24i_glyph){c, index, index + 1});
    }
}

/* A character's bytes. Returns their number. */
static size_t put(char *out, uint32_t c, const char *text, size_t bytes)
{
    if (c < PAST_UNICODE) return (size_t)s24i_utf8_put(out, c);
    const size_t at = c - PAST_UNICODE;
    const size_t length = s24i_utf8_next(&c, (const unsigned char *)text + at, bytes - at);
    memcpy(out, text + at, length);
    return length;
}

int s24i_nfc_make(s24i_nfc *out, s24_ctx *ctx, const char *text, size_t bytes)
{
    const s24i_chain_step step = {.option = S24I_FORM_COMPOSED};
    s24i_glyphs from = {.ctx = ctx}, to = {.ctx = ctx};
    *out = (s24i_nfc){.text = NULL};
    spell(&from, text, bytes);
    s24i_edit edit = {&to, from.at, from.count, 0};
    s24i_change_form(&step, &edit);
    if (!from.failed && !to.failed)
        out->from = s24_ctx_alloc(ctx, to.count * (sizeof *out->from + 4) + 1);
    out->text = (char *)(out->from + to.count);
    for (size_t i = 0; out->from && i < to.count; i++) {
        out->from[out->count++] = (s24i_span){to.at[i].begin, to.at[i].end};
        out->bytes += put(out->text + out->bytes, to.at[i].c, text, bytes);
    }
    s24i_glyphs_free(&from);
    s24i_glyphs_free(&to);
    return out->from != NULL;
}
