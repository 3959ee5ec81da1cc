// SPDX-License-Identifier: Apache-2.0
/* What is said where keys and values have no room, here or on a device. */
#include "run/cpu/kv_cache.h"

s24_status s24i_cache_no_room(const s24_cache *cache, s24_ctx *ctx, const char *where, int64_t fit)
{
    const size_t bytes = (size_t)s24i_cache_elems(cache) * s24_dtype_bytes(cache->dtype) +
                         (size_t)s24i_cache_scales(cache) * sizeof(float);
    return s24_ctx_fail(ctx, S24_ERROR_MEMORY,
                        "keys and values of %lld texts of %lld tokens take %zu bytes, which %s has "
                        "no room for; those of %lld tokens in all would fit: %lld of each text, or "
                        "%lld whole texts",
                        (long long)cache->texts, (long long)cache->room, bytes, where,
                        (long long)fit, (long long)(fit / cache->texts),
                        (long long)(fit / cache->room));
}
