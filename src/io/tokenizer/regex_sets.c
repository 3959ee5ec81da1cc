// SPDX-License-Identifier: Apache-2.0
/* Reads the sets of characters of a regular expression: [a-z], \p{L}, \s … */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/regex_read.h"
#include "io/tokenizer/utf8.h"

void s24i_regex_refuse(s24i_regex_reader *r, const char *what)
{
    if (!r->wrong) r->wrong = what;
}

/* ---- categories ------------------------------------------------------------------------------ */

#define BIT(name) (1u << UTF8PROC_CATEGORY_##name)
static const struct {
    const char *name;
    uint32_t bits;
} categories[] = {
    {"L", BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO)},
    {"Lu", BIT(LU)},
    {"Ll", BIT(LL)},
    {"Lt", BIT(LT)},
    {"Lm", BIT(LM)},
    {"Lo", BIT(LO)},
    {"M", BIT(MN) | BIT(MC) | BIT(ME)},
    {"Mn", BIT(MN)},
    {"Mc", BIT(MC)},
    {"Me", BIT(ME)},
    {"N", BIT(ND) | BIT(NL) | BIT(NO)},
    {"Nd", BIT(ND)},
    {"Nl", BIT(NL)},
    {"No", BIT(NO)},
    {"P", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
    {"Pc", BIT(PC)},
    {"Pd", BIT(PD)},
    {"Ps", BIT(PS)},
    {"Pe", BIT(PE)},
    {"Pi", BIT(PI)},
    {"Pf", BIT(PF)},
    {"Po", BIT(PO)},
    {"S", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)},
    {"Sm", BIT(SM)},
    {"Sc", BIT(SC)},
    {"Sk", BIT(SK)},
    {"So", BIT(SO)},
    {"Z", BIT(ZS) | BIT(ZL) | BIT(ZP)},
    {"Zs", BIT(ZS)},
    {"Zl", BIT(ZL)},
    {"Zp", BIT(ZP)},
    {"Cc", BIT(CC)},
    {"Cf", BIT(CF)},
    {"Co", BIT(CO)},
};

/* After \p or \P: {Name}, {^Name}. */
static s24i_item read_category(s24i_regex_reader *r, int negated)
{
    s24i_item item = {.kind = S24I_ITEM_CATEGORY, .negated = negated};
    const char *end = *r->at == '{' ? strchr(r->at, '}') : NULL;
    const char *name = r->at + 1;
    if (end && *name == '^') {
        item.negated = !negated;
        name++;
    }
    for (size_t i = 0; end && i < sizeof categories / sizeof *categories; i++)
        if (strlen(categories[i].name) == (size_t)(end - name) &&
            !strncmp(categories[i].name, name, (size_t)(end - name)))
            item.low = categories[i].bits;
    if (item.low)
        r->at = end + 1;
    else
        s24i_regex_refuse(r, "a property that is no general category");
    return item;
}

/* ---- escapes --------------------------------------------------------------------------------- */

/* Hexadecimal digits: `most` at most, or those between braces. */
static uint32_t read_hex(s24i_regex_reader *r, int most)
{
    uint32_t value = 0;
    int count = 0;
    const int braces = *r->at == '{';
    if (braces) r->at++;
    for (; count < (braces ? 6 : most); count++, r->at++) {
        const char c = *r->at, letter = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uint32_t)(c - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value * 16 + (uint32_t)(letter - 'a' + 10);
        else
            break;
    }
    if (!count || (!braces && count < most) || (braces && *r->at != '}') || value > 0x10ffff)
        s24i_regex_refuse(r, "a code point that is none");
    else if (braces)
        r->at++;
    return value;
}

static s24i_item one(uint32_t c)
{
    return (s24i_item){.kind = S24I_ITEM_RANGE, .low = c, .high = c};
}

/* After a backslash. */
static s24i_item read_escape(s24i_regex_reader *r)
{
    static const char letters[] = "rntfvea", values[] = "\r\n\t\f\v\x1b\a";
    const char c = *r->at++;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) return one((unsigned char)values[letter - letters]);
    switch (c) {
    case 's':
    case 'S':
        return (s24i_item){.kind = S24I_ITEM_SPACE, .negated = c == 'S'};
    case 'w':
    case 'W':
        return (s24i_item){.kind = S24I_ITEM_WORD, .negated = c == 'W'};
    case 'd':
    case 'D':
        return (s24i_item){.kind = S24I_ITEM_CATEGORY, .negated = c == 'D', .low = BIT(ND)};
    case 'p':
    case 'P':
        return read_category(r, c == 'P');
    case 'x':
        return one(read_hex(r, 2));
    case 'u':
        return one(read_hex(r, 4));
    default:
        break;
    }
    const int is_mark =
        c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!is_mark && c != ' ') {
        r->at -= 2;
        s24i_regex_refuse(r, "an escape that is not known");
    }
    return one((unsigned char)c);
}

static s24i_item read_literal(s24i_regex_reader *r)
{
    uint32_t c;
    r->at += s24i_utf8_next(&c, (const unsigned char *)r->at, strlen(r->at));
    return one(c);
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* A set of items that are collected on the stack, classes within it being made before. */
static int make_set(s24i_regex_reader *r, const s24i_item *items, int count, int negated)
{
    s24i_regex *regex = r->regex;
    if (regex->set_count == S24I_REGEX_SETS || regex->item_count + count > S24I_REGEX_ITEMS) {
        s24i_regex_refuse(r, "so many classes");
        return 0;
    }
    s24i_set *set = &regex->sets[regex->set_count];
    *set =
        (s24i_set){.first = regex->item_count, .count = count, .negated = negated, .fold = r->fold};
    memcpy(regex->items + regex->item_count, items, (size_t)count * sizeof *items);
    regex->item_count += count;
    for (uint32_t c = 0; c < 128; c++)
        set->ascii[c] = (uint8_t)s24i_set_has(regex, set, c);
    return regex->set_count++;
}

static int read_class(s24i_regex_reader *r, int depth);

/* One element of a class, or a range of two. */
static s24i_item read_element(s24i_regex_reader *r, int depth)
{
    s24i_item item;
    if (*r->at == '[') {
        if (r->at[1] == ':') s24i_regex_refuse(r, "a class by its POSIX name");
        r->at++;
        return (s24i_item){.kind = S24I_ITEM_SET, .low = (uint32_t)read_class(r, depth + 1)};
    }
    if (r->at[0] == '&' && r->at[1] == '&') s24i_regex_refuse(r, "an intersection of classes");
    if (*r->at == '\\') {
        r->at++;
        item = read_escape(r);
    } else {
        item = read_literal(r);
    }
    const int is_range = item.kind == S24I_ITEM_RANGE && *r->at == '-' && r->at[1] &&
                         r->at[1] != ']' && r->at[1] != '[';
    if (!is_range || r->wrong) return item;
    r->at++;
    if (*r->at == '\\') r->at++;
    const s24i_item last = r->at[-1] == '\\' ? read_escape(r) : read_literal(r);
    if (last.kind != S24I_ITEM_RANGE || last.low < item.low)
        s24i_regex_refuse(r, "a range without an end");
    item.high = last.low;
    return item;
}

/* After "[": elements up to the "]". */
static int read_class(s24i_regex_reader *r, int depth)
{
    enum { MOST = 128, DEEPEST = 4 };
    s24i_item items[MOST];
    int count = 0;
    const int negated = *r->at == '^';
    if (negated) r->at++;
    if (depth > DEEPEST) s24i_regex_refuse(r, "classes in one another so deep");
    if (*r->at == ']') s24i_regex_refuse(r, "an empty class");
    while (!r->wrong && *r->at && *r->at != ']') {
        if (count == MOST) s24i_regex_refuse(r, "a class of so many elements");
        if (!r->wrong) items[count++] = read_element(r, depth);
    }
    if (!r->wrong && *r->at != ']') s24i_regex_refuse(r, "a class without an end");
    if (r->wrong) return 0;
    r->at++;
    return make_set(r, items, count, negated);
}

int s24i_regex_read_set(s24i_regex_reader *r)
{
    s24i_item item;
    if (*r->at == '[') {
        r->at++;
        return read_class(r, 0);
    }
    if (*r->at == '.') {
        r->at++;
        item = one('\n');
        return make_set(r, &item, 1, 1);
    }
    if (*r->at == '\\') {
        r->at++;
        item = read_escape(r);
    } else {
        item = read_literal(r);
    }
    return r->wrong ? 0 : make_set(r, &item, 1, 0);
}
