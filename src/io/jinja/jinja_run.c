// SPDX-License-Identifier: Apache-2.0
/* Runs a template's statements: what is printed, names, loops, macros. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

typedef enum going { GOES_ON, BREAKS, CONTINUES } going;

static going run_list(s24i_jrun *run, const s24i_jnode *list);

/* ---- names ----------------------------------------------------------------------------------- */

/* Opens a scope in another one; NULL: the run has failed. */
static s24i_jscope *open_scope(s24i_jrun *run, s24i_jscope *parent)
{
    s24i_jscope *scope = run->spare_scopes;
    if (scope)
        run->spare_scopes = scope->parent;
    else
        scope = s24i_jtake(run, sizeof *scope);
    if (!scope) return NULL;
    *scope = (s24i_jscope){.parent = parent};
    run->scope = scope;
    return scope;
}

/* Leaves the present scope, if it is not `back` already, whose memory others then have. */
static void close_scope(s24i_jrun *run, s24i_jscope *back)
{
    s24i_jscope *scope = run->scope;
    run->scope = back;
    if (scope == back || scope->kept) return;
    for (s24i_jvariable *v = scope->variables, *next; v; v = next) {
        next = v->next;
        v->next = run->spare_variables;
        run->spare_variables = v;
    }
    scope->parent = run->spare_scopes;
    run->spare_scopes = scope;
}

static void assign_one(s24i_jrun *run, const s24i_jnode *target, s24i_jvalue value)
{
    if (target->type == S24I_JN_NAME) {
        s24i_jassign(run, run->scope, target->name, value);
        return;
    }
    const char *name = target->kid[0]->name;
    const s24i_jvalue *space = s24i_jlookup(run->scope, name);
    if (space && space->kind == S24I_JNAMESPACE)
        s24i_jdict_set(run, *space, s24i_jword(target->name), value);
    else
        s24i_jfail(run, "%s.%s is set, but %s is no namespace", s24i_show(name).text,
                   s24i_show(target->name).text, s24i_show(name).text);
}

static void assign(s24i_jrun *run, const s24i_jnode *target, s24i_jvalue value)
{
    size_t count = 0;
    if (s24i_jfailed(run)) return;
    if (target->type != S24I_JN_TUPLE) {
        assign_one(run, target, value);
        return;
    }
    const s24i_jvalue items = s24i_jitems(run, value);
    for (const s24i_jnode *n = target->kid[0]; n; n = n->next)
        count++;
    if (s24i_jfailed(run)) return;
    if (items.as.list->count != count) {
        s24i_jfail(run, "%zu values were expected to be assigned to as many names, not %zu", count,
                   items.as.list->count);
        return;
    }
    const s24i_jvalue *item = items.as.list->items;
    for (const s24i_jnode *n = target->kid[0]; n; n = n->next)
        assign_one(run, n, *item++);
}

/* ---- text that is kept ----------------------------------------------------------------------- */

/* What statements print. */
static s24i_jvalue captured(s24i_jrun *run, const s24i_jnode *list)
{
    s24i_jbuild own = {.run = run}, *out = run->out;
    run->out = &own;
    run_list(run, list);
    run->out = out;
    return s24i_jbuilt(&own);
}

/* The same in a scope of its own. */
static s24i_jvalue captured_apart(s24i_jrun *run, const s24i_jnode *list)
{
    s24i_jscope *scope = run->scope;
    const s24i_jvalue text = open_scope(run, scope) ? captured(run, list) : s24i_jundefined(NULL);
    close_scope(run, scope);
    return text;
}

static s24i_jvalue filtered(s24i_jrun *run, const s24i_jnode *filters, s24i_jvalue text)
{
    const s24i_jvalue held = run->held;
    if (!filters) return text;
    run->held = text;
    const s24i_jvalue out = s24i_jevaluate(run, filters);
    run->held = held;
    return out;
}

/* ---- macros ---------------------------------------------------------------------------------- */

static const s24i_jvalue *named(const s24i_jargs *args, const char *name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (!strcmp(args->named[i].name, name)) return &args->named[i].value;
    return NULL;
}

static int has_parameter(const s24i_jnode *list, const char *name)
{
    for (; list; list = list->next)
        if (!strcmp(list->name, name)) return 1;
    return 0;
}

/* Every argument must have a parameter; but caller is one of every macro. */
static void check_arguments(s24i_jrun *run, const s24i_jnode *macro, const s24i_jargs *args)
{
    size_t count = 0;
    for (const s24i_jnode *n = macro->kid[0]; n; n = n->next)
        count++;
    if (args->count > count)
        s24i_jfail(run, "the macro %s takes %zu arguments, not %zu", s24i_show(macro->name).text,
                   count, args->count);
    for (size_t i = 0; i < args->named_count; i++)
        if (strcmp(args->named[i].name, "caller") != 0 &&
            !has_parameter(macro->kid[0], args->named[i].name))
            s24i_jfail(run, "the macro %s has no parameter %s", s24i_show(macro->name).text,
                       s24i_show(args->named[i].name).text);
}

/* Gives parameters their values, in the macro's scope, in which defaults are evaluated. */
static void fill_parameters(s24i_jrun *run, const s24i_jnode *macro, const s24i_jargs *args)
{
    size_t i = 0;
    const s24i_jvalue *caller = named(args, "caller");
    if (caller) s24i_jassign(run, run->scope, "caller", *caller);
    for (const s24i_jnode *n = macro->kid[0]; n && !s24i_jfailed(run); n = n->next, i++) {
        const s24i_jvalue *given = i < args->count ? &args->list[i] : named(args, n->name);
        const s24i_jvalue value = given       ? *given
                                  : n->kid[0] ? s24i_jevaluate(run, n->kid[0])
                                              : s24i_jundefined(n->name);
        s24i_jassign(run, run->scope, n->name, value);
    }
}

static s24i_jvalue run_macro(s24i_jrun *run, const s24i_jmacro *macro, const s24i_jargs *args)
{
    s24i_jscope *scope = run->scope;
    s24i_jvalue text = s24i_jundefined(NULL);
    check_arguments(run, macro->node, args);
    if (open_scope(run, macro->scope)) {
        fill_parameters(run, macro->node, args);
        text = captured(run, macro->node->kid[2]);
        close_scope(run, scope);
    }
    return text;
}

static s24i_jvalue macro_value(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jmacro *macro = s24i_jtake(run, sizeof *macro);
    if (!macro) return s24i_jundefined(NULL);
    for (s24i_jscope *scope = run->scope; scope; scope = scope->parent)
        scope->kept = 1;
    *macro = (s24i_jmacro){node, run->scope};
    return (s24i_jvalue){.kind = S24I_JMACRO, .as = {.macro = macro}};
}

static void run_caller(s24i_jrun *run, const s24i_jnode *node)
{
    const s24i_jvalue caller = macro_value(run, node->kid[1]);
    s24i_jput_value(run->out, s24i_jcall(run, node->kid[0], &caller));
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* The items for which the condition holds, each in a scope that has its names. */
static s24i_jvalue chosen(s24i_jrun *run, const s24i_jnode *node, s24i_jvalue items)
{
    s24i_jscope *scope = run->scope;
    const s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    for (size_t i = 0; s24i_jwork(run, 1) && i < items.as.list->count; i++) {
        if (!open_scope(run, scope)) break;
        assign(run, node->kid[0], items.as.list->items[i]);
        if (!s24i_jfailed(run) && s24i_jtrue(s24i_jevaluate(run, node->kid[4])))
            s24i_jlist_add(run, out, items.as.list->items[i]);
        close_scope(run, scope);
    }
    return out;
}

static going run_for(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jscope *scope = run->scope;
    s24i_jvalue items = s24i_jitems(run, s24i_jevaluate(run, node->kid[1]));
    if (node->kid[4] && !s24i_jfailed(run)) items = chosen(run, node, items);
    s24i_jloop *loop = s24i_jtake(run, sizeof *loop);
    if (!loop) return GOES_ON;
    loop->items = items;
    const s24i_jvalue self = {.kind = S24I_JLOOP, .as = {.loop = loop}};
    for (; loop->index < items.as.list->count && s24i_jwork(run, 1); loop->index++) {
        if (!open_scope(run, scope)) break;
        s24i_jassign(run, run->scope, "loop", self);
        assign(run, node->kid[0], items.as.list->items[loop->index]);
        const going way = run_list(run, node->kid[2]);
        close_scope(run, scope);
        if (way == BREAKS) break;
    }
    if (items.as.list->count || !node->kid[3] || s24i_jfailed(run)) return GOES_ON;
    if (open_scope(run, scope)) run_list(run, node->kid[3]);
    close_scope(run, scope);
    return GOES_ON;
}

/* ---- statements ------------------------------------------------------------------------------ */

static going run_if(s24i_jrun *run, const s24i_jnode *node)
{
    for (;;) {
        if (s24i_jtrue(s24i_jevaluate(run, node->kid[0]))) return run_list(run, node->kid[1]);
        const s24i_jnode *other = node->kid[2];
        if (s24i_jfailed(run) || !other) return GOES_ON;
        /* An elif, which is not one of several statements. */
        if (other->type != S24I_JN_IF || other->next) return run_list(run, other);
        node = other;
    }
}

static void run_scope(s24i_jrun *run, const s24i_jnode *node)
{
    s24i_jscope *scope = run->scope, *made = s24i_jtake(run, sizeof *made);
    if (!made) return;
    made->parent = scope;
    for (const s24i_jnode *n = node->kid[0]; n && !s24i_jfailed(run); n = n->next)
        s24i_jassign(run, made, n->name, s24i_jevaluate(run, n->kid[0]));
    run->scope = made;
    run_list(run, node->kid[2]);
    close_scope(run, scope);
}

static going run_one(s24i_jrun *run, const s24i_jnode *node)
{
    run->line = node->line;
    switch (node->type) {
    case S24I_JN_DATA:
        s24i_jput_string(run->out, node->value);
        break;
    case S24I_JN_PRINT:
        s24i_jput_value(run->out, s24i_jevaluate(run, node->kid[0]));
        break;
    case S24I_JN_IF:
        return run_if(run, node);
    case S24I_JN_FOR:
        return run_for(run, node);
    case S24I_JN_SET:
        assign(run, node->kid[0], s24i_jevaluate(run, node->kid[1]));
        break;
    case S24I_JN_CAPTURE:
        assign(run, node->kid[0], filtered(run, node->kid[1], captured_apart(run, node->kid[2])));
        break;
    case S24I_JN_MACRO:
        s24i_jassign(run, run->scope, node->name, macro_value(run, node));
        break;
    case S24I_JN_CALLER:
        run_caller(run, node);
        break;
    case S24I_JN_FILTERED:
        s24i_jput_value(run->out, filtered(run, node->kid[1], captured_apart(run, node->kid[2])));
        break;
    case S24I_JN_SCOPE:
        run_scope(run, node);
        break;
    case S24I_JN_BREAK:
        return BREAKS;
    default:
        return CONTINUES;
    }
    return GOES_ON;
}

static going run_list(s24i_jrun *run, const s24i_jnode *list)
{
    going way = GOES_ON;
    if (run->depth >= S24I_JMOST_DEPTH) {
        s24i_jfail(run, "more than %d levels of blocks and macros within one another",
                   S24I_JMOST_DEPTH);
        return GOES_ON;
    }
    run->depth++;
    for (; list && way == GOES_ON && s24i_jwork(run, 1); list = list->next)
        way = run_one(run, list);
    run->depth--;
    return way;
}

/* ---- a run ----------------------------------------------------------------------------------- */

s24_status s24i_jinja_open(s24i_jrun **out, s24_ctx *ctx, const s24i_jinja *jinja, size_t bytes)
{
    s24i_jrun *run;
    TRY(s24i_zeroed(&run, ctx, sizeof *run));
    const size_t most = bytes < SIZE_MAX / 2 / S24I_JBYTES_FOR_EACH
                            ? S24I_JLEAST_BYTES + bytes * S24I_JBYTES_FOR_EACH
                            : SIZE_MAX / 2;
    run->ctx = ctx;
    run->jinja = jinja;
    run->arena = (s24i_jarena){.ctx = ctx, .most = most};
    run->line = 1;
    run->macro = run_macro;
    *out = run;
    return S24_OK;
}

void s24i_jinja_set(s24i_jrun *run, const char *name, s24i_jvalue value)
{
    s24i_jassign(run, &run->inputs, name, value);
}

s24_status s24i_jinja_render(s24i_jvalue *string, s24i_jrun *run)
{
    s24i_jbuild out = {.run = run};
    run->out = &out;
    if (open_scope(run, &run->inputs)) run_list(run, run->jinja->body);
    *string = s24i_jbuilt(&out);
    return run->status;
}

void s24i_jinja_close(s24i_jrun *run)
{
    if (!run) return;
    s24_ctx *ctx = run->ctx;
    s24i_jarena_free(&run->arena);
    s24_ctx_free(ctx, run);
}
