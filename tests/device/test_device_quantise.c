// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens in 8 bits on a device, by the kernel of their own and by a norm: each within half a step
 * of what it stands for, scales as promised. Says in a line where there is no GPU.
 */
#include "device_support.h"

static const s24_dtype narrow_dtypes[] = {S24_I8, S24_E4M3};

static double range_of(s24_dtype dtype)
{
    return dtype == S24_I8 ? 127 : 448;
}

/* Bytes and scales on the host, of rows beside a byte that must stay poison. */
typedef struct eight {
    int64_t rows, width;
    s24_dtype dtype;
    void *bytes, *scales; /* there */
    float *values, *scale;
} eight;

static eight eight_make(gpu *g, s24_dtype dtype, int64_t rows, int64_t width)
{
    return (eight){rows,
                   width,
                   dtype,
                   poisoned(g, (size_t)(rows * width) + 1),
                   poisoned(g, (size_t)(rows + 1) * sizeof(float)),
                   calloc((size_t)(rows * width), sizeof(float)),
                   calloc((size_t)rows + 1, sizeof(float))};
}

static void eight_fetch(gpu *g, eight *e)
{
    const size_t count = (size_t)(e->rows * e->width);
    uint8_t *bytes = malloc(count + 1);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, bytes, e->bytes, count + 1, NULL));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, e->scale, e->scales,
                                      (size_t)(e->rows + 1) * sizeof(float), NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_int_equal(bytes[count], 0xff);
    assert_true(e->scale[e->rows] != e->scale[e->rows]);
    assert_ok(g->ctx, s24_convert(e->values, S24_F32, bytes, e->dtype, (int64_t)count));
    free(bytes);
}

static void eight_free(gpu *g, eight *e)
{
    release(g, e->bytes);
    release(g, e->scales);
    free(e->values);
    free(e->scale);
}

/* Half a step of the dtype at a value that is v of its numbers. */
static double half_step(s24_dtype dtype, double v)
{
    return dtype == S24_I8 ? 0.5 : fmax(fabs(v) / 16, 0x1p-10);
}

/* `slack`: how far the expected values themselves may be off. */
static void expect_rows(const eight *e, const double *expected, double slack)
{
    for (int64_t r = 0; r < e->rows; r++) {
        const double *row = expected + r * e->width;
        const double scale = (double)e->scale[r];
        double most = 0;
        for (int64_t i = 0; i < e->width; i++)
            most = fmax(most, fabs(row[i]));
        assert_true(fabs(scale * range_of(e->dtype) - most) <= 1e-6 * most + slack);
        for (int64_t i = 0; i < e->width; i++) {
            const double q = (double)e->values[r * e->width + i];
            const double v = scale > 0 ? row[i] / scale : 0;
            if (!(fabs(q - v) <= 1.001 * half_step(e->dtype, v) + 2 * slack / fmax(scale, 1e-30)))
                fail_msg("%s, row %d, column %d of %d: %g stands for %g", s24_dtype_name(e->dtype),
                         (int)r, (int)i, (int)e->width, q, v);
        }
    }
}

static void check_rows(gpu *g, s24_dtype to, int64_t rows, int64_t width)
{
    array x = array_make(g, rows * width, 3);
    eight e = eight_make(g, to, rows, width);
    double *expected = malloc((size_t)(rows * width) * sizeof *expected);
    const s24_dense in = {x.there, g->dtype, rows, width, 0}, out = {e.bytes, to, rows, width, 0};
    const s24_device_quantise_args args = {
        .size = sizeof args, .y = &out, .scale = e.scales, .x = &in};
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = (double)x.host[i];
    assert_ok(g->ctx, s24_device_quantise(g->ctx, g->device, &args));
    eight_fetch(g, &e);
    expect_rows(&e, expected, 0);
    free(expected);
    eight_free(g, &e);
    array_free(g, &x);
}

static void test_rows(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 120, 384, 768, 1032, 3072, 5120, 8192};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * sizeof widths / sizeof *widths; i++) {
        g.dtype = i % 3 ? S24_F16 : S24_BF16;
        check_rows(&g, narrow_dtypes[i % 2], i % 5 ? 7 : 1500, widths[i / 2]);
    }
    gpu_end(&g);
}

/* Rows of zeros, with a NaN, with an Inf, and of the smallest number. */
static void test_odd_rows(void **state)
{
    (void)state;
    enum { ROWS = 4, WIDTH = 264 };
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    static uint16_t bits[ROWS * WIDTH];
    bits[WIDTH + 3] = 0x7e00;
    bits[2 * WIDTH + 263] = 0xfc00;
    for (int i = 0; i < WIDTH; i++)
        bits[3 * WIDTH + i] = 1;
    void *x = upload(&g, bits, sizeof bits);
    for (int t = 0; t < 2; t++) {
        eight e = eight_make(&g, narrow_dtypes[t], ROWS, WIDTH);
        const s24_dense in = {x, S24_F16, ROWS, WIDTH, 0}, out = {e.bytes, e.dtype, ROWS, WIDTH, 0};
        const s24_device_quantise_args args = {
            .size = sizeof args, .y = &out, .scale = e.scales, .x = &in};
        assert_ok(g.ctx, s24_device_quantise(g.ctx, g.device, &args));
        eight_fetch(&g, &e);
        assert_true(e.scale[0] == 0);
        for (int i = 0; i < WIDTH; i++)
            assert_true(e.values[i] == 0);
        assert_true(!isfinite(e.scale[1]) && !isfinite(e.scale[2]));
        assert_true(fabs((double)e.scale[3] * range_of(e.dtype) - 0x1p-24) < 1e-12);
        for (int i = 0; i < WIDTH; i++)
            assert_true(fabs((double)e.values[3 * WIDTH + i] - range_of(e.dtype)) < 1e-3);
        eight_free(&g, &e);
    }
    release(&g, x);
    gpu_end(&g);
}

/* The same with one scale for all rows, which some numbers are beyond. */
static void check_fixed(gpu *g, const s24_device_norm_args *of_rows, eight *e,
                        const double *expected, double slack)
{
    const double fixed = e->dtype == S24_I8 ? 0.02 : 0.004;
    s24_device_norm_args args = *of_rows;
    args.narrow_fixed = (float)fixed;
    assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
    eight_fetch(g, e);
    for (int64_t i = 0; i < e->rows * e->width; i++) {
        const double most = range_of(e->dtype) + (e->dtype == S24_I8);
        const double v = fmax(-most, fmin(expected[i] / fixed, range_of(e->dtype)));
        const double q = (double)e->values[i];
        assert_true(e->scale[i / e->width] == args.narrow_fixed);
        if (!(fabs(q - v) <= 1.001 * half_step(e->dtype, v) + 2 * slack / fixed))
            fail_msg("%s of one scale, element %d: %g stands for %g", s24_dtype_name(e->dtype),
                     (int)i, q, v);
    }
}

static void check_norm(gpu *g, s24_dtype to, int64_t rows, int64_t width)
{
    array x = array_make(g, rows * width, 3), gamma = array_make(g, width, 1);
    array beta = array_make(g, width, 1);
    eight e = eight_make(g, to, rows, width);
    void *y = poisoned(g, (size_t)(rows * width) * 2);
    uint16_t *bits = malloc((size_t)(rows * width) * 2);
    float *normed = malloc((size_t)(rows * width) * sizeof *normed);
    double *expected = malloc((size_t)(rows * width) * sizeof *expected), most = 0;
    const s24_dense in = {x.there, g->dtype, rows, width, 0}, out = {y, g->dtype, rows, width, 0};
    const s24_dense narrow = {e.bytes, to, rows, width, 0};
    const s24_device_norm_args args = {.size = sizeof args,
                                       .y = &out,
                                       .x = &in,
                                       .gamma = gamma.there,
                                       .beta = beta.there,
                                       .eps = 1e-12f,
                                       .narrow = &narrow,
                                       .narrow_scale = e.scales};
    assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
    eight_fetch(g, &e);
    assert_ok(g->ctx,
              s24_device_copy(g->ctx, g->device, bits, y, (size_t)(rows * width) * 2, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_ok(g->ctx, s24_convert(normed, S24_F32, bits, g->dtype, rows * width));
    for (int64_t i = 0; i < rows * width; i++) {
        expected[i] = (double)normed[i];
        most = fmax(most, fabs(expected[i]));
    }
    /* y is what it was made from, rounded to 16 bits. */
    expect_rows(&e, expected, most * (g->dtype == S24_BF16 ? 0x1p-8 : 0x1p-11));
    check_fixed(g, &args, &e, expected, most * (g->dtype == S24_BF16 ? 0x1p-8 : 0x1p-11));
    free(expected);
    free(normed);
    free(bits);
    release(g, y);
    eight_free(g, &e);
    array *const arrays[] = {&x, &gamma, &beta};
    for (int i = 0; i < 3; i++)
        array_free(g, arrays[i]);
}

static void test_norm(void **state)
{
    (void)state;
    static const int64_t widths[] = {16, 256, 264, 384, 768, 1024, 1280, 2048};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * sizeof widths / sizeof *widths; i++) {
        g.dtype = i % 3 ? S24_F16 : S24_BF16;
        check_norm(&g, narrow_dtypes[i % 2], i % 5 ? 5 : 129, widths[i / 2]);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 64 * 96, 1);
    const s24_dense in = {x.there, S24_F16, 8, 96, 0};
    s24_dense out = {x.there, S24_BF16, 8, 96, 0};
    s24_device_quantise_args args = {.size = sizeof args, .y = &out, .scale = x.there, .x = &in};
    assert_refused(g.ctx, S24_ERROR_DTYPE, "y is bf16; expected i8 or e4m3",
                   s24_device_quantise(g.ctx, g.device, &args));
    out = (s24_dense){x.there, S24_I8, 8, 64, 0};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "expected [8, 96]",
                   s24_device_quantise(g.ctx, g.device, &args));
    out.cols = 96;
    args.scale = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "the scale is NULL",
                   s24_device_quantise(g.ctx, g.device, &args));
    args.x = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "x is NULL",
                   s24_device_quantise(g.ctx, g.device, &args));
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_odd_rows),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
