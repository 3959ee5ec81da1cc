// SPDX-License-Identifier: Apache-2.0
/* What filters and methods do with texts. Letters change case one for one, but for those that
   become two. */
#include "io/jinja/function.h"

#include <string.h>

#include "io/tokenizer/utf8.h"

int s24i_jname(char *out, size_t room, s24i_jvalue string)
{
    if (string.kind != S24I_JSTRING || string.bytes >= room) return 0;
    memcpy(out, string.as.text, string.bytes);
    out[string.bytes] = '\0';
    return 1;
}

/* ---- case ------------------------------------------------------------------------------------ */

static uint32_t next(s24i_jvalue string, size_t *at)
{
    uint32_t c;
    *at += s24i_utf8_next(&c, (const unsigned char *)string.as.text + *at, string.bytes - *at);
    return c;
}

static uint32_t lower_of(uint32_t c)
{
    return c < 0x80 ? c + (c >= 'A' && c <= 'Z') * 32u
                    : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static uint32_t upper_of(uint32_t c)
{
    return c < 0x80 ? c - (c >= 'a' && c <= 'z') * 32u
                    : (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

static int is_cased(uint32_t c)
{
    return c != S24I_UTF8_INVALID && (lower_of(c) != c || upper_of(c) != c || c == 0xdf);
}

int s24i_jhas_case(s24i_jvalue string, int upper)
{
    int cased = 0;
    for (size_t i = 0; i < string.bytes;) {
        const uint32_t c = next(string, &i);
        if (!is_cased(c)) continue;
        if ((upper ? upper_of(c) : lower_of(c)) != c || (upper && c == 0xdf)) return 0;
        cased = 1;
    }
    return cased;
}

/* Whether a character comes in upper case. */
static int goes_up(int how, int is_first, uint32_t before)
{
    static const char apart[] = "-(){}[]<";
    switch (how) {
    case S24I_JUPPER:
        return 1;
    case S24I_JCAPITALIZE:
        return is_first;
    case S24I_JTITLE:
        return is_first || !is_cased(before);
    case S24I_JWORDS:
        return is_first || (before < 0x80 && (strchr(apart, (int)before) != NULL ||
                                              s24i_jspace((char[]){(char)before}, 1)));
    default:
        return 0;
    }
}

s24i_jvalue s24i_jcased(s24i_jrun *run, s24i_jvalue string, int how)
{
    s24i_jbuild b = {.run = run};
    uint32_t before = 0;
    for (size_t i = 0, from = 0; i < string.bytes && !s24i_jfailed(run); from = i) {
        const uint32_t c = next(string, &i);
        const int up = goes_up(how, from == 0, before);
        const uint32_t other = up ? upper_of(c) : lower_of(c);
        const int own = string.marks ? string.marks[from] : string.own;
        before = c;
        if (c == S24I_UTF8_INVALID || (other == c && !(up && c == 0xdf)))
            s24i_jput_string(&b, s24i_jcut(string, from, i));
        else if (c == 0xdf)
            s24i_jput(&b, how == S24I_JUPPER ? "SS" : "Ss", 2, own);
        else
            s24i_jput_character(&b, other, own);
        if (!up && c == 0x130) s24i_jput_character(&b, 0x307, own);
    }
    return s24i_jbuilt(&b);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* 1: the character in bytes begin … end − 1 is one of those of `of`. */
static int is_one_of(s24i_jvalue string, size_t begin, size_t end, s24i_jvalue of)
{
    for (size_t i = 0; i < of.bytes;) {
        const size_t from = i;
        (void)next(of, &i);
        if (i - from == end - begin &&
            !memcmp(of.as.text + from, string.as.text + begin, end - begin))
            return 1;
    }
    return 0;
}

s24i_jvalue s24i_jstrip(s24i_jrun *run, s24i_jvalue string, s24i_jvalue of, int ends)
{
    size_t begin = 0, end = string.bytes;
    if (of.kind == S24I_JNONE || of.kind == S24I_JUNDEFINED) return s24i_jstripped(string, ends);
    if (of.kind != S24I_JSTRING)
        return s24i_jfail(run, "characters to strip are a text, not a %s", s24i_jtype(of));
    while ((ends & S24I_JLEFT) && begin < end && s24i_jwork(run, 1)) {
        size_t after = begin;
        (void)next(string, &after);
        if (!is_one_of(string, begin, after, of)) break;
        begin = after;
    }
    while ((ends & S24I_JRIGHT) && begin < end && s24i_jwork(run, 1)) {
        size_t from = end - 1;
        while (from > begin && (string.as.text[from] & 0xc0) == 0x80)
            from--;
        if (!is_one_of(string, from, end, of)) break;
        end = from;
    }
    return s24i_jcut(string, begin, end);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Between all characters, too, where nothing is replaced. */
static s24i_jvalue spread(s24i_jrun *run, s24i_jvalue string, s24i_jvalue by, int64_t most)
{
    s24i_jbuild b = {.run = run};
    size_t i = 0;
    for (; i < string.bytes && most != 0 && !s24i_jfailed(run); most--) {
        const size_t from = i;
        (void)next(string, &i);
        s24i_jput_string(&b, by);
        s24i_jput_string(&b, s24i_jcut(string, from, i));
    }
    s24i_jput_string(&b, s24i_jcut(string, i, string.bytes));
    if (most != 0) s24i_jput_string(&b, by);
    return s24i_jbuilt(&b);
}

s24i_jvalue s24i_jreplaced(s24i_jrun *run, s24i_jvalue string, const s24i_jvalue both[2],
                           int64_t most)
{
    s24i_jbuild b = {.run = run};
    size_t from = 0, at;
    if (both[0].kind != S24I_JSTRING || both[1].kind != S24I_JSTRING)
        return s24i_jfail(run, "replace takes two texts, not a %s and a %s", s24i_jtype(both[0]),
                          s24i_jtype(both[1]));
    if (!both[0].bytes) return spread(run, string, both[1], most);
    for (; most != 0 && !s24i_jfailed(run); most--) {
        at = s24i_jfind(run, string, both[0], from);
        if (at == SIZE_MAX) break;
        s24i_jput_string(&b, s24i_jcut(string, from, at));
        s24i_jput_string(&b, both[1]);
        from = at + both[0].bytes;
    }
    if (!from) return string;
    s24i_jput_string(&b, s24i_jcut(string, from, string.bytes));
    return s24i_jbuilt(&b);
}

s24i_jvalue s24i_jlines(s24i_jrun *run, s24i_jvalue string, int with_ends)
{
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    size_t from = 0;
    for (size_t i = 0; i < string.bytes && !s24i_jfailed(run);) {
        const size_t end = i;
        const uint32_t c = next(string, &i);
        const int ends = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                         c == 0x2028 || c == 0x2029;
        if (!ends) continue;
        if (c == '\r' && i < string.bytes && string.as.text[i] == '\n') i++;
        s24i_jlist_add(run, out, s24i_jcut(string, from, with_ends ? i : end));
        from = i;
    }
    if (from < string.bytes) s24i_jlist_add(run, out, s24i_jcut(string, from, string.bytes));
    return out;
}

s24i_jvalue s24i_jjoin(s24i_jrun *run, s24i_jvalue between, s24i_jvalue list, int strict)
{
    s24i_jbuild b = {.run = run};
    const s24i_jvalue items = s24i_jitems(run, list);
    for (size_t i = 0; !s24i_jfailed(run) && i < items.as.list->count; i++) {
        const s24i_jvalue item = items.as.list->items[i];
        if (strict && item.kind != S24I_JSTRING)
            return s24i_jfail(run, "join takes texts, not a %s", s24i_jtype(item));
        if (i) s24i_jput_string(&b, between);
        s24i_jput_value(&b, item);
    }
    return s24i_jbuilt(&b);
}
