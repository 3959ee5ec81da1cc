// SPDX-License-Identifier: Apache-2.0
/* Vector operations in portable C for any CPU, over GCC's and Clang's vector type of 4 floats,
   which every 64-bit target has registers for. See vec_table.h. */
#include <stdint.h>
#include <string.h>

#include "vec/vec.h"

#define TARGET
#define TABLE      s24i_vec_portable
#define TABLE_NAME "portable"
#define TABLE_CPU  0

#define WIDTH 4
typedef float vec __attribute__((vector_size(16)));
typedef int32_t ivec __attribute__((vector_size(16)));
typedef uint32_t uvec __attribute__((vector_size(16)));
#define V_SET(x)        ((vec){(x), (x), (x), (x)})
#define V_LOAD(p)       load4(p)
#define V_STORE(p, v)   store4(p, v)
#define V_ADD(a, b)     ((a) + (b))
#define V_SUB(a, b)     ((a) - (b))
#define V_MUL(a, b)     ((a) * (b))
#define V_DIV(a, b)     ((a) / (b))
#define V_FMA(a, b, c)  ((a) * (b) + (c))
#define V_FNMA(a, b, c) ((c) - (a) * (b))
#define V_MAX(a, b)     select4((a) > (b), a, b)
#define V_MIN(a, b)     select4((a) < (b), a, b)
#define V_SQRT(a)       root4(a)
#define V_ABS(a)        ((vec)((ivec)(a)&0x7fffffff))
#define V_SUM(a)        sum4(a)
#define V_TOP(a)        top4(a)
#define V_ROUND(a)      round4(a)
/* a with the sign of b, where a ≥ 0. */
#define V_SIGN(a, b)   ((vec)((ivec)(a) | ((ivec)(b) & ~0x7fffffff)))
#define V_SCALE2(m, n) scale2(m, n)
/* Neighbours of bf16 as f32. */
#define V_WIDEN(p) widen4(p)
/* Neighbours of f16 as f32. */
#define V_WIDEN_HALF(p) halves4(p)
/* Integers of WIDTH bytes. */
#define V_LOAD_I8(p) bytes4(p)
/* The nearest integers of |a| < 2^22 and 128 more, of which the lowest bytes are kept. */
#define V_STORE_BYTES(p, v) store_bytes4(p, v)
/* Differences of WIDTH integers. */
#define V_LESS(p, q) less4(p, q)
/* e4m3, of WIDTH bytes. */
#define V_LOAD_E4M3(p) small4(p)
/* Words, and the n-th 4 bits of each as an integer. */
typedef uvec word_vec;
#define V_WORDS(p)      words4(p)
#define V_NIBBLES(w, n) __builtin_convertvector((ivec)((w) << (28 - 4 * (n))) >> 28, vec)
/* 1 in the lanes whose bit is set, else 0. */
#define V_BITS(bits)   bits4(bits)
#define TILE_ROWS_WIDE 4 /* 4 rows × 2 vectors = 8 sums of the 16 registers a baseline has */
#define TILE_VECS_WIDE 2
#define TILE_ROWS_SLIM 8
#define TILE_VECS_SLIM 1
#define HAVE_AVX2      0
/* None: a table is in memory. */
#define V_LOOK_UP(most, y, table, numbers, codes, n) ((void)(numbers), 0)

static inline uvec words4(const void *p)
{
    uvec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline vec load4(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store4(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}
static inline vec widen4(const uint16_t *p)
{
    return (vec)((uvec){p[0], p[1], p[2], p[3]} << 16);
}
/* The bits of f16 at f32's place mean 2^112 less; infinities and NaN take the largest exponent. */
static inline vec halves4(const uint16_t *p)
{
    const uvec bits = {p[0], p[1], p[2], p[3]}, size = (bits & 0x7fff) << 13;
    const vec value = (vec)size * 0x1p112f;
    const uvec large = (uvec)(size >= 0x7c00u << 13) & 0x7f800000;
    return (vec)((uvec)value | large | (bits & 0x8000) << 16);
}
static inline vec select4(ivec mask, vec a, vec b)
{
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}
static inline vec root4(vec a)
{
    return (vec){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]),
                 __builtin_sqrtf(a[3])};
}
static inline vec bits4(uint32_t bits)
{
    return (vec){(float)(bits & 1), (float)(bits >> 1 & 1), (float)(bits >> 2 & 1),
                 (float)(bits >> 3 & 1)};
}
static inline vec bytes4(const int8_t *p)
{
    return (vec){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
}
/* The bits of e4m3 at f32's place mean 2^120 less. */
static inline vec small4(const int8_t *p)
{
    const uvec bits = (uvec)((ivec){p[0], p[1], p[2], p[3]});
    const vec value = (vec)((bits & 0x7f) << 20) * 0x1p120f;
    return (vec)((uvec)value | (bits & 0x80) << 24);
}
static inline float sum4(vec a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
static inline float top4(vec a)
{
    const float low = a[0] > a[1] ? a[0] : a[1];
    const float high = a[2] > a[3] ? a[2] : a[3];
    return low > high ? low : high;
}
/* 1.5·2^23: adding it to |a| < 2^22 drops the fraction and leaves the number in the low bits. */
#define SHIFT V_SET(12582912.0f)
static inline vec round4(vec a)
{
    return (a + SHIFT) - SHIFT;
}
static inline void store_bytes4(uint8_t *p, vec a)
{
    const uvec bits = (uvec)(a + SHIFT) + 128;
    for (int i = 0; i < WIDTH; i++)
        p[i] = (uint8_t)bits[i];
}
static inline vec less4(const int32_t *p, const int32_t *q)
{
    return __builtin_convertvector((ivec)(words4(p) - words4(q)), vec);
}
/* m·2^n for whole n up to 127; 0 below −126. */
static inline vec scale2(vec m, vec n)
{
    const uvec power = ((uvec)(n + SHIFT) - (uvec)SHIFT + 127) << 23;
    return (vec)((ivec)(m * (vec)power) & ~(n < V_SET(-126.0f)));
}

#include "vec/vec_table.h"
