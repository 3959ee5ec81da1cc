// SPDX-License-Identifier: Apache-2.0
/*
 * What a pass on a device reads: written by the host into pinned memory and copied, or copied from
 * where the caller has it on the device. What the texts' lengths decide is written anew only where
 * they are others than those of the pass before.
 */
#include "run/gpu/gpu_state.h"

#include <string.h>

#include "run/cpu/kv_cache.h"

/* queries 0: the attention over a grid needs no tiles. */
static int64_t tile_count(const s24_batch *batch, int queries)
{
    int64_t count = 0;
    for (int64_t b = 0; queries && b < batch->texts; b++)
        count += (batch->offsets[b + 1] - batch->offsets[b] + queries - 1) / queries;
    return count;
}

/* Tokens of the longest text, where attention has to know: else texts of other lengths share a
   graph. */
static int64_t longest_of(const s24i_gpu_session *gpu, const s24_batch *batch)
{
    int64_t longest = 0;
    if (!s24i_gpu_attends_as_language(gpu->model->architecture, &gpu->model->shape)) return 0;
    for (int64_t b = 0; b < batch->texts; b++)
        longest = s24i_max(longest, batch->offsets[b + 1] - batch->offsets[b]);
    return longest;
}

/* Which texts of the cache the pass's go on with, and how many tokens these have. */
static void write_places(s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key)
{
    const s24i_gpu_places p = s24i_gpu_places_of(key);
    for (int64_t b = 0; key->cache && b < batch->texts; b++) {
        gpu->pinned[p.places + b] = (int32_t)key->cache->places[b];
        gpu->pinned[p.before + b] = (int32_t)key->cache->before[b];
    }
}

/* What the texts' lengths alone decide. */
static void write_lengths(s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key)
{
    const s24i_gpu_places p = s24i_gpu_places_of(key);
    const int queries = s24i_gpu_queries(gpu, key->tokens);
    int32_t *tiles = gpu->pinned + p.tiles, *positions = gpu->pinned + p.positions;
    uint8_t *pooled = (uint8_t *)(gpu->pinned + p.pooled);
    for (int64_t b = 0; b < batch->texts; b++) {
        const int64_t length = batch->offsets[b + 1] - batch->offsets[b];
        for (int64_t q = 0; queries && q < length; q += queries) {
            *tiles++ = (int32_t)b;
            *tiles++ = (int32_t)q;
        }
        for (int64_t t = 0; t < length; t++)
            *positions++ = (int32_t)(s24i_cache_before(key->cache, b) + t);
        for (int64_t t = 0; key->unpooled && t < length; t++)
            *pooled++ = (uint8_t)s24i_is_pooled(batch, batch->offsets[b] + t, t, key->unpooled);
    }
    for (int64_t b = 0; b <= batch->texts; b++)
        gpu->pinned[p.offsets + b] = (int32_t)batch->offsets[b];
}

/* The places of tokens where some of them pad, in place of those that lengths decide. Are there
   any? */
static int write_padded(s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key)
{
    int32_t *positions = gpu->pinned + s24i_gpu_places_of(key).positions;
    int64_t all = 0;
    if (!gpu->model->shape.pads || key->images) return 0;
    for (int64_t b = 0; b < batch->texts; b++) {
        const int64_t first = batch->offsets[b];
        int64_t pads = 0;
        for (int64_t t = first; t < batch->offsets[b + 1]; t++)
            positions[t] =
                (int32_t)s24i_place_of(&gpu->model->shape, batch->ids[t], t - first, &pads);
        all += pads;
    }
    return all > 0;
}

/* What each word is multiplied by for those of its text that are masked. */
static void write_kept(s24i_gpu_session *gpu, const s24_batch *batch, float *to)
{
    for (int64_t b = 0; b < batch->texts; b++) {
        const float kept = s24i_kept_factor(&gpu->model->shape, batch, b);
        for (int64_t t = batch->offsets[b]; t < batch->offsets[b + 1]; t++)
            *to++ = batch->ids[t] == gpu->model->shape.masked ? 0.0f : kept > 0.0f ? kept : 1.0f;
    }
}

/* Returns whether the texts' lengths decide all places. */
static int write_inputs(s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key)
{
    const s24i_gpu_places p = s24i_gpu_places_of(key);
    const size_t tokens = (size_t)key->tokens;
    write_lengths(gpu, batch, key);
    write_places(gpu, batch, key);
    if (!key->images) memcpy(gpu->pinned + p.ids, batch->ids, tokens * sizeof(int32_t));
    if (key->types) memcpy(gpu->pinned + p.types, batch->types, tokens * sizeof(int32_t));
    if (key->mask) memcpy(gpu->pinned + p.mask, batch->mask, tokens);
    if (key->kept) write_kept(gpu, batch, (float *)(gpu->pinned + p.kept));
    return !write_padded(gpu, batch, key);
}

static size_t pixel_bytes(const s24i_gpu_session *gpu, const s24i_gpu_shape *key)
{
    const s24i_shape *s = &gpu->model->shape;
    return (size_t)(key->texts * s->channels * s->image * s->image) * sizeof(float);
}

/* Are they all of the batch's tokens, in their order? */
static int is_all(const s24_outputs *outputs, int64_t tokens)
{
    int64_t i = 0;
    if (!outputs->tokens) return 1;
    while (i < outputs->token_count && outputs->tokens[i] == i)
        i++;
    return i == tokens && i == outputs->token_count;
}

s24i_gpu_shape s24i_gpu_shape_of(const s24i_gpu_session *gpu, const s24i_gpu_pass *pass)
{
    const s24_batch *batch = pass->batch;
    const s24_outputs *outputs = pass->outputs;
    const s24_cache *cache = pass->cache;
    s24i_gpu_shape key = {.tokens = batch->offsets[batch->texts],
                          .texts = batch->texts,
                          .types = batch->types && gpu->model->type_rows,
                          .mask = batch->mask != NULL,
                          .unpooled = pass->unpooled,
                          .embeddings = outputs->embeddings != NULL,
                          .logits = outputs->start_logits || outputs->end_logits,
                          .hidden = outputs->hidden != NULL,
                          .classes = outputs->logits && gpu->class_logits,
                          .images = gpu->pixels != NULL,
                          .kept = gpu->model->shape.masked_grows,
                          .cached = (int64_t)s24i_gpu_cached_of(cache, batch),
                          .cache = cache};
    key.tiles = tile_count(batch, s24i_gpu_queries(gpu, key.tokens));
    key.longest = longest_of(gpu, batch);
    key.picks = pass->picks && is_all(outputs, key.tokens);
    if (!cache) return key;
    key.cache_memory = cache->memory;
    key.cache_scratch = cache->scratch;
    key.cache_angles = cache->angles;
    key.cache_near_angles = cache->near_angles;
    key.cache_texts = cache->texts;
    key.cache_room = cache->room;
    return key;
}

/* The host may write pinned when the passes before have read it. */
static s24_status settle(s24i_gpu_session *gpu, s24_ctx *ctx)
{
    if (!gpu->running) return S24_OK;
    TRY(s24_device_wait(ctx, gpu->device, gpu->stream));
    gpu->running = 0;
    return S24_OK;
}

static s24_status copy_pinned(s24i_gpu_session *gpu, s24_ctx *ctx, const s24i_gpu_shape *key)
{
    gpu->laid.tokens = 0;
    TRY(s24_device_copy(ctx, gpu->device, gpu->inputs, gpu->pinned,
                        (size_t)s24i_gpu_places_of(key).end * sizeof(int32_t), gpu->stream));
    gpu->laid = *key;
    return S24_OK;
}

static s24_status copy_pixels(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                              const s24i_gpu_shape *key)
{
    if (!key->images) return S24_OK;
    return s24_device_copy(ctx, gpu->device, gpu->pixels, batch->pixels, pixel_bytes(gpu, key),
                           gpu->stream);
}

s24_status s24i_gpu_write(s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                          const s24i_gpu_shape *key)
{
    TRY(settle(gpu, ctx));
    const int by_lengths = write_inputs(gpu, batch, key);
    TRY(copy_pinned(gpu, ctx, key));
    if (!by_lengths) gpu->laid.tokens = 0;
    return copy_pixels(gpu, ctx, batch, key);
}

/* Are the lengths of its texts where the device reads them, from the pass before? */
static int is_laid(const s24i_gpu_session *gpu, const s24_batch *batch, const s24i_gpu_shape *key)
{
    const s24i_gpu_places p = s24i_gpu_places_of(key), was = s24i_gpu_places_of(&gpu->laid);
    if (gpu->laid.tokens != key->tokens || gpu->laid.unpooled || gpu->laid.cached ||
        memcmp(&p, &was, sizeof p) != 0)
        return 0;
    for (int64_t b = 0; b <= batch->texts; b++)
        if (gpu->pinned[p.offsets + b] != batch->offsets[b]) return 0;
    return 1;
}

s24_status s24i_gpu_lay(s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                        const s24i_gpu_shape *key)
{
    if (is_laid(gpu, batch, key)) return S24_OK;
    TRY(settle(gpu, ctx));
    write_lengths(gpu, batch, key);
    gpu->running = 1;
    return copy_pinned(gpu, ctx, key);
}

s24_status s24i_gpu_copy_inputs(const s24i_gpu_session *gpu, s24_ctx *ctx, const s24_batch *batch,
                                const s24i_gpu_shape *key)
{
    const s24i_gpu_places p = s24i_gpu_places_of(key);
    const size_t tokens = (size_t)key->tokens;
    const struct {
        int64_t at;
        const void *from;
        size_t bytes;
    } parts[] = {{p.ids, batch->ids, key->images ? 0 : tokens * sizeof(int32_t)},
                 {p.types, batch->types, key->types ? tokens * sizeof(int32_t) : 0},
                 {p.mask, batch->mask, key->mask ? tokens : 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes)
            TRY(s24_device_copy(ctx, gpu->device, gpu->inputs + parts[i].at, parts[i].from,
                                parts[i].bytes, gpu->stream));
    return copy_pixels(gpu, ctx, batch, key);
}
