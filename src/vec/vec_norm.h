// SPDX-License-Identifier: Apache-2.0
/* Norms of rows: of a pass in place, and of training forward and backward. See vec_table.h. */

TARGET static void layer_norm_row(float *x, const s24i_layer_norm *norm)
{
    const int64_t n = norm->n, whole = n / WIDTH * WIDTH;
    vec sum = V_SET(0.0f), squares = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH)
        sum = V_ADD(sum, V_LOAD(x + i));
    if (whole < n) sum = V_ADD(sum, load_part(x + whole, n - whole, 0.0f));
    const float mean = V_SUM(sum) / (float)n;
    const vec centre = V_SET(mean);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec d = V_SUB(V_LOAD(x + i), centre);
        squares = V_FMA(d, d, squares);
    }
    if (whole < n) {
        const vec d = V_SUB(load_part(x + whole, n - whole, mean), centre);
        squares = V_FMA(d, d, squares);
    }
    const float inverse = 1.0f / __builtin_sqrtf(V_SUM(squares) / (float)n + norm->eps);
    const vec factor = V_SET(inverse);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec d = V_MUL(V_SUB(V_LOAD(x + i), centre), factor);
        V_STORE(x + i, V_FMA(d, V_LOAD(norm->gamma + i), V_LOAD(norm->beta + i)));
    }
    for (int64_t i = whole; i < n; i++)
        x[i] = (x[i] - mean) * inverse * norm->gamma[i] + norm->beta[i];
}

TARGET static void rms_norm_row(float *x, const s24i_layer_norm *norm)
{
    const int64_t n = norm->n, whole = n / WIDTH * WIDTH;
    vec squares = V_SET(0.0f);
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const vec v = V_LOAD(x + i);
        squares = V_FMA(v, v, squares);
    }
    if (whole < n) {
        const vec v = load_part(x + whole, n - whole, 0.0f);
        squares = V_FMA(v, v, squares);
    }
    const float inverse = 1.0f / __builtin_sqrtf(V_SUM(squares) / (float)n + norm->eps);
    const vec factor = V_SET(inverse);
    for (int64_t i = 0; i < whole; i += WIDTH)
        V_STORE(x + i, V_MUL(V_MUL(V_LOAD(x + i), factor), V_LOAD(norm->gamma + i)));
    for (int64_t i = whole; i < n; i++)
        x[i] = x[i] * inverse * norm->gamma[i];
}

TARGET static void layer_norm(float *x, int64_t rows, const s24i_layer_norm *norm)
{
    for (int64_t r = 0; r < rows; r++)
        (norm->beta ? layer_norm_row : rms_norm_row)(x + r * norm->n, norm);
}

TARGET static void norm_forward(float *y, float stats[2], const float *x, const s24i_norm_row *norm)
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
    const vec more = V_SET(norm->grown ? 1.0f : 0.0f);
    EACH(i, n)
    {
        const vec d = V_MUL(V_SUB(get(x + i, part, 0.0f), V_SET(mean)), V_SET(inverse));
        const vec beta = norm->beta ? get(norm->beta + i, part, 0.0f) : V_SET(0.0f);
        put(y + i, V_FMA(d, V_ADD(get(norm->gamma + i, part, 0.0f), more), beta), part);
    }
    stats[0] = mean;
    stats[1] = inverse;
}

/* With h = (x − mean)·inverse and g = dy·gamma, or dy·(1 + gamma):
   dx = inverse·(g − mean(g) − h·mean(g·h)). */
TARGET static void norm_back(float *dx, const s24i_norm_sums *sums, const float *dy, const float *x,
                             const float stats[2], const s24i_norm_row *norm)
{
    const int64_t n = norm->n;
    float *dgamma = sums->gamma, *dbeta = sums->beta;
    const vec mean = V_SET(stats[0]), inverse = V_SET(stats[1]);
    const vec more = V_SET(norm->grown ? 1.0f : 0.0f);
    vec sum = V_SET(0.0f), product = V_SET(0.0f);
    EACH(i, n)
    {
        const vec d = get(dy + i, part, 0.0f);
        const vec h = V_MUL(V_SUB(get(x + i, part, stats[0]), mean), inverse);
        const vec g = V_MUL(d, V_ADD(get(norm->gamma + i, part, 0.0f), more));
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
        const vec gamma = V_ADD(get(norm->gamma + i, part, 0.0f), more);
        const vec g = V_MUL(get(dy + i, part, 0.0f), gamma);
        put(dx + i, V_MUL(inverse, V_SUB(V_FNMA(slope, h, g), shift)), part);
    }
}
