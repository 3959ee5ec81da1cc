// SPDX-License-Identifier: Apache-2.0
/*
 * Elementary functions over the macros that each table of vector functions defines before including
 * this file: vec, WIDTH, V_* and TARGET, the instruction set as a function attribute. Not a header
 * of its own: no guard, included once a table.
 *
 * Numbers: exp is a degree-6 polynomial on [−ln2/2, ln2/2] (2 ulp); erf is formula 7.1.26 of
 * Abramowitz and Stegun, Handbook of Mathematical Functions (1964), |error| ≤ 1.5e-7.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE __attribute__((always_inline)) static inline

/* The first `count` < WIDTH elements; the others read as `fill`. */
TARGET INLINE vec load_part(const float *p, int64_t count, float fill)
{
    float part[WIDTH];
    for (int64_t i = 0; i < WIDTH; i++)
        part[i] = i < count ? p[i] : fill;
    return V_LOAD(part);
}
TARGET INLINE void store_part(float *p, vec v, int64_t count)
{
    float part[WIDTH];
    V_STORE(part, v);
    for (int64_t i = 0; i < count; i++)
        p[i] = part[i];
}

/* For every vector of n elements: `part` is WIDTH, and for the last one what is left. */
#define EACH(i, n)                                                                                 \
    for (int64_t i = 0, part = (n) < WIDTH ? (n) : WIDTH; i < (n);                                 \
         i += WIDTH, part = (n)-i < WIDTH ? (n)-i : WIDTH)

TARGET INLINE vec get(const float *p, int64_t part, float fill)
{
    return part == WIDTH ? V_LOAD(p) : load_part(p, part, fill);
}
TARGET INLINE void put(float *p, vec v, int64_t part)
{
    if (part == WIDTH)
        V_STORE(p, v);
    else
        store_part(p, v, part);
}

/* exp, of at most 88; exactly 0 where the result would be subnormal. V_MAX and V_MIN give their
   second operand when one is NaN, so the constant goes first and NaN comes through. */
TARGET INLINE vec vec_exp(vec x)
{
    x = V_MIN(V_SET(88.0f), V_MAX(V_SET(-120.0f), x));
    const vec n = V_ROUND(V_MUL(x, V_SET(1.44269504089f)));
    vec r = V_FNMA(n, V_SET(0.693359375f), x); /* ln 2 in two parts, the first exact in 10 bits */
    r = V_FNMA(n, V_SET(-2.12194440e-4f), r);
    vec p = V_SET(1.3981999507e-3f);
    p = V_FMA(p, r, V_SET(8.3334519073e-3f));
    p = V_FMA(p, r, V_SET(4.1665795894e-2f));
    p = V_FMA(p, r, V_SET(1.6666665459e-1f));
    p = V_FMA(p, r, V_SET(5.0000001201e-1f));
    p = V_FMA(p, V_MUL(r, r), V_ADD(r, V_SET(1.0f)));
    return V_SCALE2(p, n);
}

/* erf(x/√2); *gauss is exp(−x²/2). */
TARGET INLINE vec vec_erf(vec x, vec *gauss)
{
    const vec z = V_MUL(V_ABS(x), V_SET(0.70710678119f));
    const vec t = V_DIV(V_SET(1.0f), V_FMA(z, V_SET(0.3275911f), V_SET(1.0f)));
    vec p = V_SET(1.061405429f);
    p = V_FMA(p, t, V_SET(-1.453152027f));
    p = V_FMA(p, t, V_SET(1.421413741f));
    p = V_FMA(p, t, V_SET(-0.284496736f));
    p = V_FMA(p, t, V_SET(0.254829592f));
    *gauss = vec_exp(V_SUB(V_SET(0.0f), V_MUL(z, z)));
    return V_SIGN(V_FNMA(V_MUL(p, t), *gauss, V_SET(1.0f)), x);
}
