// SPDX-License-Identifier: Apache-2.0
/* How a choice between 2:4 and dense is spelled among a context's notes. */
#include "run/load/choice.h"

#include <stdio.h>
#include <string.h>

s24i_choice_key s24i_choice_key_of(s24_dtype dtype, int threads, int64_t n, int64_t k)
{
    s24i_choice_key key;
    snprintf(key.text, sizeof key.text, "%s %d %lldx%lld", s24_dtype_name(dtype), threads,
             (long long)k, (long long)n);
    return key;
}

int s24i_choice_read(s24i_choice *choice, const char *value)
{
    unsigned alone, together;
    int end = 0;
    if (!value || value[strspn(value, "0123456789abcdef ")] ||
        sscanf(value, "%5x %5x%n", &alone, &together, &end) != 2 || value[end])
        return 0;
    *choice = (s24i_choice){{alone, together}};
    return 1;
}
