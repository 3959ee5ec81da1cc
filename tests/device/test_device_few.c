// SPDX-License-Identifier: Apache-2.0
/*
 * Dense products of few tokens on a device, with what they take in: a norm before, a gate, a
 * residual. Against sums in double, on odd shapes and on some that give a block several tiles, with
 * y's rows apart and poisoned; twice the same bits. Says in a line where there is no GPU.
 */
#include "device_support.h"

#include "activation.h"

typedef struct few_case {
    int64_t m, n, k; /* n: outputs after the gate */
    s24_activation activation;
    int biased, normed, gated, squared, added, wide;
} few_case;

typedef struct operands {
    array x, w, bias, y; /* y: the residual before */
    float *gamma;        /* here */
    void *gamma_there;
} operands;

/* From one of y's rows to the next. */
static int64_t ld_of(const few_case *c)
{
    return (c->n + 7) / 8 * 8 + 8;
}

static const float EPS = 1e-3f;

static operands operands_make(gpu *g, const few_case *c)
{
    const int64_t rows = c->n * (c->gated ? 2 : 1);
    operands o = {
        array_make(g, c->m * c->k, 1), array_make(g, rows * c->k, 1),        array_make(g, rows, 1),
        array_make(g, c->m * c->n, 1), malloc((size_t)c->k * sizeof(float)), NULL};
    for (int64_t i = 0; i < c->k; i++)
        o.gamma[i] = 1 + 0.5f * random_float();
    o.gamma_there = upload(g, o.gamma, (size_t)c->k * sizeof(float));
    return o;
}

static void operands_free(gpu *g, operands *o)
{
    array *const arrays[] = {&o->x, &o->w, &o->bias, &o->y};
    for (int i = 0; i < 4; i++)
        array_free(g, arrays[i]);
    release(g, o->gamma_there);
    free(o->gamma);
}

/* x as it is multiplied: normed and rounded, or as it is. */
static float *tokens_of(gpu *g, const few_case *c, const operands *o)
{
    const int64_t count = c->m * c->k;
    float *x = malloc((size_t)count * sizeof *x);
    uint16_t *bits = malloc((size_t)count * sizeof *bits);
    for (int64_t t = 0; t < c->m; t++) {
        double squares = 0;
        for (int64_t i = t * c->k; i < (t + 1) * c->k; i++)
            squares += (double)o->x.host[i] * (double)o->x.host[i];
        const double factor = c->normed ? 1 / sqrt(squares / (double)c->k + (double)EPS) : 1;
        for (int64_t i = t * c->k; i < (t + 1) * c->k; i++)
            x[i] = (float)((double)o->x.host[i] * factor *
                           (c->normed ? (double)o->gamma[i % c->k] : 1));
    }
    assert_ok(g->ctx, s24_convert(bits, g->dtype, x, S24_F32, count));
    assert_ok(g->ctx, s24_convert(x, S24_F32, bits, g->dtype, count));
    free(bits);
    return x;
}

static double sum_of(const few_case *c, const operands *o, const float *x, int64_t t, int64_t row)
{
    double sum = c->biased ? (double)o->bias.host[row] : 0;
    for (int64_t j = 0; j < c->k; j++)
        sum += (double)x[t * c->k + j] * (double)o->w.host[row * c->k + j];
    return sum;
}

static double *expected_of(gpu *g, const few_case *c, const operands *o)
{
    double *expected = malloc((size_t)(c->m * c->n) * sizeof *expected);
    float *x = tokens_of(g, c, o);
    for (int64_t i = 0; i < c->m * c->n; i++) {
        const int64_t t = i / c->n, n = i % c->n;
        double v = activation_of(sum_of(c, o, x, t, n), c->activation);
        if (c->squared) v *= v;
        if (c->gated) v *= sum_of(c, o, x, t, c->n + n);
        expected[i] = v + (c->added ? (double)o->y.host[i] : 0);
    }
    free(x);
    return expected;
}

/* y's memory: rows apart, poisoned but for the residual. */
static void *place_y(gpu *g, const few_case *c, const operands *o, size_t *bytes)
{
    const int64_t ld = ld_of(c);
    *bytes = (size_t)(c->m * ld) * (c->wide ? 4 : 2);
    uint16_t *raw = malloc(*bytes);
    memset(raw, 0xff, *bytes);
    for (int64_t t = 0; t < c->m && c->added; t++)
        assert_ok(g->ctx, s24_convert(raw + t * ld, g->dtype, o->y.host + t * c->n, S24_F32, c->n));
    void *there = upload(g, raw, *bytes);
    free(raw);
    return there;
}

static void *run(gpu *g, const few_case *c, const operands *o, size_t *bytes)
{
    const int64_t rows = c->n * (c->gated ? 2 : 1);
    void *y = place_y(g, c, o, bytes), *raw = malloc(*bytes);
    const s24_dense views[] = {{y, c->wide ? S24_F32 : g->dtype, c->m, c->n, ld_of(c)},
                               {o->x.there, g->dtype, c->m, c->k, 0},
                               {o->w.there, g->dtype, rows, c->k, 0}};
    const s24_device_dense_args args = {.size = sizeof args,
                                        .y = &views[0],
                                        .x = &views[1],
                                        .w = &views[2],
                                        .bias = c->biased ? o->bias.there : NULL,
                                        .activation = c->activation,
                                        .residual = c->added ? &views[0] : NULL,
                                        .few = 1,
                                        .gamma = c->normed ? o->gamma_there : NULL,
                                        .eps = EPS,
                                        .gated = c->gated,
                                        .squared = c->squared};
    assert_ok(g->ctx, s24_device_dense(g->ctx, g->device, &args));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, raw, y, *bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    release(g, y);
    return raw;
}

static void check(gpu *g, const few_case *c)
{
    const double ulp = g->dtype == S24_BF16 ? 1.0 / 256 : 1.0 / 2048;
    const int64_t ld = ld_of(c);
    operands o = operands_make(g, c);
    double *expected = expected_of(g, c, &o);
    size_t bytes, element = c->wide ? 4 : 2;
    uint8_t *raw = run(g, c, &o, &bytes), *again = run(g, c, &o, &bytes);
    assert_memory_equal(raw, again, bytes);
    for (int64_t i = 0; i < c->m * ld; i++) {
        const uint8_t *at = raw + (size_t)i * element;
        const int64_t n = i % ld;
        float got;
        if (n >= c->n) {
            for (size_t byte = 0; byte < element; byte++)
                assert_int_equal(at[byte], 0xff);
            continue;
        }
        assert_ok(g->ctx, s24_convert(&got, S24_F32, at, c->wide ? S24_F32 : g->dtype, 1));
        const double want = expected[i / ld * c->n + n];
        /* A normed element may be rounded to its other neighbour. */
        const double slack = c->normed ? 4 * ulp * (1 + 0.02 * fabs(want)) : 1e-3;
        if (!(fabs((double)got - want) <=
              (c->wide ? 1e-5 : ulp) * fabs(want) + slack * (c->gated ? sqrt((double)c->k) : 1)))
            fail_msg("%s, %dx%dx%d, token %d, output %d is %g, expected %g",
                     s24_dtype_name(g->dtype), (int)c->m, (int)c->n, (int)c->k, (int)(i / ld),
                     (int)n, (double)got, want);
    }
    free(raw);
    free(again);
    free(expected);
    operands_free(g, &o);
}

static void test_few(void **state)
{
    static const few_case cases[] = {
        {1, 8, 8, .biased = 1},
        {2, 24, 72, .activation = S24_ACTIVATION_GELU},
        {3, 136, 264, .activation = S24_ACTIVATION_GELU_TANH, .biased = 1},
        {16, 2048, 40, .added = 1},
        {8, 64, 4104, .added = 1, .biased = 1},
        {9, 4304, 520, .activation = S24_ACTIVATION_SILU},
        {1, 53, 48, .wide = 1},
        {11, 2117, 2056, .wide = 1},
        {1, 72, 48, .normed = 1},
        {5, 136, 2056, .normed = 1, .biased = 1},
        {16, 4304, 2048, .normed = 1},
        {4, 24, 8192, .normed = 1, .added = 1},
        {1, 2176, 264, .activation = S24_ACTIVATION_SILU, .gated = 1},
        {7, 72, 48, .activation = S24_ACTIVATION_GELU_TANH, .gated = 1, .normed = 1, .biased = 1},
        {16, 2312, 2048, .activation = S24_ACTIVATION_SILU, .gated = 1, .normed = 1},
        {3, 40, 2312, .activation = S24_ACTIVATION_RELU, .gated = 1, .squared = 1, .added = 1}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int d = 0; d < 2; d++) {
        g.dtype = d ? S24_F16 : S24_BF16;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check(&g, &cases[i]);
    }
    gpu_end(&g);
}

/* What no kernel takes in is refused by its name. */
static void test_refused(void **state)
{
    gpu g = {.dtype = S24_BF16};
    (void)state;
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 17 * 64, 1), w = array_make(&g, 16 * 64, 1);
    void *y = poisoned(&g, 17 * 16 * 2);
    float *gamma = upload(&g, x.host, 64 * sizeof(float));
    const s24_dense in = {x.there, S24_BF16, 17, 64, 0}, out = {y, S24_BF16, 17, 16, 0};
    const s24_dense weight = {w.there, S24_BF16, 16, 64, 0};
    s24_device_dense_args args = {
        .size = sizeof args, .y = &out, .x = &in, .w = &weight, .gamma = gamma, .few = 1};
    double seconds;
    assert_int_equal(s24_device_dense(g.ctx, g.device, &args), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(g.ctx), "17 tokens of 64 elements takes in no norm"));
    args.few = 0;
    assert_int_equal(s24_device_dense(g.ctx, g.device, &args), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(g.ctx), "that may not have our own kernel"));
    args.few = 1;
    assert_int_equal(s24_device_dense_search(&seconds, g.ctx, g.device, &args),
                     S24_ERROR_UNSUPPORTED);
    args.gamma = NULL;
    args.gated = 1;
    assert_int_equal(s24_device_dense(g.ctx, g.device, &args), S24_ERROR_SHAPE);
    release(&g, gamma);
    release(&g, y);
    array_free(&g, &x);
    array_free(&g, &w);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_few), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
