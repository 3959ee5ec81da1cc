// SPDX-License-Identifier: Apache-2.0
/*
 * Devices: what is said where there is none, and on a GPU what is refused, and pruning and packing
 * against the host's.
 */
#include "device_product.h"

static void test_absent(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_device *device;
    s24_device_opts opts = {.size = sizeof opts, .library = "/nowhere/libsparse24-cuda.so.0"};
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "no GPU here",
                   s24_device_create(&device, ctx, &opts));
    assert_null(device);
    opts.library = "libm.so.6";
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "no plugin of sparse24",
                   s24_device_create(&device, ctx, &opts));
    opts.library = S24_OTHER_PLUGIN;
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "both must be of one version",
                   s24_device_create(&device, ctx, &opts));
    assert_null(device);
    opts.library = "libm.so.6";
    static const char *const names[] = {"gpu", "cuda:", "cuda:x", "cudaa", "cuda:12345"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        opts.name = names[i];
        assert_refused(ctx, S24_ERROR_ARGUMENT, names[i], s24_device_create(&device, ctx, &opts));
    }
    opts.name = "cuda:9999";
    opts.library = plugin();
    if (*plugin()) /* no machine has that many */
        assert_int_equal(s24_device_create(&device, ctx, &opts), S24_ERROR_UNSUPPORTED);
    ctx_off(&h, ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        problem p = {.ctx = ctx,
                     .device = device,
                     .dtype = S24_BF16,
                     .y_dtype = S24_BF16,
                     .m = 4,
                     .n = 64,
                     .k = 64};
        problem_make(&p);
        s24_dense x = {p.gpu[0], S24_BF16, 4, 64, p.ldx}, y = {p.gpu[1], S24_BF16, 4, 64, p.ldy};
        s24_device_linear_args args = {.size = sizeof args, .x = &x, .y = &y};
        x.data = (char *)x.data + 2;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "x is at",
                       s24_device_linear(ctx, device, p.weight, &args));
        x.data = p.gpu[0];
        x.ld = 68;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "leading dimension of 68",
                       s24_device_linear(ctx, device, p.weight, &args));
        x.ld = p.ldx;
        y.dtype = S24_F16;
        assert_refused(ctx, S24_ERROR_DTYPE, "y is f16 of a weight of bf16",
                       s24_device_linear(ctx, device, p.weight, &args));
        y.dtype = S24_BF16;
        y.cols = 56;
        assert_refused(ctx, S24_ERROR_SHAPE, "expected [4, 64]",
                       s24_device_linear(ctx, device, p.weight, &args));
        y.cols = 64;
        args.x_scale = (const float *)(const void *)((const char *)p.gpu[4] + 2);
        assert_refused(ctx, S24_ERROR_ARGUMENT, "x_scale is at",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.x_scale = NULL;
        args.alpha = 2;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "alpha is 2 without w_scale",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.alpha = 0;
        args.y_scale = NAN;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "y_scale is nan of a y of bf16",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.y_scale = 0;
        args.tile = "1x1";
        assert_refused(ctx, S24_ERROR_ARGUMENT, "no tile named",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.tile = NULL;
        args.work = p.work;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "work is 0 bytes",
                       s24_device_linear(ctx, device, p.weight, &args));
        s24_device_choice choices[2] = {{S24_BF16, 4, 64, 64, "64x32/mma"},
                                        {S24_BF16, 3, 64, 64, "1x1"}};
        assert_refused(ctx, S24_ERROR_ARGUMENT, "no tile named",
                       s24_device_tune(ctx, device, choices, 2));
        assert_ok(ctx, s24_device_tune(ctx, device, choices, 1));
        assert_string_equal(s24_device_linear_tile(device, p.weight, 4), "64x32/mma");
        assert_string_not_equal(s24_device_linear_tile(device, p.weight, 3), "64x32/mma");
        void *memory;
        assert_refused(ctx, S24_ERROR_MEMORY, "allocating",
                       s24_device_alloc(&memory, ctx, device, (size_t)1 << 50, NULL));
        run_twice(&p, NULL, S24_ACTIVATION_NONE, 0); /* it still works */
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The same weight packed into the caller's memory, with the bytes that `weight` has. */
static void same_in_place(const problem *p, const s24_dense *view, const s24_matrix_opts *opts,
                          const s24_device_weight *weight)
{
    s24_ctx *ctx = p->ctx;
    const size_t bytes = s24_device_weight_bytes(weight);
    s24_dense place = {NULL, view->dtype, view->rows, view->cols, 0};
    s24_device_weight *other;
    s24_matrix *one, *two;
    assert_ok(ctx,
              s24_device_alloc(&place.data, ctx, p->device, bytes + S24_DEVICE_REPORT_BYTES, NULL));
    assert_ok(ctx, s24_device_clear(ctx, p->device, place.data, bytes, NULL));
    for (int call = 0; call < 2; call++) { /* a handle of its own for packing and for reading */
        assert_ok(ctx, s24_device_weight_create_in_place(&other, ctx, p->device, &place));
        if (call == 0) {
            assert_ok(ctx, s24_device_weight_update(ctx, other, NULL, view, opts, NULL));
            assert_ok(ctx, s24_device_weight_verify(ctx, other, NULL));
            s24_device_weight_destroy(other);
        }
    }
    assert_ok(ctx, s24_device_weight_to_matrix(&one, ctx, p->device, other, NULL));
    assert_ok(ctx, s24_device_weight_to_matrix(&two, ctx, p->device, weight, NULL));
    assert_memory_equal(s24_matrix_values(one), s24_matrix_values(two),
                        (size_t)(view->rows * view->cols / 2) * s24_dtype_bytes(view->dtype));
    s24_device_weight_destroy(other);
    s24_matrix_destroy(one);
    s24_matrix_destroy(two);
    place.data = (char *)place.data + 64;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "a multiple of 256 bytes",
                   s24_device_weight_create_in_place(&other, ctx, p->device, &place));
    place.data = (char *)place.data - 64;
    assert_ok(ctx, s24_device_free(ctx, p->device, place.data, NULL));
}

static void same_as_host(s24_ctx *ctx, s24_device *device, s24_dtype dtype, int64_t n, int64_t k,
                         int magnitude)
{
    problem p = {.ctx = ctx, .device = device, .dtype = dtype};
    const size_t element = s24_dtype_bytes(dtype), bytes = (size_t)(n * k) * element;
    char *dense = malloc(bytes), *back = malloc(bytes);
    fill(&p, dense, dtype, n * k);
    for (int64_t i = 0; i < n * k; i += 7) { /* equal magnitudes, zeros of both signs */
        float v = i % 2 ? -0.0f : i % 3 ? 1.0f : -1.0f;
        assert_ok(ctx, s24_convert(dense + (size_t)i * element, dtype, &v, S24_F32, 1));
    }
    if (!magnitude)
        for (int64_t i = 0; i < n * k; i++)
            if (i % 4 == i / 4 % 4 || i % 4 == i / 16 % 4 || i % 4 == (i / 4 + 1) % 4)
                memset(dense + (size_t)i * element, 0, element);
    s24_dense view = {dense, dtype, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts,
                            .select = magnitude ? S24_SELECT_MAGNITUDE : S24_SELECT_STRICT};
    s24_matrix *host, *matrix;
    s24_device_weight *weight;
    assert_ok(ctx, s24_matrix_create(&host, ctx, &view, &opts));
    void *memory = upload(&p, dense, bytes);
    view.data = memory;
    assert_ok(ctx, s24_device_weight_from_dense(&weight, ctx, device, &view, &opts, NULL));
    same_in_place(&p, &view, &opts, weight);
    assert_ok(ctx, s24_device_weight_to_matrix(&matrix, ctx, device, weight, NULL));
    assert_memory_equal(s24_matrix_values(matrix), s24_matrix_values(host), bytes / 2);
    assert_memory_equal(s24_matrix_indices(matrix), s24_matrix_indices(host),
                        (size_t)(n * ((k + 7) / 8)));
    assert_ok(ctx, s24_device_weight_to_dense(ctx, device, &view, weight, NULL));
    assert_ok(ctx, s24_device_copy(ctx, device, back, memory, bytes, NULL));
    assert_ok(ctx, s24_device_wait(ctx, device, NULL));
    view.data = dense;
    assert_ok(ctx, s24_matrix_to_dense(ctx, &view, host));
    assert_memory_equal(back, dense, bytes);
    assert_ok(ctx, s24_device_free(ctx, device, memory, NULL));
    s24_device_weight_destroy(weight);
    s24_matrix_destroy(matrix);
    s24_matrix_destroy(host);
    free(dense);
    free(back);
}

static void test_weights(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 4}, {64, 64}, {65, 132}, {130, 264}, {300, 1000}};
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16, S24_I8, S24_E4M3, S24_E5M2};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (size_t s = 0; device && s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 10; i++)
            same_as_host(ctx, device, dtypes[i / 2], shapes[s][0], shapes[s][1], i % 2);
    if (device) {
        problem p = {.ctx = ctx, .device = device};
        uint16_t dense[2 * 64];
        memset(dense, 0, sizeof dense);
        dense[64 + 8] = dense[64 + 9] = dense[64 + 11] = 0x3c00;
        s24_dense view = {upload(&p, dense, sizeof dense), S24_BF16, 2, 64, 0};
        s24_matrix_opts opts = {.size = sizeof opts};
        s24_device_weight *weight;
        assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR, "row 1, columns 8 to 11",
                       s24_device_weight_from_dense(&weight, ctx, device, &view, &opts, NULL));
        dense[64 + 9] = 0;
        dense[64 + 11] = 0x7fc0;
        assert_ok(ctx, s24_device_copy(ctx, device, view.data, dense, sizeof dense, NULL));
        assert_refused(ctx, S24_ERROR_NOT_FINITE, "row 1, column 11",
                       s24_device_weight_from_dense(&weight, ctx, device, &view, &opts, NULL));
        assert_ok(ctx, s24_device_free(ctx, device, view.data, NULL));
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* The vendor's library in the place of our products, where it is installed. */
static void test_backend(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    s24_device_opts opts = {.size = sizeof opts, .library = plugin(), .backend = "other"};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_refused(ctx, S24_ERROR_ARGUMENT, "backend is \"other\"",
                   s24_device_create(&device, ctx, &opts));
    opts.backend = "cusparselt";
    if (s24_device_create(&device, ctx, &opts) != S24_OK) {
        print_message("skipped: %s\n", s24_ctx_error(ctx));
        s24_ctx_destroy(ctx);
        return;
    }
    for (int columns = 0; columns < 2; columns++) {
        problem p = {.ctx = ctx,
                     .device = device,
                     .dtype = S24_BF16,
                     .y_dtype = S24_BF16,
                     .m = 48,
                     .n = 128,
                     .k = 192,
                     .columns = columns};
        problem_make(&p);
        run_twice(&p, NULL, S24_ACTIVATION_NONE, 0);
        run_twice(&p, NULL, S24_ACTIVATION_NONE, WITH_RESIDUAL);
        s24_dense x = {p.gpu[0], S24_BF16, 48, 192, p.ldx},
                  y = {p.gpu[1], S24_BF16, 48, 128, p.ldy};
        s24_device_linear_args args = {.size = sizeof args, .x = &x, .y = &y, .bias = p.gpu[2]};
        if (!columns)
            assert_refused(ctx, S24_ERROR_UNSUPPORTED, "no bias",
                           s24_device_linear(ctx, device, p.weight, &args));
        assert_string_equal(s24_device_linear_tile(device, p.weight, 48), "cusparselt");
        problem_free(&p);
    }
    problem two[2]; /* of one shape, whose algorithm is searched for with the first one's weight */
    for (int i = 0; i < 2; i++) {
        two[i] = (problem){.ctx = ctx,
                           .device = device,
                           .dtype = S24_F16,
                           .y_dtype = S24_F16,
                           .m = 256,
                           .n = 768,
                           .k = 768};
        problem_make(&two[i]);
    }
    for (int i = 0; i < 3; i++)
        run_twice(&two[i % 2], NULL, S24_ACTIVATION_NONE, 0);
    for (int i = 0; i < 2; i++)
        problem_free(&two[i]);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
