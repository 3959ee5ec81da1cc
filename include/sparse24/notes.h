// SPDX-License-Identifier: Apache-2.0
/*
 * Notes of a context. Part of sparse24.h, whose rules hold here and which includes this file.
 */
#ifndef SPARSE24_NOTES_H
#define SPARSE24_NOTES_H

#include "sparse24/sparse24.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What was measured on this CPU, in words: loading a model notes which of its products run dense
 * (nn.h), and looks here before it measures. A program that gives a new context the notes of an
 * earlier one spares the measuring, and gets the same choices, so the same bits. Both are copied; a
 * key's value may be replaced. Errors: ARGUMENT (NULL; a key of 96 bytes or a value of 32), MEMORY.
 */
S24_API s24_status s24_ctx_note(s24_ctx *ctx, const char *key, const char *value);
/* NULL: there is none. */
S24_API const char *s24_ctx_noted(const s24_ctx *ctx, const char *key);
/* The key by index, the newest first; NULL past the end. */
S24_API const char *s24_ctx_note_key(const s24_ctx *ctx, int64_t index);

#ifdef __cplusplus
}
#endif

#endif
