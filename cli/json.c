// SPDX-License-Identifier: Apache-2.0
/*
 * Makes and reads JSON, and sees to it when memory ends. jansson then builds an object that lacks a
 * member, or, where it reads, may end the process by an assertion. So its memory is this file's:
 * once malloc has said no, what little is asked for comes from a reserve, reading stops at its next
 * byte, and all that was built since counts as not built.
 */
#include <math.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Is more than the rest of a reader's buffer (1 KB of text) or an object that says what failed can
   ask for. */
enum { RESERVE = 256 << 10, ALIGNMENT = alignof(max_align_t) };
static alignas(max_align_t) char reserve[RESERVE];
static atomic_size_t reserve_used;
static atomic_int ended;

static void *json_allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory) return memory;
    atomic_store(&ended, 1);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t at = atomic_load(&reserve_used);
    do {
        if (bytes > RESERVE - at) return NULL;
    } while (!atomic_compare_exchange_weak(&reserve_used, &at, at + bytes));
    return reserve + at;
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
    return !atomic_load(&ended);
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

static json_t *read_source(source *from, size_t flags, json_error_t *error)
{
    json_t *value = json_load_callback(read_some, from, flags, error);
    if (!ended) return value;
    json_decref(value);
    return NULL;
}

json_t *cli_json_read(const char *text)
{
    source from = {NULL, text, strlen(text)};
    return read_source(&from, 0, NULL);
}

json_t *cli_json_read_bytes(const char *text, size_t bytes, char *why)
{
    source from = {NULL, text, bytes};
    json_error_t error = {0};
    json_t *value = read_source(&from, JSON_ALLOW_NUL, &error);
    snprintf(why, JSON_ERROR_TEXT_LENGTH, "%s", error.text);
    return value;
}

json_t *cli_json_read_stream(FILE *file)
{
    source from = {.file = file};
    return read_source(&from, 0, NULL);
}

json_t *cli_json_read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    json_t *value = file ? cli_json_read_stream(file) : NULL;
    if (file) fclose(file);
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
