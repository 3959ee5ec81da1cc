// SPDX-License-Identifier: Apache-2.0
/* The functions of jinja_globals.def. */
#include "io/jinja/function.h"

#include <string.h>
#include <time.h>

#define GLOBAL(name)                                                                               \
    s24i_jvalue s24i_jg_##name(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args)

/* Pairs of a dict that is given, then those by name. */
static s24i_jvalue collected(s24i_jrun *run, const s24i_jargs *args, s24i_jkind kind)
{
    s24i_jvalue out = s24i_jdict_new(run, kind);
    if (args->count > 1 || (args->count && args->list[0].kind != S24I_JDICT))
        return s24i_jfail(run, "a dict, or values by name were expected");
    const s24i_jdict *from = args->count ? args->list[0].as.dict : NULL;
    for (size_t i = 0; from && i < from->count && !s24i_jfailed(run); i++)
        s24i_jdict_set(run, out, from->pairs[i].key, from->pairs[i].value);
    for (size_t i = 0; i < args->named_count && !s24i_jfailed(run); i++)
        s24i_jdict_set(run, out, s24i_jword(args->named[i].name), args->named[i].value);
    return out;
}

GLOBAL(dict)
{
    (void)self;
    return collected(run, args, S24I_JDICT);
}

GLOBAL(namespace)
{
    (void)self;
    return collected(run, args, S24I_JNAMESPACE);
}

GLOBAL(range)
{
    (void)self;
    int64_t range[3] = {0, 0, 1};
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    for (int i = 0; i < 3; i++) {
        const s24i_jvalue value = args->bound[i];
        if (!args->given[i]) continue;
        if (value.kind != S24I_JINT && value.kind != S24I_JBOOL)
            return s24i_jfail(run, "range takes whole numbers, not a %s", s24i_jtype(value));
        range[i] = value.as.integer;
    }
    if (!args->given[0] || !range[2]) return s24i_jfail(run, "range needs an end, and steps");
    if (!args->given[1]) {
        range[1] = range[0];
        range[0] = 0;
    }
    for (int64_t i = range[0]; range[2] > 0 ? i < range[1] : i > range[1];) {
        if (s24i_jfailed(run)) break;
        if (out.as.list->count == S24I_JMOST_RANGE)
            return s24i_jfail(run, "range has more than %d numbers", S24I_JMOST_RANGE);
        s24i_jlist_add(run, out, s24i_jint(i));
        if (__builtin_add_overflow(i, range[2], &i)) break;
    }
    return out;
}

GLOBAL(raise_exception)
{
    (void)self;
    const s24i_jvalue text = s24i_jstr(run, args->bound[0]);
    const int bytes = text.bytes < 300 ? (int)text.bytes : 300;
    char shown[320];
    if (s24i_jfailed(run)) return text;
    memcpy(shown, text.as.text, (size_t)bytes);
    shown[bytes] = '\0';
    return s24i_jfail(run, "the chat template refuses this: %s", shown);
}

GLOBAL(strftime_now)
{
    (void)self;
    char format[128], text[256];
    struct tm day;
    const time_t now = time(NULL);
    if (!s24i_jname(format, sizeof format, args->bound[0]))
        return s24i_jfail(run, "strftime_now takes a text of at most %zu bytes", sizeof format - 1);
    if (!localtime_r(&now, &day)) return s24i_jfail(run, "the system does not know the time");
    const size_t bytes = strftime(text, sizeof text, format, &day);
    if (!bytes && *format) return s24i_jfail(run, "strftime_now: the date is too long");
    char *kept = s24i_jtake(run, bytes + 1);
    if (!kept) return s24i_jundefined(NULL);
    memcpy(kept, text, bytes);
    return s24i_jstring(kept, bytes, 1);
}
