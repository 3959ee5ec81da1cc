// SPDX-License-Identifier: Apache-2.0
/* Where added tokens stand in a text, before anything else is done with it. */
#include "io/tokenizer/tokenizer.h"

/* The added token at a byte, NULL: none. */
static const s24i_added *added_at(s24i_added_cut *cut, const s24_tokenizer *t, const s24i_run *run,
                                  const s24_text *text, size_t at)
{
    if (!t->added_first[(unsigned char)text->data[at]]) return NULL;
    while (cut->place < run->place_count && run->places[cut->place] < at)
        cut->place++;
    const int is_place = cut->place < run->place_count && run->places[cut->place] == at;
    return s24i_added_find(t, text->data + at, text->bytes - at, run->plain && !is_place);
}

int s24i_added_next(s24i_added_cut *cut, const s24_tokenizer *t, const s24i_run *run,
                    const s24_text *text, size_t begin)
{
    for (size_t i = begin; i < text->bytes && t->added_count; i++) {
        const s24i_added *added = added_at(cut, t, run, text, i);
        if (!added) continue;
        cut->added = added;
        cut->first = added->takes_before ? s24i_space_before(text->data, begin, i) : i;
        cut->end = i + added->bytes;
        if (added->takes_after)
            cut->end += s24i_space_bytes(text->data + cut->end, text->bytes - cut->end);
        return 1;
    }
    return 0;
}
