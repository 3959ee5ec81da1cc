// SPDX-License-Identifier: Apache-2.0
/* What is said of a word that is no pattern: the form of those that begin so, or all forms. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

int cli_no_pattern(cli_app *cli, const char *option, const char *text)
{
    const size_t head = strcspn(text, ":") + 1;
    const char *form, *alike = NULL;
    char forms[512] = "";
    for (int i = 0; (form = s24_pattern_syntax(i)); i++) {
        const size_t used = strlen(forms);
        snprintf(forms + used, sizeof forms - used, "%s%s", i ? ", " : "", form);
        if (!strncmp(form, text, head)) alike = form;
    }
    return cli_fail(cli, CLI_USAGE, "--%s: '%s' is no pattern; expected %s", option, text,
                    alike ? alike : forms);
}
