// SPDX-License-Identifier: Apache-2.0
/*
 * Texts to words, as the regular expressions of byte-level tokenizers cut them. A pattern is
 * carried out by hand, alternative by alternative: what is a letter or a number says Unicode's
 * general category, and \s is its property White_Space. What is not UTF-8 is neither.
 */
#include <string.h>

#include <utf8proc.h>

#include "io/tokenizer/bpe.h"
#include "io/tokenizer/utf8.h"

typedef enum class { END, LETTER, NUMBER, SPACE, OTHER } class;

static class classify(uint32_t c)
{
    if (c < 0x80) {
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return LETTER;
        if (c >= '0' && c <= '9') return NUMBER;
        return c == ' ' || (c >= 9 && c <= 13) ? SPACE : OTHER;
    }
    if (c == 0x85 || c == 0x2028 || c == 0x2029) return SPACE;
    if (c == S24I_UTF8_INVALID) return OTHER;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) return LETTER;
    if (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) return NUMBER;
    return kind == UTF8PROC_CATEGORY_ZS ? SPACE : OTHER;
}

/* The class of the character at byte i, END after the text, and the bytes it takes. */
static class class_at(size_t *length, const char *text, size_t bytes, size_t i)
{
    uint32_t c;
    *length = 0;
    if (i >= bytes) return END;
    *length = s24i_utf8_next(&c, (const unsigned char *)text + i, bytes - i);
    return classify(c);
}

/* Where the run of a class that byte i stands in ends, after at most `most` characters. */
static size_t run_end(const char *text, size_t bytes, size_t i, class kind, size_t most)
{
    size_t length;
    for (; most > 0 && class_at(&length, text, bytes, i) == kind; most--)
        i += length;
    return i;
}

size_t s24i_space_bytes(const char *text, size_t bytes)
{
    return run_end(text, bytes, 0, SPACE, SIZE_MAX);
}

size_t s24i_space_before(const char *text, size_t begin, size_t end)
{
    size_t length;
    for (;;) {
        size_t at = end;
        while (at > begin && end - at < 4 && (at == end || (text[at] & 0xc0) == 0x80))
            at--;
        if (at == end || class_at(&length, text, end, at) != SPACE || at + length != end)
            return end;
        end = at;
    }
}

/* 's, 't, 're, 've, 'm, 'll, 'd: their bytes, 0 where there is none. */
static size_t contraction(const char *text, size_t bytes, int any_case)
{
    static const char *const tails[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (*text != '\'') return 0;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        const size_t length = strlen(tails[i]);
        size_t same = 0;
        while (same < length && 1 + same < bytes &&
               (text[1 + same] == tails[i][same] ||
                (any_case && (text[1 + same] | 0x20) == tails[i][same])))
            same++;
        if (same == length) return 1 + length;
    }
    return 0;
}

/* White space: all of it at the text's end, else all but the last character, which may begin the
   next word, but at least one. */
static size_t spaces(const char *text, size_t bytes)
{
    size_t i = 0, last = 0, length;
    while (class_at(&length, text, bytes, i) == SPACE) {
        last = i;
        i += length;
    }
    return i < bytes && last > 0 ? last : i;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t s24i_split_gpt2(const char *text, size_t bytes)
{
    size_t length = contraction(text, bytes, 0), at = 0;
    if (length) return length;
    class kind = class_at(&length, text, bytes, 0);
    if (*text == ' ') {
        const class next = class_at(&length, text, bytes, 1);
        if (next != SPACE && next != END) {
            kind = next;
            at = 1;
        }
    }
    return kind == SPACE ? spaces(text, bytes) : run_end(text, bytes, at, kind, SIZE_MAX);
}

size_t s24i_split_digits(const char *text, size_t bytes)
{
    size_t length, at = 0;
    class kind = class_at(&length, text, bytes, 0);
    if (kind == NUMBER) return length;
    for (; kind != NUMBER && kind != END; kind = class_at(&length, text, bytes, at))
        at += length;
    return at;
}

/* \s*[\r\n]+: the bytes up to the last line end of the white space, 0 when it has none. */
static size_t line_ends(const char *text, size_t bytes)
{
    size_t end = 0, length;
    for (size_t i = 0; class_at(&length, text, bytes, i) == SPACE; i += length)
        if (text[i] == '\r' || text[i] == '\n') end = i + 1;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
   |\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_tiktoken(const char *text, size_t bytes, size_t digits)
{
    size_t first, second, at = contraction(text, bytes, 1);
    if (at) return at;
    const class kind = class_at(&first, text, bytes, 0);
    const class next = class_at(&second, text, bytes, first);
    if (kind == LETTER) return run_end(text, bytes, 0, LETTER, SIZE_MAX);
    if (kind == NUMBER) return run_end(text, bytes, 0, NUMBER, digits);
    if (next == LETTER && *text != '\r' && *text != '\n')
        return run_end(text, bytes, first, LETTER, SIZE_MAX);
    if (kind == OTHER || (*text == ' ' && next == OTHER)) {
        at = run_end(text, bytes, kind == OTHER ? 0 : 1, OTHER, SIZE_MAX);
        while (at < bytes && (text[at] == '\r' || text[at] == '\n'))
            at++;
        return at;
    }
    at = line_ends(text, bytes);
    return at ? at : spaces(text, bytes);
}

size_t s24i_split_llama3(const char *text, size_t bytes)
{
    return split_tiktoken(text, bytes, 3);
}

size_t s24i_split_qwen2(const char *text, size_t bytes)
{
    return split_tiktoken(text, bytes, 1);
}

#define HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
    const char *pattern;
    s24i_split *split;
} patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     s24i_split_gpt2},
    {HEAD "\\p{N}{1,3}" TAIL, s24i_split_llama3},
    {HEAD "\\p{N}" TAIL, s24i_split_qwen2},
};
enum { PATTERNS = (int)(sizeof patterns / sizeof *patterns) };

s24i_split *s24i_split_find(const char *pattern)
{
    for (int i = 0; i < PATTERNS; i++)
        if (!strcmp(patterns[i].pattern, pattern)) return patterns[i].split;
    return NULL;
}
