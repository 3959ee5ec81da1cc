// SPDX-License-Identifier: Apache-2.0
/* The six patterns of a group of four, drawn by Gumbel's noise: src/train/mask_patterns.c in the
   same numbers. */
#ifndef S24_CUDA_TRAIN_TRAIN_PATTERNS_CUH
#define S24_CUDA_TRAIN_TRAIN_PATTERNS_CUH

#include "base/random.h"
#include "device/device_train.h"

enum { PATTERNS = 6 };

/* Pattern p's two places. */
static __device__ inline int pattern_place(int p, int which)
{
    return (which ? 0x332321 : 0x211000) >> 4 * p & 15;
}

/* The logits of a group's soft choice, before its exponentials. */
static __device__ inline void pattern_logits(double soft[PATTERNS],
                                             const s24_device_train_chance &chance,
                                             const float *logits, int64_t group)
{
    const uint64_t at = chance.place << 40 | (uint64_t)group << 1;
    uint32_t words[8];
    s24i_philox(words, chance.seed, at);
    s24i_philox(words + 4, chance.seed, at + 1);
    for (int p = 0; p < PATTERNS; p++) {
        const double noise = -log(-log(((double)words[p] + 0.5) / 4294967296.0));
        soft[p] = (chance.scale * (double)logits[p] + noise) / chance.temperature;
    }
}

/* The bits of the pattern that is drawn, or of the likeliest. */
static __device__ inline unsigned pattern_drawn(const s24_device_train_chance &chance,
                                                const float *logits, int64_t group)
{
    double soft[PATTERNS];
    int best = 0;
    if (chance.temperature > 0)
        pattern_logits(soft, chance, logits, group);
    else
        for (int p = 0; p < PATTERNS; p++)
            soft[p] = (double)logits[p];
    for (int p = 1; p < PATTERNS; p++)
        if (soft[p] > soft[best]) best = p;
    return 1u << pattern_place(best, 0) | 1u << pattern_place(best, 1);
}

/* Gradients of a group's logits, from those of what ran, g, and the weights w. */
static __device__ inline void pattern_slopes(float *slopes, const s24_device_train_chance &chance,
                                             const float *logits, const float g[4],
                                             const float w[4], int64_t group)
{
    double soft[PATTERNS], slope[PATTERNS], most, sum = 0, mean = 0;
    pattern_logits(soft, chance, logits, group);
    most = soft[0];
    for (int p = 1; p < PATTERNS; p++)
        most = fmax(most, soft[p]);
    for (int p = 0; p < PATTERNS; p++)
        sum += soft[p] = exp(soft[p] - most);
    for (int p = 0; p < PATTERNS; p++) {
        soft[p] /= sum;
        slope[p] = 0;
        for (int k = 0; k < 2; k++) {
            const double at = (double)w[pattern_place(p, k)];
            slope[p] += (double)g[pattern_place(p, k)] * at - chance.norm * at * at;
        }
        mean += soft[p] * slope[p];
    }
    for (int p = 0; p < PATTERNS; p++)
        slopes[p] = (float)(chance.scale / chance.temperature * soft[p] * (slope[p] - mean));
}

#endif
