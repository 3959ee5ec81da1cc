// SPDX-License-Identifier: Apache-2.0
/*
 * What every product with int8 activations shares, 2:4, sparse or dense: how a token's scale comes
 * from its largest magnitude. The rest of the rule is a multiplication by `inverse` and a rounding
 * to the nearest even integer, so all products see the same integers, and their sums are exact.
 */
#ifndef S24_BASE_TOKEN_SCALE_H
#define S24_BASE_TOKEN_SCALE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Below this a token is nothing: 127 divided by it would leave f32's range. */
#define S24I_LEAST_TOKEN 0x1p-119f

/* `bits` is the largest magnitude of the token, as bits of f32, which order as magnitudes do and
   place every Inf and NaN above the finite. Returns the scale: NaN for a token that is not
   finite. */
static inline float s24i_token_scale(uint32_t bits, float *inverse)
{
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    *inverse = 0;
    if (bits >= 0x7f800000u) return NAN;
    if (largest < S24I_LEAST_TOKEN) return 0;
    *inverse = 127 / largest;
    return largest / 127;
}

#endif
