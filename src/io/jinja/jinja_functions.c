// SPDX-License-Identifier: Apache-2.0
/* The tables of filters, tests, methods and functions, and how one of them is called. */
#include "io/jinja/function.h"

#include <string.h>

enum {
    TEXT = 1 << S24I_JSTRING,
    LIST = 1 << S24I_JLIST,
    LISTS = LIST | 1 << S24I_JTUPLE,
    DICT = 1 << S24I_JDICT,
    LOOP = 1 << S24I_JLOOP
};

#define JKNOWN(called)                        {#called, "", NULL, 0},
#define JFILTER(called, function, parameters) {#called, parameters, s24i_jf_##function, 0},
static const s24i_jrow filters[] = {
#include "io/jinja/jinja_filters.def"
};
#define JTEST(called, function, parameters) {called, parameters, s24i_jt_##function, 0},
static const s24i_jrow tests[] = {
#include "io/jinja/jinja_tests.def"
};
#define JMETHOD(of, called, function, parameters) {#called, parameters, s24i_jm_##function, of},
static const s24i_jrow methods[] = {
#include "io/jinja/jinja_methods.def"
};
#define JGLOBAL(called, function, parameters) {#called, parameters, s24i_jg_##function, 0},
static const s24i_jrow globals[] = {
#include "io/jinja/jinja_globals.def"
};

#define ROWS(table) (sizeof(table) / sizeof *(table))

static const s24i_jrow *find(const s24i_jrow *rows, size_t count, const char *name, int kinds)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].name, name) && (!kinds || (rows[i].kinds & kinds))) return &rows[i];
    return NULL;
}

const s24i_jrow *s24i_jfilter_find(const char *name)
{
    return find(filters, ROWS(filters), name, 0);
}

const s24i_jrow *s24i_jtest_find(const char *name)
{
    return find(tests, ROWS(tests), name, 0);
}

const s24i_jrow *s24i_jglobal_find(const char *name)
{
    return find(globals, ROWS(globals), name, 0);
}

const s24i_jrow *s24i_jmethod_named(const char *name)
{
    return find(methods, ROWS(methods), name, 0);
}

const s24i_jrow *s24i_jmethod_find(s24i_jkind kind, const char *name)
{
    return find(methods, ROWS(methods), name, 1 << kind);
}

/* The place of a name among names with blanks between them; −1: it is none. */
static int parameter(const char *params, const char *name)
{
    const size_t bytes = strlen(name);
    for (int i = 0; *params; i++) {
        const size_t length = strcspn(params, " ");
        if (length == bytes && !memcmp(params, name, bytes)) return i;
        params += length + (params[length] == ' ');
    }
    return -1;
}

static int parameter_count(const char *params)
{
    int count = *params != '\0';
    for (; *params; params++)
        count += *params == ' ';
    return count;
}

static void bind(s24i_jrun *run, const s24i_jrow *row, s24i_jargs *args)
{
    const int most = parameter_count(row->params);
    if (args->count > (size_t)most)
        s24i_jfail(run, "%s takes %d arguments, not %zu", row->name, most, args->count);
    for (size_t i = 0; i < args->count && i < (size_t)most; i++) {
        args->bound[i] = args->list[i];
        args->given[i] = 1;
    }
    for (size_t i = 0; i < args->named_count; i++) {
        const int at = parameter(row->params, args->named[i].name);
        if (at < 0 || args->given[at]) {
            s24i_jfail(run, "%s has no parameter %s, or has it twice", row->name,
                       s24i_show(args->named[i].name).text);
            return;
        }
        args->bound[at] = args->named[i].value;
        args->given[at] = 1;
    }
}

s24i_jvalue s24i_jcall_row(s24i_jrun *run, const s24i_jrow *row, s24i_jvalue self, s24i_jargs *args)
{
    if (!row->call) return s24i_jfail(run, "%s is not carried out", row->name);
    if (strcmp(row->params, "*") != 0) bind(run, row, args);
    if (s24i_jfailed(run)) return s24i_jundefined(NULL);
    return row->call(run, self, args);
}
