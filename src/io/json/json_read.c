// SPDX-License-Identifier: Apache-2.0
/*
 * Reads JSON into a block of bytes, in the order of the text:
 *
 *     string   '"', its bytes, 0           number   its characters, 0
 *     literal  't', 'f' or 'n'             array    '[', 4 bytes: how many follow, its values
 *                                          object   '{', likewise; a string before each value
 *
 * So a text's tree is never larger than five halves of it ("[]" takes five bytes), and one pass
 * over the text, without a stack of calls, counts it exactly. Keys are compared by sorting them: in
 * a hash table, strangers could choose them to collide.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file/io.h"
#include "io/json/json.h"
#include "io/tokenizer/utf8.h"

enum { HEAD = 5 /* bytes of an array's or object's beginning */ };

s24_status s24i_json_fail(const s24i_json_reader *r, const char *what)
{
    size_t line = 1;
    const char *start = r->begin;
    for (const char *p = r->begin; p < r->at; p++) {
        if (*p != '\n') continue;
        line++;
        start = p + 1;
    }
    return s24_ctx_fail(r->ctx, S24_ERROR_FORMAT,
                        "%s: JSON is expected, but at line %zu, column %zu: %s", r->file, line,
                        (size_t)(r->at - start) + 1, what);
}

static void store(s24i_json_reader *r, const void *bytes, size_t count)
{
    if (r->out) memcpy(r->out + r->used, bytes, count);
    r->used += count;
}

char s24i_json_peek(s24i_json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

/* ---- strings --------------------------------------------------------------------------------- */

/* The four digits of \uXXXX, which at stands before; −1: others. */
static int32_t hexadecimal(s24i_json_reader *r)
{
    int32_t value = 0;
    if (r->end - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char c = r->at[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    r->at += 4;
    return value;
}

/* \uXXXX, or two of them that are a pair; at stands after the u. */
static s24_status read_code_point(s24i_json_reader *r)
{
    char bytes[4];
    int32_t c = hexadecimal(r), low = 0;
    if (c < 0) return s24i_json_fail(r, "\\u without four hexadecimal digits");
    if (c >= 0xd800 && c < 0xdc00) {
        if (r->end - r->at > 2 && r->at[0] == '\\' && r->at[1] == 'u') {
            r->at += 2;
            low = hexadecimal(r);
        }
        if (low < 0xdc00 || low > 0xdfff) return s24i_json_fail(r, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xdc00 && c < 0xe000) {
        return s24i_json_fail(r, "half of a surrogate pair");
    }
    if (c == 0) return s24i_json_fail(r, "\\u0000 in a string");
    store(r, bytes, (size_t)s24i_utf8_put(bytes, (uint32_t)c));
    return S24_OK;
}

/* What at stands before is a backslash. */
static s24_status read_escape(s24i_json_reader *r)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *found;
    if (r->end - r->at < 2) return s24i_json_fail(r, "a string without its end");
    const char c = r->at[1];
    if (c == 'u') {
        r->at += 2;
        return read_code_point(r);
    }
    found = c ? strchr(letters, c) : NULL;
    if (!found) return s24i_json_fail(r, "an escape that JSON does not have");
    store(r, meant + (found - letters), 1);
    r->at += 2;
    return S24_OK;
}

/* Bytes that need no more than to be copied, as many as stand here. */
static s24_status read_run(s24i_json_reader *r)
{
    const char *from = r->at;
    uint32_t character;
    for (;;) {
        while (r->at < r->end && (unsigned char)*r->at >= 0x20 && (unsigned char)*r->at < 0x80 &&
               *r->at != '"' && *r->at != '\\')
            r->at++;
        if (r->at == r->end || (unsigned char)*r->at < 0x80) break;
        const size_t bytes =
            s24i_utf8_next(&character, (const unsigned char *)r->at, (size_t)(r->end - r->at));
        if (character == S24I_UTF8_INVALID) return s24i_json_fail(r, "what is not UTF-8");
        r->at += bytes;
    }
    store(r, from, (size_t)(r->at - from));
    return S24_OK;
}

/* What at stands before is a quotation mark. */
static s24_status read_string(s24i_json_reader *r)
{
    store(r, r->at++, 1);
    for (;;) {
        TRY(read_run(r));
        if (r->at == r->end) return s24i_json_fail(r, "a string without its end");
        if (*r->at == '"') break;
        if (*r->at != '\\') return s24i_json_fail(r, "a control character in a string");
        TRY(read_escape(r));
    }
    r->at++;
    store(r, "", 1);
    return S24_OK;
}

/* ---- numbers and literals -------------------------------------------------------------------- */

/* Goes over digits; how many they are. */
static size_t digits(s24i_json_reader *r)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return (size_t)(r->at - from);
}

static int takes(s24i_json_reader *r, const char *any_of)
{
    if (r->at == r->end || !*r->at || !strchr(any_of, *r->at)) return 0;
    r->at++;
    return 1;
}

/* Does the integer from … to (a sign, then digits) fit 64 bits? */
static int fits(const char *from, const char *to)
{
    int64_t value = 0;
    const int is_negative = *from == '-';
    for (from += is_negative; from < to; from++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, is_negative ? '0' - *from : *from - '0', &value))
            return 0;
    return 1;
}

/* An integer over 64 bits is stored as the real number that it is: Python writes 1e30 so, which
   tokenizer_config.json has for "no limit". */
static s24_status read_number(s24i_json_reader *r)
{
    const char *from = r->at, *power = "";
    int is_integer = 1;
    takes(r, "-");
    if (!takes(r, "0") && !digits(r)) return s24i_json_fail(r, "a value is expected");
    if (takes(r, ".")) {
        is_integer = 0;
        if (!digits(r)) return s24i_json_fail(r, "a digit is expected");
    }
    if (takes(r, "eE")) {
        is_integer = 0;
        takes(r, "+-");
        if (!digits(r)) return s24i_json_fail(r, "a digit is expected");
    }
    const size_t length = (size_t)(r->at - from);
    if (length > S24I_JSON_NUMBER) return s24i_json_fail(r, "a number of too many digits");
    if (is_integer && !fits(from, r->at)) power = "e0";
    char text[S24I_JSON_NUMBER + sizeof "e0"];
    memcpy(text, from, length);
    strcpy(text + length, power);
    if ((!is_integer || *power) && !s24i_json_real(NULL, text))
        return s24i_json_fail(r, "a number over the largest double");
    store(r, text, strlen(text) + 1);
    return S24_OK;
}

static s24_status read_scalar(s24i_json_reader *r)
{
    static const char *const literals[] = {"true", "false", "null"};
    if (r->at < r->end && *r->at == '"') return read_string(r);
    for (int i = 0; i < 3; i++) {
        const size_t length = strlen(literals[i]);
        if ((size_t)(r->end - r->at) < length || memcmp(r->at, literals[i], length) != 0) continue;
        r->at += length;
        store(r, literals[i], 1);
        return S24_OK;
    }
    return read_number(r);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The object that ends here must not have a key twice; keys has room for them. */
static s24_status compare_keys(const s24i_json_reader *r, const s24i_json *object,
                               const char **keys)
{
    size_t count = 0;
    s24i_json_walk walk = s24i_json_begin(object);
    while (s24i_json_next(&walk, &keys[count]))
        count++;
    qsort(keys, count, sizeof *keys, compare_strings);
    for (size_t i = 1; i < count; i++) {
        char what[200];
        if (strcmp(keys[i - 1], keys[i]) != 0) continue;
        snprintf(what, sizeof what, "the object that ends here has the duplicate object key \"%s\"",
                 s24i_show(keys[i]).text);
        return s24i_json_fail(r, what);
    }
    return S24_OK;
}

static s24_status check_keys(const s24i_json_reader *r, const s24i_json *object)
{
    enum { FEW = 16 };
    const char *few[FEW + 1], **keys; /* the walk's end writes one more */
    const size_t count = s24i_json_count(object);
    if (count <= FEW) return compare_keys(r, object, few);
    TRY(s24i_alloc_elems(&keys, r->ctx, (int64_t)count + 1, sizeof *keys, "keys of JSON"));
    const s24_status status = compare_keys(r, object, keys);
    s24_ctx_free(r->ctx, keys);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

s24_status s24i_json_read_key(s24i_json_reader *r)
{
    if (s24i_json_peek(r) != '"') return s24i_json_fail(r, "a key in quotation marks is expected");
    TRY(read_string(r));
    if (s24i_json_peek(r) != ':') return s24i_json_fail(r, "':' is expected");
    r->at++;
    return S24_OK;
}

/* Arrays and objects that are not closed yet: where they begin in the block, shifted up by one, and
   whether they have keys. */
typedef struct opened {
    uint32_t at[S24I_JSON_DEPTH];
    int depth;
} opened;

static int has_keys(const opened *open)
{
    return open->at[open->depth - 1] & 1;
}

/* What at stands before is '{' or '['. */
static s24_status open_one(s24i_json_reader *r, opened *open)
{
    if (open->depth == S24I_JSON_DEPTH) return s24i_json_fail(r, "too many levels");
    open->at[open->depth++] = (uint32_t)r->used << 1 | (*r->at == '{');
    store(r, r->at++, 1);
    store(r, "\0\0\0", HEAD - 1);
    return S24_OK;
}

static s24_status close_one(s24i_json_reader *r, opened *open)
{
    const size_t begin = open->at[open->depth - 1] >> 1;
    const uint32_t bytes = (uint32_t)(r->used - begin - HEAD);
    const int is_object = has_keys(open);
    open->depth--;
    r->at++;
    if (!r->out) return S24_OK;
    memcpy(r->out + begin + 1, &bytes, sizeof bytes);
    return is_object ? check_keys(r, (const s24i_json *)(r->out + begin)) : S24_OK;
}

/* After a value, closes what ends here. *is_next: another value is to come, its key is read. */
static s24_status go_on(s24i_json_reader *r, opened *open, int *is_next)
{
    *is_next = 0;
    while (open->depth > 0) {
        const char c = s24i_json_peek(r);
        if (c == ',') {
            r->at++;
            *is_next = 1;
            return has_keys(open) ? s24i_json_read_key(r) : S24_OK;
        }
        if (c != (has_keys(open) ? '}' : ']'))
            return s24i_json_fail(r, has_keys(open) ? "',' or '}' is expected"
                                                    : "',' or ']' is expected");
        TRY(close_one(r, open));
    }
    return S24_OK;
}

s24_status s24i_json_read_value(s24i_json_reader *r)
{
    opened open;
    open.depth = 0;
    for (int is_next = 1; is_next;) {
        const char c = s24i_json_peek(r);
        if (c == '{' || c == '[') {
            TRY(open_one(r, &open));
            if (s24i_json_peek(r) != (c == '{' ? '}' : ']')) {
                if (c == '{') TRY(s24i_json_read_key(r));
                continue;
            }
            TRY(close_one(r, &open));
        } else {
            TRY(read_scalar(r));
        }
        TRY(go_on(r, &open, &is_next));
    }
    return S24_OK;
}

/* The one value of a text. */
static s24_status read_all(s24i_json_reader *r)
{
    r->at = r->begin;
    r->used = 0;
    const char c = s24i_json_peek(r);
    if (c != '{' && c != '[') return s24i_json_fail(r, "'{' or '[' is expected");
    TRY(s24i_json_read_value(r));
    s24i_json_peek(r);
    return r->at == r->end ? S24_OK : s24i_json_fail(r, "the end of the text is expected");
}

size_t s24i_json_mark_bytes(const void *data, size_t bytes)
{
    return bytes >= 3 && !memcmp(data, "\xef\xbb\xbf", 3) ? 3 : 0;
}

s24_status s24i_json_parse(s24i_json **out, s24_ctx *ctx, const char *file, const void *data,
                           size_t bytes)
{
    const char *text = data;
    s24i_json_reader r = {ctx, file, text, text, text + bytes, NULL, 0};
    *out = NULL;
    REQUIRE(ctx, bytes <= S24I_JSON_MAX_BYTES, S24_ERROR_FORMAT,
            "%s: %zu bytes, at most %zu are expected of JSON", file, bytes, S24I_JSON_MAX_BYTES);
    TRY(read_all(&r));
    TRY(s24i_alloc_elems(&r.out, ctx, (int64_t)r.used, 1, "a tree of JSON"));
    const s24_status status = read_all(&r);
    if (status == S24_OK)
        *out = (s24i_json *)r.out;
    else
        s24_ctx_free(ctx, r.out);
    return status;
}
