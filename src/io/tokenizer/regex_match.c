// SPDX-License-Identifier: Apache-2.0
/* Runs the program of a regular expression at one place of a text. */
#include "io/tokenizer/regex.h"

#include "io/tokenizer/chain.h"
#include "io/tokenizer/utf8.h"

enum { MOST_STEPS = 1 << 20, DEEPEST = 1000 };
#define FAILS SIZE_MAX

typedef struct matcher {
    const s24i_regex *regex;
    const char *text;
    size_t bytes;
    int steps, depth;
} matcher;

/* \w of the patterns has Latin 1's raised digits and fractions besides. */
static int is_word(uint32_t c)
{
    return s24i_is_word(c) || c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe);
}

static int item_has(const s24i_regex *regex, const s24i_item *item, uint32_t c)
{
    int has = 0;
    switch (item->kind) {
    case S24I_ITEM_RANGE:
        has = c >= item->low && c <= item->high;
        break;
    case S24I_ITEM_CATEGORY:
        has = item->low >> utf8proc_category((utf8proc_int32_t)c) & 1;
        break;
    case S24I_ITEM_SPACE:
        has = s24i_is_space(c);
        break;
    case S24I_ITEM_WORD:
        has = is_word(c);
        break;
    case S24I_ITEM_SET:
        has = s24i_set_has(regex, &regex->sets[item->low], c);
        break;
    }
    return has != item->negated;
}

static int any_has(const s24i_regex *regex, const s24i_set *set, uint32_t c)
{
    for (int i = 0; i < set->count; i++)
        if (item_has(regex, &regex->items[set->first + i], c)) return 1;
    return 0;
}

int s24i_set_has(const s24i_regex *regex, const s24i_set *set, uint32_t c)
{
    int has = any_has(regex, set, c);
    if (!has && set->fold)
        has = any_has(regex, set, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c)) ||
              any_has(regex, set, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
    return has != set->negated;
}

/* Bytes of the character at a place if the set has it, else 0. */
static size_t step_of(const matcher *m, const s24i_set *set, size_t at)
{
    uint32_t c;
    if (at >= m->bytes) return 0;
    const unsigned char first = (unsigned char)m->text[at];
    if (first < 0x80) return set->ascii[first];
    const size_t length = s24i_utf8_next(&c, (const unsigned char *)m->text + at, m->bytes - at);
    if (c == S24I_UTF8_INVALID) c = 0xfffd;
    return s24i_set_has(m->regex, set, c) ? length : 0;
}

static size_t run(matcher *m, int pc, size_t at);

static size_t run_deeper(matcher *m, int pc, size_t at)
{
    if (m->depth == DEEPEST) return FAILS;
    m->depth++;
    const size_t end = run(m, pc, at);
    m->depth--;
    return end;
}

static size_t step_back(const matcher *m, size_t begin, size_t at)
{
    do
        at--;
    while (at > begin && ((unsigned char)m->text[at] & 0xc0) == 0x80);
    return at;
}

/* A set's repetition and all that follows it. */
static size_t run_loop(matcher *m, int pc, size_t begin)
{
    const s24i_code *code = &m->regex->code[pc];
    const s24i_set *set = &m->regex->sets[code->a];
    size_t at = begin, count = 0, step, end;
    const size_t wanted = code->mode == S24I_LAZY ? code->min : code->max;
    while (count < wanted && (step = step_of(m, set, at)) > 0) {
        at += step;
        count++;
    }
    if (count < code->min) return FAILS;
    if (code->mode == S24I_POSSESSIVE) return run(m, pc + 1, at);
    while ((end = run_deeper(m, pc + 1, at)) == FAILS) {
        if (code->mode == S24I_GREEDY) {
            if (count == code->min) return FAILS;
            at = step_back(m, begin, at);
            count--;
            continue;
        }
        step = count < code->max ? step_of(m, set, at) : 0;
        if (!step) return FAILS;
        at += step;
        count++;
    }
    return end;
}

/* May the part that a SPLIT tries first begin so? */
static int may_begin(const matcher *m, const s24i_code *code, size_t at)
{
    if (at >= m->bytes) return 1;
    const unsigned char c = (unsigned char)m->text[at];
    return c >= 0x80 || code->first[c / 8] >> (c % 8) & 1;
}

/* Where the match ends that goes on from an instruction. */
static size_t run(matcher *m, int pc, size_t at)
{
    for (;;) {
        const s24i_code *code = &m->regex->code[pc];
        size_t end = 0;
        if (++m->steps > MOST_STEPS) return FAILS;
        switch (code->op) {
        case S24I_OP_SET:
            end = step_of(m, &m->regex->sets[code->a], at);
            if (!end) return FAILS;
            at += end;
            pc++;
            break;
        case S24I_OP_LOOP:
            return run_loop(m, pc, at);
        case S24I_OP_SPLIT:
            end = may_begin(m, code, at) ? run_deeper(m, code->a, at) : FAILS;
            if (end != FAILS) return end;
            pc = code->b;
            break;
        case S24I_OP_JUMP:
            pc = code->a;
            break;
        case S24I_OP_AHEAD:
            end = run_deeper(m, pc + 1, at);
            if ((end != FAILS) == code->b) return FAILS;
            pc = code->a;
            break;
        case S24I_OP_ATOMIC:
            end = run_deeper(m, pc + 1, at);
            if (end == FAILS) return FAILS;
            at = end;
            pc = code->a;
            break;
        case S24I_OP_MATCH:
            return at;
        }
    }
}

size_t s24i_regex_match(const s24i_regex *regex, const char *text, size_t bytes, size_t at)
{
    matcher m = {.regex = regex, .text = text, .bytes = bytes};
    return run(&m, 0, at);
}
