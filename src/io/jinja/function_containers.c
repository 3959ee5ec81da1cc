// SPDX-License-Identifier: Apache-2.0
/* The methods of lists, dicts and loops in jinja_methods.def. */
#include "io/jinja/function.h"

METHOD(refused)
{
    (void)args;
    return s24i_jfail(run, "a %s cannot be changed: the sandbox of templates is immutable",
                      s24i_jtype(self));
}

METHOD(list_count)
{
    int64_t count = 0;
    for (size_t i = 0; i < self.as.list->count; i++)
        count += s24i_jequal(run, self.as.list->items[i], args->bound[0]);
    return s24i_jint(count);
}

METHOD(index)
{
    for (size_t i = 0; i < self.as.list->count; i++)
        if (s24i_jequal(run, self.as.list->items[i], args->bound[0])) return s24i_jint((int64_t)i);
    return s24i_jfail(run, "index: the value is not in the list");
}

METHOD(list_copy)
{
    (void)args;
    return s24i_jitems(run, self);
}

enum { KEYS, VALUES, ITEMS };

static s24i_jvalue view(s24i_jrun *run, s24i_jvalue self, int what)
{
    const s24i_jdict *dict = self.as.dict;
    s24i_jvalue out = s24i_jlist_new(run, S24I_JVIEW);
    for (size_t i = 0; i < dict->count && !s24i_jfailed(run); i++) {
        s24i_jvalue item = what == KEYS ? dict->pairs[i].key : dict->pairs[i].value;
        if (what == ITEMS) {
            item = s24i_jlist_new(run, S24I_JTUPLE);
            if (s24i_jfailed(run)) break;
            s24i_jlist_add(run, item, dict->pairs[i].key);
            s24i_jlist_add(run, item, dict->pairs[i].value);
        }
        s24i_jlist_add(run, out, item);
    }
    return out;
}

METHOD(keys)
{
    (void)args;
    return view(run, self, KEYS);
}

METHOD(values)
{
    (void)args;
    return view(run, self, VALUES);
}

METHOD(items)
{
    (void)args;
    return view(run, self, ITEMS);
}

METHOD(dict_copy)
{
    (void)args;
    s24i_jvalue out = s24i_jdict_new(run, S24I_JDICT);
    for (size_t i = 0; i < self.as.dict->count && !s24i_jfailed(run); i++)
        s24i_jdict_set(run, out, self.as.dict->pairs[i].key, self.as.dict->pairs[i].value);
    return out;
}

METHOD(get)
{
    const s24i_jvalue *found = s24i_jdict_get(run, self, args->bound[0]);
    return found ? *found : args->given[1] ? args->bound[1] : s24i_jnone();
}

METHOD(cycle)
{
    if (!args->count) return s24i_jfail(run, "loop.cycle needs a value");
    return args->list[self.as.loop->index % args->count];
}

FILTER(items)
{
    (void)args;
    if (self.kind == S24I_JUNDEFINED) return s24i_jlist_new(run, S24I_JGENERATOR);
    if (self.kind != S24I_JDICT)
        return s24i_jfail(run, "items: a dict was expected, not a %s", s24i_jtype(self));
    s24i_jvalue out = view(run, self, ITEMS);
    out.kind = out.kind == S24I_JVIEW ? S24I_JGENERATOR : out.kind;
    return out;
}
