// SPDX-License-Identifier: Apache-2.0
/*
 * Cuts a template into tokens. White space goes as Jinja2 takes it away with trim_blocks and
 * lstrip_blocks: the line end after a block or comment, blanks before one that begins its line, and
 * all of it where a tag has a minus.
 */
#include "io/jinja/jinja_tree.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer/utf8.h"

enum { MOST_BRACKETS = S24I_JMOST_NESTED };

typedef struct lexer {
    s24i_jinja *jinja;
    const char *at, *end;
    int line, starts_line; /* what came last ended with a line end */
    size_t room;
    char brackets[MOST_BRACKETS];
    int open;
} lexer;

static s24_status fail(const lexer *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static s24_status fail(const lexer *l, const char *format, ...)
{
    char text[160];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return s24_ctx_fail(l->jinja->arena.ctx, S24_ERROR_FORMAT, "%s: line %d: %s", l->jinja->file,
                        l->line, text);
}

static s24_status no_memory(const lexer *l)
{
    return s24_ctx_fail(l->jinja->arena.ctx, S24_ERROR_MEMORY, "out of memory for a chat template");
}

static s24_status add(lexer *l, const s24i_jtoken *token)
{
    s24i_jinja *j = l->jinja;
    if (j->token_count == l->room) {
        const size_t room = l->room ? 2 * l->room : 64;
        s24i_jtoken *more = s24i_jarena_take(&j->arena, room * sizeof *more);
        if (!more) return no_memory(l);
        if (j->token_count) memcpy(more, j->tokens, j->token_count * sizeof *more);
        j->tokens = more;
        l->room = room;
    }
    j->tokens[j->token_count] = *token;
    if (!token->line) j->tokens[j->token_count].line = l->line;
    j->token_count++;
    return S24_OK;
}

static s24_status add_type(lexer *l, s24i_jtoken_type type)
{
    return add(l, &(s24i_jtoken){.type = (uint8_t)type});
}

/* Goes on to a place, and counts lines. */
static void go(lexer *l, const char *to)
{
    for (; l->at < to; l->at++)
        l->line += *l->at == '\n';
    l->starts_line = to[-1] == '\n';
}

static const char *skip_space(const char *at, const char *end)
{
    for (size_t step; (step = s24i_jspace(at, (size_t)(end - at))) > 0;)
        at += step;
    return at;
}

static int begins(const lexer *l, const char *at, const char *text)
{
    const size_t bytes = strlen(text);
    return (size_t)(l->end - at) >= bytes && !memcmp(at, text, bytes);
}

/* ---- text between tags ----------------------------------------------------------------------- */

/* Adds the text up to a tag, whose sign and kind say what goes from its end. */
static s24_status add_data(lexer *l, const char *to, char sign, int is_print)
{
    const char *from = l->at, *last = to;
    s24i_jvalue text = s24i_jstring(from, (size_t)(to - from), 1);
    if (sign == '-') {
        text = s24i_jstripped(text, S24I_JRIGHT);
    } else if (sign != '+' && !is_print) {
        while (last > from && last[-1] != '\n')
            last--;
        const int begins_line = last > from || l->starts_line;
        if (begins_line && skip_space(last, to) == to) text.bytes = (uint32_t)(last - from);
    }
    if (!text.bytes) return S24_OK;
    return add(l, &(s24i_jtoken){.type = S24I_JT_DATA, .value = text});
}

/* The end of a tag that `close` ends, with what goes after it; NULL: it does not end here. */
static const char *tag_end(const lexer *l, const char *at, const char *close)
{
    const int is_print = *close == '}', minus = *at == '-';
    if (minus || (*at == '+' && !is_print)) {
        if (!begins(l, at + 1, close)) return NULL;
        return minus ? skip_space(at + 3, l->end) : at + 3;
    }
    if (!begins(l, at, close)) return NULL;
    at += 2;
    return !is_print && at < l->end && *at == '\n' ? at + 1 : at;
}

static s24_status lex_comment(lexer *l)
{
    for (const char *at = l->at; at < l->end; at++) {
        const char *end = tag_end(l, at, "#}");
        if (!end) continue;
        go(l, end);
        return S24_OK;
    }
    return fail(l, "a comment does not end with #}");
}

/* The end of a tag of one word, `{% raw %}`; NULL: there is none at this place. `trims`: as other
   blocks do. */
static const char *word_tag(const lexer *l, const char *at, const char *word, int trims)
{
    if (!begins(l, at, "{%")) return NULL;
    at += 2;
    at = skip_space(at + (at < l->end && (*at == '-' || *at == '+')), l->end);
    if (!begins(l, at, word)) return NULL;
    at = skip_space(at + strlen(word), l->end);
    if (at == l->end || (*at == '+' && !trims)) return NULL;
    const char *end = tag_end(l, at, "%}");
    return end && !trims && *at == '%' ? at + 2 : end;
}

static char sign_at(const lexer *l, const char *at)
{
    return at < l->end ? *at : '\0';
}

/* From the begin of a raw block to its end. */
static s24_status lex_raw(lexer *l, const char *begin)
{
    go(l, begin);
    for (const char *at = l->at; at < l->end; at++) {
        const char *end = word_tag(l, at, "endraw", 1);
        if (!end) continue;
        TRY(add_data(l, at, sign_at(l, at + 2), 0));
        go(l, end);
        return S24_OK;
    }
    return fail(l, "a raw block does not end with {%% endraw %%}");
}

/* ---- inside of tags -------------------------------------------------------------------------- */

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static s24_status lex_name(lexer *l)
{
    const char *at = l->at;
    while (at < l->end && (is_letter(*at) || is_digit(*at)))
        at++;
    const size_t bytes = (size_t)(at - l->at);
    char *name = s24i_jarena_take(&l->jinja->arena, bytes + 1);
    if (!name) return no_memory(l);
    memcpy(name, l->at, bytes);
    TRY(add(l, &(s24i_jtoken){.type = S24I_JT_NAME, .name = name}));
    go(l, at);
    return S24_OK;
}

/* Digits with single underscores between them; NULL: there are none. */
static const char *digits(const lexer *l, const char *at)
{
    if (at == l->end || !is_digit(*at)) return NULL;
    while (at < l->end && (is_digit(*at) || (*at == '_' && at + 1 < l->end && is_digit(at[1]))))
        at++;
    return at;
}

/* The end of a number that is no whole one; NULL: it is whole. */
static const char *real_end(const lexer *l, const char *whole)
{
    const char *at = whole, *more;
    if (at < l->end && *at == '.' && (more = digits(l, at + 1)) != NULL) at = more;
    if (at < l->end && (*at == 'e' || *at == 'E')) {
        const int has_sign = at + 1 < l->end && (at[1] == '+' || at[1] == '-');
        more = digits(l, at + 1 + has_sign);
        if (more) at = more;
    }
    return at > whole ? at : NULL;
}

static s24_status lex_number(lexer *l)
{
    char text[64];
    size_t bytes = 0;
    const char *whole = digits(l, l->at), *end = whole;
    const int after_dot = l->at[-1] == '.';
    const char *real = after_dot ? NULL : real_end(l, whole);
    s24i_jtoken token = {.type = S24I_JT_VALUE};
    const int has_base =
        !real && *l->at == '0' && whole == l->at + 1 && whole < l->end && strchr("xXoObB", *whole);
    if (has_base) return fail(l, "a number in base 2, 8 or 16 is not carried out");
    if (real) end = real;
    for (const char *at = l->at; at < end; at++) {
        if (bytes == sizeof text - 1) return fail(l, "a number has more than 63 characters");
        if (*at != '_') text[bytes++] = *at;
    }
    text[bytes] = '\0';
    errno = 0;
    if (!real) {
        token.value = s24i_jint(strtoll(text, NULL, 10));
        if (errno) return fail(l, "the number %s is over 64 bits", text);
    } else {
        double number;
        if (!s24i_json_real(&number, text)) return fail(l, "%s is no number", text);
        token.value = s24i_jreal(number);
    }
    TRY(add(l, &token));
    go(l, end);
    return S24_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* The character that so many hexadecimal digits say; -1: they do not. */
static int64_t hex(const char *at, const char *end, int count)
{
    int64_t out = 0;
    if (end - at < count) return -1;
    for (int i = 0; i < count; i++) {
        const char c = at[i];
        const int digit = is_digit(c)              ? c - '0'
                          : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                          : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                   : -1;
        if (digit < 0) return -1;
        out = out * 16 + digit;
    }
    return out;
}

/* What stands after a backslash, as Python reads it. Returns what it takes, 0: it is none. */
static size_t unescape(char **out, const char *at, const char *end)
{
    static const char letters[] = "nrtbfav\\'\"", meant[] = "\n\r\t\b\f\a\v\\'\"";
    const char *letter = strchr(letters, *at);
    const int width = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (*at == '\n') return 1;
    if (letter && *letter) {
        *(*out)++ = meant[letter - letters];
        return 1;
    }
    if (width) {
        const int64_t c = hex(at + 1, end, width);
        if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
        *out += s24i_utf8_put(*out, (uint32_t)c);
        return (size_t)width + 1;
    }
    if (*at >= '0' && *at <= '7') {
        size_t used = 0;
        uint32_t c = 0;
        for (; used < 3 && at + used < end && at[used] >= '0' && at[used] <= '7'; used++)
            c = c * 8 + (uint32_t)(at[used] - '0');
        *out += s24i_utf8_put(*out, c);
        return used;
    }
    if (*at == 'N') return 0;
    *(*out)++ = '\\';
    *(*out)++ = *at;
    return 1;
}

static s24_status lex_string(lexer *l)
{
    const char quote = *l->at, *end = l->at + 1;
    while (end < l->end && *end != quote)
        end += *end == '\\' ? 2 : 1;
    if (end >= l->end) return fail(l, "a string does not end with %c", quote);
    /* No escape has more bytes than what it stands for, but \ and a letter that is none. */
    char *text = s24i_jarena_take(&l->jinja->arena, (size_t)(end - l->at) + 4), *out = text;
    if (!text) return no_memory(l);
    for (const char *at = l->at + 1; at < end;) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        const size_t used = unescape(&out, at + 1, end);
        if (!used) return fail(l, "\\%c in a string is no escape that is carried out", at[1]);
        at += 1 + used;
    }
    const s24i_jvalue value = s24i_jstring(text, (size_t)(out - text), 1);
    TRY(add(l, &(s24i_jtoken){.type = S24I_JT_VALUE, .value = value}));
    go(l, end + 1);
    return S24_OK;
}

static s24_status lex_bracket(lexer *l, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (l->open == MOST_BRACKETS) return fail(l, "more than %d open brackets", MOST_BRACKETS);
        l->brackets[l->open++] = closing[open - opening];
    } else if (close) {
        if (!l->open) return fail(l, "unexpected %c", c);
        const char expected = l->brackets[--l->open];
        if (expected != c) return fail(l, "unexpected %c, %c was expected", c, expected);
    }
    return S24_OK;
}

static s24_status lex_operator(lexer *l)
{
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    s24i_jtoken token = {.type = S24I_JT_OPERATOR};
    size_t bytes = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (begins(l, l->at, pairs[i])) bytes = 2;
    if (bytes == 1 && (!*l->at || !strchr("+-/*%~[](){}><=.:|,;", *l->at))) {
        char one[2] = {*l->at, '\0'};
        return fail(l, "unexpected character \"%s\"", s24i_show(one).text);
    }
    memcpy(token.text, l->at, bytes);
    TRY(lex_bracket(l, bytes == 1 ? *l->at : ' '));
    TRY(add(l, &token));
    go(l, l->at + bytes);
    return S24_OK;
}

/* From the begin of a tag to its end. */
static s24_status lex_tag(lexer *l, int is_print)
{
    const int line = l->line;
    l->open = 0;
    TRY(add_type(l, is_print ? S24I_JT_PRINT : S24I_JT_BLOCK));
    for (;;) {
        const char *end = skip_space(l->at, l->end);
        if (end > l->at) go(l, end);
        if (l->at == l->end) break;
        end = l->open ? NULL : tag_end(l, l->at, is_print ? "}}" : "%}");
        if (end) {
            TRY(add_type(l, is_print ? S24I_JT_PRINT_END : S24I_JT_BLOCK_END));
            go(l, end);
            return S24_OK;
        }
        const char c = *l->at;
        if (is_letter(c))
            TRY(lex_name(l));
        else if (is_digit(c))
            TRY(lex_number(l));
        else if (c == '\'' || c == '"')
            TRY(lex_string(l));
        else
            TRY(lex_operator(l));
    }
    l->line = line;
    return fail(l, "a tag does not end with %s", is_print ? "}}" : "%}");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static s24_status lex_next(lexer *l)
{
    const char *tag = l->at;
    while (tag < l->end && !(*tag == '{' && tag + 1 < l->end && strchr("{%#", tag[1]) && tag[1]))
        tag++;
    if (tag == l->end) {
        TRY(add_data(l, tag, '+', 1));
        go(l, tag);
        return S24_OK;
    }
    const char kind = tag[1], sign = sign_at(l, tag + 2);
    const char *raw = word_tag(l, tag, "raw", 0);
    TRY(add_data(l, tag, sign, kind == '{'));
    if (raw) {
        go(l, tag + 2);
        return lex_raw(l, raw);
    }
    go(l, tag + 2 + (sign == '-' || sign == '+'));
    return kind == '#' ? lex_comment(l) : lex_tag(l, kind == '{');
}

s24_status s24i_jlex(s24i_jinja *jinja)
{
    lexer l = {.jinja = jinja,
               .at = jinja->text.data,
               .end = jinja->text.data + jinja->text.bytes,
               .line = 1,
               .starts_line = 1};
    while (l.at < l.end)
        TRY(lex_next(&l));
    return add_type(&l, S24I_JT_END);
}
