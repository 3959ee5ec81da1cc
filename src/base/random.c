// SPDX-License-Identifier: Apache-2.0
/* Philox 4x32-10. The constants and the round are those of the paper; tests hold its published
   answers. */
#include "base/base.h"

void s24_random(uint32_t out[4], uint64_t seed, uint64_t counter)
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
