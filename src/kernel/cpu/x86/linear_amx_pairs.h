// SPDX-License-Identifier: Apache-2.0
/*
 * How rows of 16 bits expand a group of four columns, included by a row's file after linear_amx.h.
 *
 * A stored vector of rows16's pairs, the two kept values of a group in 16 rows, becomes two rows of
 * a weight tile by a byte shuffle each. What it shuffles by is made from the code bits b0 … b3
 * (i0 | i1 << 2) by a product of bits: whether column c is kept, and whether as the second value,
 * are sums of code bits modulo 2,
 *     dropped:  0: b0 + b1    1: b0 + b3    2: b1 + b2    3: b2 + b3
 *     second:   0: 0          1: 1 + b3     2: 1 + b1     3: 1
 * so vgf2p8affineqb makes the shuffle's bytes, zeroing bit included, from a byte that has the code
 * in one half and in the other what is constant: the byte's number, its lane, its column's parity.
 */
#ifndef S24_KERNEL_CPU_X86_LINEAR_AMX_PAIRS_H
#define S24_KERNEL_CPU_X86_LINEAR_AMX_PAIRS_H

/* What is constant of a byte, for the 16 lanes from the last on, from bit `c` on. */
#define REST_OF(lane, c) (int)((0x09080100u + 0x02020202u * ((lane) % 4)) << (c))
#define REST_FOUR(c)     REST_OF(3, c), REST_OF(2, c), REST_OF(1, c), REST_OF(0, c)
#define REST(c)          REST_FOUR(c), REST_FOUR(c), REST_FOUR(c), REST_FOUR(c)

/* A product of bits: output bit i is the sum of the input bits row[i]. */
#define BITS(r0, r1, r2, r3, r7)                                                                   \
    ((long long)((uint64_t)(r0) << 56 | (uint64_t)(r1) << 48 | (uint64_t)(r2) << 40 |              \
                 (uint64_t)(r3) << 32 | (uint64_t)(r7)))

/* Two rows of the tile from a group's pairs: bits has the code's, masked for each column, in one
   half of a byte, and in the other, from bit `c` on: the byte's number, its lane, "odd column". */
TARGET_INLINE void expand_group(uint8_t *to, __m512i pairs, __m512i bits, const int b, const int c)
{
    const __m512i low = _mm512_set1_epi64(
        BITS(1 << c, 8 << b | 8 << c, 2 << c, 4 << c, 11 << b)); /* columns 0 and 1 */
    const __m512i high =
        _mm512_set1_epi64(BITS(1 << c, 2 << b, 2 << c, 4 << c, 14 << b)); /* 2 and 3 */
    _mm512_store_si512(to, _mm512_shuffle_epi8(pairs, _mm512_gf2p8affine_epi64_epi8(bits, low, 0)));
    _mm512_store_si512(to + 64,
                       _mm512_shuffle_epi8(pairs, _mm512_gf2p8affine_epi64_epi8(bits, high, 2)));
}

/* From a group's code in all bytes, in their low or in their high half: bytes of even columns keep
   the code bits 0, 1 and 2, of odd ones 0, 2 and 3. */
TARGET_INLINE __m512i even_bits(__m512i codes)
{
    return _mm512_ternarylogic_epi32(codes, _mm512_set1_epi32(0x0d0d0707),
                                     _mm512_set_epi32(REST(4)), 0xea); /* (a & b) | c */
}

TARGET_INLINE __m512i odd_bits(__m512i codes)
{
    return _mm512_ternarylogic_epi32(codes, _mm512_set1_epi32((int)0xd0d07070),
                                     _mm512_set_epi32(REST(0)), 0xea);
}

#endif
