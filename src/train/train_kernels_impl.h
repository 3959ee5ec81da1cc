// SPDX-License-Identifier: Apache-2.0
/*
 * Training's vector functions, written once over the macros that each kernels_*.c defines before
 * including this file (see vec/vec_math.h). Not a header of its own: no guard, included once a
 * table.
 */
#include "vec/vec_math.h"

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

/* ---- norms ----------------------------------------------------------------------------------- */

TARGET static void norm(float *y, float stats[2], const float *x, const s24i_norm_row *norm)
{
    const int64_t n = norm->n;
    vec sum = V_SET(0.0f), squares = V_SET(0.0f);
    float mean = 0.0f;
    if (!norm->rms) {
        EACH(i, n) sum = V_ADD(sum, get(x + i, part, 0.0f));
        mean = V_SUM(sum) / (float)n;
    }
    EACH(i, n)
    {
        const vec d = V_SUB(get(x + i, part, mean), V_SET(mean));
        squares = V_FMA(d, d, squares);
    }
    const float inverse = 1.0f / __builtin_sqrtf(V_SUM(squares) / (float)n + norm->eps);
    EACH(i, n)
    {
        const vec d = V_MUL(V_SUB(get(x + i, part, 0.0f), V_SET(mean)), V_SET(inverse));
        const vec beta = norm->beta ? get(norm->beta + i, part, 0.0f) : V_SET(0.0f);
        put(y + i, V_FMA(d, get(norm->gamma + i, part, 0.0f), beta), part);
    }
    stats[0] = mean;
    stats[1] = inverse;
}

/* With h = (x − mean)·inverse and g = dy·gamma: dx = inverse·(g − mean(g) − h·mean(g·h)). */
TARGET static void norm_back(float *dx, float *dgamma, float *dbeta, const float *dy,
                             const float *x, const float stats[2], const s24i_norm_row *norm)
{
    const int64_t n = norm->n;
    const vec mean = V_SET(stats[0]), inverse = V_SET(stats[1]);
    vec sum = V_SET(0.0f), product = V_SET(0.0f);
    EACH(i, n)
    {
        const vec d = get(dy + i, part, 0.0f);
        const vec h = V_MUL(V_SUB(get(x + i, part, stats[0]), mean), inverse);
        const vec g = V_MUL(d, get(norm->gamma + i, part, 0.0f));
        sum = V_ADD(sum, g);
        product = V_FMA(g, h, product);
        put(dgamma + i, V_FMA(d, h, get(dgamma + i, part, 0.0f)), part);
        if (dbeta) put(dbeta + i, V_ADD(d, get(dbeta + i, part, 0.0f)), part);
    }
    const vec shift = V_SET(norm->rms ? 0.0f : V_SUM(sum) / (float)n);
    const vec slope = V_SET(V_SUM(product) / (float)n);
    EACH(i, n)
    {
        const vec h = V_MUL(V_SUB(get(x + i, part, stats[0]), mean), inverse);
        const vec g = V_MUL(get(dy + i, part, 0.0f), get(norm->gamma + i, part, 0.0f));
        put(dx + i, V_MUL(inverse, V_SUB(V_FNMA(slope, h, g), shift)), part);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

TARGET static void activate_row(float *y, const float *x, s24_activation activation, int squared,
                                int64_t n)
{
    EACH(i, n)
    {
        const vec v = activate(get(x + i, part, 0.0f), activation);
        put(y + i, squared ? V_MUL(v, v) : v, part);
    }
}

/* Φ(x) + x·φ(x). */
TARGET INLINE vec gelu_erf_slope(vec x)
{
    vec gauss;
    const vec half = V_FMA(V_SET(0.5f), vec_erf(x, &gauss), V_SET(0.5f));
    return V_FMA(V_MUL(x, gauss), V_SET(0.39894228040f), half);
}

/* Of x·s(u), s = 1/(1 + exp(−u)): s + x·s·(1 − s)·u'. */
TARGET INLINE vec logistic_slope(vec x, vec u, vec u_slope)
{
    const vec s = V_DIV(V_SET(1.0f), V_ADD(V_SET(1.0f), vec_exp(V_SUB(V_SET(0.0f), u))));
    return V_FMA(V_MUL(V_MUL(x, u_slope), s), V_SUB(V_SET(1.0f), s), s);
}

TARGET INLINE vec slope_of(vec x, s24_activation activation)
{
    const vec square = V_MUL(x, x);
    switch (activation) {
    case S24_ACTIVATION_RELU: /* 1 over 0, else 0 */
        return V_MIN(V_SET(1.0f), V_MUL(V_SET(FLT_MAX), V_MAX(V_SET(0.0f), x)));
    case S24_ACTIVATION_GELU:
        return gelu_erf_slope(x);
    case S24_ACTIVATION_GELU_TANH: /* u = 2·√(2/π)·(x + 0.044715·x³) */
        return logistic_slope(
            x, V_MUL(V_MUL(x, V_SET(1.59576912161f)), V_FMA(square, V_SET(0.044715f), V_SET(1.0f))),
            V_MUL(V_SET(1.59576912161f), V_FMA(square, V_SET(0.134145f), V_SET(1.0f))));
    case S24_ACTIVATION_SILU:
        return logistic_slope(x, x, V_SET(1.0f));
    case S24_ACTIVATION_NONE:
        break;
    }
    return V_SET(1.0f);
}

TARGET static void activate_back(float *dx, const float *dy, const float *x,
                                 s24_activation activation, int squared, int64_t n)
{
    EACH(i, n)
    {
        const vec v = get(x + i, part, 0.0f);
        vec slope = slope_of(v, activation);
        if (squared) slope = V_MUL(slope, V_MUL(V_SET(2.0f), activate(v, activation)));
        put(dx + i, V_MUL(get(dy + i, part, 0.0f), slope), part);
    }
}

TARGET static void multiply(float *y, const float *a, const float *b, int64_t n)
{
    EACH(i, n) put(y + i, V_MUL(get(a + i, part, 0.0f), get(b + i, part, 0.0f)), part);
}

/* ---- softmax, differences --------------------------------------------------------------------- */

TARGET static float softmax(float *y, const float *x, float scale, int64_t n)
{
    const vec factor = V_SET(scale);
    vec top = V_SET(-FLT_MAX), sum = V_SET(0.0f);
    EACH(i, n) top = V_MAX(top, V_MUL(get(x + i, part, -FLT_MAX), factor));
    const float most = V_TOP(top);
    EACH(i, n)
    {
        /* What is not there is far below: exp makes it 0. */
        const vec e = vec_exp(V_SUB(V_MUL(get(x + i, part, -FLT_MAX), factor), V_SET(most)));
        sum = V_ADD(sum, e);
        put(y + i, e, part);
    }
    const float total = V_SUM(sum);
    const vec inverse = V_SET(1.0f / total);
    EACH(i, n) put(y + i, V_MUL(get(y + i, part, 0.0f), inverse), part);
    return most + logf(total);
}

TARGET static void softmax_back(float *dp, const float *p, float scale, int64_t n)
{
    vec sum = V_SET(0.0f);
    EACH(i, n) sum = V_FMA(get(p + i, part, 0.0f), get(dp + i, part, 0.0f), sum);
    const vec mean = V_SET(V_SUM(sum)), factor = V_SET(scale);
    EACH(i, n)
    {
        const vec d = V_SUB(get(dp + i, part, 0.0f), mean);
        put(dp + i, V_MUL(V_MUL(get(p + i, part, 0.0f), factor), d), part);
    }
}

TARGET static float pull(float *dx, float factor, const float *x, const float *y, int64_t n)
{
    vec sum = V_SET(0.0f);
    EACH(i, n)
    {
        const vec d = V_SUB(get(x + i, part, 0.0f), get(y + i, part, 0.0f));
        sum = V_FMA(d, d, sum);
        put(dx + i, V_FMA(V_SET(factor), d, get(dx + i, part, 0.0f)), part);
    }
    return V_SUM(sum);
}

/* ---- the optimiser ---------------------------------------------------------------------------- */

/* 1 where the mask lets a weight be, else 0. */
TARGET INLINE vec allowed(const uint16_t *mask, int64_t i)
{
    return V_BITS((uint32_t)mask[i / 16] >> i % 16);
}

TARGET static float squares(const float *g, const uint16_t *mask, int64_t n)
{
    vec sum = V_SET(0.0f);
    EACH(i, n)
    {
        vec v = get(g + i, part, 0.0f);
        if (mask) v = V_MUL(v, allowed(mask, i));
        sum = V_FMA(v, v, sum);
    }
    return V_SUM(sum);
}

TARGET static void adamw(const s24i_adamw *job)
{
    const vec zero = V_SET(0.0f);
    EACH(i, job->n)
    {
        vec g = V_MUL(get(job->g + i, part, 0.0f), V_SET(job->gscale));
        vec p = get(job->p + i, part, 0.0f);
        const vec on = job->mask ? allowed(job->mask, i) : V_SET(1.0f);
        if (job->masked) {
            const vec off = V_SUB(V_SET(1.0f), on);
            g = V_FMA(V_MUL(off, V_SET(job->pull)), p, g);
            p = V_MUL(p, V_SET(job->keep));
        } else {
            g = V_MUL(g, on);
            p = V_MUL(V_MUL(p, V_SET(job->keep)), on);
        }
        const vec m = V_FMA(V_SET(job->beta1), get(job->m + i, part, 0.0f),
                            V_MUL(V_SET(1.0f - job->beta1), g));
        const vec v = V_FMA(V_SET(job->beta2), get(job->v + i, part, 0.0f),
                            V_MUL(V_SET(1.0f - job->beta2), V_MUL(g, g)));
        const vec root = V_FMA(V_SQRT(v), V_SET(job->inverse2), V_SET(job->eps));
        put(job->m + i, m, part);
        put(job->v + i, v, part);
        p = V_FNMA(V_SET(job->step), V_DIV(m, root), p);
        put(job->p + i, p, part);
        if (job->masked) put(job->masked + i, V_MUL(p, on), part);
        put(job->g + i, zero, part);
    }
}

const s24i_train_kernels TABLE = {
    .name = TABLE_NAME,
    .cpu = TABLE_CPU,
    .norm = norm,
    .norm_back = norm_back,
    .activate = activate_row,
    .activate_back = activate_back,
    .multiply = multiply,
    .softmax = softmax,
    .softmax_back = softmax_back,
    .pull = pull,
    .adamw = adamw,
    .squares = squares,
};
