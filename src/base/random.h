// SPDX-License-Identifier: Apache-2.0
/* Philox 4x32-10, the inside of s24_random. The constants and the round are those of the paper; tests
   hold its published answers. */
#ifndef S24_RANDOM_H
#define S24_RANDOM_H

#include <stdint.h>

#include "base/everywhere.h"

S24I_CODE void s24i_philox(uint32_t out[4], uint64_t seed, uint64_t counter)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c[0];
        uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

/* A word of it as a float in (0, 1]. */
S24I_CODE float s24i_uniform(uint32_t word)
{
    return ((float)(word >> 8) + 1.0f) * (1.0f / 16777216.0f);
}

#endif
