// SPDX-License-Identifier: Apache-2.0
/* Texts that join a running batch, as s24_generate uses them too. */
#ifndef S24_RUN_GENERATOR_H
#define S24_RUN_GENERATOR_H

#include "run/sample.h"

/* A text that joins. */
typedef struct s24i_joining {
    int64_t text;   /* of the cache */
    int64_t prompt; /* which its tokens are told to go on with */
    const int32_t *ids;
    int64_t count, seen; /* of its prompt; so many of them the cache has already */
    int64_t number;      /* by which it is drawn */
    int64_t awaited;     /* new tokens that s24i_generator_awaits has counted for it */
} s24i_joining;

/* Makes a generator for the first `texts` of a cache. Errors: UNSUPPORTED, ARGUMENT, MEMORY, as
   s24_generator_create. */
s24_status s24i_generator_create(s24_generator **out, s24_ctx *ctx, s24_session *session,
                                 s24_cache *cache, int64_t texts, const s24_generator_opts *opts);

/* `known`: the options with their defaults filled in. ARGUMENT: one is out of range. */
s24_status s24i_generate_opts_read(s24_ctx *ctx, s24_generate_opts *known,
                                   const s24_generate_opts *given);

/* Does the cache have room for a prompt of so many tokens, after what a text has or, beyond its
   texts, in one that was emptied? ARGUMENT: no; it is called `index`. */
s24_status s24i_generator_room(s24_ctx *ctx, const s24_cache *cache, int64_t text, int64_t count,
                               int64_t index);

/* Joins what is checked, with options that are read. */
void s24i_generator_add(s24_generator *generator, const s24i_joining *joining,
                        const s24_generate_opts *known);

/* A text of the cache that does not go on; −1: all do. */
int64_t s24i_generator_free(const s24_generator *generator);

/* Texts that join later may have so many new tokens, as progress is told. */
void s24i_generator_awaits(s24_generator *generator, int64_t tokens);

#endif
