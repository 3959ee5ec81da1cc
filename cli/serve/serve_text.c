// SPDX-License-Identifier: Apache-2.0
/* Writes answers into memory that grows. Vectors are most of what a server writes, so their numbers
   have a way of their own. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "serve/serve.h"

/* Makes room for so many bytes more, and a zero. */
static char *grow(serve_text *t, size_t more)
{
    if (t->failed || more > SIZE_MAX / 4 - t->bytes) {
        t->failed = 1;
        return NULL;
    }
    if (t->bytes + more >= t->room) {
        const size_t room = 2 * (t->bytes + more) + 256;
        char *grown = realloc(t->data, room);
        t->failed = !grown;
        if (!grown) return NULL;
        t->data = grown;
        t->room = room;
    }
    return t->data + t->bytes;
}

void serve_put(serve_text *text, const char *bytes, size_t count)
{
    char *to = grow(text, count);
    if (!to) return;
    memcpy(to, bytes, count);
    to[count] = '\0';
    text->bytes += count;
}

void serve_puts(serve_text *text, const char *words)
{
    serve_put(text, words, strlen(words));
}

void serve_printf(serve_text *text, const char *format, ...)
{
    char piece[512], *whole = piece;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(piece, sizeof piece, format, arguments);
    if (length >= (int)sizeof piece && (whole = malloc((size_t)length + 1)) != NULL)
        vsnprintf(whole, (size_t)length + 1, format, again);
    if (length < 0 || !whole)
        text->failed = 1;
    else
        serve_put(text, whole, (size_t)length);
    if (whole != piece) free(whole);
    va_end(again);
    va_end(arguments);
}

/* Nine digits tell every float apart. Those of 1e-5 to 1, as elements of vectors of length one
   mostly are, are a product in double, whose error is some millionths of the ninth digit. */
void serve_put_number(serve_text *text, float value)
{
    enum { DIGITS = 9, MOST = 24 };
    static const double powers[] = {1e9, 1e10, 1e11, 1e12, 1e13};
    const double size = fabs((double)value);
    char *to = grow(text, MOST);
    int zeros = 0, count = DIGITS;
    if (!to) return;
    if (!(size >= 1e-5 && size < 0.99999)) {
        if (isfinite(value))
            text->bytes += (size_t)snprintf(to, MOST, "%.9g", (double)value);
        else
            serve_puts(text, "null");
        return;
    }
    for (double x = size * 10; x < 1 && zeros < 4; x *= 10)
        zeros++;
    uint32_t digits = (uint32_t)(size * powers[zeros] + 0.5);
    for (; digits % 10 == 0; digits /= 10)
        count--;
    char *at = to;
    if (value < 0) *at++ = '-';
    memcpy(at, "0.0000", 6);
    at += 2 + zeros;
    for (int i = count; i-- > 0; digits /= 10)
        at[i] = (char)('0' + digits % 10);
    text->bytes += (size_t)(at + count - to);
}

void serve_put_base64(serve_text *text, const void *bytes, size_t count)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char *to = grow(text, (count + 2) / 3 * 4);
    if (!to) return;
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const unsigned bits = (unsigned)from[i] << 16 |
                              (left > 1 ? (unsigned)from[i + 1] << 8 : 0u) |
                              (left > 2 ? (unsigned)from[i + 2] : 0u);
        *to++ = letters[bits >> 18];
        *to++ = letters[bits >> 12 & 63];
        *to++ = left > 1 ? letters[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? letters[bits & 63] : '=';
    }
    text->bytes += (count + 2) / 3 * 4;
}

static int put_dumped(const char *bytes, size_t count, void *text)
{
    serve_put(text, bytes, count);
    return 0;
}

void serve_put_json(serve_text *text, json_t *value)
{
    if (!value || json_dump_callback(value, put_dumped, text, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        text->failed = 1;
    json_decref(value);
}
