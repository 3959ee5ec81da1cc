// SPDX-License-Identifier: Apache-2.0
/* A pass over tokens that follow those of a cache. */
#include "run/cpu/kv_cache.h"

/* Lays down which text of the cache each text of the batch continues. */
static s24_status take_places(s24_cache *cache, s24_ctx *ctx, const s24_extension *e)
{
    const int64_t count = e->batch->texts;
    REQUIRE(ctx, count <= cache->texts, S24_ERROR_ARGUMENT,
            "the batch has %lld texts; the cache has room for %lld", (long long)count,
            (long long)cache->texts);
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = e->texts ? e->texts[i] : i;
        REQUIRE(ctx, place >= 0 && place < cache->texts, S24_ERROR_ARGUMENT,
                "text %lld of the batch continues text %lld of the cache; 0 to %lld was expected",
                (long long)i, (long long)place, (long long)cache->texts - 1);
        for (int64_t j = 0; j < i; j++)
            REQUIRE(ctx, cache->places[j] != place, S24_ERROR_ARGUMENT,
                    "texts %lld and %lld of the batch both continue text %lld of the cache",
                    (long long)j, (long long)i, (long long)place);
        cache->places[i] = place;
        cache->rows[i] = place * cache->room;
        cache->before[i] = cache->counts[place];
    }
    return S24_OK;
}

static int64_t new_tokens(const s24_batch *batch, int64_t text)
{
    return batch->offsets[text + 1] - batch->offsets[text];
}

static s24_status check_room(const s24_cache *cache, s24_ctx *ctx, const s24_batch *batch)
{
    for (int64_t i = 0; i < batch->texts; i++) {
        const int64_t there = s24i_cache_before(cache, i), more = new_tokens(batch, i);
        REQUIRE(ctx, more <= cache->room - there, S24_ERROR_ARGUMENT,
                "text %lld has %lld tokens in the cache and %lld in the batch; there is room for "
                "%lld",
                (long long)i, (long long)there, (long long)more, (long long)cache->room);
    }
    return S24_OK;
}

static s24_status check(const s24_session *session, s24_ctx *ctx, const s24_cache *cache,
                        const s24_extension *e)
{
    REQUIRE(ctx, cache->model == session->model, S24_ERROR_ARGUMENT,
            "the cache was made for another model");
    REQUIRE(ctx, cache->dtype == session->between, S24_ERROR_ARGUMENT,
            "the cache holds %s; this session's attention reads %s", s24_dtype_name(cache->dtype),
            s24_dtype_name(session->between));
    REQUIRE(ctx, s24_ctx_threads(ctx) <= cache->threads, S24_ERROR_ARGUMENT,
            "the context has %d threads; the cache was made for %d", s24_ctx_threads(ctx),
            cache->threads);
    REQUIRE(ctx, !e->batch->mask, S24_ERROR_ARGUMENT,
            "the batch has a mask, which a pass with a cache does not take");
    return S24_OK;
}

static s24_status extend(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                         const s24_extension *e, const s24_outputs *outputs)
{
    TRY(s24i_session_check(session, ctx, e->batch));
    TRY(check(session, ctx, cache, e));
    TRY(take_places(cache, ctx, e));
    TRY(check_room(cache, ctx, e->batch));
    session->cache = cache;
    const s24_status status = s24_session_forward(session, ctx, e->batch, outputs);
    session->cache = NULL;
    for (int64_t i = 0; status == S24_OK && i < e->batch->texts; i++)
        cache->counts[cache->places[i]] += new_tokens(e->batch, i);
    return status;
}

s24_status s24_session_extend(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                              const s24_extension *extension, const s24_outputs *outputs)
{
    if (!ctx) return S24_ERROR_ARGUMENT;
    REQUIRE(ctx, session && cache && extension && outputs, S24_ERROR_ARGUMENT, "%s is NULL",
            !session     ? "session"
            : !cache     ? "cache"
            : !extension ? "extension"
                         : "outputs");
    return extend(session, ctx, cache, extension, outputs);
}
