// SPDX-License-Identifier: Apache-2.0
/*
 * What models of images need on a device: patches as rows, norms before layers with the sums that
 * they are of, classes from strided rows. Says in a line where there is no GPU.
 */
#include "device_support.h"

#include "model/patches.h"

static void check_unfold(gpu *g, const s24i_patches *p, int64_t images)
{
    const int64_t rows = images * s24i_patches_positions(p), count = rows * p->row;
    const int64_t pixels = images * p->channels * p->image * p->image;
    float *host = malloc((size_t)pixels * sizeof *host);
    float *wide = malloc((size_t)count * sizeof *wide);
    double *expected = malloc((size_t)count * sizeof *expected);
    for (int64_t i = 0; i < pixels; i++)
        host[i] = random_float();
    s24i_unfold(wide, host, p, 0, rows);
    for (int64_t i = 0; i < count; i++)
        expected[i] = (double)wide[i];
    void *there = upload(g, host, (size_t)pixels * sizeof *host);
    void *y = poisoned(g, (size_t)count * 2);
    const s24_dense out = {y, g->dtype, rows, p->row, 0};
    const s24_device_unfold_args args = {.size = sizeof args,
                                         .y = &out,
                                         .pixels = there,
                                         .images = images,
                                         .channels = p->channels,
                                         .image = p->image,
                                         .patch = p->patch,
                                         .first = p->first};
    assert_ok(g->ctx, s24_device_unfold(g->ctx, g->device, &args));
    expect(g, "unfolded", y, 0, expected, count, 0);
    release(g, y);
    release(g, there);
    free(expected);
    free(wide);
    free(host);
}

static void test_unfold(void **state)
{
    (void)state;
    static const s24i_patches cases[] = {
        {32, 16, 3, 1, 768}, {28, 14, 3, 0, 592}, {6, 2, 1, 1, 8},  {40, 8, 2, 2, 128},
        {30, 10, 1, 1, 104}, {10, 10, 5, 0, 504}, {18, 2, 1, 0, 24}};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_unfold(&g, &cases[i], 1 + (int64_t)i % 3);
    }
    gpu_end(&g);
}

/* y = norm(x + residual + position) and, in the residual's place, what it is of. */
static void check_sum(gpu *g, int64_t rows, int64_t width, int with_residual)
{
    enum { POSITIONS = 5 };
    array x = array_make(g, rows * width, 2), r = array_make(g, rows * width, 3);
    array p = array_make(g, POSITIONS * width, 1), gamma = array_make(g, width, 1);
    array beta = array_make(g, width, 1);
    double *sum = malloc((size_t)(rows * width) * sizeof *sum);
    double *normed = malloc((size_t)(rows * width) * sizeof *normed);
    int32_t *positions = malloc((size_t)rows * sizeof *positions);
    for (int64_t t = 0; t < rows; t++) {
        double mean = 0, variance = 0, *s = sum + t * width;
        positions[t] = (int32_t)((t + 3) % POSITIONS);
        for (int64_t i = 0; i < width; i++) {
            s[i] = (double)x.host[t * width + i] + (double)p.host[positions[t] * width + i] +
                   (with_residual ? (double)r.host[t * width + i] : 0);
            mean += s[i] / (double)width;
        }
        for (int64_t i = 0; i < width; i++)
            variance += (s[i] - mean) * (s[i] - mean) / (double)width;
        for (int64_t i = 0; i < width; i++)
            normed[t * width + i] = (s[i] - mean) / sqrt(variance + 1e-6) * (double)gamma.host[i] +
                                    (double)beta.host[i];
    }
    int32_t *there = upload(g, positions, (size_t)rows * sizeof *positions);
    void *y = poisoned(g, (size_t)(rows * width) * 2);
    const s24_dense in = {x.there, g->dtype, rows, width, 0};
    const s24_dense residual = {r.there, g->dtype, rows, width, 0};
    const s24_dense out = {y, g->dtype, rows, width, 0};
    const s24_device_norm_args args = {.size = sizeof args,
                                       .y = &out,
                                       .sum = &residual,
                                       .x = &in,
                                       .residual = with_residual ? &residual : NULL,
                                       .positions = there,
                                       .position_rows = p.there,
                                       .gamma = gamma.there,
                                       .beta = beta.there,
                                       .eps = 1e-6f};
    assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
    expect(g, "norm", y, 0, normed, rows * width, 1e-5);
    expect(g, "its sums", r.there, 0, sum, rows * width, 1e-6);
    release(g, y);
    release(g, there);
    free(positions);
    free(normed);
    free(sum);
    array *const arrays[] = {&x, &r, &p, &gamma, &beta};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
}

static void test_sums(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 4; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_sum(&g, 77, i < 2 ? 1280 : 200, i % 3 != 0);
    }
    gpu_end(&g);
}

/* Logits of every third row, rows first. */
static void check_classes(gpu *g, int64_t rows, int64_t outputs, int64_t width)
{
    enum { APART = 3 };
    array x = array_make(g, APART * rows * width, 1), w = array_make(g, outputs * width, 1);
    float *bias = malloc((size_t)outputs * sizeof *bias);
    double *expected = malloc((size_t)(rows * outputs) * sizeof *expected);
    for (int64_t o = 0; o < outputs; o++)
        bias[o] = random_float();
    for (int64_t i = 0; i < rows * outputs; i++) {
        const float *a = x.host + i / outputs * APART * width, *b = w.host + i % outputs * width;
        expected[i] = (double)bias[i % outputs];
        for (int64_t j = 0; j < width; j++)
            expected[i] += (double)a[j] * (double)b[j];
    }
    void *there = upload(g, bias, (size_t)outputs * sizeof *bias);
    void *y = poisoned(g, (size_t)(rows * outputs) * sizeof(float));
    const s24_dense in = {x.there, g->dtype, rows, width, APART * width};
    const s24_dense weight = {w.there, g->dtype, outputs, width, 0};
    const s24_device_head_args args = {
        .size = sizeof args, .y = y, .x = &in, .w = &weight, .bias = there, .rows_first = 1};
    assert_ok(g->ctx, s24_device_head(g->ctx, g->device, &args));
    expect(g, "classes", y, 1, expected, rows * outputs, 1e-4);
    release(g, y);
    release(g, there);
    free(expected);
    free(bias);
    array_free(g, &x);
    array_free(g, &w);
}

static void test_classes(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    check_classes(&g, 5, 1000, 1024);
    check_classes(&g, 300, 10, 64);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 64 * 64, 1);
    const s24_dense y = {x.there, S24_F16, 5, 64, 0};
    s24_device_unfold_args args = {.size = sizeof args,
                                   .y = &y,
                                   .pixels = x.there,
                                   .images = 1,
                                   .channels = 1,
                                   .image = 16,
                                   .patch = 5};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "16 pixels a side, patches of 5",
                   s24_device_unfold(g.ctx, g.device, &args));
    args.patch = 8;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "y is [5, 64]; expected [4, 64]",
                   s24_device_unfold(g.ctx, g.device, &args));
    args.first = 1;
    args.channels = 2;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "y has 64 columns; a patch has 128 numbers",
                   s24_device_unfold(g.ctx, g.device, &args));
    args.pixels = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "pixels is NULL",
                   s24_device_unfold(g.ctx, g.device, &args));
    s24_device_norm_args norm = {.size = sizeof norm,
                                 .y = &y,
                                 .x = &y,
                                 .gamma = x.there,
                                 .beta = x.there,
                                 .position_rows = x.there};
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "positions is NULL",
                   s24_device_norm(g.ctx, g.device, &norm));
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unfold),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
