// SPDX-License-Identifier: Apache-2.0
/*
 * Keys and values that passes have left behind. A layer has its keys, then its values, each [texts,
 * kv_heads, room, head_width]: what one head of a text's queries reads stands in one piece. In
 * bytes each row of head_width has a scale, in memory of their own in the same order. Of a model on
 * a device they, angles and scratch lie there (run/gpu/gpu_cache.c).
 */
#ifndef S24_RUN_CPU_KV_CACHE_H
#define S24_RUN_CPU_KV_CACHE_H

#include "run/session.h"
#include "sparse24/language.h"

struct s24_cache {
    s24_ctx *ctx;
    const s24_model *model;
    s24_dtype dtype;
    int scaled;          /* 1: they are bytes, S24_I8 or S24_E4M3, with scales */
    int one_row;         /* 1: keys are values too, as latents are */
    int threads;         /* that there is scratch for */
    int64_t texts, room; /* room: most tokens of a text */
    int64_t heads, d;    /* of a token's keys: their number, a head's elements */
    void *memory;
    float *scales;   /* of keys and values in bytes; else NULL */
    int64_t *counts; /* [texts]: tokens that are there */
    /* [texts] each, of a pass: the text of the cache that each of its texts continues, the row of d
       elements where that text's first head begins, and how many tokens were there before. */
    int64_t *places, *rows, *before;
    const int64_t *asked; /* the same as the caller has said them; NULL: each its own number */
    float *angles;        /* [room, turned], of rotary positions; else NULL */
    float *near_angles;   /* likewise of blocks with a window that turn otherwise */
    float *scratch;       /* of attention, a thread's; on a device all of its work memory */
    int64_t scratch_elems;
};

/* Rows of a token and head in a layer. */
static inline int64_t s24i_cache_parts(const s24_cache *cache)
{
    return cache->one_row ? 1 : 2;
}

/* Of all keys and values. */
static inline int64_t s24i_cache_elems(const s24_cache *cache)
{
    return s24i_cache_parts(cache) * cache->model->shape.layers * cache->texts * cache->heads *
           cache->room * cache->d;
}

/* Of all keys and values: each has one where they are bytes. */
static inline int64_t s24i_cache_scales(const s24_cache *cache)
{
    return cache->scaled ? s24i_cache_elems(cache) / cache->d : 0;
}

/* Rows of d elements before the first of a layer's keys or values. */
static inline int64_t s24i_cache_rows_before(const s24_cache *cache, int64_t layer, int is_value)
{
    return (s24i_cache_parts(cache) * layer + is_value) * cache->texts * cache->heads * cache->room;
}

/* The first of them. */
static inline void *s24i_cache_at(const s24_cache *cache, int64_t layer, int is_value)
{
    const int64_t row = s24i_cache_rows_before(cache, layer, is_value);
    return (char *)cache->memory + (size_t)(row * cache->d) * s24_dtype_bytes(cache->dtype);
}

/* Tokens of a pass's text that were there before it. */
static inline int64_t s24i_cache_before(const s24_cache *cache, int64_t text)
{
    return cache ? cache->before[text] : 0;
}

/* Says that a place ("memory") has no room for keys and values, and for how many tokens it has.
   MEMORY. */
s24_status s24i_cache_no_room(const s24_cache *cache, s24_ctx *ctx, const char *where, int64_t fit);

/* Lays down what a pass over a checked batch continues. Errors: ARGUMENT, as s24_session_extend. */
s24_status s24i_cache_begin(s24_cache *cache, s24_ctx *ctx, const s24_session *session,
                            const s24_batch *batch);

/* Keys or values of a pass's tokens, whose rows stand ld elements apart, to their places after
   those that a layer has. */
typedef struct s24i_cache_rows {
    const s24_batch *batch;
    const void *from;
    s24_dtype dtype; /* of the pass: the cache's, but where that has bytes */
    int64_t ld, layer;
    int64_t head; /* elements from a head to the next */
    int is_value;
} s24i_cache_rows;
void s24i_cache_put(s24_cache *cache, s24_ctx *ctx, const s24i_cache_rows *rows);

#endif
