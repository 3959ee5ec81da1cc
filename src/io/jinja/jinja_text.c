// SPDX-License-Identifier: Apache-2.0
/* Values as texts: as Python's str and repr have them, as JSON, and escaped for HTML. */
#include "io/jinja/jinja_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer/utf8.h"

static void put_word(s24i_jbuild *b, const char *text, int own)
{
    s24i_jput(b, text, strlen(text), own);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The fewest digits that give the same number, with an exponent as Python has one. */
static void real_text(char out[40], double value)
{
    char digits[40];
    double back = 0;
    int exponent, count = 0;
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, value);
        for (char *c = digits; *c; c++)
            if (!strchr("0123456789-+e", *c)) *c = '.'; /* as the locale has it */
        if (s24i_json_real(&back, digits) && back == value) break;
    }
    exponent = atoi(strchr(digits, 'e') + 1);
    *strchr(digits, 'e') = '\0';
    for (char *c = digits; *c; c++)
        if (*c >= '0' && *c <= '9') digits[count++] = *c;
    char *at = out;
    if (value < 0 || (value == 0 && signbit(value))) *at++ = '-';
    if (exponent >= 16 || exponent < -4) {
        at += sprintf(at, "%c%s%.*s", digits[0], count > 1 ? "." : "", count - 1, digits + 1);
        sprintf(at, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    for (int i = exponent < 0 ? exponent : 0; i < count || i <= exponent + 1; i++) {
        if (i == exponent + 1) *at++ = '.';
        *at++ = i >= 0 && i < count ? digits[i] : '0';
    }
    *at = '\0';
}

static void put_number(s24i_jbuild *b, s24i_jvalue value, int is_json)
{
    char text[40];
    if (value.kind == S24I_JBOOL)
        snprintf(text, sizeof text, "%s",
                 value.as.integer ? (is_json ? "true" : "True") : (is_json ? "false" : "False"));
    else if (value.kind == S24I_JINT)
        snprintf(text, sizeof text, "%lld", (long long)value.as.integer);
    else if (isnan(value.as.real))
        snprintf(text, sizeof text, is_json ? "NaN" : "nan");
    else if (isinf(value.as.real))
        snprintf(text, sizeof text, "%s%s", value.as.real < 0 ? "-" : "",
                 is_json ? "Infinity" : "inf");
    else
        real_text(text, value.as.real);
    put_word(b, text, !is_json);
}

/* ---- repr ------------------------------------------------------------------------------------ */

static int is_printable(uint32_t c)
{
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return c == ' ' || !(kind >= UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_CN);
}

static void put_repr_character(s24i_jbuild *b, uint32_t c, char quote)
{
    char text[16];
    const char *letter = c && c < 0x80 ? strchr("\\\n\r\t", (int)c) : NULL;
    if (letter && *letter)
        snprintf(text, sizeof text, "\\%c", "\\nrt"[letter - "\\\n\r\t"]);
    else if (c == (uint32_t)quote)
        snprintf(text, sizeof text, "\\%c", quote);
    else if (c == S24I_UTF8_INVALID || is_printable(c)) {
        s24i_jput_character(b, c == S24I_UTF8_INVALID ? 0xfffd : c, 0);
        return;
    } else {
        snprintf(text, sizeof text,
                 c < 0x100     ? "\\x%02x"
                 : c < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
                 (unsigned)c);
    }
    put_word(b, text, 0);
}

static void put_repr_string(s24i_jbuild *b, s24i_jvalue string)
{
    const unsigned char *text = (const unsigned char *)string.as.text;
    const int has_single = string.bytes && memchr(text, '\'', string.bytes);
    const int has_double = string.bytes && memchr(text, '"', string.bytes);
    const char quote = has_single && !has_double ? '"' : '\'';
    uint32_t c;
    s24i_jput(b, &quote, 1, 0);
    for (size_t i = 0; i < string.bytes && !s24i_jfailed(b->run);) {
        i += s24i_utf8_next(&c, text + i, string.bytes - i);
        put_repr_character(b, c, quote);
    }
    s24i_jput(b, &quote, 1, 0);
}

static void put_repr_list(s24i_jbuild *b, s24i_jvalue value)
{
    const s24i_jlist *list = value.as.list;
    const int is_tuple = value.kind == S24I_JTUPLE;
    put_word(b, is_tuple ? "(" : "[", 0);
    for (size_t i = 0; i < list->count && !s24i_jfailed(b->run); i++) {
        if (i) put_word(b, ", ", 0);
        s24i_jput_repr(b, list->items[i]);
    }
    put_word(b, !is_tuple ? "]" : list->count == 1 ? ",)" : ")", 0);
}

static void put_repr_dict(s24i_jbuild *b, const s24i_jdict *dict)
{
    put_word(b, "{", 0);
    for (size_t i = 0; i < dict->count && !s24i_jfailed(b->run); i++) {
        if (i) put_word(b, ", ", 0);
        s24i_jput_repr(b, dict->pairs[i].key);
        put_word(b, ": ", 0);
        s24i_jput_repr(b, dict->pairs[i].value);
    }
    put_word(b, "}", 0);
}

void s24i_jput_repr(s24i_jbuild *build, s24i_jvalue value)
{
    s24i_jrun *run = build->run;
    if (!s24i_jwork(run, 1)) return;
    if (++run->depth > S24I_JMOST_DEPTH) s24i_jfail(run, "a value is in itself, or too deep");
    if (value.kind == S24I_JSTRING)
        put_repr_string(build, value);
    else if (s24i_jis_number(value))
        put_number(build, value, 0);
    else if (value.kind == S24I_JNONE)
        put_word(build, "None", 1);
    else if (value.kind == S24I_JUNDEFINED)
        put_word(build, "Undefined", 1);
    else if (value.kind == S24I_JLIST || value.kind == S24I_JTUPLE)
        put_repr_list(build, value);
    else if (value.kind == S24I_JDICT)
        put_repr_dict(build, value.as.dict);
    else
        s24i_jfail(run, "a %s has no text", s24i_jtype(value));
    run->depth--;
}

void s24i_jput_value(s24i_jbuild *build, s24i_jvalue value)
{
    if (value.kind == S24I_JSTRING)
        s24i_jput_string(build, value);
    else if (value.kind != S24I_JUNDEFINED)
        s24i_jput_repr(build, value);
}

s24i_jvalue s24i_jstr(s24i_jrun *run, s24i_jvalue value)
{
    s24i_jbuild b = {.run = run};
    if (value.kind == S24I_JSTRING) return value;
    s24i_jput_value(&b, value);
    return s24i_jbuilt(&b);
}

s24i_jvalue s24i_jescaped(s24i_jrun *run, s24i_jvalue string)
{
    static const char marks[] = "<>&\"'";
    static const char *const words[] = {"&lt;", "&gt;", "&amp;", "&#34;", "&#39;"};
    s24i_jbuild b = {.run = run};
    if (string.safe) return string;
    for (size_t i = 0; i < string.bytes && !s24i_jfailed(run); i++) {
        const char *mark = string.as.text[i] ? strchr(marks, string.as.text[i]) : NULL;
        if (mark)
            put_word(&b, words[mark - marks], 0);
        else
            s24i_jput_string(&b, s24i_jcut(string, i, i + 1));
    }
    s24i_jvalue out = s24i_jbuilt(&b);
    out.safe = 1;
    return out;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct json_text {
    s24i_jbuild b;
    const s24i_jjson *how;
    int depth;
} json_text;

static void put_json(json_text *j, s24i_jvalue value);

static void put_json_escape(s24i_jbuild *b, uint32_t c)
{
    char text[16];
    const char *letter = c && c < 0x80 ? strchr("\\\"\n\r\t\b\f", (int)c) : NULL;
    if (letter && *letter)
        snprintf(text, sizeof text, "\\%c", "\\\"nrtbf"[letter - "\\\"\n\r\t\b\f"]);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                 (unsigned)(0xdc00 + (c & 0x3ff)));
    put_word(b, text, 0);
}

static void put_json_string(json_text *j, s24i_jvalue string)
{
    const unsigned char *text = (const unsigned char *)string.as.text;
    size_t plain = 0, next;
    uint32_t c;
    put_word(&j->b, "\"", 0);
    for (size_t i = 0; i < string.bytes && !s24i_jfailed(j->b.run); i = next) {
        next = i + s24i_utf8_next(&c, text + i, string.bytes - i);
        const int far = j->how->ascii && c >= 0x7f && c != S24I_UTF8_INVALID;
        if (c >= 0x20 && c != '"' && c != '\\' && !far) continue;
        s24i_jput(&j->b, string.as.text + plain, i - plain, 0);
        put_json_escape(&j->b, c);
        plain = next;
    }
    s24i_jput(&j->b, string.as.text + plain, string.bytes - plain, 0);
    put_word(&j->b, "\"", 0);
}

static void put_line(json_text *j)
{
    if (j->how->indent < 0) return;
    put_word(&j->b, "\n", 0);
    for (int i = 0; i < j->depth * j->how->indent && !s24i_jfailed(j->b.run); i++)
        put_word(&j->b, " ", 0);
}

static void put_json_list(json_text *j, const s24i_jlist *list)
{
    put_word(&j->b, "[", 0);
    j->depth++;
    for (size_t i = 0; i < list->count && !s24i_jfailed(j->b.run); i++) {
        if (i) s24i_jput_string(&j->b, j->how->comma);
        put_line(j);
        put_json(j, list->items[i]);
    }
    j->depth--;
    if (list->count) put_line(j);
    put_word(&j->b, "]", 0);
}

/* A key, which JSON has as a text. */
static void put_json_key(json_text *j, s24i_jvalue key)
{
    if (key.kind == S24I_JSTRING) {
        put_json(j, key);
    } else if (s24i_jis_number(key) || key.kind == S24I_JNONE) {
        put_word(&j->b, "\"", 0);
        put_json(j, key);
        put_word(&j->b, "\"", 0);
    } else {
        s24i_jfail(j->b.run, "a %s is no key of JSON", s24i_jtype(key));
    }
}

/* Which pair is the i-th: as they stand, or by their keys. */
static size_t sorted_pair(json_text *j, const s24i_jdict *dict, size_t i)
{
    if (!j->how->sorted) return i;
    for (size_t at = 0; at < dict->count; at++) {
        size_t before = 0;
        for (size_t k = 0; k < dict->count && !s24i_jfailed(j->b.run); k++)
            before += s24i_jorder(j->b.run, dict->pairs[k].key, dict->pairs[at].key) < 0;
        if (before == i) return at;
    }
    return i;
}

static void put_json_dict(json_text *j, const s24i_jdict *dict)
{
    put_word(&j->b, "{", 0);
    j->depth++;
    for (size_t i = 0; i < dict->count && !s24i_jfailed(j->b.run); i++) {
        const s24i_jpair *pair = &dict->pairs[sorted_pair(j, dict, i)];
        if (i) s24i_jput_string(&j->b, j->how->comma);
        put_line(j);
        put_json_key(j, pair->key);
        s24i_jput_string(&j->b, j->how->colon);
        put_json(j, pair->value);
    }
    j->depth--;
    if (dict->count) put_line(j);
    put_word(&j->b, "}", 0);
}

static void put_json(json_text *j, s24i_jvalue value)
{
    if (!s24i_jwork(j->b.run, 1)) return;
    if (j->depth > S24I_JMOST_DEPTH / 2)
        s24i_jfail(j->b.run, "a value is in itself, or too deep");
    else if (value.kind == S24I_JSTRING)
        put_json_string(j, value);
    else if (s24i_jis_number(value))
        put_number(&j->b, value, 1);
    else if (value.kind == S24I_JNONE)
        put_word(&j->b, "null", 0);
    else if (value.kind == S24I_JLIST || value.kind == S24I_JTUPLE)
        put_json_list(j, value.as.list);
    else if (value.kind == S24I_JDICT)
        put_json_dict(j, value.as.dict);
    else if (value.kind == S24I_JUNDEFINED && value.as.text)
        s24i_jfail(j->b.run, "tojson: %s is not defined", s24i_show(value.as.text).text);
    else
        s24i_jfail(j->b.run, "tojson: a %s has no JSON", s24i_jtype(value));
}

s24i_jvalue s24i_jto_json(s24i_jrun *run, s24i_jvalue value, const s24i_jjson *how)
{
    json_text j = {.b = {.run = run}, .how = how};
    put_json(&j, value);
    return s24i_jbuilt(&j.b);
}
