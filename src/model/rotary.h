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
   them by share (Llama 3.1). */
typedef struct s24i_rope {
    float theta, factor; /* factor 0: none */
    float original, low, high;
} s24i_rope;

/* The angle that position 1 turns pair i of d/2 by. */
static inline float s24i_rope_turn(const s24i_rope *rope, int64_t i, int64_t d)
{
    const float turn = 1.0f / powf(rope->theta, 2.0f * (float)i / (float)d);
    if (rope->factor == 0.0f) return turn;
    const float slow = turn / rope->factor;
    if (rope->original == 0.0f) return slow;
    const float turns = rope->original * turn / 6.283185307f;
    const float share = (turns - rope->low) / (rope->high - rope->low);
    if (share <= 0.0f) return slow;
    return share >= 1.0f ? turn : (1.0f - share) * slow + share * turn;
}

/* angles[position] = cos and sin of position times the turn of pair i, i below d/2. */
static inline void s24i_rotary_fill(float *angles, const s24i_rope *rope, int64_t d,
                                    int64_t positions)
{
    const int64_t half = d / 2;
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < half; i++) {
            const float turn = s24i_rope_turn(rope, i, d);
            angles[p * d + i] = cosf((float)p * turn);
            angles[p * d + half + i] = sinf((float)p * turn);
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

#endif
