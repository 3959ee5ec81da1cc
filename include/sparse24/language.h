/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Language models token by token. A cache keeps the keys and values of the tokens that a model has
 * seen, so that a pass over the tokens that follow them reads these instead of computing them
 * again.
 *
 *     s24_cache_create(&cache, ctx, session, &opts);
 *     s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &prompt}, &outputs);
 *     s24_session_extend(session, ctx, cache, &(s24_extension){.batch = &next}, &outputs);
 */
#ifndef SPARSE24_LANGUAGE_H
#define SPARSE24_LANGUAGE_H

#include "sparse24/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values of some texts, in memory of their own. Passes of one session at a time use it. */
typedef struct s24_cache s24_cache;

typedef struct s24_cache_opts {
    size_t size;    /* sizeof(s24_cache_opts) */
    int64_t texts;  /* that are continued at once; default 1 */
    int64_t tokens; /* most of a text; default the model's positions */
} s24_cache_opts;

/* A cache of no tokens for sessions like this one: of its model, with keys and values in the dtype
   in which its attention reads them. Everything is allocated here, s24_cache_bytes of it. The model
   must outlive the cache. Errors: UNSUPPORTED (a model whose tokens attend to later ones, or one on
   a device), ARGUMENT (no texts; tokens beyond the model's positions), MEMORY. */
S24_API s24_status s24_cache_create(s24_cache **out, s24_ctx *ctx, const s24_session *session,
                                    const s24_cache_opts *opts);
S24_API void s24_cache_destroy(s24_cache *cache);
/* Bytes of the keys and values. */
S24_API int64_t s24_cache_bytes(const s24_cache *cache);
/* How many tokens of a text there are; 0 of a text that the cache has no room for. */
S24_API int64_t s24_cache_tokens(const s24_cache *cache, int64_t text);
/* Forgets a text's tokens from `tokens` on; 0: all of them. Errors: ARGUMENT (there is no such
   text, or it has fewer tokens). */
S24_API s24_status s24_cache_truncate(s24_cache *cache, s24_ctx *ctx, int64_t text, int64_t tokens);

/* Tokens that follow those of a cache. */
typedef struct s24_extension {
    const s24_batch *batch; /* without a mask */
    /* [batch->texts]: which text of the cache each text of the batch continues, each once; NULL:
       the same one. Texts of the cache that are not named stay as they are. */
    const int64_t *texts;
} s24_extension;

/*
 * s24_session_forward of the tokens of a batch, each of which also attends to the tokens of its
 * text that are in the cache, and has its position after them. Afterwards these are in the cache
 * too; after an error the cache is as it was. outputs are of the tokens of the batch. The first
 * pass of a text has the bits of s24_session_forward; a text in several passes has those of one
 * pass as far as products of those numbers of tokens round alike (docs/numerics.md). Errors: those
 * of s24_session_forward, ARGUMENT (a cache of another model or of another dtype, a text that the
 * cache has no room for, or twice, or with more tokens than the cache has room for, a mask).
 */
S24_API s24_status s24_session_extend(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                                      const s24_extension *extension, const s24_outputs *outputs);

#ifdef __cplusplus
}
#endif

#endif
