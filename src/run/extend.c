// SPDX-License-Identifier: Apache-2.0
/* A pass over tokens that follow those of a cache. */
#include "run/cpu/kv_cache.h"

static s24_status extend(s24_session *session, s24_ctx *ctx, s24_cache *cache,
                         const s24_extension *e, const s24_outputs *outputs)
{
    const s24_batch *batch = e->batch;
    cache->asked = e->texts;
    session->cache = cache;
    const s24_status status = s24_session_forward(session, ctx, batch, outputs);
    session->cache = NULL;
    for (int64_t i = 0; status == S24_OK && i < batch->texts; i++)
        cache->counts[cache->places[i]] += batch->offsets[i + 1] - batch->offsets[i];
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
