// SPDX-License-Identifier: Apache-2.0
/* Arithmetic as Python has it, on whole numbers of 64 bits, on texts and on lists. */
#include "io/jinja/jinja_tree.h"

#include <math.h>
#include <string.h>

static s24i_jvalue refuse(s24i_jrun *run, const char *text, s24i_jvalue a, s24i_jvalue b)
{
    for (int i = 0; i < 2; i++) {
        const s24i_jvalue one = i ? b : a;
        if (one.kind == S24I_JUNDEFINED)
            return s24i_jfail(run, "%s is not defined, where %s needs a value",
                              one.as.text ? s24i_show(one.as.text).text : "a value", text);
    }
    return s24i_jfail(run, "%s cannot join %s and %s", text, s24i_jtype(a), s24i_jtype(b));
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* a to the power of b; 0: it is over 64 bits. */
static int power(int64_t *out, int64_t a, int64_t b)
{
    *out = 1;
    if (a == 0 || a == 1 || a == -1) {
        *out = b == 0 || a == 1 ? 1 : a == 0 ? 0 : b % 2 ? -1 : 1;
        return 1;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*out, a, out)) return 0;
    return 1;
}

/* Whole numbers to a whole number; 0: it is over 64 bits. */
static int whole(int64_t *out, const char *text, int64_t a, int64_t b)
{
    switch (*text) {
    case '+':
        return !__builtin_add_overflow(a, b, out);
    case '-':
        return !__builtin_sub_overflow(a, b, out);
    case '*':
        return text[1] ? power(out, a, b) : !__builtin_mul_overflow(a, b, out);
    default:
        break;
    }
    if (b == -1) { /* where a / b may be over 64 bits */
        *out = 0;
        return *text == '%' || !__builtin_sub_overflow(0, a, out);
    }
    *out = *text == '%' ? a - floor_divide(a, b) * b : floor_divide(a, b);
    return 1;
}

static double real(const char *text, double a, double b)
{
    switch (*text) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return text[1] ? pow(a, b) : a * b;
    case '/':
        return text[1] ? floor(a / b) : a / b;
    default:
        return a - floor(a / b) * b;
    }
}

static s24i_jvalue numbers(s24i_jrun *run, const char *text, s24i_jvalue a, s24i_jvalue b)
{
    int64_t out;
    const int divides = *text == '/' || *text == '%', is_division = !strcmp(text, "/");
    if (divides && s24i_jnumber(b) == 0) return s24i_jfail(run, "division by zero");
    const int is_fraction = !strcmp(text, "**") && b.kind != S24I_JREAL && b.as.integer < 0;
    if (a.kind == S24I_JREAL || b.kind == S24I_JREAL || is_division || is_fraction)
        return s24i_jreal(real(text, s24i_jnumber(a), s24i_jnumber(b)));
    if (whole(&out, text, a.as.integer, b.as.integer)) return s24i_jint(out);
    return s24i_jfail(run, "a number is over 64 bits");
}

static s24i_jvalue joined_texts(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b)
{
    s24i_jbuild build = {.run = run};
    const int safe = a.safe || b.safe;
    if (!safe && !a.bytes) return b;
    if (!safe && !b.bytes) return a;
    s24i_jput_string(&build, safe ? s24i_jescaped(run, a) : a);
    s24i_jput_string(&build, safe ? s24i_jescaped(run, b) : b);
    s24i_jvalue out = s24i_jbuilt(&build);
    out.safe = (uint8_t)safe;
    return out;
}

static s24i_jvalue joined_lists(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b)
{
    s24i_jvalue out = s24i_jlist_new(run, (s24i_jkind)a.kind);
    for (size_t i = 0; i < a.as.list->count && !s24i_jfailed(run); i++)
        s24i_jlist_add(run, out, a.as.list->items[i]);
    for (size_t i = 0; i < b.as.list->count && !s24i_jfailed(run); i++)
        s24i_jlist_add(run, out, b.as.list->items[i]);
    return out;
}

/* A text or list, so many times. */
static s24i_jvalue repeated(s24i_jrun *run, s24i_jvalue value, int64_t times)
{
    s24i_jbuild build = {.run = run};
    const int is_text = value.kind == S24I_JSTRING;
    const s24i_jvalue list = s24i_jlist_new(run, is_text ? S24I_JLIST : (s24i_jkind)value.kind);
    const int64_t count = is_text ? value.bytes : (int64_t)value.as.list->count;
    for (int64_t i = 0; i < times && count && !s24i_jfailed(run); i++) {
        if (is_text) s24i_jput_string(&build, value);
        for (int64_t k = 0; !is_text && k < count; k++)
            s24i_jlist_add(run, list, value.as.list->items[k]);
    }
    return is_text ? s24i_jbuilt(&build) : list;
}

static int is_sequence(s24i_jvalue value)
{
    return value.kind == S24I_JSTRING || value.kind == S24I_JLIST || value.kind == S24I_JTUPLE;
}

static int is_whole(s24i_jvalue value)
{
    return value.kind == S24I_JINT || value.kind == S24I_JBOOL;
}

/* One value in place of a % mark; 0: the mark is none that is carried out. */
static int put_mark(s24i_jbuild *b, char mark, s24i_jvalue value)
{
    if (mark == 's') {
        s24i_jput_value(b, value);
    } else if (mark == 'r') {
        s24i_jput_repr(b, value);
    } else if ((mark == 'd' || mark == 'i') && s24i_jis_number(value)) {
        const int64_t number = value.kind == S24I_JREAL ? (int64_t)value.as.real : value.as.integer;
        s24i_jput_value(b, s24i_jint(number));
    } else {
        return 0;
    }
    return 1;
}

s24i_jvalue s24i_jformatted(s24i_jrun *run, s24i_jvalue format, s24i_jvalue values)
{
    s24i_jbuild b = {.run = run};
    size_t used = 0, next = 0;
    const int is_tuple = values.kind == S24I_JTUPLE;
    const size_t count = is_tuple ? values.as.list->count : 1;
    for (size_t i = 0; i < format.bytes && !s24i_jfailed(run); i = next) {
        const char *text = format.as.text + i, *mark = memchr(text, '%', format.bytes - i);
        next = mark ? (size_t)(mark - format.as.text) + 2 : format.bytes;
        s24i_jput_string(&b, s24i_jcut(format, i, mark ? next - 2 : next));
        if (!mark) break;
        const char letter = next <= format.bytes ? mark[1] : '\0';
        if (letter == '%')
            s24i_jput_string(&b, s24i_jcut(format, next - 1, next));
        else if (used == count)
            s24i_jfail(run, "a text with %% marks has more of them than the %zu values", count);
        else if (!put_mark(&b, letter, is_tuple ? values.as.list->items[used++] : values))
            s24i_jfail(run, "the mark %%%c for a %s is not carried out", letter ? letter : ' ',
                       s24i_jtype(is_tuple ? values.as.list->items[used - 1] : values));
        else
            used += !is_tuple;
    }
    if (used < count && (is_tuple || values.kind != S24I_JDICT))
        s24i_jfail(run, "a text with %% marks has fewer of them than the %zu values", count);
    return s24i_jbuilt(&b);
}

s24i_jvalue s24i_jbinary(s24i_jrun *run, const char *text, s24i_jvalue a, s24i_jvalue b)
{
    if (s24i_jfailed(run)) return a;
    if (s24i_jis_number(a) && s24i_jis_number(b)) return numbers(run, text, a, b);
    if (!strcmp(text, "+") && a.kind == S24I_JSTRING && b.kind == S24I_JSTRING)
        return joined_texts(run, a, b);
    if (!strcmp(text, "+") && a.kind == b.kind && is_sequence(a)) return joined_lists(run, a, b);
    if (!strcmp(text, "*") && is_sequence(a) && is_whole(b)) return repeated(run, a, b.as.integer);
    if (!strcmp(text, "*") && is_whole(a) && is_sequence(b)) return repeated(run, b, a.as.integer);
    if (!strcmp(text, "%") && a.kind == S24I_JSTRING) return s24i_jformatted(run, a, b);
    return refuse(run, text, a, b);
}
