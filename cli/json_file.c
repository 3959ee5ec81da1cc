// SPDX-License-Identifier: Apache-2.0
/* Reads a JSON file that must be there, and tells apart what is wrong: the system, memory, text. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

int cli_json_need(cli_app *cli, json_t **value, const char *path)
{
    FILE *file = fopen(path, "r");
    *value = NULL;
    if (!file) return cli_fail(cli, CLI_IO, "cannot open %s: %s", path, strerror(errno));
    errno = 0;
    *value = cli_json_read_stream(file);
    const int has_failed = ferror(file), reason = errno;
    fclose(file);
    if (has_failed) return cli_fail(cli, CLI_IO, "cannot read %s: %s", path, strerror(reason));
    if (!cli_json_is_whole()) return cli_fail(cli, CLI_IO, "out of memory for %s", path);
    return *value ? CLI_OK : cli_fail(cli, CLI_FORMAT, "%s is no JSON", path);
}
