// SPDX-License-Identifier: Apache-2.0
/* What is asked of a single value: its type, whether it is true, its length and its items. */
#define _GNU_SOURCE /* memmem */
#include "io/jinja/jinja_tree.h"

#include <string.h>

#include "io/tokenizer/bpe.h"
#include "io/tokenizer/utf8.h"

const char *s24i_jtype(s24i_jvalue value)
{
    static const char *const names[] = {
        [S24I_JUNDEFINED] = "Undefined", [S24I_JNONE] = "NoneType",
        [S24I_JBOOL] = "bool",           [S24I_JINT] = "int",
        [S24I_JREAL] = "float",          [S24I_JSTRING] = "str",
        [S24I_JLIST] = "list",           [S24I_JTUPLE] = "tuple",
        [S24I_JVIEW] = "dict view",      [S24I_JGENERATOR] = "generator",
        [S24I_JDICT] = "dict",           [S24I_JNAMESPACE] = "namespace",
        [S24I_JMACRO] = "macro",         [S24I_JMETHOD] = "method",
        [S24I_JGLOBAL] = "function",     [S24I_JLOOP] = "loop"};
    return names[value.kind];
}

int s24i_jis_number(s24i_jvalue value)
{
    return value.kind == S24I_JBOOL || value.kind == S24I_JINT || value.kind == S24I_JREAL;
}

double s24i_jnumber(s24i_jvalue value)
{
    return value.kind == S24I_JREAL ? value.as.real : (double)value.as.integer;
}

int s24i_jtrue(s24i_jvalue value)
{
    switch (value.kind) {
    case S24I_JUNDEFINED:
    case S24I_JNONE:
        return 0;
    case S24I_JBOOL:
    case S24I_JINT:
        return value.as.integer != 0;
    case S24I_JREAL:
        return value.as.real != 0;
    case S24I_JSTRING:
        return value.bytes > 0;
    case S24I_JLIST:
    case S24I_JTUPLE:
    case S24I_JVIEW:
        return value.as.list->count > 0;
    case S24I_JDICT:
        return value.as.dict->count > 0;
    default:
        return 1;
    }
}

int s24i_jis_text(s24i_jvalue value, const char *text)
{
    return value.kind == S24I_JSTRING && value.bytes == strlen(text) &&
           !memcmp(value.as.text, text, value.bytes);
}

int s24i_jis_list(s24i_jvalue value)
{
    return value.kind >= S24I_JLIST && value.kind <= S24I_JGENERATOR;
}

size_t s24i_jfind(s24i_jrun *run, s24i_jvalue holder, s24i_jvalue item, size_t from)
{
    if (!item.bytes) return from;
    s24i_jwork(run, 1);
    const char *text = holder.as.text,
               *found = memmem(text + from, holder.bytes - from, item.as.text, item.bytes);
    if (!found) return SIZE_MAX;
    s24i_jwork(run, (size_t)(found - text - (ptrdiff_t)from) / 16);
    return (size_t)(found - text);
}

int64_t s24i_jcharacters(s24i_jvalue string)
{
    int64_t count = 0;
    uint32_t character;
    const unsigned char *text = (const unsigned char *)string.as.text;
    for (size_t i = 0; i < string.bytes; count++)
        i += s24i_utf8_next(&character, text + i, string.bytes - i);
    return count;
}

size_t s24i_jcharacter_at(s24i_jvalue string, int64_t index)
{
    const size_t at = s24i_utf8_skip(string.as.text, string.bytes, index);
    return at == SIZE_MAX ? string.bytes : at;
}

int64_t s24i_jlength(s24i_jvalue value)
{
    switch (value.kind) {
    case S24I_JUNDEFINED:
        return 0;
    case S24I_JSTRING:
        return s24i_jcharacters(value);
    case S24I_JLIST:
    case S24I_JTUPLE:
    case S24I_JVIEW:
        return (int64_t)value.as.list->count;
    case S24I_JDICT:
        return (int64_t)value.as.dict->count;
    default:
        return -1;
    }
}

s24i_jvalue s24i_jitems(s24i_jrun *run, s24i_jvalue value)
{
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    uint32_t character;
    if (s24i_jfailed(run) || value.kind == S24I_JUNDEFINED) return out;
    if (s24i_jis_list(value)) {
        *out.as.list = *value.as.list;
        /* What is added to it later goes into memory of its own. */
        out.as.list->room = out.as.list->count;
        if (value.kind == S24I_JGENERATOR) *value.as.list = (s24i_jlist){0};
    } else if (value.kind == S24I_JDICT) {
        for (size_t i = 0; i < value.as.dict->count; i++)
            s24i_jlist_add(run, out, value.as.dict->pairs[i].key);
    } else if (value.kind == S24I_JSTRING) {
        for (size_t i = 0, step; i < value.bytes && !s24i_jfailed(run); i += step) {
            step = s24i_utf8_next(&character, (const unsigned char *)value.as.text + i,
                                  value.bytes - i);
            s24i_jlist_add(run, out, s24i_jcut(value, i, i + step));
        }
    } else {
        s24i_jfail(run, "a %s has no items to go through", s24i_jtype(value));
    }
    return out;
}

/* ---- white space ----------------------------------------------------------------------------- */

size_t s24i_jspace(const char *text, size_t bytes)
{
    return bytes && *text >= 0x1c && *text <= 0x1f ? 1 : s24i_space_bytes(text, bytes);
}

s24i_jvalue s24i_jstripped(s24i_jvalue string, int ends)
{
    size_t begin = 0, end = string.bytes, step;
    const char *text = string.as.text;
    while ((ends & S24I_JLEFT) && (step = s24i_jspace(text + begin, end - begin)) > 0)
        begin += step;
    for (size_t before = end + 1; (ends & S24I_JRIGHT) && before != end;) {
        before = end;
        end = s24i_space_before(text, begin, end);
        if (end > begin && text[end - 1] >= 0x1c && text[end - 1] <= 0x1f) end--;
    }
    return s24i_jcut(string, begin, end);
}
