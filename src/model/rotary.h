// SPDX-License-Identifier: Apache-2.0
/* Rotary positions: halves of a head are turned against each other by angles that grow with the
   position (Su et al., "RoFormer", 2021), as transformers lays them out for Llama. */
#ifndef S24_MODEL_ROTARY_H
#define S24_MODEL_ROTARY_H

#include <math.h>
#include <stdint.h>

/* How fast angles grow: theta^(−2i/d) a position, divided by `factor` so that texts may be longer
   than those of training. `original` 0: all of them (linear), else only those that turn seldom
   while the text has that many positions: below `low` turns all of it, above `high` none, between
   them by share: of turns (Llama 3.1), or of pairs (YaRN, Peng et al., 2023). Or each pair has a
   divisor of its own (LongRoPE, Ding et al., 2024). */
enum { S24I_ROPE_DIVISORS = 128 };
typedef struct s24i_rope {
    float theta, factor; /* factor 0: none */
    float original, low, high;
    int by_base;    /* while it is read: `factor` is static NTK scaling's */
    float alpha;    /* likewise: of Hunyuan's base; 0: none */
    int by_pairs;   /* YaRN; */
    int between;    /* and where its range begins and ends is not rounded to pairs */
    int bounded;    /* texts are no longer than `original` */
    float louder;   /* what cosines and sines are multiplied by; 0: nothing */
    float loud_all; /* YaRN's share of it that multiplies all of a latent head; 0: nothing */
    /* Of an image of side · side patches, after so many tokens that are not turned: a head's first
       quarter of pairs turns by how far down a patch's middle lies, from −1 to 1, the second by how
       far right, both by 2π times theta^(−4i/d). */
    int64_t side, before;
    int divided; /* how many pairs have a divisor, all or none */
    float divisors[S24I_ROPE_DIVISORS];
} s24i_rope;

/* The pair of d/2 that turns so many times in a text of the original length. */
static inline float s24i_rope_pair(const s24i_rope *rope, float turns, int64_t d)
{
    return (float)d * logf(rope->original / (turns * 6.283185307f)) / (2.0f * logf(rope->theta));
}

/* The share of pair i's turn that stays as it was, by its place between the two pairs. */
static inline float s24i_rope_kept(const s24i_rope *rope, int64_t i, int64_t d)
{
    float first = s24i_rope_pair(rope, rope->high, d), last = s24i_rope_pair(rope, rope->low, d);
    if (!rope->between) {
        first = floorf(first);
        last = ceilf(last);
    }
    first = fmaxf(first, 0.0f);
    last = fminf(last, (float)(d - 1));
    if (first == last) last += 0.001f;
    return 1.0f - fminf(fmaxf(((float)i - first) / (last - first), 0.0f), 1.0f);
}

/* The angle that position 1 turns pair i of d/2 by. */
static inline float s24i_rope_turn(const s24i_rope *rope, int64_t i, int64_t d)
{
    const float power = powf(rope->theta, 2.0f * (float)i / (float)d), turn = 1.0f / power;
    if (rope->divided) return 1.0f / (rope->divisors[i] * power);
    if (rope->factor == 0.0f) return turn;
    const float slow = turn / rope->factor;
    if (rope->original == 0.0f) return slow;
    const float turns = rope->original * turn / 6.283185307f;
    const float share = rope->by_pairs ? s24i_rope_kept(rope, i, d)
                                       : (turns - rope->low) / (rope->high - rope->low);
    if (share <= 0.0f) return slow;
    return share >= 1.0f ? turn : (1.0f - share) * slow + share * turn;
}

/* The angle of pair i of d/2 at a position of an image. */
static inline float s24i_rope_patch(const s24i_rope *rope, int64_t position, int64_t i, int64_t d)
{
    const int64_t patch = position - rope->before, pairs = d / 4;
    const int64_t at = i < pairs ? patch / rope->side : patch % rope->side;
    if (patch < 0) return 0.0f;
    const float middle = 2.0f * (((float)at + 0.5f) / (float)rope->side) - 1.0f;
    const float power = powf(rope->theta, 4.0f * (float)(i % pairs) / (float)d);
    return 6.283185307f * middle * (1.0f / power);
}

/* angles[position] = cos and sin of position times the turn of pair i, i below d/2, times `louder`
   where there is one. */
static inline void s24i_rotary_fill(float *angles, const s24i_rope *rope, int64_t d,
                                    int64_t positions)
{
    const int64_t half = d / 2;
    const float times = rope->louder == 0.0f ? 1.0f : rope->louder;
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < half; i++) {
            const float angle =
                rope->side ? s24i_rope_patch(rope, p, i, d) : (float)p * s24i_rope_turn(rope, i, d);
            angles[p * d + i] = times * cosf(angle);
            angles[p * d + half + i] = times * sinf(angle);
        }
}

/* n elements a of a head's first half and b of its second. */
static inline void s24i_rotate(float *a, float *b, const float *cosine, const float *sine,
                               int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = a[i], y = b[i];
        a[i] = x * cosine[i] - y * sine[i];
        b[i] = y * cosine[i] + x * sine[i];
    }
}

/* The same of neighbours, n pairs of them. */
static inline void s24i_rotate_adjacent(float *pairs, const float *cosine, const float *sine,
                                        int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float x = pairs[2 * i], y = pairs[2 * i + 1];
        pairs[2 * i] = x * cosine[i] - y * sine[i];
        pairs[2 * i + 1] = y * cosine[i] + x * sine[i];
    }
}

#endif
