// SPDX-License-Identifier: Apache-2.0
/* An error of the program ends with a code that is not success, and with a sentence. */
#include "program_errors.h"

#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "fuzz.h"

int fuzz_said;
const char *fuzz_expected;

int cli_fail(cli_app *cli, int exit_code, const char *format, ...)
{
    char text[4096];
    const char *begin = cli->where ? cli->where : text;
    va_list arguments;
    va_start(arguments, format);
    CHECK(vsnprintf(text, sizeof text, format, arguments) > 0);
    va_end(arguments);
    CHECK(exit_code != CLI_OK);
    CHECK(!fuzz_expected || !strncmp(begin, fuzz_expected, strlen(fuzz_expected)));
    fuzz_said++;
    return exit_code;
}
