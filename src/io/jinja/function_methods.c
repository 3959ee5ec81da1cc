// SPDX-License-Identifier: Apache-2.0
/* The methods of texts in jinja_methods.def. */
#include "io/jinja/function.h"

#include <string.h>

#include "io/tokenizer/utf8.h"

METHOD(capitalize)
{
    (void)args;
    return s24i_jcased(run, self, S24I_JCAPITALIZE);
}

METHOD(lower)
{
    (void)args;
    return s24i_jcased(run, self, S24I_JLOWER);
}

METHOD(title)
{
    (void)args;
    return s24i_jcased(run, self, S24I_JTITLE);
}

METHOD(upper)
{
    (void)args;
    return s24i_jcased(run, self, S24I_JUPPER);
}

METHOD(strip)
{
    return s24i_jstrip(run, self, args->bound[0], S24I_JLEFT | S24I_JRIGHT);
}

METHOD(lstrip)
{
    return s24i_jstrip(run, self, args->bound[0], S24I_JLEFT);
}

METHOD(rstrip)
{
    return s24i_jstrip(run, self, args->bound[0], S24I_JRIGHT);
}

METHOD(join)
{
    return s24i_jjoin(run, self, args->bound[0], 1);
}

METHOD(splitlines)
{
    return s24i_jlines(run, self, s24i_jtrue(args->bound[0]));
}

/* A whole number that is given, or else another. */
static int64_t whole(s24i_jrun *run, const s24i_jargs *args, int index, int64_t fallback)
{
    const s24i_jvalue value = args->bound[index];
    if (!args->given[index]) return fallback;
    if (value.kind == S24I_JINT || value.kind == S24I_JBOOL) return value.as.integer;
    s24i_jfail(run, "a whole number was expected, not a %s", s24i_jtype(value));
    return fallback;
}

METHOD(replace)
{
    const int64_t most = whole(run, args, 2, -1);
    return s24i_jreplaced(run, self, args->bound, most);
}

/* ---- where a text stands in another ---------------------------------------------------------- */

static int needs_text(s24i_jrun *run, s24i_jvalue value, const char *name)
{
    if (value.kind == S24I_JSTRING) return 1;
    s24i_jfail(run, "%s takes a text, not a %s", name, s24i_jtype(value));
    return 0;
}

/* Where a text stands last; SIZE_MAX: nowhere. */
static size_t find_last(s24i_jvalue string, s24i_jvalue part)
{
    for (size_t at = string.bytes + 1 - part.bytes; part.bytes <= string.bytes && at > 0; at--)
        if (!memcmp(string.as.text + at - 1, part.as.text, part.bytes)) return at - 1;
    return SIZE_MAX;
}

static s24i_jvalue place(s24i_jvalue string, size_t at)
{
    return s24i_jint(at == SIZE_MAX ? -1 : s24i_jcharacters(s24i_jcut(string, 0, at)));
}

METHOD(find)
{
    if (!needs_text(run, args->bound[0], "find")) return self;
    return place(self, s24i_jfind(run, self, args->bound[0], 0));
}

METHOD(rfind)
{
    if (!needs_text(run, args->bound[0], "rfind")) return self;
    s24i_jwork(run, self.bytes / 4);
    return place(self, find_last(self, args->bound[0]));
}

METHOD(count)
{
    int64_t count = 0;
    const s24i_jvalue part = args->bound[0];
    if (!needs_text(run, part, "count")) return self;
    if (!part.bytes) return s24i_jint(s24i_jcharacters(self) + 1);
    for (size_t at = 0; (at = s24i_jfind(run, self, part, at)) != SIZE_MAX; at += part.bytes)
        count++;
    return s24i_jint(count);
}

static int begins(s24i_jvalue string, s24i_jvalue part, int at_end)
{
    if (part.kind != S24I_JSTRING || part.bytes > string.bytes) return 0;
    const size_t from = at_end ? string.bytes - part.bytes : 0;
    return !memcmp(string.as.text + from, part.as.text, part.bytes);
}

/* Of a text, or of one of a tuple. */
static s24i_jvalue has_end(s24i_jrun *run, s24i_jvalue self, s24i_jvalue part, int at_end)
{
    if (part.kind != S24I_JTUPLE) {
        if (!needs_text(run, part, at_end ? "endswith" : "startswith")) return self;
        return s24i_jbool(begins(self, part, at_end));
    }
    for (size_t i = 0; i < part.as.list->count; i++)
        if (begins(self, part.as.list->items[i], at_end)) return s24i_jbool(1);
    return s24i_jbool(0);
}

METHOD(startswith)
{
    return has_end(run, self, args->bound[0], 0);
}

METHOD(endswith)
{
    return has_end(run, self, args->bound[0], 1);
}

METHOD(removeprefix)
{
    if (!needs_text(run, args->bound[0], "removeprefix")) return self;
    const size_t cut = begins(self, args->bound[0], 0) ? args->bound[0].bytes : 0;
    return s24i_jcut(self, cut, self.bytes);
}

METHOD(removesuffix)
{
    if (!needs_text(run, args->bound[0], "removesuffix")) return self;
    const size_t cut = begins(self, args->bound[0], 1) ? args->bound[0].bytes : 0;
    return s24i_jcut(self, 0, self.bytes - cut);
}

/* ---- split ----------------------------------------------------------------------------------- */

static size_t word_end(s24i_jvalue string, size_t at)
{
    uint32_t c;
    while (at < string.bytes && !s24i_jspace(string.as.text + at, string.bytes - at))
        at += s24i_utf8_next(&c, (const unsigned char *)string.as.text + at, string.bytes - at);
    return at;
}

/* Words with white space between them. */
static s24i_jvalue split_words(s24i_jrun *run, s24i_jvalue string, int64_t most)
{
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    string = s24i_jstripped(string, S24I_JLEFT);
    while (string.bytes && !s24i_jfailed(run)) {
        if (most-- == 0) {
            s24i_jlist_add(run, out, string);
            break;
        }
        const size_t end = word_end(string, 0);
        s24i_jlist_add(run, out, s24i_jcut(string, 0, end));
        string = s24i_jstripped(s24i_jcut(string, end, string.bytes), S24I_JLEFT);
    }
    return out;
}

static s24i_jvalue split_by(s24i_jrun *run, s24i_jvalue string, s24i_jvalue by, int64_t most)
{
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    size_t from = 0, at;
    while (most-- != 0 && !s24i_jfailed(run)) {
        at = s24i_jfind(run, string, by, from);
        if (at == SIZE_MAX) break;
        s24i_jlist_add(run, out, s24i_jcut(string, from, at));
        from = at + by.bytes;
    }
    s24i_jlist_add(run, out, s24i_jcut(string, from, string.bytes));
    return out;
}

/* The separator that is given; 0: there is none, or it is no text. */
static int separator(s24i_jrun *run, const s24i_jargs *args)
{
    const s24i_jvalue by = args->bound[0];
    if (!args->given[0] || by.kind == S24I_JNONE) return 0;
    if (!needs_text(run, by, "split")) return 0;
    if (!by.bytes) s24i_jfail(run, "split by an empty text");
    return by.bytes > 0;
}

METHOD(split)
{
    const int64_t most = whole(run, args, 1, -1);
    const int is_given = separator(run, args);
    if (s24i_jfailed(run)) return self;
    return is_given ? split_by(run, self, args->bound[0], most) : split_words(run, self, most);
}

/* From the right; the parts that are not split off stay the first one. */
METHOD(rsplit)
{
    const int64_t most = whole(run, args, 1, -1);
    if (most < 0) return s24i_jm_split(run, self, args);
    if (!separator(run, args)) {
        return s24i_jfail(run, "rsplit with a number and without a separator is not carried out");
    }
    const s24i_jvalue by = args->bound[0], parts = split_by(run, self, by, -1);
    if (s24i_jfailed(run) || (int64_t)parts.as.list->count <= most + 1) return parts;
    s24i_jvalue out = s24i_jlist_new(run, S24I_JLIST);
    const size_t kept = parts.as.list->count - (size_t)most;
    size_t bytes = (kept - 1) * by.bytes;
    for (size_t i = 0; i < kept; i++)
        bytes += parts.as.list->items[i].bytes;
    s24i_jlist_add(run, out, s24i_jcut(self, 0, bytes));
    for (size_t i = kept; i < parts.as.list->count && !s24i_jfailed(run); i++)
        s24i_jlist_add(run, out, parts.as.list->items[i]);
    return out;
}

/* ---- kinds of characters --------------------------------------------------------------------- */

enum { ALPHA = 1, DIGIT = 2, SPACE = 4 };

static int kind_of(uint32_t c)
{
    char bytes[4];
    if (c == S24I_UTF8_INVALID) return 0;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO) return ALPHA;
    if (kind == UTF8PROC_CATEGORY_ND) return DIGIT;
    return s24i_jspace(bytes, (size_t)s24i_utf8_put(bytes, c)) ? SPACE : 0;
}

static s24i_jvalue all_are(s24i_jrun *run, s24i_jvalue string, int kinds)
{
    uint32_t c;
    s24i_jwork(run, string.bytes / 4);
    for (size_t i = 0; i < string.bytes;) {
        i += s24i_utf8_next(&c, (const unsigned char *)string.as.text + i, string.bytes - i);
        if (!(kind_of(c) & kinds)) return s24i_jbool(0);
    }
    return s24i_jbool(string.bytes > 0);
}

METHOD(isalpha)
{
    (void)args;
    return all_are(run, self, ALPHA);
}

METHOD(isdigit)
{
    (void)args;
    return all_are(run, self, DIGIT);
}

METHOD(isalnum)
{
    (void)args;
    return all_are(run, self, ALPHA | DIGIT);
}

METHOD(isspace)
{
    (void)args;
    return all_are(run, self, SPACE);
}

METHOD(isupper)
{
    (void)run, (void)args;
    return s24i_jbool(s24i_jhas_case(self, 1));
}

METHOD(islower)
{
    (void)run, (void)args;
    return s24i_jbool(s24i_jhas_case(self, 0));
}

/* ---- format ---------------------------------------------------------------------------------- */

/* The value that a field {…} names: nothing, a number or a parameter. */
static const s24i_jvalue *field(const s24i_jargs *args, const char *name, size_t bytes,
                                size_t *used)
{
    size_t index = 0;
    if (!bytes) return *used < args->count ? &args->list[(*used)++] : NULL;
    for (size_t i = 0; i < args->named_count; i++)
        if (strlen(args->named[i].name) == bytes && !memcmp(args->named[i].name, name, bytes))
            return &args->named[i].value;
    for (size_t i = 0; i < bytes && bytes < 4; i++) {
        if (name[i] < '0' || name[i] > '9') return NULL;
        index = index * 10 + (size_t)(name[i] - '0');
    }
    return bytes < 4 && index < args->count ? &args->list[index] : NULL;
}

METHOD(format)
{
    s24i_jbuild b = {.run = run};
    size_t used = 0;
    const char *text = self.as.text;
    for (size_t i = 0; i < self.bytes && !s24i_jfailed(run);) {
        const char c = text[i];
        if (c != '{' && c != '}') {
            s24i_jput_string(&b, s24i_jcut(self, i, i + 1));
            i++;
            continue;
        }
        if (i + 1 < self.bytes && text[i + 1] == c) {
            s24i_jput_string(&b, s24i_jcut(self, i, i + 1));
            i += 2;
            continue;
        }
        const char *end = c == '{' ? memchr(text + i, '}', self.bytes - i) : NULL;
        const size_t bytes = end ? (size_t)(end - text) - i - 1 : 0;
        const s24i_jvalue *value = end ? field(args, text + i + 1, bytes, &used) : NULL;
        if (!value)
            return s24i_jfail(run, "format: a field that is not a given value's name or number");
        s24i_jput_value(&b, *value);
        i += bytes + 2;
    }
    return s24i_jbuilt(&b);
}
