// SPDX-License-Identifier: Apache-2.0
/* Finds a command by name, and tells what a misspelt word was meant to be. */
#include <string.h>

#include "cli.h"

int cli_distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    int row[LONGEST + 1];
    size_t length = strlen(b);
    if (length > LONGEST || strlen(a) > LONGEST) return LONGEST;
    for (size_t j = 0; j <= length; j++)
        row[j] = (int)j;
    for (size_t i = 0; a[i]; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < length; j++) {
            int change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            int shift = (diagonal < row[j] ? diagonal : row[j]) + 1;
            row[j + 1] = change < shift ? change : shift;
        }
    }
    return row[length];
}

const cli_command *cli_command_find(const cli_app *cli, const char *name)
{
    for (const cli_command *const *command = cli->commands; *command; command++)
        if (strcmp((*command)->name, name) == 0) return *command;
    return NULL;
}

int cli_command_unknown(cli_app *cli, const char *name)
{
    if (!S24_SERVE && !strcmp(name, "serve"))
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "this build has no command 'serve': libmicrohttpd was not there");
    if (!S24_RECIPES && !strcmp(name, "run"))
        return cli_fail(cli, CLI_UNSUPPORTED,
                        "this build has no command 'run': libyaml was not there");
    const char *nearest = NULL;
    int best = 3; /* a slip is at most two letters */
    for (const cli_command *const *command = cli->commands; *command; command++) {
        int distance = cli_distance(name, (*command)->name);
        if (distance < best) {
            best = distance;
            nearest = (*command)->name;
        }
    }
    if (nearest)
        return cli_fail(cli, CLI_USAGE, "there is no command '%s'; did you mean '%s'?", name,
                        nearest);
    return cli_fail(cli, CLI_USAGE, "there is no command '%s'; 'sparse24 help' lists them", name);
}
