// SPDX-License-Identifier: Apache-2.0
/* Reads a regular expression and compiles it as it goes. */
#include <string.h>

#include "io/file/io.h"
#include "io/tokenizer/regex_read.h"
#include "io/tokenizer/utf8.h"

enum { DEEPEST = 32, MOST_REPEATS = 64 };

static int emit(s24i_regex_reader *r, s24i_code code)
{
    if (r->regex->code_count == S24I_REGEX_CODE) {
        s24i_regex_refuse(r, "it is too long");
        return 0;
    }
    r->regex->code[r->regex->code_count] = code;
    return r->regex->code_count++;
}

/* Room for an instruction before one that is there; what refers to places after it moves on. */
static void insert(s24i_regex_reader *r, int at, s24i_code code)
{
    s24i_regex *regex = r->regex;
    emit(r, code);
    if (r->wrong) return;
    memmove(regex->code + at + 1, regex->code + at,
            (size_t)(regex->code_count - 1 - at) * sizeof *regex->code);
    regex->code[at] = code;
    for (int i = at + 1; i < regex->code_count; i++) {
        s24i_code *c = &regex->code[i];
        if (c->op == S24I_OP_SET || c->op == S24I_OP_LOOP || c->op == S24I_OP_MATCH) continue;
        if (c->a >= at) c->a++;
        if (c->op == S24I_OP_SPLIT && c->b >= at) c->b++;
    }
}

/* Another copy of the instructions of an atom. */
static void copy(s24i_regex_reader *r, int begin, int end)
{
    const int shift = r->regex->code_count - begin;
    for (int i = begin; i < end && !r->wrong; i++) {
        s24i_code c = r->regex->code[i];
        if (c.op != S24I_OP_SET && c.op != S24I_OP_LOOP && c.op != S24I_OP_MATCH) c.a += shift;
        if (c.op == S24I_OP_SPLIT) c.b += shift;
        emit(r, c);
    }
}

/* ---- repetition ------------------------------------------------------------------------------ */

typedef struct repeat {
    size_t min, max;
    s24i_mode mode;
} repeat;

static size_t read_number(s24i_regex_reader *r)
{
    size_t number = 0;
    while (*r->at >= '0' && *r->at <= '9' && number < 10000)
        number = number * 10 + (size_t)(*r->at++ - '0');
    return number;
}

/* {m}, {m,}, {m,n} or {,n}; 0: the brace is a character. */
static int read_braces(s24i_regex_reader *r, repeat *out)
{
    const char *begin = r->at++;
    const int has_min = *r->at >= '0' && *r->at <= '9';
    out->min = read_number(r);
    out->max = out->min;
    if (*r->at == ',') {
        r->at++;
        const int has_max = *r->at >= '0' && *r->at <= '9';
        out->max = has_max ? read_number(r) : SIZE_MAX;
        if (!has_min && !has_max) s24i_regex_refuse(r, "{,}");
    } else if (!has_min) {
        s24i_regex_refuse(r, "a brace that is no repetition");
    }
    if (*r->at != '}' || out->max < out->min) s24i_regex_refuse(r, "a brace that is no repetition");
    if (!r->wrong) r->at++;
    return r->at > begin;
}

static int read_repeat(s24i_regex_reader *r, repeat *out)
{
    const char c = *r->at;
    *out = (repeat){0, SIZE_MAX, S24I_GREEDY};
    if (c == '{') {
        read_braces(r, out);
        if (*r->at == '?' && out->min == out->max) s24i_regex_refuse(r, "{n}?");
        if (*r->at == '?') out->mode = S24I_LAZY, r->at++;
        return 1;
    }
    if (c != '*' && c != '+' && c != '?') return 0;
    out->min = c == '+';
    if (c == '?') out->max = 1;
    r->at++;
    if (*r->at == '?') out->mode = S24I_LAZY, r->at++;
    if (*r->at == '+') out->mode = S24I_POSSESSIVE, r->at++;
    return 1;
}

/* One time more or not: a SPLIT before instructions, in the order that the mode asks for. */
static void make_optional(s24i_regex_reader *r, int begin, int loops, s24i_mode mode)
{
    insert(r, begin, (s24i_code){.op = S24I_OP_SPLIT});
    if (loops) emit(r, (s24i_code){.op = S24I_OP_JUMP, .a = begin});
    if (r->wrong) return;
    s24i_code *split = &r->regex->code[begin];
    split->a = mode == S24I_LAZY ? r->regex->code_count : begin + 1;
    split->b = mode == S24I_LAZY ? begin + 1 : r->regex->code_count;
}

/* The atom from `begin` on, repeated. */
static void apply(s24i_regex_reader *r, int begin, const repeat *times)
{
    s24i_regex *regex = r->regex;
    const int end = regex->code_count;
    if (end == begin + 1 && regex->code[begin].op == S24I_OP_SET) {
        regex->code[begin].op = S24I_OP_LOOP;
        regex->code[begin].min = times->min;
        regex->code[begin].max = times->max;
        regex->code[begin].mode = times->mode;
        return;
    }
    const size_t more = times->max == SIZE_MAX ? 1 : times->max - times->min;
    if (times->min > MOST_REPEATS || more > MOST_REPEATS || !times->max)
        s24i_regex_refuse(r, "a group that is repeated so often");
    if (r->may_be_empty) s24i_regex_refuse(r, "a repeated group that may be empty");
    if (times->mode == S24I_POSSESSIVE) insert(r, begin, (s24i_code){.op = S24I_OP_ATOMIC});
    const int first = begin + (times->mode == S24I_POSSESSIVE), length = end - begin;
    for (size_t i = 1; i < times->min + more && !r->wrong; i++)
        copy(r, first, first + length);
    /* From the last one on, so that none moves before its own is put there. */
    for (size_t i = times->min + more; i-- > times->min && !r->wrong;)
        make_optional(r, first + (int)i * length, times->max == SIZE_MAX, times->mode);
    if (times->mode != S24I_POSSESSIVE || r->wrong) return;
    emit(r, (s24i_code){.op = S24I_OP_MATCH});
    regex->code[begin].a = regex->code_count;
}

/* ---- what is repeated ------------------------------------------------------------------------ */

static void read_alternatives(s24i_regex_reader *r);

/* After "(": its kind, contents, and ")". */
static void read_group(s24i_regex_reader *r)
{
    static const struct {
        const char *begin;
        s24i_op op; /* JUMP: none */
        int fold, negated;
    } kinds[] = {{"?:", S24I_OP_JUMP, 0, 0},
                 {"?i:", S24I_OP_JUMP, 1, 0},
                 {"?=", S24I_OP_AHEAD, 0, 0},
                 {"?!", S24I_OP_AHEAD, 0, 1},
                 {"?>", S24I_OP_ATOMIC, 0, 0}};
    const int fold = r->fold, begin = r->regex->code_count;
    s24i_op op = S24I_OP_JUMP;
    int negated = 0, known = *r->at != '?';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !known; i++) {
        const size_t length = strlen(kinds[i].begin);
        if (strncmp(r->at, kinds[i].begin, length) != 0) continue;
        r->at += length;
        r->fold |= kinds[i].fold;
        op = kinds[i].op;
        negated = kinds[i].negated;
        known = 1;
    }
    if (!known) s24i_regex_refuse(r, "a group of that kind");
    if (++r->depth > DEEPEST) s24i_regex_refuse(r, "groups in one another so deep");
    if (op != S24I_OP_JUMP) emit(r, (s24i_code){.op = op, .b = negated});
    if (!r->wrong) read_alternatives(r);
    if (!r->wrong && *r->at != ')') s24i_regex_refuse(r, "a group without an end");
    if (r->wrong) return;
    r->at++;
    r->depth--;
    r->fold = fold;
    if (op == S24I_OP_JUMP) return;
    emit(r, (s24i_code){.op = S24I_OP_MATCH});
    r->regex->code[begin].a = r->regex->code_count;
    if (op == S24I_OP_AHEAD) r->may_be_empty = 1;
}

/* A character, a class or a group. */
static void read_atom(s24i_regex_reader *r)
{
    r->may_be_empty = 0;
    if (*r->at == '(') {
        r->at++;
        read_group(r);
        return;
    }
    if (strchr("^$*+?{", *r->at)) {
        s24i_regex_refuse(r, "an anchor, or a repetition of nothing");
        return;
    }
    const int set = s24i_regex_read_set(r);
    emit(r, (s24i_code){.op = S24I_OP_SET, .a = set});
}

/* Atoms up to the next | or ). */
static void read_sequence(s24i_regex_reader *r)
{
    int empty = 1;
    while (*r->at && *r->at != '|' && *r->at != ')' && !r->wrong) {
        const int begin = r->regex->code_count;
        repeat times;
        read_atom(r);
        int atom_empty = r->may_be_empty;
        while (!r->wrong && read_repeat(r, &times)) {
            if (!r->wrong) apply(r, begin, &times);
            r->may_be_empty = atom_empty |= times.min == 0;
        }
        empty &= atom_empty;
    }
    r->may_be_empty = empty;
}

static void read_alternatives(s24i_regex_reader *r)
{
    int ends[256], count = 0, empty = 0, begin = r->regex->code_count;
    for (;;) {
        read_sequence(r);
        empty |= r->may_be_empty;
        if (r->wrong || *r->at != '|') break;
        r->at++;
        if (count == 256) s24i_regex_refuse(r, "so many alternatives");
        if (r->wrong) return;
        insert(r, begin, (s24i_code){.op = S24I_OP_SPLIT});
        ends[count++] = emit(r, (s24i_code){.op = S24I_OP_JUMP});
        r->regex->code[begin].a = begin + 1;
        r->regex->code[begin].b = r->regex->code_count;
        begin = r->regex->code_count;
    }
    for (int i = 0; i < count && !r->wrong; i++)
        r->regex->code[ends[i]].a = r->regex->code_count;
    r->may_be_empty = empty;
}

/* ---- what a part may begin with -------------------------------------------------------------- */

static void mark_set(const s24i_regex *regex, uint8_t first[16], int set)
{
    for (int c = 0; c < 128; c++)
        if (regex->sets[set].ascii[c]) first[c / 8] = (uint8_t)(first[c / 8] | 1u << (c % 8));
}

/* ASCII characters that what follows an instruction may begin with; too deep: any. */
static void mark_first(const s24i_regex *regex, uint8_t first[16], int pc, int depth)
{
    const s24i_code *code = &regex->code[pc];
    const int follows = code->op == S24I_OP_LOOP && code->min == 0;
    if (depth > 32 || code->op == S24I_OP_MATCH || code->op == S24I_OP_AHEAD) {
        memset(first, 0xff, 16);
        return;
    }
    if (code->op == S24I_OP_SET || code->op == S24I_OP_LOOP) mark_set(regex, first, code->a);
    if (follows || code->op == S24I_OP_ATOMIC) mark_first(regex, first, pc + 1, depth + 1);
    if (code->op == S24I_OP_JUMP || code->op == S24I_OP_SPLIT)
        mark_first(regex, first, code->a, depth + 1);
    if (code->op == S24I_OP_SPLIT) mark_first(regex, first, code->b, depth + 1);
}

s24_status s24i_regex_create(s24i_regex **out, s24_ctx *ctx, const char *file, const char *pattern)
{
    s24i_regex_reader r = {.at = pattern};
    TRY(s24i_zeroed(out, ctx, sizeof **out));
    r.regex = *out;
    read_alternatives(&r);
    if (!r.wrong && *r.at) s24i_regex_refuse(&r, "a ) without a group");
    emit(&r, (s24i_code){.op = S24I_OP_MATCH});
    if (r.wrong) {
        s24_ctx_free(ctx, *out);
        *out = NULL;
        return s24_ctx_fail(ctx, S24_ERROR_UNSUPPORTED,
                            "%s: the pattern \"%s\" is not supported: %s, before \"%s\"", file,
                            s24i_show(pattern).text, r.wrong, s24i_show(r.at).text);
    }
    for (int i = 0; i < r.regex->code_count; i++)
        if (r.regex->code[i].op == S24I_OP_SPLIT)
            mark_first(r.regex, r.regex->code[i].first, r.regex->code[i].a, 0);
    return S24_OK;
}
