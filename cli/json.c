// SPDX-License-Identifier: Apache-2.0
/*
 * JSON of the program: objects that are printed, files and lines that are read, and what becomes of
 * them when memory ends. jansson then builds an object that lacks a member, or, where it reads, may end
 * the process by an assertion. So its memory is this file's: once malloc has said no, what little is
 * asked for comes from a reserve, reading stops at its next byte, and all that was built since counts
 * as not built.
 */
#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* More than the rest of a reader's buffer (1 KB of text) or an object that says what failed can ask
   for. */
enum { RESERVE = 256 << 10, ALIGNMENT = alignof(max_align_t) };
static alignas(max_align_t) char reserve[RESERVE];
static size_t reserve_used;
static int ended;

static void *json_allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory) return memory;
    ended = 1;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > RESERVE - reserve_used) return NULL;
    memory = reserve + reserve_used;
    reserve_used += bytes;
    return memory;
}

void cli_json_free(void *memory)
{
    const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)reserve;
    if (at < begin || at >= begin + RESERVE) free(memory);
}

void cli_json_begin(void)
{
    json_set_alloc_funcs(json_allocate, cli_json_free);
}

int cli_json_is_whole(void)
{
    return !ended;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct source {
    FILE *file; /* NULL: the text */
    const char *text;
    size_t left;
} source;

static size_t read_some(void *buffer, size_t room, void *user)
{
    source *from = user;
    if (ended) return (size_t)-1;
    if (from->file) return fread(buffer, 1, room, from->file);
    const size_t bytes = from->left < room ? from->left : room;
    memcpy(buffer, from->text, bytes);
    from->text += bytes;
    from->left -= bytes;
    return bytes;
}

static json_t *read_source(source *from)
{
    json_t *value = json_load_callback(read_some, from, 0, NULL);
    if (!ended) return value;
    json_decref(value);
    return NULL;
}

json_t *cli_json_read(const char *text)
{
    source from = {NULL, text, strlen(text)};
    return read_source(&from);
}

json_t *cli_json_read_file(const char *path)
{
    source from = {.file = fopen(path, "r")};
    if (!from.file) return NULL;
    json_t *value = read_source(&from);
    fclose(from.file);
    return value;
}

/* ---- writing --------------------------------------------------------------------------------- */

json_t *cli_json(void)
{
    json_t *object = json_object();
    json_object_set_new(object, "version", json_integer(1));
    return object;
}

json_t *cli_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static int memory_ended(cli_app *cli)
{
    return cli_fail(cli, CLI_IO, "out of memory for the JSON object");
}

enum { FLAGS = JSON_INDENT(2) | JSON_REAL_PRECISION(9) };

int cli_json_print(cli_app *cli, json_t *object)
{
    int code = CLI_OK;
    cli_progress_clear(cli);
    if (!object || ended)
        code = memory_ended(cli);
    else if (json_dumpf(object, stdout, FLAGS) || putchar('\n') < 0)
        code = ended ? memory_ended(cli) : cli_output_failed(cli, 0);
    json_decref(object);
    return code;
}

static int print_element(cli_app *cli, json_t *element, int is_first)
{
    int failed = 0;
    if (element && !ended) {
        failed = fputs(is_first ? "\n    " : ",\n    ", stdout) < 0;
        failed |= json_dumpf(element, stdout, JSON_REAL_PRECISION(9));
    }
    json_decref(element);
    if (ended) return memory_ended(cli);
    return failed ? cli_output_failed(cli, 0) : CLI_OK;
}

int cli_json_print_list(cli_app *cli, json_t *object, const char *name, const cli_list *list)
{
    char *text = object ? json_dumps(object, FLAGS) : NULL;
    int code = text && !ended ? CLI_OK : memory_ended(cli);
    cli_progress_clear(cli);
    if (code == CLI_OK) /* all but the end, "\n}" */
        printf("%.*s,\n  \"%s\": [", (int)strlen(text) - 2, text, name);
    cli_json_free(text);
    json_decref(object);
    for (int64_t i = 0; i < list->count && code == CLI_OK; i++)
        code = print_element(cli, list->element(list->user, i), i == 0);
    if (code != CLI_OK) return code;
    fputs(list->count ? "\n  ]\n}\n" : "]\n}\n", stdout);
    return ended ? memory_ended(cli) : CLI_OK; /* main sees to a stream that failed */
}
