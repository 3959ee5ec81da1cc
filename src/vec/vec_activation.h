// SPDX-License-Identifier: Apache-2.0
/* Activations: after a product, of gates, of training forward and backward. See vec_table.h. */

TARGET INLINE vec gelu_erf(vec x)
{
    vec gauss;
    const vec half = V_MUL(x, V_SET(0.5f));
    return V_FMA(half, vec_erf(x, &gauss), half);
}

/* x/2·(1 + tanh u) = x/(1 + exp(−2u)). */
TARGET INLINE vec gelu_tanh(vec x)
{
    const vec inner = V_FMA(V_MUL(x, x), V_SET(0.044715f), V_SET(1.0f));
    const vec u = V_MUL(V_MUL(x, V_SET(-1.59576912161f)), inner); /* −2·√(2/π) */
    return V_DIV(x, V_ADD(V_SET(1.0f), vec_exp(u)));
}

TARGET INLINE vec vec_activate(vec x, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return V_MAX(V_SET(0.0f), x);
    case S24_ACTIVATION_GELU:
        return gelu_erf(x);
    case S24_ACTIVATION_GELU_TANH:
        return gelu_tanh(x);
    case S24_ACTIVATION_SILU:
        return V_DIV(x, V_ADD(V_SET(1.0f), vec_exp(V_SUB(V_SET(0.0f), x))));
    case S24_ACTIVATION_GELU_QUICK:
        return V_DIV(x, V_ADD(V_SET(1.0f), vec_exp(V_MUL(x, V_SET(-1.702f)))));
    case S24_ACTIVATION_NONE:
        break;
    }
    return x;
}

TARGET static void epilogue(float *y, const float *x, const float *bias, s24_activation activation,
                            int accumulate, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        vec v = V_LOAD(x + i);
        if (bias) v = V_ADD(v, V_LOAD(bias + i));
        v = vec_activate(v, activation);
        V_STORE(y + i, accumulate ? V_ADD(V_LOAD(y + i), v) : v);
    }
    if (whole < n) {
        vec v = load_part(x + whole, n - whole, 0.0f);
        if (bias) v = V_ADD(v, load_part(bias + whole, n - whole, 0.0f));
        v = vec_activate(v, activation);
        if (accumulate) v = V_ADD(load_part(y + whole, n - whole, 0.0f), v);
        store_part(y + whole, v, n - whole);
    }
}

TARGET static void gate(float *y, const float *g, const float *u, s24_activation activation,
                        int squared, int64_t n)
{
    const int64_t whole = n / WIDTH * WIDTH;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec v = vec_activate(V_LOAD(g + i), activation);
        V_STORE(y + i, V_MUL(squared ? V_MUL(v, v) : v, V_LOAD(u + i)));
    }
    if (whole < n) {
        const vec v = vec_activate(load_part(g + whole, n - whole, 0.0f), activation);
        const vec factor = load_part(u + whole, n - whole, 0.0f);
        store_part(y + whole, V_MUL(squared ? V_MUL(v, v) : v, factor), n - whole);
    }
}

TARGET static void activate(float *y, const float *x, s24_activation activation, int squared,
                            int64_t n)
{
    EACH(i, n)
    {
        const vec v = vec_activate(get(x + i, part, 0.0f), activation);
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

TARGET INLINE vec vec_slope(vec x, s24_activation activation)
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
    case S24_ACTIVATION_GELU_QUICK:
        return logistic_slope(x, V_MUL(x, V_SET(1.702f)), V_SET(1.702f));
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
        vec slope = vec_slope(v, activation);
        if (squared) slope = V_MUL(slope, V_MUL(V_SET(2.0f), vec_activate(v, activation)));
        put(dx + i, V_MUL(get(dy + i, part, 0.0f), slope), part);
    }
}
