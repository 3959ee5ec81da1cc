// SPDX-License-Identifier: Apache-2.0
#include "nn/dropout.h"

#include "sparse24/sparse24.h"

void s24i_dropout_row(float *x, int64_t n, const s24i_dropout *drop, int64_t row)
{
    const float keep = 1.0f / (1.0f - drop->rate);
    const uint32_t limit = (uint32_t)((double)drop->rate * 4294967296.0);
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) s24_random(words, drop->seed, (uint64_t)row << 20 | (uint64_t)(i / 4));
        x[i] = words[i % 4] < limit ? 0.0f : x[i] * keep;
    }
}
