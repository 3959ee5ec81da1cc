// SPDX-License-Identifier: Apache-2.0
/* Says errors on stderr, with --json on stdout too: the one place that turns a status into an exit
   code. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "json_name.h"

static int exit_code_of(s24_status status)
{
    switch (status) {
    case S24_OK:
        return CLI_OK;
    case S24_ERROR_ARGUMENT:
        return CLI_USAGE;
    case S24_ERROR_IO:
    case S24_ERROR_MEMORY:
    case S24_ERROR_EXISTS:
        return CLI_IO;
    case S24_ERROR_FORMAT:
    case S24_ERROR_NOT_TWO_FOUR:
    case S24_ERROR_NOT_FINITE:
    case S24_ERROR_SHAPE:
    case S24_ERROR_DTYPE:
    case S24_ERROR_NUMERIC:
        return CLI_FORMAT;
    case S24_ERROR_UNSUPPORTED:
        return CLI_UNSUPPORTED;
    case S24_ERROR_INTERRUPTED:
        return CLI_INTERRUPTED;
    }
    return CLI_IO;
}

static void error_line(cli_app *cli, const char *text)
{
    cli_progress_clear(cli);
    const char *red = cli->coloured ? "\033[31m" : "";
    const char *plain = cli->coloured ? "\033[0m" : "";
    fprintf(stderr, "sparse24%s%s: %serror:%s ", cli->command ? " " : "",
            cli->command ? cli->command->name : "", red, plain);
    cli_escaped(stderr, text, strlen(text));
    fputc('\n', stderr);
}

static int fail_text(cli_app *cli, int exit_code, const char *text)
{
    error_line(cli, text);
    if (!cli->json) return exit_code;
    json_t *object = cli_json();
    json_object_set_new(object, "exit", json_integer(exit_code));
    json_object_set_new(object, "error", cli_json_name(text));
    /* Not cli_json_print, which would find memory ended, and fail here again. */
    if (object) json_dumpf(object, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(object);
    return exit_code;
}

int cli_fail(cli_app *cli, int exit_code, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    const int begun = cli->where ? snprintf(text, sizeof text, "%.1000s: ", cli->where) : 0;
    va_start(arguments, format);
    vsnprintf(text + begun, sizeof text - (size_t)begun, format, arguments);
    va_end(arguments);
    return fail_text(cli, exit_code, text);
}

int cli_status(cli_app *cli, s24_status status)
{
    if (status == S24_OK) return CLI_OK;
    /* A call that a signal broke off reports what broke; the user only asked to stop. */
    if (cli_interrupted() || status == S24_ERROR_INTERRUPTED)
        return fail_text(cli, CLI_INTERRUPTED,
                         cli->command->writes ? "interrupted; no file was written" : "interrupted");
    const char *text = cli->ctx ? s24_ctx_error(cli->ctx) : "";
    char copy[2048]; /* the sentence lives only until the next call */
    const char *remedy =
        status == S24_ERROR_EXISTS && !cli->common->force ? "; --force replaces it" : "";
    snprintf(copy, sizeof copy, "%s%s", *text ? text : s24_status_text(status), remedy);
    return fail_text(cli, exit_code_of(status), copy);
}

int cli_output_failed(cli_app *cli, int error)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&output, 1, 0) > 0 && output.revents & POLLERR) return CLI_IO;
    char text[160] = "standard output could not be written";
    if (error)
        snprintf(text, sizeof text, "standard output could not be written: %s", strerror(error));
    error_line(cli, text);
    return CLI_IO;
}

const char *cli_bytes(char *text, size_t size, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1000 && unit < 4) {
        bytes /= 1000;
        unit++;
    }
    snprintf(text, size, "%.*f %s", unit ? 1 : 0, bytes, units[unit]);
    return text;
}
