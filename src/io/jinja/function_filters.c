// SPDX-License-Identifier: Apache-2.0
/* The filters of jinja_filters.def on single values. */
#include "io/jinja/function.h"

#include <math.h>
#include <string.h>

#include "io/tokenizer/utf8.h"

FILTER(abs)
{
    (void)args;
    if (self.kind == S24I_JREAL) return s24i_jreal(fabs(self.as.real));
    if (!s24i_jis_number(self) || self.as.integer == INT64_MIN)
        return s24i_jfail(run, "abs: a number was expected, not a %s", s24i_jtype(self));
    return s24i_jint(self.as.integer < 0 ? -self.as.integer : self.as.integer);
}

FILTER(attr)
{
    char name[64];
    if (!s24i_jname(name, sizeof name, args->bound[0])) return s24i_jfail(run, "attr takes a name");
    if (self.kind == S24I_JDICT || self.kind == S24I_JUNDEFINED) return s24i_jundefined(NULL);
    return s24i_jattribute(run, self, name);
}

FILTER(capitalize)
{
    (void)args;
    return s24i_jcased(run, s24i_jstr(run, self), S24I_JCAPITALIZE);
}

FILTER(lower)
{
    (void)args;
    return s24i_jcased(run, s24i_jstr(run, self), S24I_JLOWER);
}

FILTER(title)
{
    (void)args;
    return s24i_jcased(run, s24i_jstr(run, self), S24I_JWORDS);
}

FILTER(upper)
{
    (void)args;
    return s24i_jcased(run, s24i_jstr(run, self), S24I_JUPPER);
}

FILTER(string)
{
    (void)args;
    return s24i_jstr(run, self);
}

FILTER(safe)
{
    (void)args;
    s24i_jvalue out = s24i_jstr(run, self);
    out.safe = 1;
    return out;
}

FILTER(escape)
{
    (void)args;
    return s24i_jescaped(run, s24i_jstr(run, self));
}

FILTER(trim)
{
    return s24i_jstrip(run, s24i_jstr(run, self), args->bound[0], S24I_JLEFT | S24I_JRIGHT);
}

FILTER(replace)
{
    const s24i_jvalue most = args->bound[2];
    const s24i_jvalue both[2] = {s24i_jstr(run, args->bound[0]), s24i_jstr(run, args->bound[1])};
    if (!args->given[0] || !args->given[1]) return s24i_jfail(run, "replace takes two texts");
    const int64_t count = most.kind == S24I_JINT ? most.as.integer : -1;
    return s24i_jreplaced(run, s24i_jstr(run, self), both, count);
}

FILTER(default)
{
    (void)run;
    const int asks_truth = s24i_jtrue(args->bound[1]);
    const int is_there = asks_truth ? s24i_jtrue(self) : self.kind != S24I_JUNDEFINED;
    return is_there ? self : args->given[0] ? args->bound[0] : s24i_jword("");
}

FILTER(length)
{
    (void)args;
    const int64_t length = s24i_jlength(self);
    s24i_jwork(run, self.kind == S24I_JSTRING ? self.bytes / 16 : 0);
    if (length < 0) return s24i_jfail(run, "a %s has no length", s24i_jtype(self));
    return s24i_jint(length);
}

FILTER(format)
{
    s24i_jvalue values = s24i_jlist_new(run, S24I_JTUPLE);
    if (args->named_count) return s24i_jfail(run, "format with names is not carried out");
    for (size_t i = 0; i < args->count && !s24i_jfailed(run); i++)
        s24i_jlist_add(run, values, args->list[i]);
    return s24i_jfailed(run) ? values : s24i_jformatted(run, s24i_jstr(run, self), values);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Digits of a text, one or more; 0: there are none. */
static int go_over_digits(const char **at)
{
    const char *from = *at;
    while (**at >= '0' && **at <= '9')
        (*at)++;
    return *at > from;
}

/* The number that a text is, with white space around it; 0: it is none. */
static int read_number(double *out, s24i_jvalue string)
{
    char text[64];
    string = s24i_jstripped(string, S24I_JLEFT | S24I_JRIGHT);
    if (!s24i_jname(text, sizeof text, string)) return 0;
    const char *at = text + (*text == '-' || *text == '+');
    int is_number = go_over_digits(&at);
    if (*at == '.') {
        at++;
        is_number |= go_over_digits(&at);
    }
    if (is_number && (*at == 'e' || *at == 'E')) {
        at += 1 + (at[1] == '-' || at[1] == '+');
        is_number = go_over_digits(&at);
    }
    return is_number && !*at && s24i_json_real(out, text + (*text == '+'));
}

/* The whole number that a text is; 0: it is none. */
static int read_whole(int64_t *out, s24i_jvalue string)
{
    string = s24i_jstripped(string, S24I_JLEFT | S24I_JRIGHT);
    const int has_sign = string.bytes && strchr("+-", *string.as.text) != NULL;
    *out = 0;
    for (size_t i = (size_t)has_sign; i < string.bytes; i++) {
        const char c = string.as.text[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, c - '0', out))
            return 0;
    }
    if (has_sign && *string.as.text == '-') *out = -*out;
    return string.bytes > (size_t)has_sign;
}

FILTER(int)
{
    double real;
    int64_t whole;
    const s24i_jvalue fallback = args->given[0] ? args->bound[0] : s24i_jint(0);
    if (args->given[1] && !s24i_jequal(run, args->bound[1], s24i_jint(10)))
        return s24i_jfail(run, "int with another base than 10 is not carried out");
    if (self.kind == S24I_JINT || self.kind == S24I_JBOOL) return s24i_jint(self.as.integer);
    if (self.kind == S24I_JSTRING && read_whole(&whole, self)) return s24i_jint(whole);
    if (self.kind == S24I_JREAL)
        real = self.as.real;
    else if (self.kind != S24I_JSTRING || !read_number(&real, self))
        return fallback;
    if (!(real > -9e18 && real < 9e18)) return fallback;
    return s24i_jint((int64_t)real);
}

FILTER(float)
{
    double real;
    (void)run;
    if (self.kind == S24I_JREAL) return self;
    if (s24i_jis_number(self)) return s24i_jreal(s24i_jnumber(self));
    if (self.kind == S24I_JSTRING && read_number(&real, self)) return s24i_jreal(real);
    return args->given[0] ? args->bound[0] : s24i_jreal(0);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* What lines are indented by; a text, or so many blanks. */
static s24i_jvalue indentation(s24i_jrun *run, s24i_jvalue width)
{
    s24i_jbuild b = {.run = run};
    if (width.kind == S24I_JSTRING) return width;
    if (width.kind != S24I_JINT)
        return s24i_jfail(run, "indent takes a number or a text, not a %s", s24i_jtype(width));
    for (int64_t i = 0; i < width.as.integer && !s24i_jfailed(run); i++)
        s24i_jput(&b, " ", 1, 1);
    return s24i_jbuilt(&b);
}

FILTER(indent)
{
    s24i_jbuild b = {.run = run}, ended = {.run = run};
    const s24i_jvalue by = indentation(run, args->given[0] ? args->bound[0] : s24i_jint(4));
    if (self.kind != S24I_JSTRING)
        return s24i_jfail(run, "indent: a text was expected, not a %s", s24i_jtype(self));
    /* A line end more, so that a last one begins a line, too. */
    s24i_jput_string(&ended, self);
    s24i_jput(&ended, "\n", 1, 1);
    const s24i_jvalue lines = s24i_jlines(run, s24i_jbuilt(&ended), 0);
    const int first = s24i_jtrue(args->bound[1]), blank = s24i_jtrue(args->bound[2]);
    for (size_t i = 0; !s24i_jfailed(run) && i < lines.as.list->count; i++) {
        const s24i_jvalue line = lines.as.list->items[i];
        if (i) s24i_jput(&b, "\n", 1, 1);
        if (i ? blank || line.bytes : first) s24i_jput_string(&b, by);
        s24i_jput_string(&b, line);
    }
    return s24i_jbuilt(&b);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* What stands between items and after keys, where it is told. */
static void read_separators(s24i_jrun *run, s24i_jjson *how, s24i_jvalue pair)
{
    const int is_pair = (pair.kind == S24I_JTUPLE || pair.kind == S24I_JLIST) &&
                        pair.as.list->count == 2 && pair.as.list->items[0].kind == S24I_JSTRING &&
                        pair.as.list->items[1].kind == S24I_JSTRING;
    if (pair.kind == S24I_JUNDEFINED || pair.kind == S24I_JNONE) return;
    if (!is_pair) {
        s24i_jfail(run, "tojson: separators are two texts");
        return;
    }
    how->comma = pair.as.list->items[0];
    how->colon = pair.as.list->items[1];
}

FILTER(tojson)
{
    const s24i_jvalue indent = args->bound[1];
    const int is_indented = indent.kind == S24I_JINT || indent.kind == S24I_JBOOL;
    s24i_jjson how = {.indent = -1,
                      .ascii = s24i_jtrue(args->bound[0]),
                      .sorted = s24i_jtrue(args->bound[3]),
                      .comma = s24i_jstring(", ", is_indented ? 1 : 2, 0),
                      .colon = s24i_jstring(": ", 2, 0)};
    if (!is_indented && indent.kind != S24I_JUNDEFINED && indent.kind != S24I_JNONE)
        return s24i_jfail(run, "tojson: indent is a number, not a %s", s24i_jtype(indent));
    if (is_indented)
        how.indent = (int)(indent.as.integer < 0    ? 0
                           : indent.as.integer > 64 ? 64
                                                    : indent.as.integer);
    read_separators(run, &how, args->bound[2]);
    return s24i_jfailed(run) ? self : s24i_jto_json(run, self, &how);
}
