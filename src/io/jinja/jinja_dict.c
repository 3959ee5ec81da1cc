// SPDX-License-Identifier: Apache-2.0
/* Dicts, and how values compare: equality, order, what is in what. */
#include "io/jinja/jinja_tree.h"

#include <string.h>

/* ---- dicts ----------------------------------------------------------------------------------- */

s24i_jvalue s24i_jdict_new(s24i_jrun *run, s24i_jkind kind)
{
    s24i_jdict *dict = s24i_jtake(run, sizeof *dict);
    if (!dict) return s24i_jundefined(NULL);
    return (s24i_jvalue){.kind = (uint8_t)kind, .as = {.dict = dict}};
}

/* A new pair, whose key is none that is there. */
static void add_pair(s24i_jrun *run, s24i_jdict *dict, s24i_jvalue key, s24i_jvalue value)
{
    s24i_jpair *pairs = s24i_jgrow(run, dict->pairs, dict->count, &dict->room, sizeof *pairs);
    if (!pairs) return;
    dict->pairs = pairs;
    dict->pairs[dict->count++] = (s24i_jpair){key, value};
}

static s24i_jpair *find_pair(s24i_jrun *run, s24i_jdict *dict, s24i_jvalue key)
{
    const int hashable =
        key.kind <= S24I_JSTRING || key.kind >= S24I_JNAMESPACE || key.kind == S24I_JTUPLE;
    if (!hashable) {
        s24i_jfail(run, "a %s is no key of a dict", s24i_jtype(key));
        return NULL;
    }
    s24i_jwork(run, 1 + dict->count / 8);
    for (size_t i = 0; i < dict->count; i++)
        if (s24i_jequal(run, dict->pairs[i].key, key)) return &dict->pairs[i];
    return NULL;
}

void s24i_jdict_set(s24i_jrun *run, s24i_jvalue dict, s24i_jvalue key, s24i_jvalue value)
{
    if (s24i_jfailed(run)) return;
    s24i_jpair *pair = find_pair(run, dict.as.dict, key);
    if (s24i_jfailed(run)) return;
    if (pair)
        pair->value = value;
    else
        add_pair(run, dict.as.dict, key, value);
}

const s24i_jvalue *s24i_jdict_get(s24i_jrun *run, s24i_jvalue dict, s24i_jvalue key)
{
    if (s24i_jfailed(run)) return NULL;
    const s24i_jpair *pair = find_pair(run, dict.as.dict, key);
    return pair ? &pair->value : NULL;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static s24i_jvalue from_json(s24i_jrun *run, const s24i_json *json, int depth);

static s24i_jvalue from_array(s24i_jrun *run, const s24i_json *json, int depth)
{
    s24i_jvalue list = s24i_jlist_new(run, S24I_JLIST);
    s24i_json_walk walk = s24i_json_begin(json);
    for (const s24i_json *item; (item = s24i_json_next(&walk, NULL)) && !s24i_jfailed(run);)
        s24i_jlist_add(run, list, from_json(run, item, depth));
    return list;
}

static s24i_jvalue from_object(s24i_jrun *run, const s24i_json *json, int depth)
{
    const char *key;
    s24i_jvalue dict = s24i_jdict_new(run, S24I_JDICT);
    s24i_json_walk walk = s24i_json_begin(json);
    for (const s24i_json *item; (item = s24i_json_next(&walk, &key)) && !s24i_jfailed(run);)
        add_pair(run, dict.as.dict, s24i_jstring(key, strlen(key), 0), from_json(run, item, depth));
    return dict;
}

static s24i_jvalue from_json(s24i_jrun *run, const s24i_json *json, int depth)
{
    const char *text = s24i_json_string(json);
    if (depth > S24I_JMOST_DATA)
        return s24i_jfail(run, "what it is given has more than %d levels within one another",
                          S24I_JMOST_DATA);
    switch (s24i_json_typeof(json)) {
    case S24I_JSON_BOOL:
        return s24i_jbool(s24i_json_is_true(json));
    case S24I_JSON_INTEGER:
        return s24i_jint(s24i_json_integer(json));
    case S24I_JSON_REAL:
        return s24i_jreal(s24i_json_number(json));
    case S24I_JSON_STRING:
        return s24i_jstring(text, strlen(text), 0);
    case S24I_JSON_ARRAY:
        return from_array(run, json, depth + 1);
    case S24I_JSON_OBJECT:
        return from_object(run, json, depth + 1);
    default:
        return s24i_jnone();
    }
}

s24i_jvalue s24i_jfrom_json(s24i_jrun *run, const s24i_json *json)
{
    return from_json(run, json, 0);
}

/* ---- equality -------------------------------------------------------------------------------- */

static int equal_lists(s24i_jrun *run, const s24i_jlist *a, const s24i_jlist *b)
{
    if (a->count != b->count) return 0;
    for (size_t i = 0; i < a->count; i++)
        if (!s24i_jequal(run, a->items[i], b->items[i])) return 0;
    return 1;
}

static int equal_dicts(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b)
{
    const s24i_jdict *d = a.as.dict;
    if (d->count != b.as.dict->count) return 0;
    for (size_t i = 0; i < d->count; i++) {
        const s24i_jvalue *other = s24i_jdict_get(run, b, d->pairs[i].key);
        if (!other || !s24i_jequal(run, d->pairs[i].value, *other)) return 0;
    }
    return 1;
}

int s24i_jequal(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b)
{
    if (!s24i_jwork(run, 1)) return 0;
    if (s24i_jis_number(a) && s24i_jis_number(b)) {
        const int whole = a.kind != S24I_JREAL && b.kind != S24I_JREAL;
        return whole ? a.as.integer == b.as.integer : s24i_jnumber(a) == s24i_jnumber(b);
    }
    if (a.kind != b.kind) return 0;
    switch (a.kind) {
    case S24I_JUNDEFINED:
    case S24I_JNONE:
        return 1;
    case S24I_JSTRING:
        return a.bytes == b.bytes && !memcmp(a.as.text, b.as.text, a.bytes);
    case S24I_JLIST:
    case S24I_JTUPLE:
        return equal_lists(run, a.as.list, b.as.list);
    case S24I_JDICT:
        return equal_dicts(run, a, b);
    default:
        return a.as.list == b.as.list;
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

static int order_strings(s24i_jvalue a, s24i_jvalue b)
{
    const size_t both = a.bytes < b.bytes ? a.bytes : b.bytes;
    const int order = both ? memcmp(a.as.text, b.as.text, both) : 0;
    return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int order_lists(s24i_jrun *run, const s24i_jlist *a, const s24i_jlist *b)
{
    for (size_t i = 0; i < a->count && i < b->count && !s24i_jfailed(run); i++)
        if (!s24i_jequal(run, a->items[i], b->items[i]))
            return s24i_jorder(run, a->items[i], b->items[i]);
    return (a->count > b->count) - (a->count < b->count);
}

int s24i_jorder(s24i_jrun *run, s24i_jvalue a, s24i_jvalue b)
{
    if (!s24i_jwork(run, 1)) return 0;
    if (s24i_jis_number(a) && s24i_jis_number(b)) {
        const int whole = a.kind != S24I_JREAL && b.kind != S24I_JREAL;
        const int64_t i = a.as.integer, j = b.as.integer;
        const double x = s24i_jnumber(a), y = s24i_jnumber(b);
        return whole ? (i > j) - (i < j) : (x > y) - (x < y);
    }
    if (a.kind == S24I_JSTRING && b.kind == S24I_JSTRING) return order_strings(a, b);
    if (a.kind == b.kind && (a.kind == S24I_JLIST || a.kind == S24I_JTUPLE))
        return order_lists(run, a.as.list, b.as.list);
    s24i_jfail(run, "there is no order between %s and %s", s24i_jtype(a), s24i_jtype(b));
    return 0;
}

/* ---- what is in a value ---------------------------------------------------------------------- */

int s24i_jcontains(s24i_jrun *run, s24i_jvalue holder, s24i_jvalue item)
{
    if (holder.kind == S24I_JUNDEFINED) return 0;
    if (holder.kind == S24I_JSTRING && item.kind == S24I_JSTRING)
        return s24i_jfind(run, holder, item, 0) != SIZE_MAX;
    if (holder.kind == S24I_JDICT) return s24i_jdict_get(run, holder, item) != NULL;
    if (!s24i_jis_list(holder)) {
        s24i_jfail(run, "%s is not in a %s: text in text, or an item of a list was expected",
                   s24i_jtype(item), s24i_jtype(holder));
        return 0;
    }
    for (size_t i = 0; i < holder.as.list->count; i++)
        if (s24i_jequal(run, holder.as.list->items[i], item)) return 1;
    return 0;
}
