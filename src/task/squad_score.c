// SPDX-License-Identifier: Apache-2.0
/*
 * SQuAD v1.1's measure of an answer. What must stay true: the same figures as the official script,
 * which is Python: lower case is Unicode's (with the sigma that ends a word), a word of \b is made
 * of letters, digits and other numbers, white space is what str.split() takes for it. Two empty
 * answers match exactly, and yet have an F1 of 0.
 */
#include <string.h>

#include <utf8proc.h>

#include "io/tokenizer/utf8.h"
#include "task/squad.h"

typedef struct words {
    char *text; /* words end to end with one blank between, as the script joins them */
    size_t bytes;
} words;

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0x2028 ||
           c == 0x2029 || (c >= 0x80 && category(c) == UTF8PROC_CATEGORY_ZS);
}

static int is_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static int is_word(uint32_t c)
{
    const utf8proc_category_t kind = category(c);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) ||
           (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

/* ---- lower case ------------------------------------------------------------------------------ */

static int is_cased(uint32_t c)
{
    const utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LT;
}

/* What stands between letters without ending their word, where case is concerned. */
static int is_case_ignorable(uint32_t c)
{
    const utf8proc_category_t kind = category(c);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
           kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
           kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xb7 ||
           c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

/* The next cased letter from byte `at` on in either direction, over what is ignorable? */
static int meets_cased(const s24_text *text, size_t at, int forward)
{
    const unsigned char *p = (const unsigned char *)text->data;
    uint32_t c;
    while (forward ? at < text->bytes : at > 0) {
        if (!forward)
            while (--at > 0 && (p[at] & 0xc0) == 0x80) {
            }
        const size_t length = s24i_utf8_next(&c, p + at, text->bytes - at);
        if (forward) at += length;
        if (c == S24I_UTF8_INVALID || !is_case_ignorable(c)) return is_cased(c);
    }
    return 0;
}

/* Writes the lower case of the character at byte `at`, which ends before `next`. */
static int put_lower(char *out, const s24_text *text, uint32_t c, size_t at, size_t next)
{
    if (c == 0x130) return s24i_utf8_put(out, 'i') + s24i_utf8_put(out + 1, 0x307);
    if (c == 0x3a3 && meets_cased(text, at, 0) && !meets_cased(text, next, 1))
        return s24i_utf8_put(out, 0x3c2);
    return s24i_utf8_put(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

/* Into room of twice the text's bytes: lower case without punctuation. */
static size_t lower(char *out, const s24_text *text)
{
    size_t length = 0, next;
    for (size_t i = 0; i < text->bytes; i = next) {
        uint32_t c;
        next = i + s24i_utf8_next(&c, (const unsigned char *)text->data + i, text->bytes - i);
        if (c == S24I_UTF8_INVALID) c = 0xfffd;
        if (!is_punctuation(c)) length += (size_t)put_lower(out + length, text, c, i, next);
    }
    return length;
}

/* ---- words ----------------------------------------------------------------------------------- */

static int is_article(const char *word, size_t bytes)
{
    return (bytes == 1 && *word == 'a') || (bytes == 2 && !memcmp(word, "an", 2)) ||
           (bytes == 3 && !memcmp(word, "the", 3));
}

/* Blanks the articles and evens the white space, in place: nothing grows. */
static size_t split(char *text, size_t bytes)
{
    size_t length = 0, word = 0; /* where in the output the current run of word characters began */
    int in_word = 0, blank = 0;
    for (size_t i = 0; i <= bytes;) {
        uint32_t c = ' ';
        const size_t step =
            i < bytes ? s24i_utf8_next(&c, (unsigned char *)text + i, bytes - i) : 1;
        const int continues = i < bytes && is_word(c);
        if (in_word && !continues && is_article(text + word, length - word)) {
            length = word;
            blank = 1;
        }
        if (i == bytes) break;
        if (is_space(c)) {
            blank = 1;
        } else {
            if (blank && length && text[length - 1] != ' ') text[length++] = ' ';
            blank = 0;
            if (continues && !in_word) word = length;
            memmove(text + length, text + i, step);
            length += step;
        }
        in_word = continues;
        i += step;
    }
    return length && text[length - 1] == ' ' ? length - 1 : length;
}

static s24_status normalise(words *out, s24_ctx *ctx, const s24_text *text)
{
    TRY(s24i_alloc_elems(&out->text, ctx, 2 * (int64_t)text->bytes + 4, 1, "an answer"));
    out->bytes = split(out->text, lower(out->text, text));
    return S24_OK;
}

/* The word at *at, which moves past it; 0 at the end. */
static int next_word(s24_text *word, size_t *at, const words *w)
{
    if (*at >= w->bytes) return 0;
    const char *begin = w->text + *at, *blank = memchr(begin, ' ', w->bytes - *at);
    *word = (s24_text){begin, blank ? (size_t)(blank - begin) : w->bytes - *at};
    *at += word->bytes + 1;
    return 1;
}

static int64_t count_words(const words *w, const s24_text *equal)
{
    s24_text word;
    int64_t count = 0;
    for (size_t at = 0; next_word(&word, &at, w);)
        count +=
            !equal || (word.bytes == equal->bytes && !memcmp(word.data, equal->data, word.bytes));
    return count;
}

static double overlap(const words *a, const words *b)
{
    int64_t common = 0;
    s24_text word;
    for (size_t at = 0; next_word(&word, &at, a);) {
        /* Each different word once: where it stands first. */
        const words before = {a->text, (size_t)(word.data - a->text)};
        if (count_words(&before, &word)) continue;
        const int64_t in_a = count_words(a, &word), in_b = count_words(b, &word);
        common += in_a < in_b ? in_a : in_b;
    }
    return common ? 2.0 * (double)common / (double)(count_words(a, NULL) + count_words(b, NULL))
                  : 0;
}

s24_status s24_qa_score(double *exact_match, double *f1, s24_ctx *ctx, const s24_text *prediction,
                        const s24_qa_question *question)
{
    words given, gold;
    *exact_match = *f1 = 0;
    TRY(normalise(&given, ctx, prediction));
    for (int64_t i = 0; i < question->answer_count; i++) {
        const s24_status status = normalise(&gold, ctx, &question->answers[i].text);
        if (status != S24_OK) {
            s24_ctx_free(ctx, given.text);
            return status;
        }
        const double both = overlap(&given, &gold);
        if (both > *f1) *f1 = both;
        if (given.bytes == gold.bytes && !memcmp(given.text, gold.text, gold.bytes))
            *exact_match = 1;
        s24_ctx_free(ctx, gold.text);
    }
    s24_ctx_free(ctx, given.text);
    return S24_OK;
}
