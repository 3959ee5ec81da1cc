// SPDX-License-Identifier: Apache-2.0
/* Sums, products and differences of rows. See vec_table.h. */

TARGET static void add(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_ADD(V_LOAD(a + i), V_LOAD(b + i)));
    for (; i < n; i++)
        y[i] = a[i] + b[i];
}

TARGET static void axpy(float *y, float alpha, const float *x, int64_t n)
{
    const vec factor = V_SET(alpha);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_FMA(factor, V_LOAD(x + i), V_LOAD(y + i)));
    for (; i < n; i++)
        y[i] += alpha * x[i];
}

TARGET static void maximum(float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_MAX(V_LOAD(y + i), V_LOAD(x + i)));
    for (; i < n; i++)
        y[i] = y[i] > x[i] ? y[i] : x[i];
}

TARGET static void scale(float *y, float alpha, int64_t n)
{
    const vec factor = V_SET(alpha);
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE(y + i, V_MUL(V_LOAD(y + i), factor));
    for (; i < n; i++)
        y[i] *= alpha;
}

TARGET static float dot(const float *a, const float *b, int64_t n)
{
    vec even = V_SET(0.0f), odd = V_SET(0.0f);
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        even = V_FMA(V_LOAD(a + i), V_LOAD(b + i), even);
        odd = V_FMA(V_LOAD(a + i + WIDTH), V_LOAD(b + i + WIDTH), odd);
    }
    float sum = V_SUM(V_ADD(even, odd));
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* A dot product with what is widened as it is read; what is left over is a part of a vector. */
#define DOT_WIDENED(type, widen)                                                                   \
    vec even = V_SET(0.0f), odd = V_SET(0.0f);                                                     \
    int64_t i = 0;                                                                                 \
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {                                                   \
        even = V_FMA(V_LOAD(a + i), widen(b + i), even);                                           \
        odd = V_FMA(V_LOAD(a + i + WIDTH), widen(b + i + WIDTH), odd);                             \
    }                                                                                              \
    for (; i < n; i += WIDTH) {                                                                    \
        type rest[WIDTH] = {0};                                                                    \
        const int64_t part = n - i < WIDTH ? n - i : WIDTH;                                        \
        memcpy(rest, b + i, (size_t)part * sizeof *rest);                                          \
        even = V_FMA(get(a + i, part, 0.0f), widen(rest), even);                                   \
    }                                                                                              \
    return V_SUM(V_ADD(even, odd))

TARGET static float dot_half(const float *a, const uint16_t *b, int64_t n)
{
    DOT_WIDENED(uint16_t, V_WIDEN_HALF);
}

TARGET static float dot_bytes(const float *a, const int8_t *b, int64_t n)
{
    DOT_WIDENED(int8_t, V_LOAD_I8);
}

/* The same of rows of b, ld apart, some of which go through a at a time: each row's sum is that of
   one alone, but none waits for its own. Four ways through memory by turns, each of some lines, are
   none that a CPU foresees, so lines that come are asked for in their order. */
#define DOTS_WIDENED(type, widen, alone)                                                           \
    enum { ROWS = 4, AHEAD = 8192, STEP = ROWS * 2 * WIDTH * (int)sizeof(type), LINE = 64 };       \
    int64_t r = 0;                                                                                 \
    for (; r + ROWS <= rows; r += ROWS, b += ROWS * ld) {                                          \
        vec even[ROWS], odd[ROWS];                                                                 \
        int64_t i = 0;                                                                             \
        const char *ahead = (const char *)b + AHEAD;                                               \
        for (int j = 0; j < ROWS; j++)                                                             \
            even[j] = odd[j] = V_SET(0.0f);                                                        \
        for (; i + 2 * WIDTH <= n; i += 2 * WIDTH, ahead += STEP) {                                \
            for (int j = 0; j < STEP; j += LINE)                                                   \
                __builtin_prefetch(ahead + j);                                                     \
            const vec x = V_LOAD(a + i), z = V_LOAD(a + i + WIDTH);                                \
            for (int j = 0; j < ROWS; j++) {                                                       \
                even[j] = V_FMA(x, widen(b + j * ld + i), even[j]);                                \
                odd[j] = V_FMA(z, widen(b + j * ld + i + WIDTH), odd[j]);                          \
            }                                                                                      \
        }                                                                                          \
        for (; i < n; i += WIDTH)                                                                  \
            for (int j = 0; j < ROWS; j++) {                                                       \
                type rest[WIDTH] = {0};                                                            \
                const int64_t part = n - i < WIDTH ? n - i : WIDTH;                                \
                memcpy(rest, b + j * ld + i, (size_t)part * sizeof *rest);                         \
                even[j] = V_FMA(get(a + i, part, 0.0f), widen(rest), even[j]);                     \
            }                                                                                      \
        for (int j = 0; j < ROWS; j++)                                                             \
            y[r + j] = V_SUM(V_ADD(even[j], odd[j]));                                              \
    }                                                                                              \
    for (; r < rows; r++, b += ld)                                                                 \
    y[r] = alone(a, b, n)

TARGET static void dots_half(float *y, const float *a, const uint16_t *b, int64_t ld, int64_t rows,
                             int64_t n)
{
    DOTS_WIDENED(uint16_t, V_WIDEN_HALF, dot_half);
}

TARGET static void dots_bytes(float *y, const float *a, const int8_t *b, int64_t ld, int64_t rows,
                              int64_t n)
{
    DOTS_WIDENED(int8_t, V_LOAD_I8, dot_bytes);
}

TARGET static void multiply(float *y, const float *a, const float *b, int64_t n)
{
    EACH(i, n) put(y + i, V_MUL(get(a + i, part, 0.0f), get(b + i, part, 0.0f)), part);
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

#if HAVE_PAIRS
TARGET static void narrow(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        V_STORE_BF16(y + i, V_LOAD(x + i));
    if (i < n) {
        uint16_t part[WIDTH];
        V_STORE_BF16(part, load_part(x + i, n - i, 0.0f));
        for (int64_t j = 0; i + j < n; j++)
            y[i + j] = part[j];
    }
}
#endif
