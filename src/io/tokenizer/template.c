// SPDX-License-Identifier: Apache-2.0
/* Templates: which special tokens stand around a text and between two, and how they are written. */
#include "io/tokenizer/tokenizer.h"

int s24i_template_put(s24i_template *template, s24i_end end, int32_t id, int32_t type)
{
    const int count = template->count[end];
    if (count == S24I_MOST_END) return 0;
    template->ids[end][count] = id;
    template->types[end][count] = type;
    template->count[end]++;
    return 1;
}

void s24i_template_ends(s24_tokenizer *tokenizer, const s24i_usual_ends *ends)
{
    const int32_t type = ends->alike ? 0 : 1;
    s24i_template *single = &tokenizer->single, *pair = &tokenizer->pair;
    *single = (s24i_template){.count = {0}};
    *pair = (s24i_template){.text_types = {0, type}};
    tokenizer->pairs = (ends->cls >= 0) == (ends->sep >= 0);
    if (ends->cls >= 0) s24i_template_put(single, S24I_BEFORE, ends->cls, 0);
    if (ends->sep >= 0) s24i_template_put(single, S24I_AFTER, ends->sep, 0);
    if (!tokenizer->pairs || ends->cls < 0) return;
    s24i_template_put(pair, S24I_BEFORE, ends->cls, 0);
    for (int i = 0; i < ends->middle; i++)
        s24i_template_put(pair, S24I_BETWEEN, ends->sep, 0);
    s24i_template_put(pair, S24I_AFTER, ends->sep, type);
}

int64_t s24i_template_tokens(const s24i_template *template)
{
    int64_t count = 0;
    for (int end = 0; end < S24I_ENDS; end++)
        count += template->count[end];
    return count;
}

int64_t s24i_template_write(s24_token *to, int64_t room, const s24i_template *template,
                            s24i_end end)
{
    const int64_t count = s24i_min(room, template->count[end]);
    for (int64_t i = 0; i < count; i++)
        to[i] = (s24_token){template->ids[end][i], template->types[end][i], 0, 0};
    return s24i_max(count, 0);
}
