// SPDX-License-Identifier: Apache-2.0
/*
 * Makes and reads JSON, and sees to it when memory ends. jansson then builds an object that lacks a
 * member, or, where it reads, may end the process by an assertion. So its memory is this file's:
 * once malloc has said no, what little is asked for comes from a reserve, reading stops at the end
 * of its buffer, and all that the thread builds counts as not built until it begins anew, as it
 * does for each request of a server.
 */
#include <math.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Is more than the rest of a reader's buffer (of the shortest text that asks for much, an opened
   list a byte, 28 KB) and an object that says what failed can ask for, of 64 threads at once. */
enum { RESERVE = 2 << 20, BUFFER = 256, ALIGNMENT = alignof(max_align_t) };
static alignas(max_align_t) char reserve[RESERVE];
static size_t reserve_used, reserve_pieces;
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int ended;

static void *take_reserve(size_t bytes)
{
    void *memory = NULL;
    pthread_mutex_lock(&reserve_lock);
    if (bytes <= RESERVE - reserve_used) {
        memory = reserve + reserve_used;
        reserve_used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        reserve_pieces++;
    }
    pthread_mutex_unlock(&reserve_lock);
    return memory;
}

/* It is whole again once nobody has a piece of it. */
static void give_reserve(void)
{
    pthread_mutex_lock(&reserve_lock);
    if (!--reserve_pieces) reserve_used = 0;
    pthread_mutex_unlock(&reserve_lock);
}

static void *json_allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory) return memory;
    ended = 1;
    return take_reserve(bytes);
}

void cli_json_free(void *memory)
{
    const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)reserve;
    if (at < begin || at >= begin + RESERVE)
        free(memory);
    else
        give_reserve();
}

void cli_json_begin(void)
{
    json_set_alloc_funcs(json_allocate, cli_json_free);
}

void cli_json_anew(void)
{
    ended = 0;
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
    if (room > BUFFER) room = BUFFER;
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
