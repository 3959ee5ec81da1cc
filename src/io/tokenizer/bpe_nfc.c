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

/* That of the tokenizers library's tables, which know no character since Unicode 9.0. */
static int combining_class(int32_t c)
{
    const int said = utf8proc_get_property(c)->combining_class;
    return said > 0 && s24i_classify((uint32_t)c) != S24I_NEWER ? said : 0;
}

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

/* Sorts each run of marks by their classes, those of a class in their order. There are some fifty
   classes, so that a run of any length takes time in its proportion. */
static void sort_marks(int32_t *parts, size_t count, int32_t *spare)
{
    for (size_t i = 0, end; i < count; i = end + 1) {
        int is_sorted = 1;
        for (end = i; end < count && combining_class(parts[end]) > 0; end++)
            is_sorted &= end == i || combining_class(parts[end - 1]) <= combining_class(parts[end]);
        if (is_sorted) continue;
        size_t starts[257] = {0};
        for (size_t m = i; m < end; m++)
            starts[combining_class(parts[m]) + 1]++;
        for (int k = 0; k < 256; k++)
            starts[k + 1] += starts[k];
        for (size_t m = i; m < end; m++)
            spare[starts[combining_class(parts[m])]++] = parts[m];
        memcpy(parts + i, spare, (end - i) * sizeof *parts);
    }
}

/* How many parts the characters of a text have together, and how many of these it has. */
static size_t count_parts(const char *text, size_t bytes)
{
    size_t count = 0;
    uint32_t c;
    for (size_t i = 0; i < bytes;) {
        int32_t parts[MOST_PARTS];
        i += s24i_utf8_next(&c, (const unsigned char *)text + i, bytes - i);
        count += c == S24I_UTF8_INVALID ? 3 : decompose(parts, MOST_PARTS, c);
    }
    return count;
}

/* Characters first … end − 1 of the text have become these. */
static void put(s24i_nfc *out, const int32_t *parts, size_t count, int32_t first, int32_t end)
{
    const int one_each = count == (size_t)(end - first);
    for (size_t i = 0; i < count; i++) {
        const int32_t from = first + (one_each ? (int32_t)i : 0);
        out->from[out->count++] = (s24i_span){from, one_each ? from + 1 : end};
        out->bytes += (size_t)s24i_utf8_put(out->text + out->bytes, (uint32_t)parts[i]);
    }
}

/* Normalises; parts and spare have room for all that there is. */
static void fill(s24i_nfc *out, const char *text, size_t bytes, int32_t *parts, int32_t *spare)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t length, room = (size_t)(spare - parts);
    int32_t index = 0;
    uint32_t c;
    for (size_t i = 0; i < bytes; i += length) {
        const int32_t first = index++;
        length = s24i_utf8_next(&c, p + i, bytes - i);
        if (c == S24I_UTF8_INVALID) {
            memcpy(out->text + out->bytes, text + i, length);
            out->bytes += length;
            out->from[out->count++] = (s24i_span){first, index};
            continue;
        }
        size_t count = decompose(parts, room, c);
        for (; i + length < bytes; index++) {
            const size_t next = s24i_utf8_next(&c, p + i + length, bytes - i - length);
            if (begins_chunk(c)) break;
            count += decompose(parts + count, room - count, c);
            length += next;
        }
        sort_marks(parts, count, spare);
        put(out, parts, compose(parts, count), first, index);
    }
}

int s24i_nfc_make(s24i_nfc *out, s24_ctx *ctx, const char *text, size_t bytes)
{
    const size_t room = count_parts(text, bytes) + 1;
    *out = (s24i_nfc){.text = NULL};
    out->from = s24_ctx_alloc(ctx, room * (sizeof *out->from + 2 * sizeof(int32_t) + 4));
    if (!out->from) return 0;
    int32_t *parts = (int32_t *)(out->from + room);
    out->text = (char *)(parts + 2 * room);
    fill(out, text, bytes, parts, parts + room);
    return 1;
}
