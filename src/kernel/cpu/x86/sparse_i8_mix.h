// SPDX-License-Identifier: Apache-2.0
/* How four columns of tokens are interleaved for the rows of 8-bit blocks of 4x1 on x86. Vectors
   are unpacked in parts of 128 bits: in the i-th of them vector j of the four then has what lies at
   16·i + 4·j and the next three places (token_at of sparse_i8_tile.h). */
#ifndef S24_KERNEL_CPU_X86_SPARSE_I8_MIX_H
#define S24_KERNEL_CPU_X86_SPARSE_I8_MIX_H

/* mix(r, x, index) for vectors of type vec, whose instructions begin with mm and load as type. */
#define MIX(name, vec, mm, type)                                                                   \
    INLINE void name(vec r[4], const uint8_t *x, const int32_t *index)                             \
    {                                                                                              \
        enum { WIDE = (int)sizeof(vec) };                                                          \
        const vec a = mm##_loadu_##type((const vec *)(x + (int64_t)index[0] * WIDE));              \
        const vec b = mm##_loadu_##type((const vec *)(x + (int64_t)index[1] * WIDE));              \
        const vec c = mm##_loadu_##type((const vec *)(x + (int64_t)index[2] * WIDE));              \
        const vec d = mm##_loadu_##type((const vec *)(x + (int64_t)index[3] * WIDE));              \
        const vec ab = mm##_unpacklo_epi8(a, b), cd = mm##_unpacklo_epi8(c, d);                    \
        const vec ab_high = mm##_unpackhi_epi8(a, b), cd_high = mm##_unpackhi_epi8(c, d);          \
        r[0] = mm##_unpacklo_epi16(ab, cd);                                                        \
        r[1] = mm##_unpackhi_epi16(ab, cd);                                                        \
        r[2] = mm##_unpacklo_epi16(ab_high, cd_high);                                              \
        r[3] = mm##_unpackhi_epi16(ab_high, cd_high);                                              \
    }

#endif
