// SPDX-License-Identifier: Apache-2.0
/* Norms and dropout of training on a device against sums in double on odd shapes, in both
   dtypes. Says in a line where there is no GPU. */
#include "device_train_support.h"

static const int64_t widths[] = {8, 40, 128, 264, 384, 768, 1024, 1032, 2056, 4096, 8192};
enum { WIDTHS = sizeof widths / sizeof *widths };

typedef struct variant {
    int rms, bias, residual, dropped; /* residual 2: in place */
    int bare;                         /* no beta, as where rms */
} variant;

/* ---- dropout --------------------------------------------------------------------------------- */

static void test_dropout(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int turn = 0; turn < 4; turn++) {
        const int64_t rows = turn ? 131 : 1, width = (int64_t[]){8, 264, 384, 1032}[turn];
        const s24_device_dropout drop = {0.1f, UINT64_C(0x9e3779b97f4a7c15)};
        g.dtype = turn % 2 ? S24_F16 : S24_BF16;
        array x = array_make(&g, rows * width, 3);
        double *expected = malloc((size_t)(rows * width) * sizeof *expected);
        int dropped = 0;
        for (int64_t i = 0; i < rows * width; i++) {
            const double factor = drop_factor(&drop, i / width, i % width);
            dropped += factor == 0;
            expected[i] = (double)x.host[i] * factor;
        }
        if (turn) assert_in_range(dropped, rows * width / 12, rows * width / 8);
        DO(&g, dropout, .dtype = g.dtype, .rows = rows, .width = width, .y = x.there, .x = x.there,
           .drop = drop);
        expect(&g, "dropout", x.there, 0, expected, rows * width, 1e-7);
        free(expected);
        array_free(&g, &x);
    }
    gpu_end(&g);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* y and stats follow from the s that the device wrote. */
static void check_normed(gpu *g, const float *s, const float *y, const float *stats,
                         const array *gamma, const array *beta, int64_t rows, int64_t width,
                         const variant *of)
{
    const int rms = of->rms;
    const double ulp = g->dtype == S24_BF16 ? 1.0 / 256 : 1.0 / 2048;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < width && !rms; i++)
            mean += (double)s[r * width + i] / (double)width;
        for (int64_t i = 0; i < width; i++)
            variance += pow((double)s[r * width + i] - mean, 2) / (double)width;
        const double inverse = 1 / sqrt(variance + 1e-5);
        close_to(mean, (double)stats[2 * r], 1e-6, "mean", r);
        close_to(inverse, (double)stats[2 * r + 1], 1e-5, "inverse", r);
        for (int64_t i = 0; i < width; i++) {
            const double v = ((double)s[r * width + i] - mean) * inverse * (double)gamma->host[i] +
                             (rms || of->bare ? 0 : (double)beta->host[i]);
            close_to(v, (double)y[r * width + i], ulp, "norm", r * width + i);
        }
    }
}

static void check_add_norm(gpu *g, int64_t rows, int64_t width, const variant *v)
{
    const int64_t n = rows * width;
    const s24_device_dropout drop = {v->dropped ? 0.25f : 0, 77};
    array z = array_make(g, n, 2), residual = array_make(g, n, 2), bias = wide_make(g, width, 1);
    array gamma = wide_make(g, width, 1), beta = wide_make(g, width, 1);
    void *y = poisoned(g, (size_t)n * 2), *stats = poisoned(g, (size_t)rows * 8);
    void *scale = poisoned(g, 16);
    void *s = v->residual == 2 ? residual.there : poisoned(g, (size_t)n * 2);
    double *expected = malloc((size_t)n * sizeof *expected);
    for (int64_t i = 0; i < n; i++) {
        expected[i] = (double)z.host[i] + (v->bias ? (double)bias.host[i % width] : 0);
        if (v->dropped) expected[i] *= drop_factor(&drop, i / width, i % width);
        if (v->residual) expected[i] += (double)residual.host[i];
    }
    const s24_device_train_add_norm_args sum = {.size = sizeof sum,
                                                .dtype = g->dtype,
                                                .rows = rows,
                                                .width = width,
                                                .y = y,
                                                .s = s,
                                                .stats = stats,
                                                .z = z.there,
                                                .residual = v->residual ? residual.there : NULL,
                                                .bias = v->bias ? bias.there : NULL,
                                                .gamma = gamma.there,
                                                .beta = v->rms || v->bare ? NULL : beta.there,
                                                .eps = 1e-5f,
                                                .rms = v->rms,
                                                .drop = drop,
                                                .scale = scale};
    assert_ok(g->ctx, s24_device_train_add_norm(g->ctx, g->device, &sum));
    expect(g, "sum", s, 0, expected, n, 1e-5);
    expect_largest(g, y, scale, n);
    s24_device_train_add_norm_args alone = sum; /* the norm of what is there */
    alone.z = alone.residual = alone.bias = NULL;
    alone.drop.rate = 0;
    alone.scale = NULL;
    for (int turn = 0; turn < 2; turn++) {
        float *at = read_back(g, s, g->dtype, n), *normed = read_back(g, y, g->dtype, n);
        float *stat = read_back(g, stats, S24_F32, 2 * rows);
        check_normed(g, at, normed, stat, &gamma, &beta, rows, width, v);
        free(at);
        free(normed);
        free(stat);
        assert_ok(g->ctx, s24_device_train_add_norm(g->ctx, g->device, &alone));
    }
    free(expected);
    release(g, y);
    release(g, scale);
    release(g, stats);
    if (v->residual != 2) release(g, s);
    array *const arrays[] = {&z, &residual, &bias, &gamma, &beta};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
}

static void test_add_norm(void **state)
{
    static const variant variants[] = {
        {0, 1, 1, 1, 0}, {0, 0, 0, 0, 0}, {1, 0, 2, 0, 0}, {0, 1, 2, 0, 0}, {0, 0, 1, 1, 1}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < WIDTHS; i++)
        for (int v = 0; v < 5; v++) {
            g.dtype = (i + v) % 2 ? S24_F16 : S24_BF16;
            check_add_norm(&g, i % 3 ? 9 : 1, widths[i], &variants[v]);
        }
    check_add_norm(&g, 2500, 384, &variants[0]); /* more rows than there are warps */
    gpu_end(&g);
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct back {
    int rms, add, second, alias, dropped, layer; /* layer: what the layer before needs */
    int bare;                                    /* no beta, as where rms */
} back;

typedef struct back_expected {
    double *ds, *dz, *dgamma, *dbeta, *dbias;
} back_expected;

static void back_reference(const back_expected *e, const back *b, int64_t rows, int64_t width,
                           const array *dy, const array *dy2, const array *ds, const array *s,
                           const float *stats, const array *gamma, const s24_device_dropout *drop,
                           const s24_device_dropout *drop_z)
{
    double *g = malloc((size_t)width * sizeof *g), *h = malloc((size_t)width * sizeof *h);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0, product = 0;
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = r * width + i;
            double d = (double)dy->host[at];
            if (b->second) d += (double)(b->alias ? ds : dy2)->host[at];
            if (b->dropped) d *= drop_factor(drop, r, i);
            h[i] = ((double)s->host[at] - (double)stats[2 * r]) * (double)stats[2 * r + 1];
            g[i] = d * (double)gamma->host[i];
            sum += g[i] / (double)width;
            product += g[i] * h[i] / (double)width;
            e->dgamma[i] += d * h[i];
            e->dbeta[i] += d;
        }
        for (int64_t i = 0; i < width; i++) {
            const int64_t at = r * width + i;
            e->ds[at] = (b->add ? (double)ds->host[at] : 0) +
                        (double)stats[2 * r + 1] * (g[i] - (b->rms ? 0 : sum) - h[i] * product);
            e->dz[at] = e->ds[at] * drop_factor(drop_z, r, i);
            e->dbias[i] += e->dz[at];
        }
    }
    free(g);
    free(h);
}

static void check_norm_back(gpu *g, int64_t rows, int64_t width, const back *b)
{
    const int64_t n = rows * width;
    const s24_device_dropout drop = {b->dropped ? 0.5f : 0, 5}, drop_z = {b->layer ? 0.1f : 0, 6};
    array dy = array_make(g, n, 1), dy2 = array_make(g, n, 1), ds = array_make(g, n, 1);
    array s = array_make(g, n, 2), gamma = wide_make(g, width, 1);
    array sums = wide_make(g, 3 * width, 1), stats = wide_make(g, 2 * rows, 1);
    void *work = work_memory(g), *dz = poisoned(g, (size_t)n * 2), *scale = poisoned(g, 16);
    const back_expected e = {calloc((size_t)n, sizeof(double)), calloc((size_t)n, sizeof(double)),
                             calloc((size_t)width, sizeof(double)),
                             calloc((size_t)width, sizeof(double)),
                             calloc((size_t)width, sizeof(double))};
    for (int64_t i = 0; i < width; i++) {
        e.dgamma[i] = (double)sums.host[i];
        e.dbeta[i] = (double)sums.host[width + i];
        e.dbias[i] = (double)sums.host[2 * width + i];
    }
    back_reference(&e, b, rows, width, &dy, &dy2, &ds, &s, stats.host, &gamma, &drop, &drop_z);
    float *dgamma = sums.there, *dbeta = dgamma + width, *dbias = dbeta + width;
    const s24_device_train_norm_back_args args = {.size = sizeof args,
                                                  .dtype = g->dtype,
                                                  .rows = rows,
                                                  .width = width,
                                                  .ds = ds.there,
                                                  .dy = dy.there,
                                                  .dy2 = !b->second ? NULL
                                                         : b->alias ? ds.there
                                                                    : dy2.there,
                                                  .s = s.there,
                                                  .stats = stats.there,
                                                  .gamma = gamma.there,
                                                  .dgamma = dgamma,
                                                  .dbeta = b->rms || b->bare ? NULL : dbeta,
                                                  .rms = b->rms,
                                                  .add = b->add,
                                                  .drop = drop,
                                                  .dz = b->layer ? dz : NULL,
                                                  .dbias = b->layer ? dbias : NULL,
                                                  .drop_z = drop_z,
                                                  .work = work,
                                                  .scale = scale};
    assert_ok(g->ctx, s24_device_train_norm_back(g->ctx, g->device, &args));
    expect_largest(g, b->layer ? dz : ds.there, scale, n);
    expect(g, "ds", ds.there, 0, e.ds, n, 2e-5);
    const double slack = 1e-6 * (double)rows + 1e-5;
    expect(g, "dgamma", dgamma, 1, e.dgamma, width, slack);
    if (!b->rms && !b->bare) expect(g, "dbeta", dbeta, 1, e.dbeta, width, slack);
    if (b->layer) {
        expect(g, "dz", dz, 0, e.dz, n, 2e-5);
        expect(g, "dbias", dbias, 1, e.dbias, width, slack);
    }
    double *const doubles[] = {e.ds, e.dz, e.dgamma, e.dbeta, e.dbias};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++)
        free(doubles[i]);
    array *const arrays[] = {&dy, &dy2, &ds, &s, &gamma, &sums, &stats};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
    release(g, work);
    release(g, dz);
    release(g, scale);
}

static void test_norm_back(void **state)
{
    static const back backs[] = {{0, 0, 1, 1, 0, 1, 0},
                                 {0, 0, 0, 0, 1, 0, 0},
                                 {1, 1, 0, 0, 0, 1, 0},
                                 {0, 1, 1, 0, 0, 0, 0},
                                 {0, 1, 0, 0, 0, 1, 1}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < WIDTHS; i++)
        for (int v = 0; v < 5; v++) {
            g.dtype = (i + v) % 2 ? S24_BF16 : S24_F16;
            check_norm_back(&g, i % 3 ? 11 : 1, widths[i], &backs[v]);
        }
    check_norm_back(&g, 4500, 384, &backs[0]);
    gpu_end(&g);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Elements of heads that stand in rows of ld, after one head of another kind, end to end. */
static float *heads_of(const float *x, int64_t tokens, int64_t heads, int64_t width)
{
    const int64_t row = heads * width, ld = row + 2 * width;
    float *all = malloc((size_t)(tokens * row) * sizeof *all);
    for (int64_t t = 0; t < tokens; t++)
        memcpy(all + t * row, x + t * ld + width, (size_t)row * sizeof *all);
    return all;
}

/* Norms of heads in place, and back in place; the columns next to them stay. */
static void check_heads(gpu *g, int64_t tokens, int64_t heads, int64_t width)
{
    const int64_t ld = (heads + 2) * width, rows = tokens * heads, n = rows * width;
    array x = array_make(g, tokens * ld, 2), s = array_make(g, tokens * ld, 2);
    array gamma = wide_make(g, width, 1), sums = wide_make(g, width, 1);
    void *stats = poisoned(g, (size_t)rows * 8), *work = work_memory(g);
    void *at = (uint16_t *)x.there + width;
    DO(g, add_norm, .dtype = g->dtype, .rows = rows, .width = width, .y = at, .s = at,
       .stats = stats, .gamma = gamma.there, .eps = 1e-5f, .rms = 1, .heads = heads, .ld = ld);
    float *normed = read_back(g, x.there, g->dtype, tokens * ld);
    float *stat = read_back(g, stats, S24_F32, 2 * rows);
    float *before = heads_of(x.host, tokens, heads, width);
    float *after = heads_of(normed, tokens, heads, width);
    check_normed(g, before, after, stat, &gamma, NULL, rows, width, &(variant){.rms = 1});
    for (int64_t i = 0; i < tokens * ld; i++)
        if (i % ld < width || i % ld >= ld - width) assert_true(normed[i] == x.host[i]);
    /* The norm's output is the gradient now. */
    float *sums_of = heads_of(s.host, tokens, heads, width);
    array dy = {.host = after}, raw = {.host = sums_of};
    const back_expected e = {calloc((size_t)n, sizeof(double)), calloc((size_t)n, sizeof(double)),
                             calloc((size_t)width, sizeof(double)),
                             calloc((size_t)width, sizeof(double)),
                             calloc((size_t)width, sizeof(double))};
    for (int64_t i = 0; i < width; i++)
        e.dgamma[i] = (double)sums.host[i];
    back_reference(&e, &(back){.rms = 1}, rows, width, &dy, NULL, NULL, &raw, stat, &gamma,
                   &(s24_device_dropout){0, 0}, &(s24_device_dropout){0, 0});
    DO(g, norm_back, .dtype = g->dtype, .rows = rows, .width = width, .ds = at, .dy = at,
       .s = (uint16_t *)s.there + width, .stats = stats, .gamma = gamma.there, .dgamma = sums.there,
       .rms = 1, .heads = heads, .ld = ld, .work = work);
    float *gradient = read_back(g, x.there, g->dtype, tokens * ld);
    float *ds = heads_of(gradient, tokens, heads, width);
    const double ulp = g->dtype == S24_BF16 ? 1.0 / 256 : 1.0 / 2048;
    for (int64_t i = 0; i < n; i++)
        close_to(e.ds[i], (double)ds[i], 4 * ulp, "ds", i);
    expect(g, "dgamma", sums.there, 1, e.dgamma, width, 1e-6 * (double)rows + 1e-5);
    for (int64_t i = 0; i < tokens * ld; i++)
        if (i % ld < width || i % ld >= ld - width) assert_true(gradient[i] == x.host[i]);
    void *const host[] = {normed, stat, before, after,    sums_of, gradient,
                          ds,     e.ds, e.dz,   e.dgamma, e.dbeta, e.dbias};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
    array *const arrays[] = {&x, &s, &gamma, &sums};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
    release(g, stats);
    release(g, work);
}

static void test_heads(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 8}, {7, 3, 16}, {300, 8, 128}, {33, 2, 264}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 8; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_heads(&g, shapes[i / 2][0], shapes[i / 2][1], shapes[i / 2][2]);
    }
    gpu_end(&g);
}

/* The same sums to the bit, run after run; a NaN stays in its row and reaches every column's
   sum. */
static void test_same_bits(void **state)
{
    enum { ROWS = 3000, WIDTH = 384, N = ROWS * WIDTH };
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    array dy = array_make(&g, N, 1), s = array_make(&g, N, 1), gamma = wide_make(&g, WIDTH, 1);
    array stats = wide_make(&g, 2 * ROWS, 1);
    void *work = work_memory(&g), *ds = poisoned(&g, (size_t)N * 2);
    float *first = NULL;
    const float zeros[3 * WIDTH] = {0};
    for (int turn = 0; turn < 3; turn++) {
        float *sums = upload(&g, zeros, sizeof zeros);
        const uint16_t nan = 0x7fff;
        if (turn == 2)
            assert_ok(g.ctx,
                      s24_device_copy(g.ctx, g.device, (char *)dy.there + (ptrdiff_t)WIDTH * 14,
                                      &nan, sizeof nan, NULL));
        DO(&g, norm_back, .dtype = g.dtype, .rows = ROWS, .width = WIDTH, .ds = ds, .dy = dy.there,
           .s = s.there, .stats = stats.there, .gamma = gamma.there, .dgamma = sums,
           .dbeta = sums + WIDTH, .dbias = sums + 2 * WIDTH, .work = work);
        float *got = read_back(&g, sums, S24_F32, 3 * WIDTH);
        if (turn == 0) first = got;
        if (turn == 1) assert_memory_equal(got, first, 3 * WIDTH * sizeof(float));
        if (turn == 2) {
            float *rows = read_back(&g, ds, g.dtype, N);
            for (int64_t i = 0; i < N; i++)
                assert_int_equal(isnan(rows[i]), i / WIDTH == 7);
            for (int64_t i = 0; i < WIDTH; i++) {
                assert_true(isnan(got[2 * WIDTH + i]));
                assert_int_equal(isnan(got[i]), i == 0);
            }
            free(rows);
        }
        if (turn) free(got);
        release(&g, sums);
    }
    free(first);
    release(&g, work);
    release(&g, ds);
    array *const arrays[] = {&dy, &s, &gamma, &stats};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(&g, arrays[i]);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    void *m = work_memory(&g);
    REFUSED(&g, S24_ERROR_DTYPE, "dtype is f32", dropout, .dtype = S24_F32, .rows = 1, .width = 8,
            .y = m, .x = m);
    REFUSED(&g, S24_ERROR_SHAPE, "width that 8 divides", dropout, .dtype = S24_F16, .rows = 1,
            .width = 12, .y = m, .x = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "a dropout of 1", dropout, .dtype = S24_F16, .rows = 1,
            .width = 8, .y = m, .x = m, .drop = {1, 0});
    REFUSED(&g, S24_ERROR_ARGUMENT, "x is NULL", dropout, .dtype = S24_F16, .rows = 1, .width = 8,
            .y = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "multiple of 16 bytes", dropout, .dtype = S24_F16, .rows = 1,
            .width = 8, .y = (char *)m + 2, .x = m);
    REFUSED(&g, S24_ERROR_UNSUPPORTED, "up to 8192", add_norm, .dtype = S24_F16, .rows = 1,
            .width = 8200, .y = m, .s = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "gamma is NULL", add_norm, .dtype = S24_F16, .rows = 1,
            .width = 8, .y = m, .s = m, .stats = m, .beta = m);
    REFUSED(&g, S24_ERROR_ARGUMENT, "z is NULL", add_norm, .dtype = S24_F16, .rows = 1, .width = 8,
            .y = m, .s = m, .stats = m, .gamma = m, .beta = m, .bias = m);
    REFUSED(&g, S24_ERROR_SHAPE, "3 rows of 8, 2 of them side by side in rows 24 apart", add_norm,
            .dtype = S24_F16, .rows = 3, .width = 8, .y = m, .s = m, .stats = m, .gamma = m,
            .rms = 1, .heads = 2, .ld = 24);
    REFUSED(&g, S24_ERROR_SHAPE, "2 of them side by side in rows 8 apart", norm_back,
            .dtype = S24_F16, .rows = 2, .width = 8, .ds = m, .dy = m, .s = m, .stats = m,
            .gamma = m, .dgamma = m, .rms = 1, .work = m, .heads = 2, .ld = 8);
    REFUSED(&g, S24_ERROR_ARGUMENT, "z is given for rows that are heads", add_norm,
            .dtype = S24_F16, .rows = 2, .width = 8, .y = m, .s = m, .z = m, .stats = m, .gamma = m,
            .rms = 1, .heads = 2, .ld = 24);
    REFUSED(&g, S24_ERROR_ARGUMENT, "dz is NULL", norm_back, .dtype = S24_F16, .rows = 1,
            .width = 8, .ds = m, .dy = m, .s = m, .stats = m, .gamma = m, .dgamma = m, .dbeta = m,
            .work = m, .drop_z = {0.5f, 0});
    release(&g, m);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),   cmocka_unit_test(test_add_norm),
        cmocka_unit_test(test_norm_back), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
