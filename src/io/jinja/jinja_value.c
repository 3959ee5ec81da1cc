// SPDX-License-Identifier: Apache-2.0
/* Makes values, in memory that goes with their run. */
#include "io/jinja/jinja_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/tokenizer/utf8.h"

enum { BLOCK = 1 << 16 };

struct s24i_jblock {
    struct s24i_jblock *next;
    s24i_jvalue memory[]; /* so that it is aligned for all */
};

void *s24i_jarena_take(s24i_jarena *arena, size_t bytes)
{
    const size_t unit = sizeof(s24i_jvalue), whole = (bytes + unit - 1) / unit * unit;
    if (whole < bytes || whole > arena->most - arena->taken) return NULL;
    if (whole > arena->left) {
        const size_t room = whole > BLOCK / 4 ? whole : BLOCK;
        struct s24i_jblock *block;
        if (s24i_zeroed(&block, arena->ctx, sizeof *block + room) != S24_OK) return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->at = (char *)block->memory;
        arena->left = room;
    }
    void *out = arena->at;
    arena->at += whole;
    arena->left -= whole;
    arena->taken += whole;
    return out;
}

void s24i_jarena_free(s24i_jarena *arena)
{
    while (arena->blocks) {
        struct s24i_jblock *block = arena->blocks;
        arena->blocks = block->next;
        s24_ctx_free(arena->ctx, block);
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

s24i_jvalue s24i_jfail(s24i_jrun *run, const char *format, ...)
{
    char text[400];
    va_list list;
    if (run->status != S24_OK) return s24i_jundefined(NULL);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    run->status = s24_ctx_fail(run->ctx, S24_ERROR_ARGUMENT, "%s: line %d: %s", run->jinja->file,
                               run->line, text);
    return s24i_jundefined(NULL);
}

int s24i_jfailed(const s24i_jrun *run)
{
    return run->status != S24_OK;
}

void *s24i_jtake(s24i_jrun *run, size_t bytes)
{
    if (run->status != S24_OK) return NULL;
    void *out = s24i_jarena_take(&run->arena, bytes);
    if (out) return out;
    if (bytes > run->arena.most - run->arena.taken)
        s24i_jfail(run, "the template takes more than %zu bytes of memory", run->arena.most);
    else
        run->status =
            s24_ctx_fail(run->ctx, S24_ERROR_MEMORY,
                         "%s: out of memory for what the template makes", run->jinja->file);
    return NULL;
}

int s24i_jwork(s24i_jrun *run, size_t steps)
{
    run->steps += steps;
    if (run->steps > S24I_JMOST_STEPS)
        s24i_jfail(run, "the template takes more than %llu steps",
                   (unsigned long long)S24I_JMOST_STEPS);
    return run->status == S24_OK;
}

/* ---- plain values ---------------------------------------------------------------------------- */

s24i_jvalue s24i_jundefined(const char *name)
{
    return (s24i_jvalue){.kind = S24I_JUNDEFINED, .as = {.text = name}};
}

s24i_jvalue s24i_jnone(void)
{
    return (s24i_jvalue){.kind = S24I_JNONE};
}

s24i_jvalue s24i_jbool(int truth)
{
    return (s24i_jvalue){.kind = S24I_JBOOL, .as = {.integer = truth != 0}};
}

s24i_jvalue s24i_jint(int64_t integer)
{
    return (s24i_jvalue){.kind = S24I_JINT, .as = {.integer = integer}};
}

s24i_jvalue s24i_jreal(double real)
{
    return (s24i_jvalue){.kind = S24I_JREAL, .as = {.real = real}};
}

s24i_jvalue s24i_jstring(const char *text, size_t bytes, int own)
{
    return (s24i_jvalue){.kind = S24I_JSTRING,
                         .own = (uint8_t)(own != 0),
                         .bytes = (uint32_t)bytes,
                         .as = {.text = text}};
}

s24i_jvalue s24i_jword(const char *text)
{
    return s24i_jstring(text, strlen(text), 1);
}

s24i_jvalue s24i_jcut(s24i_jvalue string, size_t begin, size_t end)
{
    string.as.text += begin;
    string.bytes = (uint32_t)(end - begin);
    if (string.marks) string.marks += begin;
    return string;
}

/* ---- lists ----------------------------------------------------------------------------------- */

void *s24i_jgrow(s24i_jrun *run, void *data, size_t count, size_t *room, size_t size)
{
    if (count < *room) return data;
    const size_t more = *room ? 2 * *room : 4;
    void *out = s24i_jtake(run, more * size);
    if (!out) return NULL;
    if (count) memcpy(out, data, count * size);
    *room = more;
    return out;
}

s24i_jvalue s24i_jlist_new(s24i_jrun *run, s24i_jkind kind)
{
    s24i_jlist *list = s24i_jtake(run, sizeof *list);
    if (!list) return s24i_jundefined(NULL);
    return (s24i_jvalue){.kind = (uint8_t)kind, .as = {.list = list}};
}

void s24i_jlist_add(s24i_jrun *run, s24i_jvalue list, s24i_jvalue item)
{
    if (!s24i_jwork(run, 1)) return;
    s24i_jlist *l = list.as.list;
    s24i_jvalue *items = s24i_jgrow(run, l->items, l->count, &l->room, sizeof *items);
    if (!items) return;
    l->items = items;
    l->items[l->count++] = item;
}

/* ---- strings that grow ----------------------------------------------------------------------- */

/* Room for so many bytes more; 0: the run has failed. */
static int room_for(s24i_jbuild *b, size_t bytes)
{
    if (!s24i_jwork(b->run, 1 + bytes / 16)) return 0;
    if (bytes <= b->room - b->bytes) return 1;
    if (bytes > INT32_MAX - b->bytes) {
        s24i_jfail(b->run, "a text has more than %d bytes", INT32_MAX);
        return 0;
    }
    const size_t room = 2 * (b->bytes + bytes) + 32;
    char *data = s24i_jtake(b->run, 2 * room);
    if (!data) return 0;
    if (b->bytes) {
        memcpy(data, b->data, b->bytes);
        memcpy(data + room, b->marks, b->bytes);
    }
    b->data = data;
    b->marks = (uint8_t *)data + room;
    b->room = room;
    return 1;
}

void s24i_jput(s24i_jbuild *build, const char *text, size_t bytes, int own)
{
    if (!bytes || !room_for(build, bytes)) return;
    memcpy(build->data + build->bytes, text, bytes);
    memset(build->marks + build->bytes, own != 0, bytes);
    build->bytes += bytes;
}

void s24i_jput_string(s24i_jbuild *build, s24i_jvalue string)
{
    const size_t at = build->bytes;
    s24i_jput(build, string.as.text, string.bytes, string.own);
    if (string.marks && build->bytes > at) memcpy(build->marks + at, string.marks, string.bytes);
}

void s24i_jput_character(s24i_jbuild *build, uint32_t character, int own)
{
    char bytes[4];
    s24i_jput(build, bytes, (size_t)s24i_utf8_put(bytes, character), own);
}

s24i_jvalue s24i_jbuilt(s24i_jbuild *build)
{
    const size_t bytes = build->bytes;
    s24i_jvalue out = s24i_jstring(bytes ? build->data : "", bytes, 1);
    if (!bytes) return out;
    const uint8_t *given = memchr(build->marks, 0, bytes);
    if (!given) return out;
    out.own = 0;
    if (memchr(build->marks, 1, bytes)) out.marks = build->marks;
    return out;
}
