// SPDX-License-Identifier: Apache-2.0
/*
 * Elements of any dtype that can be 2:4, seen as bits: enough to ask whether one is zero or finite
 * and to move it unchanged. `bytes` is a constant wherever these are called, so that each loop is
 * compiled once an element size.
 */
#ifndef S24_FORMAT_ELEMENT_H
#define S24_FORMAT_ELEMENT_H

#include <string.h>

#include "format/format.h"

typedef struct s24i_element {
    size_t bytes;
    uint32_t magnitude; /* all bits but a float's sign */
    uint32_t nonfinite; /* magnitudes from here on are Inf or NaN */
} s24i_element;

static inline s24i_element s24i_element_of(s24_dtype dtype)
{
    switch (dtype) {
    case S24_F32:
        return (s24i_element){4, 0x7fffffffu, 0x7f800000u};
    case S24_F16:
        return (s24i_element){2, 0x7fffu, 0x7c00u};
    case S24_BF16:
        return (s24i_element){2, 0x7fffu, 0x7f80u};
    case S24_E4M3:
        return (s24i_element){1, 0x7fu, 0x7fu};
    case S24_E5M2:
        return (s24i_element){1, 0x7fu, 0x7cu};
    default:
        return (s24i_element){1, 0xffu, 0x100u}; /* i8 is always finite */
    }
}

static inline uint32_t s24i_element_bits(const void *data, size_t bytes, int64_t i)
{
    const char *at = (const char *)data + (size_t)i * bytes;
    if (bytes == 4) {
        uint32_t bits;
        memcpy(&bits, at, sizeof bits);
        return bits;
    }
    if (bytes == 2) {
        uint16_t bits;
        memcpy(&bits, at, sizeof bits);
        return bits;
    }
    return *(const uint8_t *)at;
}

static inline void s24i_element_put(void *data, size_t bytes, int64_t i, uint32_t bits)
{
    char *at = (char *)data + (size_t)i * bytes;
    if (bytes == 4) {
        memcpy(at, &bits, sizeof bits);
    } else if (bytes == 2) {
        uint16_t half = (uint16_t)bits;
        memcpy(at, &half, sizeof half);
    } else {
        *(uint8_t *)at = (uint8_t)bits;
    }
}

/* Bit i is set when element i of the group of four at src is not zero. */
static inline unsigned s24i_group_nonzeros(const void *src, size_t bytes, uint32_t magnitude)
{
    unsigned mask = 0;
    for (int i = 0; i < 4; i++)
        mask |= (unsigned)((s24i_element_bits(src, bytes, i) & magnitude) != 0) << i;
    return mask;
}

#endif
