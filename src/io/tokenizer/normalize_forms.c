// SPDX-License-Identifier: Apache-2.0
/*
 * Unicode's four normal forms and what drops marks. What must stay true: characters and origins are
 * those of Hugging Face's tokenizers, whose tables are Unicode 9.0's: what later versions call a
 * mark or take apart stays as it is.
 */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/chain.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum {
    FIRST_MARK = 0x300,
    FIRST_DECOMPOSABLE = 0xa0,
    PAST_UNICODE = 0x110000,
    MOST_PARTS = 32 /* the longest has 18 */
};

typedef struct range {
    uint32_t first, last;
} range;

/* clang-format off */
/* Marks since Unicode 9.0. */
static const range young_marks[] = {
    {0x7fd, 0x7fd}, {0x898, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xafa, 0xaff}, {0xb55, 0xb55},
    {0xc04, 0xc04}, {0xc3c, 0xc3c}, {0xcf3, 0xcf3}, {0xd00, 0xd00}, {0xd3b, 0xd3c}, {0xd81, 0xd81},
    {0xeba, 0xeba}, {0xece, 0xece}, {0x1715, 0x1715}, {0x180f, 0x180f}, {0x1abf, 0x1ace},
    {0x1cf7, 0x1cf7}, {0x1df6, 0x1dfa}, {0xa82c, 0xa82c}, {0xa8ff, 0xa8ff}, {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
    {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938},
    {0x1193b, 0x1193e}, {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119d1, 0x119d7},
    {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a39},
    {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97},
    {0x11ef3, 0x11ef6}, {0x11f00, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42},
    {0x13440, 0x13440}, {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87},
    {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef},
};
/* Characters that are taken apart since then. */
static const range young_letters[] = {
    {0x32ff, 0x32ff}, {0xa7f2, 0xa7f4}, {0xab69, 0xab69}, {0x10781, 0x107ba}, {0x11938, 0x11938},
    {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};
/* clang-format on */
#define IS_IN(c, ranges) is_in(c, ranges, sizeof(ranges) / sizeof *(ranges))

static int is_in(uint32_t c, const range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= c;
}

/* A character with the change that it is (glyphs.h), and its combining class. */
typedef struct piece {
    uint32_t c;
    int change, order;
} piece;

static int combining_class(uint32_t c)
{
    if (c < FIRST_MARK || IS_IN(c, young_marks)) return 0;
    return utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

/* What a and b become together, 0: they stay two. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    utf8proc_int32_t both[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (b < FIRST_MARK || a >= PAST_UNICODE || b >= PAST_UNICODE) return 0;
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(both, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return count == 1 && !IS_IN((uint32_t)both[0], young_letters) ? (uint32_t)both[0] : 0;
}

/* ---- a run of characters, of which the first alone may stand on its own ---------------------- */

/* Marks in the order of their classes, those of a class in their own. Some fifty classes make this
   take time in proportion. */
static void sort_marks(piece *parts, size_t count, piece *spare)
{
    size_t starts[257] = {0};
    int is_sorted = 1;
    for (size_t i = 0; i < count; i++) {
        starts[parts[i].order + 1]++;
        is_sorted &= i == 0 || parts[i - 1].order <= parts[i].order;
    }
    if (is_sorted) return;
    for (int k = 0; k < 256; k++)
        starts[k + 1] += starts[k];
    for (size_t i = 0; i < count; i++)
        spare[starts[parts[i].order]++] = parts[i];
    memcpy(parts, spare, count * sizeof *parts);
}

static void order_marks(piece *parts, size_t count, piece *spare)
{
    for (size_t i = 0, end; i < count; i = end + 1) {
        for (end = i; end < count && parts[end].order > 0;)
            end++;
        if (end > i + 1) sort_marks(parts + i, end - i, spare);
    }
}

/* Composes in place and returns how many there are then. A part that joins another takes no place
   of its own any more. */
static size_t join(piece *parts, size_t count)
{
    size_t kept = 0, starter = SIZE_MAX;
    int last = -1; /* the class of what was kept since the starter, −1: nothing was */
    for (size_t i = 0; i < count; i++) {
        const piece p = parts[i];
        const int is_free = last < 0 || (p.order > last && last > 0);
        const uint32_t both = starter != SIZE_MAX && is_free ? compose(parts[starter].c, p.c) : 0;
        if (both) {
            parts[starter].c = both;
            parts[starter].change += p.change - 1;
            continue;
        }
        if (p.order == 0) starter = kept;
        last = p.order == 0 ? -1 : p.order;
        parts[kept++] = p;
    }
    return kept;
}

static size_t take_apart(piece *parts, uint32_t c, int form)
{
    utf8proc_int32_t found[MOST_PARTS] = {(utf8proc_int32_t)c};
    int boundary = 0;
    utf8proc_ssize_t count = 1;
    const utf8proc_option_t how =
        (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                            (form & S24I_FORM_COMPATIBLE ? UTF8PROC_COMPAT : 0));
    if (c >= FIRST_DECOMPOSABLE && !IS_IN(c, young_letters))
        count = utf8proc_decompose_char((utf8proc_int32_t)c, found, MOST_PARTS, how, &boundary);
    if (count < 1 || count > MOST_PARTS) count = 1;
    for (utf8proc_ssize_t i = 0; i < count; i++)
        parts[i] = (piece){(uint32_t)found[i], i > 0, combining_class((uint32_t)found[i])};
    return (size_t)count;
}

/* May a text be cut before the character: is it neither a mark nor a later part of a syllable? */
static int begins_run(uint32_t c)
{
    if (c < FIRST_MARK) return 1;
    if ((c >= 0x1160 && c <= 0x11ff) || (c >= 0xd7b0 && c <= 0xd7ff)) return 0;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME) return 0;
    /* A compatible form of such a part (U+FF9E, U+FFA3 …) or of a mark after a blank. */
    return !(c >= 0x3131 && c <= 0x318e) && !(c >= 0xff9e && c <= 0xffdc);
}

/* Characters of a run, each with its own parts. 0 where there is no memory. */
static int change_run(const s24i_chain_step *step, s24i_edit *edit, size_t count)
{
    piece few[2 * MOST_PARTS], *parts = few;
    const size_t room = count * MOST_PARTS;
    if (count > 1) parts = s24_ctx_alloc(edit->out->ctx, 2 * room * sizeof *parts);
    if (!parts) return 0;
    size_t made = 0;
    const s24i_glyph *in = edit->in + edit->at;
    for (size_t i = 0; i < count; i++)
        made += take_apart(parts + made, in[i].c, step->option);
    order_marks(parts, made, parts + room);
    if (step->option & S24I_FORM_COMPOSED) made = join(parts, made);
    for (size_t i = 0; i < made; i++)
        s24i_edit_put(edit, parts[i].c, parts[i].change);
    if (parts != few) s24_ctx_free(edit->out->ctx, parts);
    return 1;
}

void s24i_change_form(const s24i_chain_step *step, s24i_edit *edit)
{
    while (edit->at < edit->count) {
        const size_t begin = edit->at;
        size_t end = begin + 1;
        const uint32_t first = edit->in[begin].c;
        while (end < edit->count && !begins_run(edit->in[end].c))
            end++;
        if (end == begin + 1 && first < FIRST_DECOMPOSABLE)
            s24i_edit_put(edit, first, 0);
        else if (!change_run(step, edit, end - begin))
            edit->out->failed = 1;
        edit->at = end;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

s24_status s24i_normalizer_NFD(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, s24i_change_form, 0);
}

s24_status s24i_normalizer_NFC(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, s24i_change_form, S24I_FORM_COMPOSED);
}

s24_status s24i_normalizer_NFKD(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, s24i_change_form, S24I_FORM_COMPATIBLE);
}

s24_status s24i_normalizer_NFKC(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, s24i_change_form,
                            S24I_FORM_COMPATIBLE | S24I_FORM_COMPOSED);
}

static int is_mark(uint32_t c)
{
    if (c < FIRST_MARK || IS_IN(c, young_marks)) return 0;
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    const int was_mark = c == 0x1cf2 || c == 0x1cf3;
    return (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME) || was_mark;
}

static void change_marks(const s24i_chain_step *step, s24i_edit *edit)
{
    (void)step;
    for (size_t i = 0; i < edit->count; i++)
        if (!is_mark(edit->in[i].c)) s24i_glyphs_put(edit->out, edit->in[i]);
}

s24_status s24i_normalizer_StripAccents(s24i_chain *chain, const s24i_config *part)
{
    return s24i_step_change(chain, part, change_marks, 0);
}
