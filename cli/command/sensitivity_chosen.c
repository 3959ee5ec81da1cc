// SPDX-License-Identifier: Apache-2.0
/* Says what is proposed: how many layers take a form, under which names, and in which order the
   forms are made. */
#include <stdio.h>

#include "sensitivity.h"

int64_t sensitivity_chosen(const sensitivity_job *j, int form)
{
    int64_t count = 0;
    for (int64_t i = 0; i < j->count; i++)
        count += j->layers[i].chosen == form;
    return count;
}

int sensitivity_names(char names[NAMES_BYTES], const sensitivity_job *j, int form)
{
    const int all = sensitivity_chosen(j, form) == j->count;
    size_t used = 0;
    *names = '\0';
    if (all && !j->options->include && !j->options->exclude) return CLI_OK;
    for (int64_t i = 0; i < j->count && used < NAMES_BYTES; i++)
        if (j->layers[i].chosen == form)
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", used ? "," : "",
                                     j->layers[i].name);
    return used < NAMES_BYTES
               ? CLI_OK
               : cli_fail(j->cli, CLI_USAGE, "the names of layers together are too long");
}

/* Floats first, then integers next to zeros, then dense ones. */
static int turn_of(const sensitivity_form *f)
{
    return !f->scheme ? 0 : *f->pattern ? 1 : 2;
}

int sensitivity_next(const sensitivity_job *j, int form)
{
    int turn = form < 0 ? 0 : turn_of(&j->forms[form]);
    for (int first = form + 1; turn < 3; turn++, first = 0)
        for (int i = first; i < j->form_count; i++)
            if (turn_of(&j->forms[i]) == turn && sensitivity_chosen(j, i)) return i;
    return MOST_FORMS;
}

const char *sensitivity_choice(const sensitivity_job *j, const sensitivity_layer *l)
{
    return l->chosen == DENSE ? "dense" : j->forms[l->chosen].text;
}
