// SPDX-License-Identifier: Apache-2.0
/*
 * Scalar conversions between f32 and the narrow dtypes. Widening is exact; narrowing rounds to
 * nearest, ties to even, through subnormals, and turns every NaN into a quiet one.
 *
 * A narrow float is sign | exponent | mantissa with the given widths and bias; formats differ only
 * in those and in what stands at the top of the range (f16, bf16, e5m2: Inf; e4m3: NaN). Rows of
 * them are converted here too, so that the compiler makes vectors of the loops.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The magnitude of a finite or infinite f32 in a format of that many mantissa bits. A result
   beyond the format's range keeps counting up, so that the caller sees it as too large. */
static uint32_t narrow(uint32_t magnitude, int mantissa_bits, int bias)
{
    int exponent = (int)(magnitude >> 23) - 127 + bias;
    uint32_t fraction = magnitude & 0x7fffffu;
    int shift = 23 - mantissa_bits;
    uint32_t wide;
    if (exponent >= 1) {
        wide = ((uint32_t)exponent << 23) | fraction;
    } else {
        /* Subnormal there: the leading one becomes visible and moves right. An f32 subnormal has
           no leading one, but is so small that it ends as zero all the same. */
        wide = fraction | 0x800000u;
        shift += 1 - exponent;
        if (shift > 25) return 0;
    }
    wide += ((1u << (shift - 1)) - 1) + ((wide >> shift) & 1u);
    return wide >> shift;
}

static float widen(uint32_t magnitude, int mantissa_bits, int bias)
{
    uint32_t exponent = magnitude >> mantissa_bits;
    uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1);
    if (exponent == 0) /* m · 2^(1 - bias - mantissa_bits), a power of two that f32 holds */
        return (float)fraction * float_of((uint32_t)(128 - bias - mantissa_bits) << 23);
    return float_of(((exponent + 127u - (uint32_t)bias) << 23) | fraction << (23 - mantissa_bits));
}

float s24i_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    return float_of(sign | bits_of(widen(magnitude, 10, 15)));
}

uint16_t s24i_f32_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    uint32_t code = narrow(magnitude, 10, 15);
    return (uint16_t)(sign | (code > 0x7c00u ? 0x7c00u : code));
}

uint16_t s24i_f32_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float s24i_e4m3_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
    uint32_t magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return float_of(sign | 0x7fc00000u);
    return float_of(sign | bits_of(widen(magnitude, 3, 7)));
}

uint8_t s24i_f32_to_e4m3(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    uint32_t code = narrow(magnitude, 3, 7);
    return (uint8_t)(sign | (code > 0x7fu ? 0x7fu : code));
}

float s24i_e5m2_to_f32(uint8_t bits)
{
    return s24i_f16_to_f32((uint16_t)(bits << 8)); /* e5m2 is the upper half of f16 */
}

uint8_t s24i_f32_to_e5m2(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    uint32_t code = narrow(magnitude, 2, 15);
    return (uint8_t)(sign | (code > 0x7cu ? 0x7cu : code));
}

int8_t s24i_f32_to_i8(float value)
{
    if (!(value > -128.0f)) return isnan(value) ? 0 : -128;
    if (value > 127.0f) return 127;
    return (int8_t)nearbyintf(value);
}

void s24i_widen(float *dst, const void *src, s24_dtype dtype, int64_t count)
{
    const uint16_t *halves = src;
    const uint8_t *bytes = src;
    const int8_t *integers = src;
    switch (dtype) {
    case S24_F32:
        memcpy(dst, src, (size_t)count * sizeof *dst);
        break;
    case S24_F16:
        for (int64_t i = 0; i < count; i++)
            dst[i] = s24i_f16_to_f32(halves[i]);
        break;
    case S24_BF16:
        for (int64_t i = 0; i < count; i++)
            dst[i] = s24i_bf16_to_f32(halves[i]);
        break;
    case S24_I8:
        for (int64_t i = 0; i < count; i++)
            dst[i] = (float)integers[i];
        break;
    case S24_E4M3:
        for (int64_t i = 0; i < count; i++)
            dst[i] = s24i_e4m3_to_f32(bytes[i]);
        break;
    case S24_E5M2:
        for (int64_t i = 0; i < count; i++)
            dst[i] = s24i_e5m2_to_f32(bytes[i]);
        break;
    default:
        break;
    }
}

void s24i_narrow(void *dst, s24_dtype dtype, const float *src, int64_t count)
{
    uint16_t *halves = dst;
    uint8_t *bytes = dst;
    int8_t *integers = dst;
    switch (dtype) {
    case S24_F32:
        memcpy(dst, src, (size_t)count * sizeof *src);
        break;
    case S24_F16:
        for (int64_t i = 0; i < count; i++)
            halves[i] = s24i_f32_to_f16(src[i]);
        break;
    case S24_BF16:
        for (int64_t i = 0; i < count; i++)
            halves[i] = s24i_f32_to_bf16(src[i]);
        break;
    case S24_I8:
        for (int64_t i = 0; i < count; i++)
            integers[i] = s24i_f32_to_i8(src[i]);
        break;
    case S24_E4M3:
        for (int64_t i = 0; i < count; i++)
            bytes[i] = s24i_f32_to_e4m3(src[i]);
        break;
    case S24_E5M2:
        for (int64_t i = 0; i < count; i++)
            bytes[i] = s24i_f32_to_e5m2(src[i]);
        break;
    default:
        break;
    }
}
