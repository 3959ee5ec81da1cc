// SPDX-License-Identifier: Apache-2.0
/*
 * What every row with int8 activations shares: how a token's scale comes from its largest
 * magnitude. The rest of the rule is a multiplication by `inverse` and a rounding to the nearest
 * even integer, so all rows see the same integers, and their sums are exact.
 */
#ifndef S24_KERNEL_LINEAR_I8_H
#define S24_KERNEL_LINEAR_I8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Below this a token is nothing: 127 divided by it would leave f32's range. */
#define I8_LEAST 0x1p-119f

/* `bits` is the largest magnitude of the token, as bits of f32, which order as magnitudes do and
   place every Inf and NaN above the finite. Returns the scale: NaN for a token that is not
   finite. */
static inline float i8_token_scale(uint32_t bits, float *inverse)
{
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    *inverse = 0;
    if (bits >= 0x7f800000u) return NAN;
    if (largest < I8_LEAST) return 0;
    *inverse = 127 / largest;
    return largest / 127;
}

#endif
