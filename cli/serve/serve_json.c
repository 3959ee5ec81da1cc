// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the JSON that most requests are: no escapes, no numbers but short whole ones, few levels.
 * jansson reads a string byte by byte, which takes a server as long as cutting it into tokens. What
 * is not plain, or wrong, is left to it, so that there is one reader that says what is wrong. What
 * must stay true: what is read here is what jansson reads (fuzz_serve compares them).
 */
#include <string.h>

#include "serve/serve.h"

enum { LEVELS = 8, DIGITS = 15, KEY_BYTES = 48 };

typedef struct reader {
    const char *at, *end;
} reader;

/* Goes over white space; the next byte, 0 at the end. */
static char peek(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

/* The text between the quotation mark here and the next. NULL: there is more to it than bytes. */
static const char *read_span(reader *r, size_t *bytes, int *is_ascii)
{
    const char *begin = r->at + 1;
    const char *end = memchr(begin, '"', (size_t)(r->end - begin));
    if (!end || memchr(begin, '\\', (size_t)(end - begin))) return NULL;
    unsigned controls = 0, high = 0;
    for (const char *p = begin; p < end; p++) {
        controls |= (unsigned char)*p < 0x20;
        high |= (unsigned char)*p;
    }
    r->at = end + 1;
    *bytes = (size_t)(end - begin);
    *is_ascii = high < 0x80;
    return controls ? NULL : begin;
}

static json_t *read_string(reader *r)
{
    size_t bytes;
    int is_ascii;
    const char *text = read_span(r, &bytes, &is_ascii);
    if (!text) return NULL;
    return is_ascii ? json_stringn_nocheck(text, bytes) : json_stringn(text, bytes);
}

static json_t *read_integer(reader *r)
{
    const int is_negative = *r->at == '-';
    const char *begin = r->at += is_negative;
    json_int_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - begin < DIGITS; r->at++)
        value = 10 * value + (*r->at - '0');
    const ptrdiff_t digits = r->at - begin;
    const char next = r->at < r->end ? *r->at : '\0';
    if (!digits || (digits > 1 && *begin == '0') || !strchr(",]} \n\t\r", next) || !next)
        return NULL;
    return json_integer(is_negative ? -value : value);
}

static json_t *read_word(reader *r, const char *word, json_t *value)
{
    const size_t bytes = strlen(word);
    if ((size_t)(r->end - r->at) < bytes || memcmp(r->at, word, bytes) != 0) return NULL;
    r->at += bytes;
    return value;
}

static json_t *read_value(reader *r, int levels);

/* What follows an element: 1 another, 0 the end, −1 something else. */
static int goes_on(reader *r, char end)
{
    const char c = peek(r);
    if (c != ',' && c != end) return -1;
    r->at++;
    return c == ',';
}

static json_t *read_array(reader *r, int levels)
{
    json_t *array = json_array();
    int more = 1;
    r->at++;
    if (peek(r) == ']') more = goes_on(r, ']');
    while (array && more > 0)
        more = json_array_append_new(array, read_value(r, levels)) ? -1 : goes_on(r, ']');
    if (more == 0) return array;
    json_decref(array);
    return NULL;
}

static int read_member(reader *r, json_t *object, int levels)
{
    char key[KEY_BYTES + 1] = "";
    size_t bytes;
    int is_ascii;
    const char *span = peek(r) == '"' ? read_span(r, &bytes, &is_ascii) : NULL;
    if (!span || !is_ascii || bytes > KEY_BYTES || peek(r) != ':') return 0;
    memcpy(key, span, bytes);
    r->at++;
    return !json_object_set_new_nocheck(object, key, read_value(r, levels));
}

static json_t *read_object(reader *r, int levels)
{
    json_t *object = json_object();
    int more = 1;
    r->at++;
    if (peek(r) == '}') more = goes_on(r, '}');
    while (object && more > 0)
        more = read_member(r, object, levels) ? goes_on(r, '}') : -1;
    if (more == 0) return object;
    json_decref(object);
    return NULL;
}

static json_t *read_value(reader *r, int levels)
{
    if (!levels || !cli_json_is_whole()) return NULL;
    switch (peek(r)) {
    case '"':
        return read_string(r);
    case '[':
        return read_array(r, levels - 1);
    case '{':
        return read_object(r, levels - 1);
    case 't':
        return read_word(r, "true", json_true());
    case 'f':
        return read_word(r, "false", json_false());
    case 'n':
        return read_word(r, "null", json_null());
    default:
        return r->at < r->end ? read_integer(r) : NULL;
    }
}

json_t *serve_json_plain(const char *text, size_t bytes)
{
    reader r = {text, text + bytes};
    const char first = peek(&r);
    json_t *value = first == '{' || first == '[' ? read_value(&r, LEVELS) : NULL;
    if (!value || (!peek(&r) && r.at == r.end)) return value;
    json_decref(value);
    return NULL;
}
