// SPDX-License-Identifier: Apache-2.0
/*
 * Magnitude 2:4 selection, NEON, for elements of 4, 2 or 1 bytes.
 *
 * vld4 puts the four elements of each group into the same lane of four vectors, so that a group's
 * six comparisons are six instructions for as many groups as a vector has lanes, and nothing is
 * shuffled. What is beaten by two is dropped; the first and the last one kept are chosen by the
 * masks and stored interleaved by vst2. A step is 8 groups, whatever the element's size.
 *
 * The including file defines VALUE (bytes), ELEMENT (an unsigned integer type of that size) and for
 * a float dtype NO_SIGN, the bits of a magnitude, NONFINITE, the least one that is not finite, and
 * NANS, what every NaN counts as.
 */
#ifndef S24_KERNEL_CPU_ARM_SELECT_NEON_H
#define S24_KERNEL_CPU_ARM_SELECT_NEON_H

#include <string.h>

#include "kernel/cpu/arm/neon.h"

enum {
    STEP = 32,                 /* elements, 8 groups */
    PARTS = VALUE == 4 ? 2 : 1 /* vectors that hold one element of each of 8 groups */
};

#if VALUE == 4
typedef uint32x4_t vector;
typedef uint32x4x4_t columns;
typedef uint32x4x2_t pairs;
#define SPLAT(x)           vdupq_n_u32(x)
#define LOAD4(p)           vld4q_u32(p)
#define STORE2(p, v)       vst2q_u32(p, v)
#define AND(a, b)          vandq_u32(a, b)
#define XOR(a, b)          veorq_u32(a, b)
#define NOT(a)             vmvnq_u32(a)
#define MIN(a, b)          vminq_u32(a, b)
#define MAX(a, b)          vmaxq_u32(a, b)
#define AT_LEAST(a, b)     vcgeq_u32(a, b)
#define CHOOSE(mask, a, b) vbslq_u32(mask, a, b)
#define LARGEST(v)         vmaxvq_u32(v)
#define BYTES(p)           vmovn_u16(vcombine_u16(vmovn_u32((p)[0]), vmovn_u32((p)[1])))
#elif VALUE == 2
typedef uint16x8_t vector;
typedef uint16x8x4_t columns;
typedef uint16x8x2_t pairs;
#define SPLAT(x)           vdupq_n_u16(x)
#define LOAD4(p)           vld4q_u16(p)
#define STORE2(p, v)       vst2q_u16(p, v)
#define AND(a, b)          vandq_u16(a, b)
#define XOR(a, b)          veorq_u16(a, b)
#define NOT(a)             vmvnq_u16(a)
#define MIN(a, b)          vminq_u16(a, b)
#define MAX(a, b)          vmaxq_u16(a, b)
#define AT_LEAST(a, b)     vcgeq_u16(a, b)
#define CHOOSE(mask, a, b) vbslq_u16(mask, a, b)
#define LARGEST(v)         vmaxvq_u16(v)
#define BYTES(p)           vmovn_u16((p)[0])
#else
typedef uint8x8_t vector;
typedef uint8x8x4_t columns;
typedef uint8x8x2_t pairs;
#define SPLAT(x)           vdup_n_u8(x)
#define LOAD4(p)           vld4_u8(p)
#define STORE2(p, v)       vst2_u8(p, v)
#define AND(a, b)          vand_u8(a, b)
#define XOR(a, b)          veor_u8(a, b)
#define NOT(a)             vmvn_u8(a)
#define MIN(a, b)          vmin_u8(a, b)
#define MAX(a, b)          vmax_u8(a, b)
#define AT_LEAST(a, b)     vcge_u8(a, b)
#define CHOOSE(mask, a, b) vbsl_u8(mask, a, b)
#define LARGEST(v)         vmaxv_u8(v)
#define BYTES(p)           (p)[0]
#endif

#ifdef NANS
#define SIZE(v) MIN(AND(v, SPLAT(NO_SIGN)), SPLAT(NANS))
#else
#define SIZE(v)   vreinterpret_u8_s8(vabs_s8(vreinterpret_s8_u8(v)))
#define NONFINITE 0xff /* no integer is: |-128| is 128 */
#endif

/* Two or three of them. */
NEON_INLINE vector most(vector a, vector b, vector c)
{
    return CHOOSE(XOR(a, b), c, a);
}

/* Per lane, of the group's elements: all ones where it is kept, and the largest magnitude so
   far. */
NEON_INLINE void keep(vector kept[4], const columns *w, vector *largest)
{
    vector size[4];
    for (int i = 0; i < 4; i++) {
        size[i] = SIZE(w->val[i]);
        *largest = MAX(*largest, size[i]);
    }
    /* The higher column wins a tie. */
    const vector a = AT_LEAST(size[1], size[0]), b = AT_LEAST(size[2], size[0]);
    const vector c = AT_LEAST(size[3], size[0]), d = AT_LEAST(size[2], size[1]);
    const vector e = AT_LEAST(size[3], size[1]), f = AT_LEAST(size[3], size[2]);
    kept[0] = NOT(most(a, b, c));
    kept[1] = most(a, NOT(d), NOT(e));
    kept[2] = most(b, d, NOT(f));
    kept[3] = most(c, e, f);
}

/* 32 elements to 32 bytes of mask. */
NEON_INLINE void mask_step(uint8_t *out, const ELEMENT *w)
{
    vector kept[PARTS][4], largest = SPLAT(0);
    uint8x8x4_t bytes;
    for (int p = 0; p < PARTS; p++) {
        const columns v = LOAD4(w + p * STEP / PARTS);
        keep(kept[p], &v, &largest);
    }
    for (int i = 0; i < 4; i++) {
        const vector column[2] = {kept[0][i], kept[PARTS - 1][i]};
        bytes.val[i] = vand_u8(BYTES(column), vdup_n_u8(1));
    }
    vst4_u8(out, bytes);
}

/* 32 elements to 16 values and 4 bytes of codes. */
NEON_INLINE void pack_step(ELEMENT *values, uint8_t *codes, const ELEMENT *w, vector *largest)
{
    vector code[2] = {SPLAT(0), SPLAT(0)};
    for (int p = 0; p < PARTS; p++) {
        const columns v = LOAD4(w + p * STEP / PARTS);
        vector kept[4];
        pairs chosen;
        keep(kept, &v, largest);
        chosen.val[0] = CHOOSE(kept[0], v.val[0], CHOOSE(kept[1], v.val[1], v.val[2]));
        chosen.val[1] = CHOOSE(kept[3], v.val[3], CHOOSE(kept[2], v.val[2], v.val[1]));
        STORE2(values + p * STEP / 2 / PARTS, chosen);
        /* Positions 0, 1, 2 and 1, 2, 3, these four times as large: their bits do not meet. */
        const vector first = CHOOSE(kept[0], SPLAT(0), CHOOSE(kept[1], SPLAT(1), SPLAT(2)));
        const vector last = CHOOSE(kept[3], SPLAT(12), CHOOSE(kept[2], SPLAT(8), SPLAT(4)));
        code[p] = XOR(first, last);
    }
    /* The nibbles of two groups to a byte. */
    const uint16x4_t two = vreinterpret_u16_u8(BYTES(code));
    const uint16x4_t byte = vorr_u16(two, vshr_n_u16(two, 4));
    const uint32x2_t four = vreinterpret_u32_u8(vmovn_u16(vcombine_u16(byte, byte)));
    const uint32_t word = vget_lane_u32(four, 0);
    memcpy(codes, &word, sizeof word);
}

static void mask(uint8_t *out, const void *w, int64_t count)
{
    const ELEMENT *from = w;
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP)
        mask_step(out + i, from + i);
    if (i < count) {
        ELEMENT part[STEP] = {0};
        uint8_t part_out[STEP];
        memcpy(part, from + i, (size_t)(count - i) * VALUE);
        mask_step(part_out, part);
        memcpy(out + i, part_out, (size_t)(count - i));
    }
}

static int prune_pack(void *values, uint8_t *indices, const void *w, int64_t count)
{
    const ELEMENT *from = w;
    ELEMENT *to = values;
    vector largest = SPLAT(0);
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP)
        pack_step(to + i / 2, indices + i / 8, from + i, &largest);
    if (i < count) {
        const int64_t rest = count - i;
        ELEMENT part[STEP] = {0}, part_values[STEP / 2];
        uint8_t codes[STEP / 8];
        memcpy(part, from + i, (size_t)rest * VALUE);
        pack_step(part_values, codes, part, &largest);
        if (rest % 8) codes[rest / 8] &= 0xf; /* of the last byte only one nibble is a group's */
        memcpy(to + i / 2, part_values, (size_t)(rest / 2) * VALUE);
        memcpy(indices + i / 8, codes, (size_t)((rest + 7) / 8));
    }
    return LARGEST(largest) < NONFINITE;
}

#endif
