// SPDX-License-Identifier: Apache-2.0
/*
 * Writes lines for people: tables on stdout, talk on stderr. Whatever stands in them may come from
 * a file, so every line is escaped here, and an open line of progress is erased before it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void put_plain(FILE *to, const char *text)
{
    fputs(text, to);
}

static void put_markup(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"", *text))
            fprintf(to, "&#%d;", *text);
        else
            fputc(*text, to);
    }
}

static void escaped(FILE *to, const char *text, size_t bytes, void (*put)(FILE *, const char *))
{
    char piece[512];
    while (bytes > 0) {
        const size_t done = s24_text_escape(piece, sizeof piece, text, bytes);
        put(to, piece);
        text += done;
        bytes -= done;
    }
}

void cli_escaped(FILE *to, const char *text, size_t bytes)
{
    escaped(to, text, bytes, put_plain);
}

void cli_markup(FILE *to, const char *text)
{
    escaped(to, text, strlen(text), put_markup);
}

/* Writes a sentence of any length; where there is no memory for it, its beginning. */
static void line(FILE *to, const char *before, const char *format, va_list arguments)
{
    char beginning[1024], *text = beginning;
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(beginning, sizeof beginning, format, arguments);
    const size_t room = length < 0 ? 0 : (size_t)length + 1;
    if (room > sizeof beginning && (text = malloc(room)) != NULL)
        vsnprintf(text, room, format, again);
    va_end(again);
    fputs(before, to);
    cli_escaped(to, text ? text : beginning, strlen(text ? text : beginning));
    fputc('\n', to);
    if (text != beginning) free(text);
}

void cli_print(cli_app *cli, const char *format, ...)
{
    va_list arguments;
    cli_progress_clear(cli);
    va_start(arguments, format);
    line(stdout, "", format, arguments);
    va_end(arguments);
}

void cli_note(cli_app *cli, const char *format, ...)
{
    if (cli->quiet) return;
    va_list arguments;
    cli_progress_clear(cli);
    va_start(arguments, format);
    line(stderr, "", format, arguments);
    va_end(arguments);
}

void cli_warn(cli_app *cli, const char *format, ...)
{
    va_list arguments;
    cli_progress_clear(cli);
    va_start(arguments, format);
    line(stderr, "warning: ", format, arguments);
    va_end(arguments);
}

const char *cli_plural(int64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}
