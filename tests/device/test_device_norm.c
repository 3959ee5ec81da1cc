// SPDX-License-Identifier: Apache-2.0
/*
 * Products that take part in layer norms, on a device: every tile for them against sums in double,
 * with moments and terms at random, and poisoned outputs. Says in a line where there is no GPU.
 */
#include "device_support.h"

/* A weight that is 2:4, and what it is on the host. */
typedef struct weight {
    float *host;
    s24_device_weight *there;
} weight;

static weight weight_make(gpu *g, int64_t n, int64_t k)
{
    weight w = {malloc((size_t)(n * k) * sizeof(float)), NULL};
    for (int64_t i = 0; i < n * k; i++)
        w.host[i] = random_float();
    const s24_dense dense = {w.host, S24_F32, n, k, 0};
    const s24_matrix_opts opts = {
        .size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = g->dtype};
    s24_matrix *matrix;
    assert_ok(g->ctx, s24_matrix_create(&matrix, g->ctx, &dense, &opts));
    assert_ok(g->ctx, s24_matrix_to_dense(g->ctx, &dense, matrix));
    assert_ok(g->ctx, s24_device_weight_create(&w.there, g->ctx, g->device, matrix, NULL));
    s24_matrix_destroy(matrix);
    return w;
}

static void weight_free(weight *w)
{
    s24_device_weight_destroy(w->there);
    free(w->host);
}

static double *product_of(const array *x, const weight *w, int64_t m, int64_t n, int64_t k)
{
    double *sum = calloc((size_t)(m * n), sizeof *sum);
    for (int64_t i = 0; i < m * n; i++)
        for (int64_t j = 0; j < k; j++)
            sum[i] += (double)x->host[i / n * k + j] * (double)w->host[i % n * k + j];
    return sum;
}

/* Moments of `parts` pieces of m tokens' elements, and each token's mean and 1/σ by them. */
typedef struct moments {
    float *there;
    double *mean, *inverse;
} moments;

static const float EPS = 1e-5f;

static moments moments_make(gpu *g, int64_t m, int64_t width)
{
    const int64_t parts = (width + 63) / 64;
    float *host = malloc((size_t)(parts * m) * 2 * sizeof *host);
    moments s = {NULL, calloc((size_t)m, sizeof *s.mean), calloc((size_t)m, sizeof *s.inverse)};
    for (int64_t t = 0; t < m; t++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < parts; i++) {
            float *at = host + (i * m + t) * 2;
            const float elements = (float)(width - 64 * i < 64 ? width - 64 * i : 64);
            at[0] = elements * 0.5f * random_float();
            at[1] = elements * (2.5f + random_float());
            if (i % 3 == 2) at[0] = at[1] = 0; /* as of several pieces in one's place */
            sum += (double)at[0];
            squares += (double)at[1];
        }
        s.mean[t] = sum / (double)width;
        s.inverse[t] = 1 / sqrt(squares / (double)width - s.mean[t] * s.mean[t] + (double)EPS);
    }
    s.there = upload(g, host, (size_t)(parts * m) * 2 * sizeof *host);
    free(host);
    return s;
}

static void moments_free(gpu *g, moments *s)
{
    release(g, s->there);
    free(s->mean);
    free(s->inverse);
}

/* Runs the product with every tile that there is for norms, twice, and after each looks at what it
   wrote. */
typedef void (*look)(gpu *g, const void *expected, const char *tile);

static void run_tiles(gpu *g, const s24_device_linear_args *args, const weight *w, look look_at,
                      const void *expected)
{
    const char *tile;
    int run = 0;
    for (int i = -1; i < 0 || (tile = s24_device_tile_name(g->device, i)) != NULL; i++) {
        s24_device_linear_args with = *args;
        with.tile = i < 0 ? NULL : tile;
        const s24_status status = s24_device_linear(g->ctx, g->device, w->there, &with);
        if (i < 0 && status == S24_ERROR_UNSUPPORTED) continue; /* too few tokens for any */
        if (i >= 0 && !strstr(tile, "/norm")) {
            assert_int_equal(status, S24_ERROR_UNSUPPORTED);
            continue;
        }
        if (status == S24_ERROR_UNSUPPORTED) continue; /* teams, and k too short to share */
        assert_ok(g->ctx, status);
        assert_ok(g->ctx, s24_device_linear(g->ctx, g->device, w->there, &with));
        look_at(g, expected, with.tile ? with.tile : "chosen");
        run++;
    }
    assert_true(run > 4);
}

/* ---- of an X to be normed -------------------------------------------------------------------- */

typedef struct normed {
    void *y;
    double *expected;
    int64_t count;
} normed;

static void look_at_normed(gpu *g, const void *expected, const char *tile)
{
    const normed *n = expected;
    char what[64];
    snprintf(what, sizeof what, "normed, %s", tile);
    expect(g, what, n->y, 0, n->expected, n->count, 3e-3);
    void *poison = poisoned(g, (size_t)n->count * 2);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, n->y, poison, (size_t)n->count * 2, NULL));
    release(g, poison);
}

static void check_normed(gpu *g, int64_t m, int64_t n, int64_t k, int gelu)
{
    array x = array_make(g, m * k, 1);
    weight w = weight_make(g, n, k);
    moments s = moments_make(g, m, k);
    float *terms = malloc((size_t)n * 2 * sizeof *terms);
    for (int64_t i = 0; i < 2 * n; i++)
        terms[i] = 3 * random_float();
    normed out = {poisoned(g, (size_t)(m * n) * 2), product_of(&x, &w, m, n, k), m * n};
    for (int64_t i = 0; i < m * n; i++) {
        const int64_t t = i / n;
        double v = (out.expected[i] - s.mean[t] * (double)terms[i % n]) * s.inverse[t] +
                   (double)terms[n + i % n];
        out.expected[i] = gelu ? 0.5 * v * (1 + erf(v / sqrt(2.0))) : v;
    }
    const s24_dense views[] = {{out.y, g->dtype, m, n, 0}, {x.there, g->dtype, m, k, 0}};
    const s24_device_linear_norm norm = {.size = sizeof norm,
                                         .eps = EPS,
                                         .x_moments = s.there,
                                         .x_terms =
                                             upload(g, terms, (size_t)n * 2 * sizeof *terms)};
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = &views[0],
                                         .x = &views[1],
                                         .activation =
                                             gelu ? S24_ACTIVATION_GELU : S24_ACTIVATION_NONE,
                                         .norm = &norm};
    run_tiles(g, &args, &w, look_at_normed, &out);
    release(g, (void *)(uintptr_t)norm.x_terms);
    release(g, out.y);
    free(out.expected);
    free(terms);
    moments_free(g, &s);
    weight_free(&w);
    array_free(g, &x);
}

/* ---- of what the next norm is of ------------------------------------------------------------- */

typedef struct added {
    void *y;
    float *moments; /* device */
    double *expected, *sums, *squares;
    int64_t m, n;
} added;

static void look_at_added(gpu *g, const void *expected, const char *tile)
{
    const added *a = expected;
    const int64_t parts = (a->n + 63) / 64;
    const size_t bytes = (size_t)(parts * a->m) * 2 * sizeof(float);
    float *got = malloc(bytes);
    char what[64];
    snprintf(what, sizeof what, "added, %s", tile);
    expect(g, what, a->y, 0, a->expected, a->m * a->n, 2e-3);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, got, a->moments, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    for (int64_t t = 0; t < a->m; t++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < parts; i++) {
            sum += (double)got[(i * a->m + t) * 2];
            squares += (double)got[(i * a->m + t) * 2 + 1];
        }
        const double slack = 1e-4 * (double)a->n + 1e-5 * a->squares[t];
        if (!(fabs(sum - a->sums[t]) < slack && fabs(squares - a->squares[t]) < slack))
            fail_msg("%s: token %d of %d has moments %g and %g, expected %g and %g", what, (int)t,
                     (int)a->m, sum, squares, a->sums[t], a->squares[t]);
    }
    memset(got, 0xff, bytes);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, a->moments, got, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    free(got);
}

/* The residual is normed, and the sum multiplied, or neither. */
static void check_added(gpu *g, int64_t m, int64_t n, int64_t k, int norms)
{
    array x = array_make(g, m * k, 1), r = array_make(g, m * n, 2), bias = array_make(g, n, 1);
    array gamma = array_make(g, n, 2), beta = array_make(g, n, 1), next = array_make(g, n, 2);
    weight w = weight_make(g, n, k);
    moments s = moments_make(g, m, n);
    const size_t bytes = (size_t)((n + 63) / 64 * m) * 2 * sizeof(float);
    added out = {poisoned(g, (size_t)(m * n) * 2),
                 poisoned(g, bytes),
                 product_of(&x, &w, m, n, k),
                 calloc((size_t)m, sizeof(double)),
                 calloc((size_t)m, sizeof(double)),
                 m,
                 n};
    for (int64_t i = 0; i < m * n; i++) {
        const int64_t t = i / n, c = i % n;
        double v = (double)r.host[i];
        if (norms)
            v = (v - s.mean[t] * (double)gamma.host[c]) * s.inverse[t] + (double)beta.host[c];
        v += out.expected[i] + (double)bias.host[c];
        out.sums[t] += v;
        out.squares[t] += v * v;
        out.expected[i] = norms ? v * (double)next.host[c] : v;
    }
    const s24_dense views[] = {
        {out.y, g->dtype, m, n, 0}, {x.there, g->dtype, m, k, 0}, {r.there, g->dtype, m, n, 0}};
    const s24_device_linear_norm norm = {.size = sizeof norm,
                                         .eps = EPS,
                                         .residual_moments = norms ? s.there : NULL,
                                         .residual_gamma = gamma.there,
                                         .residual_beta = beta.there,
                                         .y_gamma = norms ? next.there : NULL,
                                         .y_moments = out.moments};
    const s24_device_linear_args args = {.size = sizeof args,
                                         .y = &views[0],
                                         .x = &views[1],
                                         .bias = bias.there,
                                         .residual = &views[2],
                                         .norm = &norm};
    run_tiles(g, &args, &w, look_at_added, &out);
    release(g, out.y);
    release(g, out.moments);
    free(out.expected);
    free(out.sums);
    free(out.squares);
    moments_free(g, &s);
    weight_free(&w);
    array *const arrays[] = {&x, &r, &bias, &gamma, &beta, &next};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
}

/* From less than a tile to more tiles than a GPU has processors. */
static void test_tiles(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 8, 64},      {7, 72, 136},   {65, 136, 320},
                                        {130, 264, 256}, {193, 520, 64}, {500, 384, 1536},
                                        {8300, 584, 64}};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    const int hopper = strstr(s24_device_text(g.device), "capability 9.0") != NULL;
    for (size_t i = 0; hopper && i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_normed(&g, s[0], s[1], s[2], i % 3 == 0);
        check_added(&g, s[0], s[1], s[2], i % 4 != 0);
    }
    if (!hopper) print_message("skipped: no products between norms on this GPU\n");
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 64 * 64, 1);
    weight w = weight_make(&g, 64, 64);
    const s24_dense x_view = {x.there, g.dtype, 64, 64, 0};
    void *y = poisoned(&g, (size_t)64 * 64 * 4);
    s24_dense y_view = {y, g.dtype, 64, 64, 0};
    s24_device_linear_norm norm = {.size = sizeof norm};
    s24_device_linear_args args = {.size = sizeof args, .y = &y_view, .x = &x_view, .norm = &norm};
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "not neither",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    norm.x_moments = norm.y_moments = y;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "not both",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    norm.y_moments = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "x_terms",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    norm.x_terms = y;
    args.bias = y;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "no bias",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    args.bias = NULL;
    y_view.dtype = S24_F32;
    assert_refused(g.ctx, S24_ERROR_DTYPE, "into f32",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    y_view.dtype = g.dtype;
    norm.x_moments = NULL;
    norm.y_moments = y;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "a residual",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    args.residual = &x_view;
    args.activation = S24_ACTIVATION_GELU;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "no other activation",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    args.activation = S24_ACTIVATION_NONE;
    norm.residual_moments = y;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "residual_gamma",
                   s24_device_linear(g.ctx, g.device, w.there, &args));
    release(&g, y);
    weight_free(&w);
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
