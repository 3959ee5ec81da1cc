// SPDX-License-Identifier: Apache-2.0
/* Attributes and items of values. Methods go before a dict's keys in value.name, and after them in
   value[name], as in Jinja2. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

s24i_jvalue s24i_jrefuse_undefined(s24i_jrun *run, s24i_jvalue value, const char *what)
{
    return s24i_jfail(run, "%s is not defined, and %s was asked of it",
                      value.as.text ? s24i_show(value.as.text).text : "a value", what);
}

/* What a loop says of itself. */
static s24i_jvalue loop_attribute(const s24i_jloop *loop, const char *name)
{
    const s24i_jlist *items = loop->items.as.list;
    const int64_t index = (int64_t)loop->index, count = (int64_t)items->count;
    const struct {
        const char *name;
        s24i_jvalue value;
    } all[] = {{"index", s24i_jint(index + 1)},
               {"index0", s24i_jint(index)},
               {"revindex", s24i_jint(count - index)},
               {"revindex0", s24i_jint(count - index - 1)},
               {"first", s24i_jbool(index == 0)},
               {"last", s24i_jbool(index + 1 == count)},
               {"length", s24i_jint(count)},
               {"depth", s24i_jint(1)},
               {"depth0", s24i_jint(0)},
               {"previtem",
                index ? items->items[index - 1] : s24i_jundefined("there is no previous item")},
               {"nextitem", index + 1 < count ? items->items[index + 1]
                                              : s24i_jundefined("there is no next item")}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].value;
    return s24i_jundefined(name);
}

/* A method or what the kind has by name; of kind UNDEFINED: nothing. */
static s24i_jvalue own_attribute(s24i_jrun *run, s24i_jvalue value, const char *name)
{
    const s24i_jrow *row = s24i_jmethod_find((s24i_jkind)value.kind, name);
    if (row) {
        s24i_jmethod *method = s24i_jtake(run, sizeof *method);
        if (!method) return s24i_jundefined(name);
        *method = (s24i_jmethod){row, value};
        return (s24i_jvalue){.kind = S24I_JMETHOD, .as = {.method = method}};
    }
    if (value.kind == S24I_JLOOP) return loop_attribute(value.as.loop, name);
    if (value.kind == S24I_JNAMESPACE) {
        const s24i_jvalue *found = s24i_jdict_get(run, value, s24i_jword(name));
        if (found) return *found;
    }
    if (value.kind == S24I_JMACRO && !strcmp(name, "name"))
        return s24i_jword(value.as.macro->node->name);
    return s24i_jundefined(name);
}

s24i_jvalue s24i_jattribute(s24i_jrun *run, s24i_jvalue value, const char *name)
{
    if (value.kind == S24I_JUNDEFINED) return s24i_jrefuse_undefined(run, value, name);
    const s24i_jvalue own = own_attribute(run, value, name);
    if (own.kind != S24I_JUNDEFINED || value.kind != S24I_JDICT) return own;
    const s24i_jvalue *found = s24i_jdict_get(run, value, s24i_jword(name));
    return found ? *found : own;
}

/* The item of a list or character of a string; 0: it is out of range. */
static int indexed(s24i_jvalue *out, s24i_jvalue value, int64_t index)
{
    const int is_list = value.kind == S24I_JLIST || value.kind == S24I_JTUPLE;
    if (!is_list && value.kind != S24I_JSTRING) return 0;
    const int64_t count = s24i_jlength(value);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return 0;
    *out = is_list ? value.as.list->items[index]
                   : s24i_jcut(value, s24i_jcharacter_at(value, index),
                               s24i_jcharacter_at(value, index + 1));
    return 1;
}

s24i_jvalue s24i_jitem(s24i_jrun *run, s24i_jvalue value, s24i_jvalue key)
{
    char name[64];
    s24i_jvalue out;
    if (value.kind == S24I_JUNDEFINED) return s24i_jrefuse_undefined(run, value, "an item");
    if (value.kind == S24I_JDICT) {
        const s24i_jvalue *found = s24i_jdict_get(run, value, key);
        if (found) return *found;
    } else if (key.kind == S24I_JINT || key.kind == S24I_JBOOL) {
        s24i_jwork(run, value.kind == S24I_JSTRING ? value.bytes / 16 : 0);
        if (indexed(&out, value, key.as.integer)) return out;
    }
    if (key.kind != S24I_JSTRING || key.bytes >= sizeof name) return s24i_jundefined(NULL);
    memcpy(name, key.as.text, key.bytes);
    name[key.bytes] = '\0';
    out = own_attribute(run, value, name);
    if (out.kind != S24I_JUNDEFINED) return out;
    char *kept = s24i_jtake(run, key.bytes + 1u);
    if (kept) memcpy(kept, name, key.bytes + 1u);
    return s24i_jundefined(kept);
}
