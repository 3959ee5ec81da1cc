// SPDX-License-Identifier: Apache-2.0
/*
 * Reading UTF-8 that may be anything. An ill-formed sequence is cut as Unicode recommends (section
 * 3.9, "maximal subparts"), so that code points are counted as Python and the browsers count them.
 */
#ifndef S24_IO_TOKENIZER_UTF8_H
#define S24_IO_TOKENIZER_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include <utf8proc.h>

#define S24I_UTF8_INVALID UINT32_MAX

/* *character = the code point at p, of which left > 0 bytes are there, or S24I_UTF8_INVALID.
   Returns the bytes it takes. */
static inline size_t s24i_utf8_next(uint32_t *character, const unsigned char *p, size_t left)
{
    uint32_t c = p[0];
    unsigned low = 0x80, high = 0xbf; /* of the second byte */
    size_t length;
    *character = c;
    if (c < 0x80) return 1;
    *character = S24I_UTF8_INVALID;
    if (c < 0xc2 || c > 0xf4) return 1;
    if (c < 0xe0) {
        length = 2;
        c &= 0x1f;
    } else if (c < 0xf0) {
        length = 3;
        if (c == 0xe0) low = 0xa0;  /* shorter form exists */
        if (c == 0xed) high = 0x9f; /* surrogates */
        c &= 0x0f;
    } else {
        length = 4;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f; /* above U+10FFFF */
        c &= 0x07;
    }
    for (size_t i = 1; i < length; i++) {
        if (i == left || p[i] < low || p[i] > high) return i;
        c = c << 6 | (p[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *character = c;
    return length;
}

/* Writes a code point as one to four bytes and returns how many. */
static inline int s24i_utf8_put(char *out, uint32_t c)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

static inline size_t s24i_utf8_length(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

/* Bytes of the text's first `count` code points; SIZE_MAX when it has fewer. */
static inline size_t s24i_utf8_skip(const char *text, size_t bytes, int64_t count)
{
    size_t i = 0;
    for (uint32_t character; count > 0 && i < bytes; count--)
        i += s24i_utf8_next(&character, (const unsigned char *)text + i, bytes - i);
    return count ? SIZE_MAX : i;
}

/* Bytes before the first ill-formed sequence; `bytes` when there is none. */
static inline size_t s24i_utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0;
    uint32_t character;
    while (i < bytes) {
        size_t length = s24i_utf8_next(&character, p + i, bytes - i);
        if (character == S24I_UTF8_INVALID) break;
        i += length;
    }
    return i;
}

#endif
