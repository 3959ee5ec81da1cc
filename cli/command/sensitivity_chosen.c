// SPDX-License-Identifier: Apache-2.0
/* Says what is proposed: how many layers take a pattern, and under which names. */
#include <stdio.h>

#include "sensitivity.h"

int64_t sensitivity_chosen(const sensitivity_job *j, int pattern)
{
    int64_t count = 0;
    for (int64_t i = 0; i < j->count; i++)
        count += j->layers[i].chosen == pattern;
    return count;
}

int sensitivity_names(char names[NAMES_BYTES], const sensitivity_job *j, int pattern)
{
    const int all = sensitivity_chosen(j, pattern) == j->count;
    size_t used = 0;
    *names = '\0';
    if (all && !j->options->include && !j->options->exclude) return CLI_OK;
    for (int64_t i = 0; i < j->count && used < NAMES_BYTES; i++)
        if (j->layers[i].chosen == pattern)
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", used ? "," : "",
                                     j->layers[i].name);
    return used < NAMES_BYTES
               ? CLI_OK
               : cli_fail(j->cli, CLI_USAGE, "the names of layers together are too long");
}

const char *sensitivity_choice(const sensitivity_job *j, const sensitivity_layer *l)
{
    return l->chosen == DENSE ? "dense" : j->list[l->chosen];
}
