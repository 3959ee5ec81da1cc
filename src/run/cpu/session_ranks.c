// SPDX-License-Identifier: Apache-2.0
/* Ranks that hold a model together begin a pass: with the same texts after the same ones, or not at
   all. */
#include "comm/alike.h"
#include "run/cpu/kv_cache.h"

/* Hashes an array, or that there is none. */
static uint64_t hash_of(uint64_t hash, const void *data, int64_t count, size_t size)
{
    const uint64_t bytes = data ? (uint64_t)count * size : 0;
    hash = s24i_hash(hash, &bytes, sizeof bytes);
    return data ? s24i_hash(hash, data, (size_t)bytes) : hash;
}

static uint64_t hash_batch(const s24_session *session, const s24_batch *batch)
{
    const int64_t texts = batch->texts, tokens = batch->offsets[texts];
    const s24i_shape *s = &session->model->shape;
    uint64_t hash = hash_of(S24I_ALIKE_FIRST, batch->offsets, texts + 1, sizeof *batch->offsets);
    if (s->image)
        return hash_of(hash, batch->pixels, texts * s->channels * s->image * s->image,
                       sizeof *batch->pixels);
    hash = hash_of(hash, batch->ids, tokens, sizeof *batch->ids);
    hash = hash_of(hash, batch->types, tokens, sizeof *batch->types);
    return hash_of(hash, batch->mask, tokens, sizeof *batch->mask);
}

static uint64_t hash_cache(const s24_cache *cache, int64_t texts)
{
    if (!cache) return S24I_ALIKE_FIRST;
    const int64_t numbers[] = {cache->dtype, cache->texts, cache->room};
    uint64_t hash = s24i_hash(S24I_ALIKE_FIRST, numbers, sizeof numbers);
    hash = hash_of(hash, cache->places, texts, sizeof *cache->places);
    return hash_of(hash, cache->before, texts, sizeof *cache->before);
}

s24_status s24i_session_meet(const s24_session *session, s24_ctx *ctx, const s24_batch *batch,
                             s24_status mine)
{
    const s24i_ranks *ranks = &session->model->ranks;
    s24i_alike proofs[] = {{"other threads", (uint64_t)s24_ctx_threads(ctx)},
                           {"another batch", 0},
                           {"another cache", 0}};
    if (!ranks->comm) return mine;
    if (mine == S24_OK) {
        proofs[1].hash = hash_batch(session, batch);
        proofs[2].hash = hash_cache(session->cache, batch->texts);
    }
    return s24i_alike_compare(ctx, ranks->comm, ranks->table, mine, proofs,
                              sizeof proofs / sizeof *proofs);
}
