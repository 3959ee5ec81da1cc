// SPDX-License-Identifier: Apache-2.0
/* Philox 4x32-10, the inside of s24_random. The constants and the round are those of the paper;
   tests hold its published answers. */
#ifndef S24_BASE_RANDOM_H
#define S24_BASE_RANDOM_H

#include <stdint.h>

#include "base/everywhere.h"

/* The keys of its rounds, two each. */
typedef struct s24i_philox_keys {
    uint32_t of[20];
} s24i_philox_keys;

S24I_BOTH s24i_philox_keys s24i_philox_keys_of(uint64_t seed)
{
    s24i_philox_keys keys;
    for (uint32_t round = 0; round < 10; round++) {
        keys.of[2 * round] = (uint32_t)seed + round * 0x9e3779b9u;
        keys.of[2 * round + 1] = (uint32_t)(seed >> 32) + round * 0xbb67ae85u;
    }
    return keys;
}

S24I_CODE void s24i_philox_keyed(uint32_t out[4], const s24i_philox_keys *keys, uint64_t counter)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0];
        uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ keys->of[2 * round];
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ keys->of[2 * round + 1];
        c[3] = (uint32_t)a;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

S24I_CODE void s24i_philox(uint32_t out[4], uint64_t seed, uint64_t counter)
{
    const s24i_philox_keys keys = s24i_philox_keys_of(seed);
    s24i_philox_keyed(out, &keys, counter);
}

/* A word of it as a float in (0, 1]. */
S24I_CODE float s24i_uniform(uint32_t word)
{
    return ((float)(word >> 8) + 1.0f) * (1.0f / 16777216.0f);
}

#endif
