// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over grids and windows on a device against sums in double, and the encoder of Segment
 * Anything against the CPU's. Says in a line where there is no GPU.
 */
#include "device_support.h"

#include "nn_grid_support.h"
#include "nn_load.h"

static void check(gpu *g, int64_t images, int64_t grid, int64_t window, int64_t heads, int64_t d)
{
    const int64_t side = window ? window : grid, tokens = images * grid * grid, width = heads * d;
    array qkv = array_make(g, tokens * 3 * width, 2), bias = array_make(g, 3 * width, 2);
    array h = array_make(g, (2 * side - 1) * d, 0.5f), w = array_make(g, (2 * side - 1) * d, 0.5f);
    const s24i_attention_grid job = {.qkv = qkv.host,
                                     .bias = bias.host,
                                     .rel_h = h.host,
                                     .rel_w = w.host,
                                     .images = images,
                                     .grid = grid,
                                     .side = side,
                                     .heads = heads,
                                     .d = d};
    const int64_t step = window ? 1 : 41;
    double *expected = grid_expected(&job, step);
    void *y = poisoned(g, (size_t)(tokens * width) * 2);
    const s24_dense in = {qkv.there, g->dtype, tokens, 3 * width, 0};
    const s24_dense out = {y, g->dtype, tokens, width, 0};
    const s24_device_attention_grid_args args = {.size = sizeof args,
                                                 .context = &out,
                                                 .qkv = &in,
                                                 .heads = heads,
                                                 .images = images,
                                                 .grid = grid,
                                                 .window = window,
                                                 .bias = bias.there,
                                                 .rel_h = h.there,
                                                 .rel_w = w.there};
    assert_int_equal(s24_device_attention_grid_takes(g->device, width, heads, side), 1);
    assert_ok(g->ctx, s24_device_attention_grid(g->ctx, g->device, &args));
    float *got = malloc((size_t)(tokens * width) * sizeof *got);
    uint16_t *bits = malloc((size_t)(tokens * width) * 2);
    assert_ok(g->ctx,
              s24_device_copy(g->ctx, g->device, bits, y, (size_t)(tokens * width) * 2, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_ok(g->ctx, s24_convert(got, S24_F32, bits, g->dtype, tokens * width));
    /* Positions' products are rounded to f16, weights to the dtype. */
    const double slack = g->dtype == S24_BF16 ? 3e-2 : 6e-3;
    for (int64_t i = 0; i < tokens * width; i++) {
        const int known = expected[i] == expected[i];
        if (got[i] != got[i] || (known && !(fabs((double)got[i] - expected[i]) <= slack)))
            fail_msg("%s, grid %d, window %d, d %d, token %d, element %d: %g, expected %g",
                     s24_dtype_name(g->dtype), (int)grid, (int)window, (int)d, (int)(i / width),
                     (int)(i % width), (double)got[i], expected[i]);
    }
    free(bits);
    free(got);
    free(expected);
    release(g, y);
    array *const arrays[] = {&qkv, &bias, &h, &w};
    for (int i = 0; i < 4; i++)
        array_free(g, arrays[i]);
}

static void test_attention(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 4; i++) {
        g.dtype = i % 2 ? S24_BF16 : S24_F16;
        const int64_t d = i / 2 ? 64 : 80;
        check(&g, 2, 14, 14, 1, d);
        check(&g, 1, 20, 14, 3, d); /* windows that reach beyond the grid */
        check(&g, 1, 64, 14, 1, d);
        check(&g, 1, 64, 0, 2, d);
    }
    gpu_end(&g);
}

enum { IMAGES = 2, PIXELS = 3 * 1024 * 1024, WIDTH = 160 };

static void run(gpu *g, s24_device *device, s24_dtype dtype, const float *pixels, float *hidden)
{
    const s24_model_opts opts = {
        .size = sizeof opts, .sparse = 1, .include = "*.mlp.*", .device = device, .dtype = dtype};
    const s24_batch batch = {.texts = IMAGES, .pixels = pixels};
    const s24_outputs outputs = {.hidden = hidden};
    s24_model *model;
    s24_session *session;
    OK(g->ctx, s24_model_preset(&model, g->ctx, "sam-tiny", &opts));
    OK(g->ctx, s24_session_create(&session, g->ctx, model, IMAGES * 4096));
    for (int turn = 0; turn < (device ? 3 : 1); turn++)
        OK(g->ctx, s24_session_forward(session, g->ctx, &batch, &outputs));
    s24_session_destroy(session);
    s24_model_destroy(model);
}

static void test_encoder(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    const int64_t count = (int64_t)IMAGES * 4096 * WIDTH;
    float *pixels = malloc((size_t)IMAGES * PIXELS * sizeof *pixels);
    float *expected = malloc((size_t)count * sizeof *expected);
    float *got = malloc((size_t)count * sizeof *got);
    for (int64_t i = 0; i < (int64_t)IMAGES * PIXELS; i++)
        pixels[i] = random_float();
    run(&g, NULL, S24_F32, pixels, expected);
    for (int i = 0; i < 2; i++) {
        double squares = 0, all = 0;
        run(&g, g.device, i ? S24_BF16 : S24_F16, pixels, got);
        for (int64_t j = 0; j < count; j++) {
            const double off = (double)got[j] - (double)expected[j];
            squares += off * off;
            all += (double)expected[j] * (double)expected[j];
        }
        const double off = sqrt(squares / all);
        if (!(off < (i ? 3e-2 : 4e-3))) fail_msg("hidden states are %.2e off", off);
    }
    free(pixels);
    free(expected);
    free(got);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 196 * 240, 1);
    const s24_dense in = {x.there, S24_F16, 196, 240, 0}, out = {x.there, S24_F16, 196, 80, 0};
    s24_device_attention_grid_args args = {.size = sizeof args,
                                           .context = &out,
                                           .qkv = &in,
                                           .heads = 1,
                                           .images = 1,
                                           .grid = 14,
                                           .window = 15,
                                           .bias = x.there,
                                           .rel_h = x.there,
                                           .rel_w = x.there};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "windows of 15",
                   s24_device_attention_grid(g.ctx, g.device, &args));
    args.window = 7;
    assert_refused(g.ctx, S24_ERROR_UNSUPPORTED, "80 elements a head over squares of 7",
                   s24_device_attention_grid(g.ctx, g.device, &args));
    args.grid = 13;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "qkv is [196, 240]; expected [169, 240]",
                   s24_device_attention_grid(g.ctx, g.device, &args));
    args.grid = 14;
    args.rel_w = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "rel_w is NULL",
                   s24_device_attention_grid(g.ctx, g.device, &args));
    assert_int_equal(s24_device_attention_grid_takes(g.device, 96, 1, 14), 0);
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_encoder),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
