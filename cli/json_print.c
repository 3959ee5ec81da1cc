// SPDX-License-Identifier: Apache-2.0
/* Prints the one object of --json, whole or not at all where memory ends. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static int memory_ended(cli_app *cli)
{
    return cli_fail(cli, CLI_IO, "out of memory for the JSON object");
}

enum { FLAGS = JSON_INDENT(2) | JSON_REAL_PRECISION(9) };

int cli_json_print(cli_app *cli, json_t *object)
{
    int code = CLI_OK;
    cli_progress_clear(cli);
    if (!object || !cli_json_is_whole())
        code = memory_ended(cli);
    else if (json_dumpf(object, stdout, FLAGS) || putchar('\n') < 0)
        code = cli_json_is_whole() ? cli_output_failed(cli, 0) : memory_ended(cli);
    json_decref(object);
    return code;
}

static int print_element(cli_app *cli, json_t *element, int is_first)
{
    int failed = 0;
    if (element && cli_json_is_whole()) {
        failed = fputs(is_first ? "\n    " : ",\n    ", stdout) < 0;
        failed |= json_dumpf(element, stdout, JSON_REAL_PRECISION(9));
    }
    json_decref(element);
    if (!cli_json_is_whole()) return memory_ended(cli);
    return failed ? cli_output_failed(cli, 0) : CLI_OK;
}

int cli_json_print_list(cli_app *cli, json_t *object, const char *name, const cli_list *list)
{
    char *text = object ? json_dumps(object, FLAGS) : NULL;
    int code = text && cli_json_is_whole() ? CLI_OK : memory_ended(cli);
    cli_progress_clear(cli);
    if (code == CLI_OK) /* all but the end, "\n}" */
        printf("%.*s,\n  \"%s\": [", (int)strlen(text) - 2, text, name);
    cli_json_free(text);
    json_decref(object);
    for (int64_t i = 0; i < list->count && code == CLI_OK; i++)
        code = print_element(cli, list->element(list->user, i), i == 0);
    if (code != CLI_OK) return code;
    fputs(list->count ? "\n  ]\n}\n" : "]\n}\n", stdout);
    return cli_json_is_whole() ? CLI_OK : memory_ended(cli); /* main sees to a stream that failed */
}
