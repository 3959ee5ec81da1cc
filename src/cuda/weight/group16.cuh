// SPDX-License-Identifier: Apache-2.0
/*
 * Groups of four elements of 16 bits, two at a time: a piece is 8 columns of a row, its left group
 * in the low halves of four registers and its right group in the high halves, so that one
 * instruction works on both. What a group keeps is four registers too, of which bit 15 speaks for
 * the left group and bit 31 for the right one; their other bits mean nothing.
 */
#ifndef S24_CUDA_WEIGHT_GROUP16_CUH
#define S24_CUDA_WEIGHT_GROUP16_CUH

#include <stdint.h>

enum : uint32_t { SIGNS = 0x80008000u, MAGNITUDES = 0x7fff7fffu };

static __device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector)
{
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
    return out;
}
/* Each half all ones where its bit 15 is set, else zero. */
static __device__ __forceinline__ uint32_t spread(uint32_t bits)
{
    return permute(bits, 0, 0xbb99);
}
static __device__ __forceinline__ uint32_t choose(uint32_t mask, uint32_t set, uint32_t clear)
{
    return (set & mask) | (clear & ~mask);
}

/* Columns 0 to 7 of memory as the two groups' columns 0 to 3. */
static __device__ __forceinline__ void split_piece(uint32_t (&v)[4], const uint4 &from)
{
    v[0] = permute(from.x, from.z, 0x5410);
    v[1] = permute(from.x, from.z, 0x7632);
    v[2] = permute(from.y, from.w, 0x5410);
    v[3] = permute(from.y, from.w, 0x7632);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* The larger two of magnitudes, of equal ones the higher column. */
static __device__ __forceinline__ void keep_largest(uint32_t (&keep)[4], const uint32_t (&size)[4])
{
    /* Bit 15 of (a | 0x8000) − b, of 15-bit a and b, is a ≥ b; nothing is borrowed between
       halves. */
    uint32_t one = size[1] | SIGNS, two = size[2] | SIGNS, three = size[3] | SIGNS;
    uint32_t loses01 = one - size[0], loses02 = two - size[0], loses03 = three - size[0];
    uint32_t loses12 = two - size[1], loses13 = three - size[1], loses23 = three - size[2];
    keep[0] = ~((loses01 & loses02) | (loses01 & loses03) | (loses02 & loses03));
    keep[1] = (loses01 & ~loses12) | (loses01 & ~loses13) | (~loses12 & ~loses13);
    keep[2] = (loses02 & loses12) | (loses02 & ~loses23) | (loses12 & ~loses23);
    keep[3] = (loses03 & loses13) | (loses03 & loses23) | (loses13 & loses23);
}

static __device__ __forceinline__ void keep_nonzeros(uint32_t (&keep)[4], const uint32_t (&size)[4])
{
    for (int i = 0; i < 4; i++)
        keep[i] = size[i] + MAGNITUDES;
}

/* Where a mask's eight bytes are not zero. */
static __device__ __forceinline__ void keep_masked(uint32_t (&keep)[4], const uint2 &mask)
{
    uint32_t left = ((mask.x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | mask.x;
    uint32_t right = ((mask.y & 0x7f7f7f7fu) + 0x7f7f7f7fu) | mask.y;
    keep[0] = permute(left, right, 0x4400);
    keep[1] = permute(left, right, 0x5511);
    keep[2] = permute(left, right, 0x6622);
    keep[3] = permute(left, right, 0x7733);
}

static __device__ __forceinline__ uint32_t more_than_two(const uint32_t (&keep)[4])
{
    return (keep[0] & keep[1] & (keep[2] | keep[3])) | (keep[2] & keep[3] & (keep[0] | keep[1]));
}

/* ---- packing --------------------------------------------------------------------------------- */

struct packed_groups {
    uint32_t low, high; /* the first and the second stored element, halves as above */
    uint32_t codes;     /* the left group's in bits 0 to 3, the right one's in 4 to 7 */
};

/* By the rule of docs/format.md, of at most two that are kept. DROP: a stored element that is not
   kept is +0; else it is what it is, zero already. */
template <bool DROP>
static __device__ __forceinline__ packed_groups pack_groups(const uint32_t (&v)[4],
                                                            const uint32_t (&keep)[4])
{
    const uint32_t either = keep[0] | keep[1], second_is_1 = keep[0] & keep[1];
    const uint32_t second_is_3 = keep[3] | ~either;
    packed_groups out;
    out.low = choose(spread(keep[0]), v[0], choose(spread(keep[1]), v[1], v[2]));
    out.high = choose(spread(second_is_3), v[3], choose(spread(second_is_1), v[1], v[2]));
    if (DROP) {
        out.low &= spread(either | keep[2]);
        out.high &= spread(second_is_1 | keep[3] | (keep[2] & either));
    }
    uint32_t code = (~keep[0] & keep[1] & SIGNS) >> 3;
    code |= (~either & SIGNS) >> 2;
    code |= ((second_is_1 | second_is_3) & SIGNS) >> 1;
    code |= ~second_is_1 & SIGNS;
    out.codes = (code >> 12 & 15u) | (code >> 24 & 0xf0u);
    return out;
}

#endif
