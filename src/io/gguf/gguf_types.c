// SPDX-License-Identifier: Apache-2.0
/*
 * Elements of GGUF's tensors as f32: floats as they are, and blocks of a row that share a scale,
 * 32 elements each, or 256 in parts with scales of their own (K-quants). A block's element is exact
 * in f32 but for the rounding of scale · integer + offset.
 */
#include <math.h>
#include <string.h>

#include "io/gguf/gguf.h"

enum {
    BLOCK = 32,
    HALF = BLOCK / 2,
    LARGE = 256,  /* elements of a block of K-quants */
    TOGETHER = 64 /* blocks whose scales are converted at once */
};

/* 4 bits each: the first half of a block in the low ones. */
static void take_q4_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)((bits[i] & 15) - 8) * reals[0];
        out[HALF + i] = (float)((bits[i] >> 4) - 8) * reals[0];
    }
}

static void take_q4_1(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)(bits[i] & 15) * reals[0] + reals[1];
        out[HALF + i] = (float)(bits[i] >> 4) * reals[0] + reals[1];
    }
}

/* 5 bits each: the high one of element i is bit i of the first four bytes. */
static int five_bits(const uint8_t *bits, int i)
{
    const uint8_t byte = bits[4 + i % HALF];
    return (i < HALF ? byte & 15 : byte >> 4) | (bits[i / 8] >> i % 8 & 1) << 4;
}

static void take_q5_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)(five_bits(bits, i) - 16) * reals[0];
}

static void take_q5_1(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)five_bits(bits, i) * reals[0] + reals[1];
}

/* 4 bits each, of which each stands for one of sixteen numbers. */
static void take_numbers(float *out, const uint8_t *bits, const int8_t numbers[16], float scale)
{
    for (int i = 0; i < HALF; i++) {
        out[i] = (float)numbers[bits[i] & 15] * scale;
        out[HALF + i] = (float)numbers[bits[i] >> 4] * scale;
    }
}

static const int8_t not_linear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static void take_iq4_nl(float *out, const uint8_t *bits, const float *reals)
{
    take_numbers(out, bits, not_linear, reals[0]);
}

/* Floats of 4 bits, E2M1, twice as large as they are, after the power of two of the block. */
static void take_mxfp4(float *out, const uint8_t *bits, const float *reals)
{
    static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    (void)reals;
    take_numbers(out, bits + 1, doubled, ldexpf(1, bits[0] - 128));
}

static void take_q8_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < BLOCK; i++)
        out[i] = (float)(int8_t)bits[i] * reals[0];
}

/* Scale and minimum, 6 bits each, of part `i` of the 8 of a block: the first four's lie in whole
   bytes, whose two high bits are those of the last four's. */
static void take_parts(float part[2], const uint8_t *six, int i, const float *reals)
{
    const uint8_t *four = six + 4 + i;
    const int scale = i < 4 ? six[i] & 63 : (four[0] & 15) | six[i - 4] >> 6 << 4;
    const int minimum = i < 4 ? four[0] & 63 : four[0] >> 4 | six[i] >> 6 << 4;
    part[0] = reals[0] * (float)scale;
    part[1] = reals[1] * (float)minimum;
}

/* Eight parts of 32, two in the low and high halves of the same bytes; `fifth` has a byte for each
   place in a part, of whose bits each is one part's: NULL for 4 bits. */
static void take_eight_parts(float *out, const uint8_t *six, const uint8_t *fifth,
                             const uint8_t *fours, const float *reals)
{
    for (int i = 0; i < LARGE / BLOCK; i++, out += BLOCK) {
        float part[2];
        take_parts(part, six, i, reals);
        for (int j = 0; j < BLOCK; j++) {
            const int low = fours[i / 2 * BLOCK + j] >> 4 * (i % 2) & 15;
            const int high = fifth ? (fifth[j] >> i & 1) * 16 : 0;
            out[j] = part[0] * (float)(low + high) - part[1];
        }
    }
}

static void take_q4_k(float *out, const uint8_t *bits, const float *reals)
{
    take_eight_parts(out, bits, NULL, bits + 12, reals);
}

static void take_q5_k(float *out, const uint8_t *bits, const float *reals)
{
    take_eight_parts(out, bits, bits + 12, bits + 12 + BLOCK, reals);
}

/* Sixteen parts of 16 with scales of 8 bits. Of each half of the block, quarter q's low bits are in
   64 bytes, those of quarters 0 and 1 below those of 2 and 3, and its high ones in 32, at 2q. */
static void take_q6_k(float *out, const uint8_t *bits, const float *reals)
{
    const int8_t *scales = (const int8_t *)bits + 192;
    for (int i = 0; i < LARGE; i++) {
        const int half = i / 128, quarter = i / BLOCK % 4, j = i % BLOCK;
        const int low = bits[64 * half + 32 * (quarter % 2) + j] >> quarter / 2 * 4 & 15;
        const int high = bits[128 + 32 * half + j] >> 2 * quarter & 3;
        out[i] = reals[0] * (float)scales[i / 16] * (float)(low + 16 * high - 32);
    }
}

/* Low two bits of an element: of each half of a block 32 bytes, in which quarter q's are at 2q. */
static int two_bits(const uint8_t *bits, int i)
{
    return bits[BLOCK * (i / 128) + i % BLOCK] >> 2 * (i / BLOCK % 4) & 3;
}

/* Sixteen parts of 16, each with a scale and a minimum of 4 bits in a byte. */
static void take_q2_k(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < LARGE; i++) {
        const uint8_t part = bits[i / 16];
        const float scale = reals[0] * (float)(part & 15), minimum = reals[1] * (float)(part >> 4);
        out[i] = scale * (float)two_bits(bits + 16, i) - minimum;
    }
}

/* Sixteen parts of 16 with scales of 6 bits: the low four of parts 0 to 7 in low halves of eight
   bytes and of 8 to 15 in the high ones, the high two of parts i, 4 + i … in byte 8 + i. An
   element's third bit is bit i/32 of its place's byte, and takes 4 off where it is 0. */
static void take_q3_k(float *out, const uint8_t *bits, const float *reals)
{
    const uint8_t *lows = bits + BLOCK, *six = lows + 64;
    for (int i = 0; i < LARGE; i++) {
        const int p = i / 16, high = six[8 + p % 4] >> 2 * (p / 4) & 3;
        const int scale = ((p < 8 ? six[p] & 15 : six[p - 8] >> 4) | high << 4) - 32;
        const int third = bits[i % BLOCK] >> i / BLOCK & 1;
        out[i] = reals[0] * (float)scale * (float)(two_bits(lows, i) - (third ? 0 : 4));
    }
}

/* Eight parts of 32 as IQ4_NL, with scales of 6 bits: the high two of all of them in two bytes, the
   low four in the four bytes that follow. */
static void take_iq4_xs(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < LARGE / BLOCK; i++) {
        const int high = bits[i / 4] >> 2 * (i % 4) & 3, low = bits[2 + i / 2] >> 4 * (i % 2) & 15;
        take_numbers(out + BLOCK * i, bits + 6 + HALF * i, not_linear,
                     reals[0] * (float)((low | high << 4) - 32));
    }
}

/* −1, 0 or 1, in two bits. */
static void take_tq2_0(float *out, const uint8_t *bits, const float *reals)
{
    for (int i = 0; i < LARGE; i++)
        out[i] = (float)(two_bits(bits, i) - 1) * reals[0];
}

/* The same, five in a byte: digits of a fraction to the base of three, whose first is the largest.
   32 bytes have the first ones of 160 elements, 16 those of the next 80, and 4 have four each. */
static void take_tq1_0(float *out, const uint8_t *bits, const float *reals)
{
    static const struct {
        int bytes, digits;
    } runs[] = {{32, 5}, {16, 5}, {4, 4}};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        for (int d = 0, power = 1; d < runs[r].digits; d++, power *= 3)
            for (int j = 0; j < runs[r].bytes; j++)
                *out++ = (float)((bits[j] * power & 255) * 3 / 256 - 1) * reals[0];
        bits += runs[r].bytes;
    }
}

typedef struct layout {
    uint32_t number;
    const char *name;
    s24_dtype dtype; /* NONE: blocks */
    int64_t elements;
    size_t bytes, reals, reals_at;
    void (*take)(float *out, const uint8_t *bits, const float *reals);
} layout;

#define FLOATS(number, name, dtype) {number, name, dtype, 1, 0, 0, 0, NULL},
#define BLOCKS(number, name, elements, bytes, reals, at, take)                                     \
    {number, name, S24_DTYPE_NONE, elements, bytes, reals, at, take},
#define OTHER(number, name) {number, name, S24_DTYPE_NONE, 1, 0, 0, 0, NULL},
static const layout types[] = {
#include "io/gguf/gguf_types.def"
};
#undef FLOATS
#undef BLOCKS
#undef OTHER
enum { TYPES = (int)(sizeof types / sizeof *types) };

int s24i_gguf_type(uint32_t number)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].number == number) return i;
    return -1;
}

int s24i_gguf_type_is_read(int type)
{
    return types[type].dtype != S24_DTYPE_NONE || types[type].take;
}

const char *s24i_gguf_type_name(int type)
{
    return types[type].name;
}

const char *s24i_gguf_type_list(void)
{
#define FLOATS(number, name, dtype)                            " " name
#define BLOCKS(number, name, elements, bytes, reals, at, take) " " name
#define OTHER(number, name)
    static const char list[] =
#include "io/gguf/gguf_types.def"
        "";
#undef FLOATS
#undef BLOCKS
#undef OTHER
    return list + 1;
}

s24_dtype s24i_gguf_type_dtype(int type)
{
    return types[type].dtype;
}

int64_t s24i_gguf_type_elements(int type)
{
    return types[type].elements;
}

size_t s24i_gguf_row_bytes(int type, int64_t elements)
{
    const layout *t = &types[type];
    if (t->dtype != S24_DTYPE_NONE) return (size_t)elements * s24_dtype_bytes(t->dtype);
    return elements % t->elements ? 0 : (size_t)(elements / t->elements) * t->bytes;
}

/* Up to TOGETHER blocks. */
static s24_status take_blocks(float *out, const layout *t, const uint8_t *blocks, int64_t count)
{
    uint16_t halves[2 * TOGETHER];
    float reals[2 * TOGETHER];
    const size_t bits = t->reals_at ? 0 : 2 * t->reals;
    for (int64_t i = 0; i < count; i++)
        memcpy(halves + (size_t)i * t->reals, blocks + (size_t)i * t->bytes + t->reals_at,
               2 * t->reals);
    TRY(s24_convert(reals, S24_F32, halves, S24_F16, count * (int64_t)t->reals));
    for (int64_t i = 0; i < count; i++)
        t->take(out + i * t->elements, blocks + (size_t)i * t->bytes + bits,
                reals + (size_t)i * t->reals);
    return S24_OK;
}

s24_status s24i_gguf_row(float *out, int type, const uint8_t *row, int64_t elements)
{
    const layout *t = &types[type];
    const int64_t blocks = elements / t->elements;
    if (t->dtype != S24_DTYPE_NONE) return s24_convert(out, S24_F32, row, t->dtype, elements);
    for (int64_t i = 0; i < blocks; i += TOGETHER)
        TRY(take_blocks(out + i * t->elements, t, row + (size_t)i * t->bytes,
                        s24i_min(TOGETHER, blocks - i)));
    return S24_OK;
}
