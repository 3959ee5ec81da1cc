// SPDX-License-Identifier: Apache-2.0
/* What was measured, in words: a list of keys and values, some dozens at most, kept with a context
   or a device. */
#ifndef S24_BASE_NOTE_LIST_H
#define S24_BASE_NOTE_LIST_H

#include "base/base.h"

typedef struct s24i_note s24i_note;

/* Copies both; a key's value is replaced. `of` says in sentences whose note it is. Errors:
   ARGUMENT, MEMORY. */
s24_status s24i_note_set(s24_ctx *ctx, s24i_note **notes, const s24_allocator *allocator,
                         const char *of, const char *key, const char *value);
/* NULL: there is none. */
const char *s24i_noted(const s24i_note *notes, const char *key);
/* The newest first; NULL past the end. */
const char *s24i_note_key(const s24i_note *notes, int64_t index);
void s24i_notes_free(s24i_note *notes, const s24_allocator *allocator);

#endif
