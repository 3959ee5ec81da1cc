// SPDX-License-Identifier: Apache-2.0
/* The hash by which runs know their own: what decides them, one piece after another. Not of what
   must withstand an adversary. */
#ifndef S24_BASE_HASH_H
#define S24_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t s24i_hash(uint64_t hash, const void *data, size_t bytes)
{
    const char *at = (const char *)data;
    for (size_t i = 0; i < bytes; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

#endif
