// SPDX-License-Identifier: Apache-2.0
/* Rotary positions: halves of a head are turned against each other by angles that grow with the
   position (Su et al., "RoFormer", 2021), as transformers lays them out for Llama. */
#ifndef S24_MODEL_ROTARY_H
#define S24_MODEL_ROTARY_H

#include <math.h>
#include <stdint.h>

/* angles[position] = cos and sin of position·theta^(−2i/d), i below d/2. */
static inline void s24i_rotary_fill(float *angles, float theta, int64_t d, int64_t positions)
{
    const int64_t half = d / 2;
    for (int64_t p = 0; p < positions; p++)
        for (int64_t i = 0; i < half; i++) {
            const float turn = 1.0f / powf(theta, 2.0f * (float)i / (float)d);
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
