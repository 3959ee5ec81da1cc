// SPDX-License-Identifier: Apache-2.0
/*
 * The vocabulary: a hash table with open addressing whose token bytes stand end to end in one
 * pool. The hash of a piece is carried on from that of its beginning, so that looking for the
 * longest piece of a word reads its bytes once.
 */
#include "io/tokenizer/tokenizer.h"

#include <string.h>

s24_status s24i_vocabulary_create(s24i_vocabulary *vocabulary, s24_ctx *ctx, size_t count,
                                  size_t pool_bytes)
{
    size_t capacity = 16;
    while (capacity < count * 2)
        capacity *= 2;
    TRY(s24i_zeroed(&vocabulary->slots, ctx, capacity * sizeof *vocabulary->slots));
    vocabulary->mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        vocabulary->slots[i].id = -1;
    return s24i_zeroed(&vocabulary->pool, ctx, pool_bytes);
}

void s24i_vocabulary_free(s24i_vocabulary *vocabulary, s24_ctx *ctx)
{
    s24_ctx_free(ctx, vocabulary->slots);
    s24_ctx_free(ctx, vocabulary->pool);
}

/* The upper half has seen every byte; the lowest bits of FNV-1a alone mix badly. */
static uint32_t fold(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

/* The slot of the token, or the free one where it would stand. */
static s24i_token_slot *locate(const s24i_vocabulary *vocabulary, uint32_t hash,
                               const s24_text parts[2])
{
    const size_t head = parts[0].bytes, bytes = head + parts[1].bytes;
    for (size_t i = hash & vocabulary->mask;; i = (i + 1) & vocabulary->mask) {
        s24i_token_slot *slot = &vocabulary->slots[i];
        if (slot->id < 0) return slot;
        if (slot->hash != hash || slot->bytes != bytes) continue;
        const char *token = vocabulary->pool + slot->offset;
        if (!memcmp(token, parts[0].data, head) &&
            !memcmp(token + head, parts[1].data, parts[1].bytes))
            return slot;
    }
}

void s24i_vocabulary_add(s24i_vocabulary *vocabulary, const char *token, size_t bytes, int32_t id)
{
    const s24_text parts[2] = {{"", 0}, {token, bytes}};
    const uint32_t hash = fold(s24i_hash(S24I_HASH_SEED, token, bytes));
    s24i_token_slot *slot = locate(vocabulary, hash, parts);
    if (slot->id < 0) {
        *slot = (s24i_token_slot){hash, (uint32_t)vocabulary->pool_bytes, (uint32_t)bytes, id};
        memcpy(vocabulary->pool + vocabulary->pool_bytes, token, bytes);
        vocabulary->pool_bytes += bytes;
        if (bytes > vocabulary->longest) vocabulary->longest = (uint32_t)bytes;
    }
    slot->id = id;
}

int32_t s24i_vocabulary_find(const s24i_vocabulary *vocabulary, uint64_t hash, const char *prefix,
                             size_t prefix_bytes, const char *text, size_t bytes)
{
    const s24_text parts[2] = {{prefix, prefix_bytes}, {text, bytes}};
    return locate(vocabulary, fold(hash), parts)->id;
}

int32_t s24i_vocabulary_id_of(const s24i_vocabulary *vocabulary, const char *token, size_t bytes)
{
    return s24i_vocabulary_find(vocabulary, s24i_hash(S24I_HASH_SEED, token, bytes), "", 0, token,
                                bytes);
}

int32_t s24i_vocabulary_id(const s24i_vocabulary *vocabulary, const char *token)
{
    return s24i_vocabulary_id_of(vocabulary, token, strlen(token));
}
