// SPDX-License-Identifier: Apache-2.0
/* The filters of jinja_filters.def on lists. */
#include "io/jinja/function.h"

#include <string.h>

/* ---- parts of items -------------------------------------------------------------------------- */

/* What stands at "a.b.0" in an item, or the item where no attribute is told. */
static s24i_jvalue part_of(s24i_jrun *run, s24i_jvalue item, s24i_jvalue path)
{
    if (path.kind == S24I_JINT) return s24i_jitem(run, item, path);
    if (path.kind != S24I_JSTRING) return item;
    for (size_t from = 0; from <= path.bytes && !s24i_jfailed(run);) {
        const char *dot = memchr(path.as.text + from, '.', path.bytes - from);
        const size_t end = dot ? (size_t)(dot - path.as.text) : path.bytes;
        const s24i_jvalue name = s24i_jcut(path, from, end);
        int64_t number = 0;
        int is_number = name.bytes > 0 && name.bytes < 10;
        for (size_t i = 0; i < name.bytes; i++) {
            is_number &= name.as.text[i] >= '0' && name.as.text[i] <= '9';
            number = is_number ? number * 10 + name.as.text[i] - '0' : 0;
        }
        item = s24i_jitem(run, item, is_number ? s24i_jint(number) : name);
        from = end + 1;
    }
    return item;
}

/* What items are compared by. */
typedef struct order {
    s24i_jrun *run;
    s24i_jvalue path;
    int exact_case, down;
} order;

static s24i_jvalue key_of(const order *o, s24i_jvalue item)
{
    const s24i_jvalue part = part_of(o->run, item, o->path);
    return part.kind == S24I_JSTRING && !o->exact_case ? s24i_jcased(o->run, part, S24I_JLOWER)
                                                       : part;
}

/* Sorted by keys, equal ones in the order they have: halves are merged. */
static void sort_keys(const order *o, s24i_jpair *pairs, s24i_jpair *spare, size_t count)
{
    const size_t half = count / 2;
    if (count < 2 || s24i_jfailed(o->run)) return;
    sort_keys(o, pairs, spare, half);
    sort_keys(o, pairs + half, spare, count - half);
    memcpy(spare, pairs, count * sizeof *pairs);
    for (size_t i = 0, left = 0, right = half; i < count; i++) {
        const int sign =
            left == half || right == count
                ? 0
                : s24i_jorder(o->run, spare[right].key, spare[left].key) * (o->down ? -1 : 1);
        const int takes_right = left == half || (right < count && sign < 0);
        pairs[i] = spare[takes_right ? right++ : left++];
    }
}

static s24i_jvalue sorted(const order *o, s24i_jvalue items)
{
    s24i_jrun *run = o->run;
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    if (s24i_jfailed(run)) return out;
    const size_t count = items.as.list->count;
    s24i_jpair *pairs = s24i_jtake(run, (2 * count + 1) * sizeof *pairs);
    if (!pairs) return out;
    for (size_t i = 0; i < count; i++)
        pairs[i] = (s24i_jpair){key_of(o, items.as.list->items[i]), items.as.list->items[i]};
    sort_keys(o, pairs, pairs + count, count);
    for (size_t i = 0; i < count && !s24i_jfailed(run); i++)
        s24i_jlist_add(run, out, pairs[i].value);
    return out;
}

/* The attributes by which items are sorted may not be several. */
static int is_path(s24i_jrun *run, s24i_jvalue path)
{
    const int several =
        path.kind == S24I_JSTRING && path.bytes && memchr(path.as.text, ',', path.bytes);
    if (several) s24i_jfail(run, "sort by several attributes is not carried out");
    return !several;
}

FILTER(sort)
{
    const order o = {run, args->bound[2], s24i_jtrue(args->bound[1]), s24i_jtrue(args->bound[0])};
    if (!is_path(run, o.path)) return self;
    return sorted(&o, s24i_jitems(run, self));
}

FILTER(dictsort)
{
    const s24i_jvalue by = args->bound[1];
    const int by_value = s24i_jis_text(by, "value");
    const order o = {run, s24i_jint(by_value), s24i_jtrue(args->bound[0]),
                     s24i_jtrue(args->bound[2])};
    if (args->given[1] && !by_value && !s24i_jis_text(by, "key"))
        return s24i_jfail(run, "dictsort sorts by \"key\" or \"value\"");
    const s24i_jrow *items = s24i_jmethod_find((s24i_jkind)self.kind, "items");
    s24i_jargs none = {0};
    if (!items) return s24i_jfail(run, "dictsort: a dict was expected, not a %s", s24i_jtype(self));
    return sorted(&o, s24i_jcall_row(run, items, self, &none));
}

/* The first of the least or greatest items. */
static s24i_jvalue extreme(s24i_jvalue self, const order *o)
{
    const s24i_jvalue items = s24i_jitems(o->run, self);
    s24i_jvalue best = s24i_jundefined("there is no item"), best_key = best;
    for (size_t i = 0; !s24i_jfailed(o->run) && i < items.as.list->count; i++) {
        const s24i_jvalue key = key_of(o, items.as.list->items[i]);
        const int sign = i ? s24i_jorder(o->run, key, best_key) : 0;
        if (i && (o->down ? sign <= 0 : sign >= 0)) continue;
        best = items.as.list->items[i];
        best_key = key;
    }
    return best;
}

FILTER(min)
{
    return extreme(self, &(order){run, args->bound[1], s24i_jtrue(args->bound[0]), 0});
}

FILTER(max)
{
    return extreme(self, &(order){run, args->bound[1], s24i_jtrue(args->bound[0]), 1});
}

FILTER(unique)
{
    const order o = {run, args->bound[1], s24i_jtrue(args->bound[0]), 0};
    const s24i_jvalue items = s24i_jitems(run, self), seen = s24i_jdict_new(run, S24I_JDICT);
    s24i_jvalue out = s24i_jlist_new(run, S24I_JGENERATOR);
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++) {
        const s24i_jvalue key = key_of(&o, items.as.list->items[i]);
        if (s24i_jdict_get(run, seen, key)) continue;
        s24i_jdict_set(run, seen, key, s24i_jnone());
        s24i_jlist_add(run, out, items.as.list->items[i]);
    }
    return out;
}

FILTER(sum)
{
    const s24i_jvalue items = s24i_jitems(run, self);
    s24i_jvalue out = args->given[1] ? args->bound[1] : s24i_jint(0);
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++)
        out = s24i_jbinary(run, "+", out, part_of(run, items.as.list->items[i], args->bound[0]));
    return out;
}

/* ---- map, select ----------------------------------------------------------------------------- */

/* A function that is named by a value, and what else it is called with: arguments from `skip` on.
   NULL: the run has failed. */
static const s24i_jrow *function_of(s24i_jrun *run, const s24i_jargs *args, size_t skip,
                                    const s24i_jrow *(*find)(const char *), s24i_jargs *rest)
{
    char name[64];
    const s24i_jrow *row = s24i_jname(name, sizeof name, args->list[skip]) ? find(name) : NULL;
    *rest = *args;
    rest->list = args->list + skip + 1;
    rest->count = args->count - skip - 1;
    if (!row || !row->call) s24i_jfail(run, "there is no filter or test of the name that is given");
    return s24i_jfailed(run) ? NULL : row;
}

/* The value of a parameter by its name, undefined: it is not given. */
static s24i_jvalue named(const s24i_jargs *args, const char *name)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (!strcmp(args->named[i].name, name)) return args->named[i].value;
    return s24i_jundefined(name);
}

FILTER(map)
{
    s24i_jargs rest;
    const s24i_jrow *row = NULL;
    const s24i_jvalue path = named(args, "attribute"), fallback = named(args, "default");
    s24i_jvalue out = s24i_jlist_new(run, S24I_JGENERATOR);
    const s24i_jvalue items = s24i_jitems(run, self);
    if (!args->count && path.kind == S24I_JUNDEFINED)
        return s24i_jfail(run, "map takes a filter's name, or an attribute");
    if (args->count && !(row = function_of(run, args, 0, s24i_jfilter_find, &rest))) return out;
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++) {
        s24i_jvalue item = items.as.list->items[i];
        s24i_jargs again = row ? rest : (s24i_jargs){0};
        item = row ? s24i_jcall_row(run, row, item, &again) : part_of(run, item, path);
        if (!row && item.kind == S24I_JUNDEFINED && s24i_jtrue(fallback)) item = fallback;
        s24i_jlist_add(run, out, item);
    }
    return out;
}

/* Items of which a test, or their truth, says `wanted`; by_part: of the part that the first
   argument names. */
static s24i_jvalue selected(s24i_jrun *run, s24i_jvalue self, const s24i_jargs *args, int by_part,
                            int wanted)
{
    s24i_jargs rest = {0};
    const s24i_jrow *row = NULL;
    const size_t skip = (size_t)by_part;
    s24i_jvalue out = s24i_jlist_new(run, S24I_JGENERATOR);
    if (!s24i_jtrue(self) && self.kind != S24I_JGENERATOR) return out;
    const s24i_jvalue items = s24i_jitems(run, self);
    if (args->count < skip) return s24i_jfail(run, "the name of an attribute was expected");
    if (args->count > skip && !(row = function_of(run, args, skip, s24i_jtest_find, &rest)))
        return out;
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++) {
        const s24i_jvalue item = items.as.list->items[i];
        const s24i_jvalue part = by_part ? part_of(run, item, args->list[0]) : item;
        s24i_jargs again = rest;
        const s24i_jvalue told = row ? s24i_jcall_row(run, row, part, &again) : part;
        if (s24i_jtrue(told) == wanted) s24i_jlist_add(run, out, item);
    }
    return out;
}

FILTER(select)
{
    return selected(run, self, args, 0, 1);
}

FILTER(reject)
{
    return selected(run, self, args, 0, 0);
}

FILTER(selectattr)
{
    return selected(run, self, args, 1, 1);
}

FILTER(rejectattr)
{
    return selected(run, self, args, 1, 0);
}

/* ---- others ---------------------------------------------------------------------------------- */

FILTER(list)
{
    (void)args;
    return s24i_jitems(run, self);
}

FILTER(first)
{
    (void)args;
    const s24i_jvalue items = s24i_jitems(run, self);
    if (s24i_jfailed(run) || !items.as.list->count)
        return s24i_jundefined("there is no first item");
    return items.as.list->items[0];
}

FILTER(last)
{
    (void)args;
    if (self.kind == S24I_JGENERATOR)
        return s24i_jfail(run, "last: a generator cannot be gone through backwards");
    const s24i_jvalue items = s24i_jitems(run, self);
    if (s24i_jfailed(run) || !items.as.list->count) return s24i_jundefined("there is no last item");
    return items.as.list->items[items.as.list->count - 1];
}

FILTER(reverse)
{
    s24i_jbuild b = {.run = run};
    (void)args;
    const s24i_jvalue items = s24i_jitems(run, self);
    s24i_jvalue out = s24i_jlist_new(run, S24I_JGENERATOR);
    for (size_t i = s24i_jfailed(run) ? 0 : items.as.list->count; i > 0 && !s24i_jfailed(run);
         i--) {
        if (self.kind == S24I_JSTRING)
            s24i_jput_string(&b, items.as.list->items[i - 1]);
        else
            s24i_jlist_add(run, out, items.as.list->items[i - 1]);
    }
    return self.kind == S24I_JSTRING ? s24i_jbuilt(&b) : out;
}

FILTER(join)
{
    const s24i_jvalue path = args->bound[1];
    s24i_jvalue items = s24i_jitems(run, self);
    s24i_jvalue parts = s24i_jlist_new(run, S24I_JLIST);
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++)
        s24i_jlist_add(run, parts, part_of(run, items.as.list->items[i], path));
    if (s24i_jfailed(run)) return parts;
    return s24i_jjoin(run, args->given[0] ? s24i_jstr(run, args->bound[0]) : s24i_jword(""), parts,
                      0);
}

FILTER(batch)
{
    const s24i_jvalue size = args->bound[0];
    const s24i_jvalue items = s24i_jitems(run, self);
    s24i_jvalue out = s24i_jlist_new(run, S24I_JGENERATOR), row = out;
    if (size.kind != S24I_JINT || size.as.integer < 1)
        return s24i_jfail(run, "batch takes a whole number over 0");
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++) {
        if (i % (size_t)size.as.integer == 0) {
            row = s24i_jlist_new(run, S24I_JLIST);
            s24i_jlist_add(run, out, row);
        }
        if (!s24i_jfailed(run)) s24i_jlist_add(run, row, items.as.list->items[i]);
    }
    const int fills = args->given[1] && args->bound[1].kind != S24I_JNONE;
    while (fills && !s24i_jfailed(run) && items.as.list->count &&
           row.as.list->count < (size_t)size.as.integer)
        s24i_jlist_add(run, row, args->bound[1]);
    return out;
}
