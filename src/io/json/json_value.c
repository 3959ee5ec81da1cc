// SPDX-License-Identifier: Apache-2.0
/* Values of JSON where json_read.c has stored them, and texts of JSON. */
#include "io/json/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file/io.h"

enum { HEAD = 5 };

s24i_json_type s24i_json_typeof(const s24i_json *value)
{
    const char *p = (const char *)value;
    if (!p) return S24I_JSON_NONE;
    switch (*p) {
    case '{':
        return S24I_JSON_OBJECT;
    case '[':
        return S24I_JSON_ARRAY;
    case '"':
        return S24I_JSON_STRING;
    case 't':
    case 'f':
        return S24I_JSON_BOOL;
    case 'n':
        return S24I_JSON_NULL;
    default:
        return strpbrk(p, ".eE") ? S24I_JSON_REAL : S24I_JSON_INTEGER;
    }
}

int s24i_json_is_true(const s24i_json *value)
{
    return value && *(const char *)value == 't';
}

int64_t s24i_json_integer(const s24i_json *value)
{
    if (s24i_json_typeof(value) != S24I_JSON_INTEGER) return 0;
    return strtoll((const char *)value, NULL, 10);
}

int s24i_json_real(double *value, const char *text)
{
    /* strtod wants the decimal point of the program's locale. */
    char copy[S24I_JSON_NUMBER + 16];
    const char *point = strchr(text, '.');
    const char *local = localeconv()->decimal_point;
    if (point && strlen(local) < sizeof copy - S24I_JSON_NUMBER) {
        snprintf(copy, sizeof copy, "%.*s%s%s", (int)(point - text), text, local, point + 1);
        text = copy;
    }
    const double number = strtod(text, NULL);
    if (value) *value = number;
    return isfinite(number);
}

double s24i_json_number(const s24i_json *value)
{
    double number = 0;
    const s24i_json_type type = s24i_json_typeof(value);
    if (type == S24I_JSON_INTEGER) return (double)s24i_json_integer(value);
    if (type == S24I_JSON_REAL) s24i_json_real(&number, (const char *)value);
    return number;
}

const char *s24i_json_string(const s24i_json *value)
{
    return s24i_json_typeof(value) == S24I_JSON_STRING ? (const char *)value + 1 : NULL;
}

/* ---- arrays and objects ---------------------------------------------------------------------- */

static uint32_t inner_bytes(const char *p)
{
    uint32_t bytes;
    memcpy(&bytes, p + 1, sizeof bytes);
    return bytes;
}

static const char *past(const char *p)
{
    switch (*p) {
    case '{':
    case '[':
        return p + HEAD + inner_bytes(p);
    case 't':
    case 'f':
    case 'n':
        return p + 1;
    default:
        return p + strlen(p) + 1;
    }
}

s24i_json_walk s24i_json_begin(const s24i_json *value)
{
    const char *p = (const char *)value;
    const s24i_json_type type = s24i_json_typeof(value);
    if (type != S24I_JSON_ARRAY && type != S24I_JSON_OBJECT) return (s24i_json_walk){0};
    return (s24i_json_walk){p + HEAD, p + HEAD + inner_bytes(p), type == S24I_JSON_OBJECT};
}

s24i_json *s24i_json_next(s24i_json_walk *walk, const char **key)
{
    if (key) *key = NULL;
    if (walk->at == walk->end) return NULL;
    if (walk->has_keys) {
        if (key) *key = walk->at + 1;
        walk->at = past(walk->at);
    }
    const char *value = walk->at;
    walk->at = past(value);
    return (s24i_json *)(uintptr_t)value;
}

s24i_json *s24i_json_get(const s24i_json *object, const char *key)
{
    const char *found;
    s24i_json_walk walk = s24i_json_begin(object);
    for (s24i_json *value; walk.has_keys && (value = s24i_json_next(&walk, &found)) != NULL;)
        if (!strcmp(found, key)) return value;
    return NULL;
}

s24i_json *s24i_json_at(const s24i_json *array, size_t index)
{
    s24i_json_walk walk = s24i_json_begin(array);
    s24i_json *value = NULL;
    for (size_t i = 0; !walk.has_keys && i <= index; i++)
        if (!(value = s24i_json_next(&walk, NULL))) break;
    return value;
}

size_t s24i_json_count(const s24i_json *value)
{
    size_t count = 0;
    s24i_json_walk walk = s24i_json_begin(value);
    while (s24i_json_next(&walk, NULL))
        count++;
    return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_bytes(s24i_json_text *text, const char *bytes, size_t count)
{
    if (text->data) memcpy(text->data + text->bytes, bytes, count);
    text->bytes += count;
}

void s24i_json_put(s24i_json_text *text, const char *raw)
{
    put_bytes(text, raw, strlen(raw));
}

void s24i_json_put_integer(s24i_json_text *text, int64_t value)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)value);
    s24i_json_put(text, number);
}

void s24i_json_put_real(s24i_json_text *text, double value)
{
    char number[40];
    double again = 0;
    if (value == floor(value) && fabs(value) < 1e15) {
        s24i_json_put_integer(text, (int64_t)value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        /* The program's locale may write another decimal point. */
        for (char *c = number; *c; c++)
            if (!strchr("+-0123456789e", *c)) *c = '.';
        if (s24i_json_real(&again, number) && (float)again == (float)value) break;
    }
    s24i_json_put(text, number);
}

void s24i_json_put_string(s24i_json_text *text, const char *string, size_t bytes)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *end = string + bytes;
    put_bytes(text, "\"", 1);
    for (;;) {
        const char *plain = string;
        while (string < end && (unsigned char)*string >= 0x20 && *string != '"' && *string != '\\')
            string++;
        put_bytes(text, plain, (size_t)(string - plain));
        if (string == end) break;
        char escape[8] = {'\\'};
        const char *found = *string ? strchr(escaped, *string) : NULL;
        if (found)
            escape[1] = letters[found - escaped];
        else
            snprintf(escape, sizeof escape, "\\u%04X", (unsigned)*string);
        s24i_json_put(text, escape);
        string++;
    }
    put_bytes(text, "\"", 1);
}

s24_status s24i_json_make(char **out, s24_ctx *ctx,
                          void (*write)(s24i_json_text *text, const void *user), const void *user,
                          size_t room)
{
    s24i_json_text text = {NULL, 0};
    *out = NULL;
    write(&text, user);
    TRY(s24i_alloc_elems(out, ctx, (int64_t)(text.bytes + room + 1), 1, "a text of JSON"));
    text = (s24i_json_text){*out, 0};
    write(&text, user);
    memset(text.data + text.bytes, 0, room + 1);
    return S24_OK;
}
