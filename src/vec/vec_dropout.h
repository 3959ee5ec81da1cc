// SPDX-License-Identifier: Apache-2.0
/* Dropout by the place of an element. See vec_table.h. */

/* s24_random for LANES counters from `counter` on, side by side so that they become vectors. */
enum { LANES = 16 };
TARGET INLINE void random_words(uint32_t c[4][LANES], uint64_t seed, uint64_t counter)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int l = 0; l < LANES; l++) {
        c[0][l] = (uint32_t)(counter + (uint64_t)l);
        c[1][l] = (uint32_t)((counter + (uint64_t)l) >> 32);
        c[2][l] = c[3][l] = 0;
    }
    for (int round = 0; round < 10; round++, key0 += 0x9e3779b9u, key1 += 0xbb67ae85u)
        for (int l = 0; l < LANES; l++) {
            const uint64_t a = (uint64_t)0xd2511f53u * c[0][l], b = (uint64_t)0xcd9e8d57u * c[2][l];
            c[0][l] = (uint32_t)(b >> 32) ^ c[1][l] ^ key0;
            c[1][l] = (uint32_t)b;
            c[2][l] = (uint32_t)(a >> 32) ^ c[3][l] ^ key1;
            c[3][l] = (uint32_t)a;
        }
}

/* A block of 8·LANES elements takes 16 bits each: of word w its low halves, then its high ones. */
TARGET static void dropout(float *x, int64_t n, const s24i_dropout *drop, int64_t row)
{
    enum { BLOCK = 8 * LANES };
    const uint32_t limit = (uint32_t)(drop->rate * 65536.0f);
    const float keep = 65536.0f / (65536.0f - (float)limit);
    for (int64_t i = 0; i < n; i += BLOCK) {
        uint32_t words[4][LANES];
        float factors[BLOCK];
        random_words(words, drop->seed, (uint64_t)row << 20 | (uint64_t)(i / BLOCK * LANES));
        for (int w = 0; w < 4; w++)
            for (int l = 0; l < LANES; l++) {
                factors[2 * w * LANES + l] = (words[w][l] & 0xffff) < limit ? 0.0f : keep;
                factors[(2 * w + 1) * LANES + l] = words[w][l] >> 16 < limit ? 0.0f : keep;
            }
        for (int64_t e = 0; e < BLOCK && i + e < n; e++)
            x[i + e] *= factors[e];
    }
}
