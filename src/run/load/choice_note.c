// SPDX-License-Identifier: Apache-2.0
/* How a choice among sparse, dense and kept tiles is spelled among a context's notes. */
#include "run/load/choice.h"

#include <stdio.h>
#include <string.h>

static const char KEPT[] = " kept";

s24i_choice_key s24i_choice_key_of(s24_dtype dtype, int threads, const s24i_known *known)
{
    const s24i_form *form = &known->form;
    s24i_choice_key key;
    char block[32] = "", of[64] = "";
    if (form->format == S24_FORMAT_BSR)
        snprintf(block, sizeof block, ":%dx%d", form->block_rows, form->block_cols);
    if (form->format)
        snprintf(of, sizeof of, " %s%s%s %d", s24_format_name(form->format), block,
                 form->eight ? "+int8" : "", form->kept);
    snprintf(key.text, sizeof key.text, "%s %d %lldx%lld%s", s24_dtype_name(dtype), threads,
             (long long)known->k, (long long)known->n, of);
    return key;
}

int s24i_choice_read(s24i_choice *choice, const char *value)
{
    unsigned alone, together;
    int end = 0;
    if (!value || sscanf(value, "%5x %5x%n", &alone, &together, &end) != 2 ||
        strspn(value, "0123456789abcdef ") < (size_t)end)
        return 0;
    const int kept = !strcmp(value + end, KEPT);
    if (value[end] && !kept) return 0;
    *choice = (s24i_choice){{alone, together}, kept};
    return 1;
}

void s24i_choice_write(char value[S24I_CHOICE_TEXT], const s24i_choice *choice)
{
    snprintf(value, S24I_CHOICE_TEXT, "%x %x%s", choice->dense[S24I_ALONE],
             choice->dense[S24I_TOGETHER], choice->kept ? KEPT : "");
}
