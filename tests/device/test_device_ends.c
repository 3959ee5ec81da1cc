// SPDX-License-Identifier: Apache-2.0
/*
 * The ends of a pass on a device (pooling, heads, norms of rows, logits), its streams and graphs:
 * each against sums in double on odd shapes. Says in a line where there is no GPU.
 */
#include "device_support.h"

static void check_pool(gpu *g, int64_t width, s24i_pooling pooling, int masked)
{
    const int64_t tokens = offsets[TEXTS];
    array x = array_make(g, tokens * width, 1);
    double expected[TEXTS * 1032];
    uint8_t mask[TOKENS];
    mask_fill(mask);
    for (int64_t b = 0; b < TEXTS; b++) {
        double squares = 0, count = 0;
        double *y = expected + b * width;
        for (int64_t c = 0; c < width; c++)
            y[c] = 0;
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++) {
            if (pooling == S24I_POOL_CLS ? t > offsets[b] : masked && !mask[t]) continue;
            if (pooling == S24I_POOL_LAST) /* the earlier ones were not */
                memset(y, 0, (size_t)width * sizeof *y);
            for (int64_t c = 0; c < width; c++) {
                const double v = (double)x.host[t * width + c];
                y[c] = pooling == S24I_POOL_MAX && count > 0 ? fmax(y[c], v) : y[c] + v;
            }
            count++;
        }
        for (int64_t c = 0; c < width; c++) {
            if (pooling == S24I_POOL_MEAN && count > 0) y[c] /= count;
            squares += y[c] * y[c];
        }
        for (int64_t c = 0; c < width && masked; c++)
            y[c] /= fmax(sqrt(squares), 1e-12);
    }
    void *there[] = {upload(g, offsets, sizeof offsets), upload(g, mask, sizeof mask),
                     poisoned(g, (size_t)(TEXTS * width) * 4)};
    const s24_dense in = {x.there, g->dtype, tokens, width, 0};
    const s24_device_pool_args args = {.size = sizeof args,
                                       .y = there[2],
                                       .x = &in,
                                       .offsets = there[0],
                                       .texts = TEXTS,
                                       .mask = masked ? there[1] : NULL,
                                       .pooling = pooling,
                                       .normalise = masked};
    assert_ok(g->ctx, s24_device_pool(g->ctx, g->device, &args));
    expect(g, "pooling", there[2], 1, expected, TEXTS * width, 2e-6);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        release(g, there[i]);
    array_free(g, &x);
}

static void check_head(gpu *g, int64_t rows, int64_t width)
{
    array x = array_make(g, rows * width, 1), w = array_make(g, 2 * width, 1);
    const float bias[2] = {0.5f, -2.0f};
    double *expected = malloc((size_t)(rows * width) * sizeof *expected);
    void *there = upload(g, bias, sizeof bias), *y = poisoned(g, (size_t)(rows * width) * 4);
    const s24_dense in = {x.there, g->dtype, rows, width, 0}, of = {w.there, g->dtype, 2, width, 0};
    s24_device_head_args args = {.size = sizeof args, .y = y, .x = &in, .w = &of, .bias = there};
    for (int64_t i = 0; i < 2 * rows; i++) {
        expected[i] = (double)bias[i / rows];
        for (int64_t c = 0; c < width; c++)
            expected[i] +=
                (double)x.host[i % rows * width + c] * (double)w.host[i / rows * width + c];
    }
    assert_ok(g->ctx, s24_device_head(g->ctx, g->device, &args));
    expect(g, "head", y, 1, expected, 2 * rows, 1e-4);
    args.w = NULL;
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = (double)x.host[i];
    assert_ok(g->ctx, s24_device_head(g->ctx, g->device, &args));
    expect(g, "widening", y, 1, expected, rows * width, 0);
    release(g, y);
    release(g, there);
    free(expected);
    array_free(g, &x);
    array_free(g, &w);
}

static void test_ends(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 72, 384, 1032};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 8 * S24I_POOLINGS; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_pool(&g, widths[i % 4], (s24i_pooling)(i / 4 % S24I_POOLINGS), i / 4 / S24I_POOLINGS);
    }
    for (int i = 0; i < 4; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_head(&g, 1 + 40 * i, widths[i]);
    }
    gpu_end(&g);
}

/* ---- rows of what goes on -------------------------------------------------------------------- */

/* What of s / √(mean(s²) + eps) · gamma + beta a norm has. */
enum { OF_X = 1, CENTRED = 2, BETA = 4, BARE = 8, ADDS = 16, NORMS = 32 };

static void norm_row(double *y, const float *s, const float *gamma, const float *beta,
                     int64_t width, int which)
{
    double mean = 0, squares = 0;
    for (int64_t c = 0; c < width && which & CENTRED; c++)
        mean += (double)s[c] / (double)width;
    for (int64_t c = 0; c < width; c++)
        squares += ((double)s[c] - mean) * ((double)s[c] - mean);
    const double factor = which & BARE ? 1 : 1 / sqrt(squares / (double)width + 1e-3);
    for (int64_t c = 0; c < width; c++)
        y[c] = (which & ADDS ? y[c] : 0) +
               ((double)s[c] - mean) * factor * (which & BARE ? 1 : (double)gamma[c]) +
               (which & BETA ? (double)beta[c] : 0);
}

/* sum + x, rounded to the dtype. */
static void add_rounded(gpu *g, float *sum, const float *x, int64_t count)
{
    uint16_t *bits = malloc((size_t)count * sizeof *bits);
    for (int64_t i = 0; i < count; i++)
        sum[i] += x[i];
    assert_ok(g->ctx, s24_convert(bits, g->dtype, sum, S24_F32, count));
    assert_ok(g->ctx, s24_convert(sum, S24_F32, bits, g->dtype, count));
    free(bits);
}

static void check_row_norm(gpu *g, int64_t rows, int64_t width, int which)
{
    const int64_t count = rows * width;
    array sum = array_make(g, count, 2), x = array_make(g, count, 2), y = array_make(g, count, 3);
    array gamma = array_make(g, width, 1), beta = array_make(g, width, 1);
    const size_t bytes = (size_t)width * sizeof(float);
    void *there[] = {upload(g, gamma.host, bytes), upload(g, beta.host, bytes)};
    double *expected = malloc((size_t)count * sizeof *expected);
    const s24_device_row_norm_args args = {.size = sizeof args,
                                           .dtype = g->dtype,
                                           .rows = rows,
                                           .width = width,
                                           .y = y.there,
                                           .sum = sum.there,
                                           .x = which & OF_X ? x.there : NULL,
                                           .gamma = which & BARE ? NULL : there[0],
                                           .eps = 1e-3f,
                                           .beta = which & BETA ? there[1] : NULL,
                                           .centred = !!(which & CENTRED),
                                           .bare = !!(which & BARE),
                                           .adds = !!(which & ADDS)};
    if (which & OF_X) add_rounded(g, sum.host, x.host, count);
    for (int64_t i = 0; i < count; i++)
        expected[i] = (double)y.host[i];
    for (int64_t r = 0; r < rows; r++)
        norm_row(expected + r * width, sum.host + r * width, gamma.host, beta.host, width, which);
    assert_ok(g->ctx, s24_device_row_norm(g->ctx, g->device, &args));
    expect(g, "norm", y.there, 0, expected, count, 1e-4);
    for (int64_t i = 0; i < count; i++)
        expected[i] = (double)sum.host[i];
    expect(g, "sum", sum.there, 0, expected, count, 0);
    free(expected);
    release(g, there[0]);
    release(g, there[1]);
    array_free(g, &sum);
    array_free(g, &x);
    array_free(g, &y);
    array_free(g, &gamma);
    array_free(g, &beta);
}

/* Widths of less than a warp, of several, and of two pieces a thread. */
static void test_row_norms(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 264, 2056, 8192, 8200, 16384};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 2 * NORMS; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_row_norm(&g, 1 + i % 5, widths[i % 6], i / 2);
    }
    gpu_end(&g);
}

static void check_logits(gpu *g, int64_t rows, int64_t n, float factor, float cap)
{
    const int64_t ld = (n + 3) / 4 * 4;
    float *host = malloc((size_t)(rows * ld) * sizeof *host);
    double *expected = malloc((size_t)(rows * ld) * sizeof *expected);
    for (int64_t i = 0; i < rows * ld; i++) {
        const double x =
            (double)(host[i] = 40 * random_float()) * (factor > 0 ? (double)factor : 1);
        expected[i] = cap > 0 ? (double)cap * tanh(x / (double)cap) : x;
    }
    void *there = upload(g, host, (size_t)(rows * ld) * sizeof *host);
    const s24_device_logits_args args = {.size = sizeof args,
                                         .logits = there,
                                         .rows = rows,
                                         .n = n,
                                         .ld = ld,
                                         .factor = factor,
                                         .cap = cap};
    assert_ok(g->ctx, s24_device_logits(g->ctx, g->device, &args));
    for (int64_t r = 0; r < rows; r++)
        expect(g, "logits", (const float *)there + r * ld, 1, expected + r * ld, n, 1e-5);
    release(g, there);
    free(expected);
    free(host);
}

static void test_logits(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 7, 1024, 32001};
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 16; i++)
        check_logits(&g, 1 + i, widths[i % 4], i & 4 ? 0.0625f : 0, i & 8 ? 30 : 0);
    gpu_end(&g);
}

/* ---- streams and graphs ---------------------------------------------------------------------- */

static void test_graph(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 8, 1);
    void *stream, *pinned, *y = poisoned(&g, 8 * 4);
    double expected[8], seconds = -1;
    s24_device_graph *graph;
    const s24_dense in = {x.there, g.dtype, 1, 8, 0};
    s24_device_head_args args = {.size = sizeof args, .y = y, .x = &in};
    assert_ok(g.ctx, s24_device_stream_create(&stream, g.ctx, g.device));
    assert_ok(g.ctx, s24_device_pinned_alloc(&pinned, g.ctx, g.device, 16));
    args.stream = stream;
    assert_ok(g.ctx, s24_device_graph_begin(g.ctx, g.device, stream));
    assert_ok(g.ctx, s24_device_head(g.ctx, g.device, &args));
    assert_ok(g.ctx, s24_device_graph_end(&graph, g.ctx, g.device, stream));
    for (int i = 0; i < 8; i++)
        expected[i] = 1 + i / 8.0;
    uint16_t bits[8];
    for (int i = 0; i < 8; i++)
        bits[i] = (uint16_t)(0x3c00 + i * 128); /* captured, not run: it sees what is there later */
    memcpy(pinned, bits, sizeof bits);
    assert_ok(g.ctx, s24_device_copy(g.ctx, g.device, x.there, pinned, sizeof bits, stream));
    assert_ok(g.ctx, s24_device_timer_start(g.ctx, g.device, stream));
    assert_ok(g.ctx, s24_device_graph_launch(g.ctx, g.device, graph, stream));
    assert_ok(g.ctx, s24_device_timer_stop(&seconds, g.ctx, g.device, stream));
    assert_true(seconds > 0);
    expect(&g, "a graph", y, 1, expected, 8, 0);
    s24_device_graph_destroy(g.device, graph);
    s24_device_pinned_free(g.device, pinned);
    s24_device_stream_destroy(g.device, stream);
    release(&g, y);
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_row_norms),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
