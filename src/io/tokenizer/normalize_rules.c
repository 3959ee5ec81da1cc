// SPDX-License-Identifier: Apache-2.0
/* SentencePiece's precompiled rules as a step: clusters of characters, or each by itself. */
#include <string.h>

#include "base/try.h"
#include "io/tokenizer/tokenizer.h"
#include "io/tokenizer/utf8.h"

enum { MOST_RULED = 6, LONGEST = 64 /* bytes of a cluster that is looked at */ };

/* The last change is held back: what is left out after it takes its place. */
typedef struct holder {
    s24i_edit *edit;
    uint32_t c;
    int change, holds;
} holder;

static void let_go(holder *h)
{
    if (h->holds) s24i_edit_put(h->edit, h->c, h->change);
    h->holds = 0;
}

static void put(holder *h, uint32_t c, int change)
{
    let_go(h);
    *h = (holder){h->edit, c, change, 1};
}

static void put_rule(holder *h, const char *to, size_t bytes, size_t old)
{
    size_t made = 0, place = 0;
    uint32_t c;
    for (size_t i = 0; i < bytes; made++)
        i += s24i_utf8_next(&c, (const unsigned char *)to + i, bytes - i);
    for (size_t i = 0; i < bytes; place++) {
        i += s24i_utf8_next(&c, (const unsigned char *)to + i, bytes - i);
        put(h, c, place >= old);
    }
    if (made < old && h->holds) h->change -= (int)(old - made);
}

static void put_character(holder *h, const s24i_rules *rules, uint32_t c)
{
    char text[4];
    size_t length;
    if (c < 128 && rules->plain[c]) {
        put(h, c, 0);
        return;
    }
    const size_t bytes = (size_t)s24i_utf8_put(text, c);
    const char *to = s24i_rules_find(&length, rules, text, bytes);
    if (to)
        put_rule(h, to, length, 1);
    else
        put(h, c, 0);
}

/* Where the cluster that begins at a character ends. */
static size_t cluster_end(const s24i_glyph *text, size_t count, size_t begin)
{
    utf8proc_int32_t state = 0;
    size_t end = begin + 1;
    while (end < count && !utf8proc_grapheme_break_stateful((utf8proc_int32_t)text[end - 1].c,
                                                            (utf8proc_int32_t)text[end].c, &state))
        end++;
    return end;
}

static void put_cluster(holder *h, const s24i_rules *rules, const s24i_glyph *text, size_t count)
{
    char bytes[LONGEST];
    size_t length, used = 0;
    for (size_t i = 0; i < count && count < MOST_RULED; i++)
        used += (size_t)s24i_utf8_put(bytes + used, text[i].c);
    const char *to = count > 1 && used && used < MOST_RULED
                         ? s24i_rules_find(&length, rules, bytes, used)
                         : NULL;
    if (to) {
        put_rule(h, to, length, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        put_character(h, rules, text[i].c);
}

static void change_rules(const s24i_chain_step *step, s24i_edit *edit)
{
    holder h = {.edit = edit};
    const s24i_rules *rules = &step->rules;
    for (size_t i = 0, end; i < edit->count; i = end) {
        end = rules->units ? cluster_end(edit->in, edit->count, i) : i + 1;
        if (rules->units)
            put_cluster(&h, rules, edit->in + i, end - i);
        else
            put(&h, edit->in[i].c, 0);
    }
    let_go(&h);
}

s24_status s24i_normalizer_Precompiled(s24i_chain *chain, const s24i_config *part)
{
    s24_status status;
    s24i_chain_step *step = s24i_chain_add(&status, chain, part);
    if (!step) return status;
    step->change = change_rules;
    return s24i_rules_load(&step->rules, chain->ctx, part);
}
