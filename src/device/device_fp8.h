// SPDX-License-Identifier: Apache-2.0
/* Matrices in 8 bits for products of training: one scale for all of a matrix, a power of two, so
   that it rounds nothing. */
#ifndef S24_DEVICE_DEVICE_FP8_H
#define S24_DEVICE_DEVICE_FP8_H

#include <stdint.h>

#include "base/everywhere.h"

/* The e of the 2^e that elements are multiplied by before they are rounded: the largest that leaves
   a matrix in range. `most` has the bits of its largest magnitude; the ranges of e4m3, 448, and of
   e5m2, 57344, are 1.75 times a power of two both. 0 where all is 0 or something not finite. */
S24I_BOTH int s24i_fp8_exponent(uint32_t most, int is_e5m2)
{
    const int beyond = (most & 0x7fffffu) > 0x600000u;
    const int e = (is_e5m2 ? 15 : 8) + 127 - (int)(most >> 23) - beyond;
    if (most == 0 || most >= 0x7f800000u) return 0;
    return e > 126 ? 126 : e;
}

/* 2^e, of e from −126 to 127. */
S24I_BOTH float s24i_fp8_power(int e)
{
    union {
        uint32_t bits;
        float value;
    } power = {(uint32_t)(e + 127) << 23};
    return power.value;
}

#endif
