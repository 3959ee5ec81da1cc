// SPDX-License-Identifier: Apache-2.0
/*
 * Learns masks (Fang et al., "MaskLLM", 2024): each group of four has a logit for each of the six
 * patterns. A step draws one by Gumbel's noise and runs with it; its gradient is that of the soft
 * choice (straight-through). Weights are frozen; at the end the likeliest pattern stays.
 */
#include <math.h>
#include <string.h>

#include "train/run.h"

enum { KEPT_A_PATTERN = 2 };
static const uint8_t patterns[S24I_PATTERNS][KEPT_A_PATTERN] = {{0, 1}, {0, 2}, {0, 3},
                                                                {1, 2}, {1, 3}, {2, 3}};
/* The logits' deviation at the start, which the scale makes a few. */
static const double DEVIATION = 0.01;

static double uniform(uint32_t word)
{
    return ((double)word + 0.5) / 4294967296.0;
}

/* Words of chance for a group: eight. */
static void group_words(uint32_t words[8], uint64_t seed, uint64_t place, int64_t group)
{
    const uint64_t at = place << 40 | (uint64_t)group << 1;
    s24_random(words, seed, at);
    s24_random(words + 4, seed, at + 1);
}

void s24i_patterns_begin(const s24i_optimiser *o, float *logits, const uint8_t *keep, int64_t count,
                         int64_t place)
{
    for (int64_t g = 0; g < count / 4; g++) {
        uint32_t words[8];
        group_words(words, ~o->seed, (uint64_t)place, g);
        for (int p = 0; p < S24I_PATTERNS; p++) {
            const int alike = keep[4 * g + patterns[p][0]] + keep[4 * g + patterns[p][1]] - 1;
            const double u = uniform(words[p]), logistic = log(u / (1 - u)) / 1.8137993642342178;
            logits[S24I_PATTERNS * g + p] =
                (float)(DEVIATION * (logistic + o->numbers.prior * alike));
        }
    }
}

static double between(double first, double last, double progress)
{
    return first + (last - first) * progress;
}

s24i_pattern_draw s24i_patterns_draw(const s24i_optimiser *o, const s24i_look *look, int64_t place)
{
    const s24i_numbers *n = &o->numbers;
    const double progress = look->moment.progress;
    const uint64_t step = (uint64_t)(look->moment.step + 1);
    if (look->settles) return (s24i_pattern_draw){.place = (uint64_t)place};
    return (s24i_pattern_draw){.seed = o->seed ^ step * UINT64_C(0x9e3779b97f4a7c15),
                               .place = (uint64_t)place,
                               .scale = between(n->scale, n->scale_end, progress),
                               .temperature = between(n->temperature, n->temperature_end, progress),
                               .norm = n->norm};
}

/* The soft choice of a group. */
static void soft_choice(double soft[S24I_PATTERNS], const s24i_pattern_draw *draw,
                        const float *logits, int64_t group)
{
    double most = -INFINITY, sum = 0;
    uint32_t words[8];
    group_words(words, draw->seed, draw->place, group);
    for (int p = 0; p < S24I_PATTERNS; p++) {
        const double noise = -log(-log(uniform(words[p])));
        soft[p] = (draw->scale * (double)logits[p] + noise) / draw->temperature;
        most = fmax(most, soft[p]);
    }
    for (int p = 0; p < S24I_PATTERNS; p++)
        sum += soft[p] = exp(soft[p] - most);
    for (int p = 0; p < S24I_PATTERNS; p++)
        soft[p] /= sum;
}

void s24i_patterns_keep(uint8_t *keep, const s24i_pattern_draw *draw, const float *logits,
                        int64_t count)
{
    memset(keep, 0, (size_t)count);
    for (int64_t g = 0; g < count / 4; g++) {
        const float *of = logits + S24I_PATTERNS * g;
        double soft[S24I_PATTERNS];
        int best = 0;
        if (draw->temperature > 0)
            soft_choice(soft, draw, of, g);
        else
            for (int p = 0; p < S24I_PATTERNS; p++)
                soft[p] = (double)of[p];
        for (int p = 1; p < S24I_PATTERNS; p++)
            if (soft[p] > soft[best]) best = p;
        keep[4 * g + patterns[best][0]] = keep[4 * g + patterns[best][1]] = 1;
    }
}

void s24i_patterns_back(const s24i_extra_place *at)
{
    const s24i_pattern_draw *draw = &at->draw;
    for (int64_t i = 0; i < at->rows * at->cols / 4; i++) {
        const float *g = at->g + 4 * i, *w = at->w + 4 * i;
        double soft[S24I_PATTERNS], slope[S24I_PATTERNS], mean = 0;
        soft_choice(soft, draw, at->extra + S24I_PATTERNS * i, i);
        for (int p = 0; p < S24I_PATTERNS; p++) {
            slope[p] = 0;
            for (int k = 0; k < KEPT_A_PATTERN; k++) {
                const double at_k = (double)w[patterns[p][k]];
                slope[p] += (double)g[patterns[p][k]] * at_k - draw->norm * at_k * at_k;
            }
            mean += soft[p] * slope[p];
        }
        for (int p = 0; p < S24I_PATTERNS; p++)
            at->gradients[S24I_PATTERNS * i + p] =
                (float)(draw->scale / draw->temperature * soft[p] * (slope[p] - mean));
    }
}
