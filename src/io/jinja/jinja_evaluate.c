// SPDX-License-Identifier: Apache-2.0
/* Evaluates expressions. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

s24i_jvalue *s24i_jlookup(const s24i_jscope *scope, const char *name)
{
    for (; scope; scope = scope->parent)
        for (s24i_jvariable *v = scope->variables; v; v = v->next)
            if (!strcmp(v->name, name)) return &v->value;
    return NULL;
}

void s24i_jassign(s24i_jrun *run, s24i_jscope *scope, const char *name, s24i_jvalue value)
{
    for (s24i_jvariable *v = scope->variables; v; v = v->next) {
        if (strcmp(v->name, name) != 0) continue;
        v->value = value;
        return;
    }
    s24i_jvariable *made = run->spare_variables;
    if (made)
        run->spare_variables = made->next;
    else if (!(made = s24i_jtake(run, sizeof *made)))
        return;
    *made = (s24i_jvariable){name, value, scope->variables};
    scope->variables = made;
}

static s24i_jvalue name_value(s24i_jrun *run, const char *name)
{
    const s24i_jvalue *found = s24i_jlookup(run->scope, name);
    if (found) return *found;
    const s24i_jrow *row = s24i_jglobal_find(name);
    if (!row) return s24i_jundefined(name);
    return (s24i_jvalue){.kind = S24I_JGLOBAL, .as = {.global = row}};
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* A bound of a slice; 0: it is none. */
static int bound(s24i_jrun *run, int64_t *out, const s24i_jnode *node, int64_t fallback)
{
    *out = fallback;
    if (!node) return 1;
    const s24i_jvalue value = s24i_jevaluate(run, node);
    if (value.kind == S24I_JINT || value.kind == S24I_JBOOL)
        *out = value.as.integer;
    else if (value.kind != S24I_JNONE)
        s24i_jfail(run, "a slice goes from and to whole numbers, not a %s", s24i_jtype(value));
    return !s24i_jfailed(run);
}

static int64_t clipped(int64_t index, int64_t count, int64_t step)
{
    if (index < 0) index = index < -count ? -1 : index + count;
    if (index < 0) return step < 0 ? -1 : 0;
    return index < count ? index : step < 0 ? count - 1 : count;
}

static s24i_jvalue sliced(s24i_jrun *run, s24i_jvalue value, const int64_t range[3])
{
    s24i_jbuild b = {.run = run};
    const int is_string = value.kind == S24I_JSTRING;
    const int64_t step = range[2];
    if (is_string && step == 1) {
        if (range[1] <= range[0]) return s24i_jword("");
        return s24i_jcut(value, s24i_jcharacter_at(value, range[0]),
                         s24i_jcharacter_at(value, range[1]));
    }
    s24i_jvalue items = s24i_jitems(run, value);
    s24i_jvalue out = s24i_jlist_new(run, (s24i_jkind)(is_string ? S24I_JLIST : value.kind));
    for (int64_t i = range[0]; (step > 0 ? i < range[1] : i > range[1]) && !s24i_jfailed(run);) {
        if (is_string)
            s24i_jput_string(&b, items.as.list->items[i]);
        else
            s24i_jlist_add(run, out, items.as.list->items[i]);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return is_string ? s24i_jbuilt(&b) : out;
}

static s24i_jvalue slice(s24i_jrun *run, const s24i_jnode *node)
{
    int64_t range[3];
    const s24i_jvalue value = s24i_jevaluate(run, node->kid[0]);
    if (value.kind == S24I_JUNDEFINED) return s24i_jrefuse_undefined(run, value, "a slice");
    if (value.kind != S24I_JSTRING && value.kind != S24I_JLIST && value.kind != S24I_JTUPLE)
        return s24i_jfail(run, "a %s has no slices", s24i_jtype(value));
    const int64_t count = s24i_jlength(value);
    if (!bound(run, &range[2], node->kid[3], 1)) return value;
    if (range[2] == 0) return s24i_jfail(run, "a slice's step is 0");
    const int64_t step = range[2];
    if (!bound(run, &range[0], node->kid[1], step < 0 ? INT64_MAX : 0)) return value;
    if (!bound(run, &range[1], node->kid[2], step < 0 ? INT64_MIN : INT64_MAX)) return value;
    range[0] = clipped(range[0], count, step);
    range[1] = clipped(range[1], count, step);
    return sliced(run, value, range);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Arguments of a node; 0: the run has failed. */
static int fill_arguments(s24i_jrun *run, s24i_jargs *args, const s24i_jnode *list,
                          const s24i_jvalue *caller)
{
    size_t count = 0, named_count = caller != NULL;
    for (const s24i_jnode *n = list; n; n = n->next) {
        count += n->type != S24I_JN_NAMED;
        named_count += n->type == S24I_JN_NAMED;
    }
    s24i_jvalue *values = count ? s24i_jtake(run, count * sizeof *values) : NULL;
    s24i_jnamed *named = named_count ? s24i_jtake(run, named_count * sizeof *named) : NULL;
    *args = (s24i_jargs){.list = values, .named = named};
    if (s24i_jfailed(run)) return 0;
    for (const s24i_jnode *n = list; n; n = n->next) {
        if (n->type == S24I_JN_NAMED)
            named[args->named_count++] = (s24i_jnamed){n->name, s24i_jevaluate(run, n->kid[0])};
        else
            values[args->count++] = s24i_jevaluate(run, n);
    }
    if (caller) named[args->named_count++] = (s24i_jnamed){"caller", *caller};
    return !s24i_jfailed(run);
}

s24i_jvalue s24i_jcall(s24i_jrun *run, const s24i_jnode *node, const s24i_jvalue *caller)
{
    s24i_jargs args;
    const s24i_jvalue called = s24i_jevaluate(run, node->kid[0]);
    if (!fill_arguments(run, &args, node->kid[1], caller)) return called;
    run->line = node->line;
    switch (called.kind) {
    case S24I_JMACRO:
        return run->macro(run, called.as.macro, &args);
    case S24I_JGLOBAL:
        return s24i_jcall_row(run, called.as.global, called, &args);
    case S24I_JMETHOD:
        return s24i_jcall_row(run, called.as.method->row, called.as.method->self, &args);
    case S24I_JUNDEFINED:
        return s24i_jfail(run, "%s is not defined, and cannot be called",
                          called.as.text ? s24i_show(called.as.text).text : "a value");
    default:
        return s24i_jfail(run, "a %s cannot be called", s24i_jtype(called));
    }
}

static s24i_jvalue filter_or_test(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jargs args;
    const s24i_jvalue self = node->kid[0] ? s24i_jevaluate(run, node->kid[0]) : run->held;
    if (!fill_arguments(run, &args, node->kid[1], NULL)) return self;
    run->line = node->line;
    if (!node->row)
        return s24i_jfail(run, "the %s %s is not carried out",
                          node->type == S24I_JN_FILTER ? "filter" : "test",
                          s24i_show(node->name).text);
    return s24i_jcall_row(run, node->row, self, &args);
}

/* ---- operators ------------------------------------------------------------------------------- */

static int compares(s24i_jrun *run, const char *text, s24i_jvalue a, s24i_jvalue b)
{
    if (!strcmp(text, "==")) return s24i_jequal(run, a, b);
    if (!strcmp(text, "!=")) return !s24i_jequal(run, a, b);
    if (!strcmp(text, "in")) return s24i_jcontains(run, b, a);
    if (!strcmp(text, "ni")) return !s24i_jcontains(run, b, a);
    const int order = s24i_jorder(run, a, b);
    const int is_nan = (a.kind == S24I_JREAL && a.as.real != a.as.real) ||
                       (b.kind == S24I_JREAL && b.as.real != b.as.real);
    if (is_nan) return 0;
    if (!strcmp(text, "<")) return order < 0;
    if (!strcmp(text, ">")) return order > 0;
    return !strcmp(text, "<=") ? order <= 0 : order >= 0;
}

static s24i_jvalue comparison(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jvalue left = s24i_jevaluate(run, node->kid[0]);
    for (const s24i_jnode *n = node->kid[1]; n && !s24i_jfailed(run); n = n->next) {
        const s24i_jvalue right = s24i_jevaluate(run, n->kid[0]);
        if (!compares(run, n->text, left, right)) return s24i_jbool(0);
        left = right;
    }
    return s24i_jbool(1);
}

/* Parts as texts; what is safe is no more, as in Jinja2 where nothing escapes of itself. */
static s24i_jvalue concatenation(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jbuild b = {.run = run};
    for (const s24i_jnode *n = node->kid[0]; n && !s24i_jfailed(run); n = n->next)
        s24i_jput_value(&b, s24i_jevaluate(run, n));
    return s24i_jbuilt(&b);
}

static s24i_jvalue signed_value(s24i_jrun *run, const s24i_jnode *node)
{
    const s24i_jvalue value = s24i_jevaluate(run, node->kid[0]);
    const int minus = node->type == S24I_JN_MINUS;
    if (value.kind == S24I_JREAL) return s24i_jreal(minus ? -value.as.real : value.as.real);
    if (!s24i_jis_number(value))
        return s24i_jfail(run, "a number was expected after a sign, not a %s", s24i_jtype(value));
    if (minus && value.as.integer == INT64_MIN) return s24i_jfail(run, "a number is over 64 bits");
    return s24i_jint(minus ? -value.as.integer : value.as.integer);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static s24i_jvalue list_value(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jvalue out = s24i_jlist_new(run, node->type == S24I_JN_LIST ? S24I_JLIST : S24I_JTUPLE);
    for (const s24i_jnode *n = node->kid[0]; n && !s24i_jfailed(run); n = n->next)
        s24i_jlist_add(run, out, s24i_jevaluate(run, n));
    return out;
}

static s24i_jvalue dict_value(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jvalue out = s24i_jdict_new(run, S24I_JDICT);
    for (const s24i_jnode *n = node->kid[0]; n && !s24i_jfailed(run); n = n->next) {
        const s24i_jvalue key = s24i_jevaluate(run, n->kid[0]);
        s24i_jdict_set(run, out, key, s24i_jevaluate(run, n->kid[1]));
    }
    return out;
}

static s24i_jvalue logical(s24i_jrun *run, const s24i_jnode *node)
{
    const s24i_jvalue left = s24i_jevaluate(run, node->kid[0]);
    const int goes_on = node->type == S24I_JN_AND ? s24i_jtrue(left) : !s24i_jtrue(left);
    return goes_on ? s24i_jevaluate(run, node->kid[1]) : left;
}

static s24i_jvalue choice(s24i_jrun *run, const s24i_jnode *node)
{
    if (s24i_jtrue(s24i_jevaluate(run, node->kid[1]))) return s24i_jevaluate(run, node->kid[0]);
    return node->kid[2] ? s24i_jevaluate(run, node->kid[2]) : s24i_jundefined(NULL);
}

static s24i_jvalue evaluate(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jvalue value;
    switch (node->type) {
    case S24I_JN_CONST:
        return node->value;
    case S24I_JN_NAME:
        return name_value(run, node->name);
    case S24I_JN_LIST:
    case S24I_JN_TUPLE:
        return list_value(run, node);
    case S24I_JN_DICT:
        return dict_value(run, node);
    case S24I_JN_ATTRIBUTE:
        return s24i_jattribute(run, s24i_jevaluate(run, node->kid[0]), node->name);
    case S24I_JN_ITEM:
        value = s24i_jevaluate(run, node->kid[0]);
        return s24i_jitem(run, value, s24i_jevaluate(run, node->kid[1]));
    case S24I_JN_SLICE:
        return slice(run, node);
    case S24I_JN_CALL:
        return s24i_jcall(run, node, NULL);
    case S24I_JN_FILTER:
    case S24I_JN_TEST:
        return filter_or_test(run, node);
    case S24I_JN_NOT:
        return s24i_jbool(!s24i_jtrue(s24i_jevaluate(run, node->kid[0])));
    case S24I_JN_MINUS:
    case S24I_JN_PLUS:
        return signed_value(run, node);
    case S24I_JN_BINARY:
        value = s24i_jevaluate(run, node->kid[0]);
        return s24i_jbinary(run, node->text, value, s24i_jevaluate(run, node->kid[1]));
    case S24I_JN_AND:
    case S24I_JN_OR:
        return logical(run, node);
    case S24I_JN_COMPARE:
        return comparison(run, node);
    case S24I_JN_CONCAT:
        return concatenation(run, node);
    default:
        return choice(run, node);
    }
}

s24i_jvalue s24i_jevaluate(s24i_jrun *run, const s24i_jnode *node)
{
    if (!s24i_jwork(run, 1)) return s24i_jundefined(NULL);
    if (run->depth == S24I_JMOST_DEPTH)
        return s24i_jfail(run, "more than %d levels of expressions and macros within one another",
                          S24I_JMOST_DEPTH);
    run->line = node->line;
    run->depth++;
    const s24i_jvalue value = evaluate(run, node);
    run->depth--;
    return s24i_jfailed(run) ? s24i_jundefined(NULL) : value;
}
