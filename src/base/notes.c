// SPDX-License-Identifier: Apache-2.0
/* Lists of notes, and those of a context. */
#include <string.h>

#include "base/note_list.h"

struct s24i_note {
    s24i_note *next;
    char key[96], value[32];
};

static s24i_note *find(const s24i_note *notes, const char *key)
{
    while (notes && strcmp(notes->key, key) != 0)
        notes = notes->next;
    return (s24i_note *)(uintptr_t)notes;
}

s24_status s24i_note_set(s24_ctx *ctx, s24i_note **notes, const s24_allocator *allocator,
                         const char *of, const char *key, const char *value)
{
    s24i_note *note = find(*notes, key);
    REQUIRE(ctx, strlen(key) < sizeof note->key && strlen(value) < sizeof note->value,
            S24_ERROR_ARGUMENT, "a note of %zu and %zu bytes; expected less than %zu and %zu",
            strlen(key), strlen(value), sizeof note->key, sizeof note->value);
    if (!note) {
        note = s24i_alloc(allocator, sizeof *note);
        REQUIRE(ctx, note, S24_ERROR_MEMORY, "out of memory for a %s's note", of);
        memcpy(note->key, key, strlen(key) + 1);
        note->next = *notes;
        *notes = note;
    }
    memcpy(note->value, value, strlen(value) + 1);
    return S24_OK;
}

const char *s24i_noted(const s24i_note *notes, const char *key)
{
    const s24i_note *note = find(notes, key);
    return note ? note->value : NULL;
}

const char *s24i_note_key(const s24i_note *notes, int64_t index)
{
    const s24i_note *note = index >= 0 ? notes : NULL;
    while (note && index-- > 0)
        note = note->next;
    return note ? note->key : NULL;
}

void s24i_notes_free(s24i_note *notes, const s24_allocator *allocator)
{
    while (notes) {
        s24i_note *next = notes->next;
        s24i_free(allocator, notes);
        notes = next;
    }
}

/* ---- of a context ---------------------------------------------------------------------------- */

s24_status s24_ctx_note(s24_ctx *ctx, const char *key, const char *value)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, key && value, S24_ERROR_ARGUMENT, "%s is NULL", key ? "value" : "key");
    return s24i_note_set(ctx, &ctx->notes, &ctx->allocator, "context", key, value);
}

const char *s24_ctx_noted(const s24_ctx *ctx, const char *key)
{
    return ctx && key ? s24i_noted(ctx->notes, key) : NULL;
}

const char *s24_ctx_note_key(const s24_ctx *ctx, int64_t index)
{
    return ctx ? s24i_note_key(ctx->notes, index) : NULL;
}
