// SPDX-License-Identifier: Apache-2.0
/*
 * Devices: what is said where there is none, and on a GPU every tile of products against sums in
 * double over odd shapes with poisoned outputs, pruning and packing against the host's. The plugin
 * is this build's, or the one that SPARSE24_CUDA_PLUGIN names.
 */
#include "core_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sparse24/device.h"

static const char *plugin(void)
{
    const char *named = getenv("SPARSE24_CUDA_PLUGIN");
    return named ? named : S24_CUDA_PLUGIN;
}

/* NULL after a line where there is no GPU. */
static s24_device *device_here(s24_ctx *ctx)
{
    s24_device *device;
    s24_device_opts opts = {.size = sizeof opts, .library = plugin()};
    if (s24_device_create(&device, ctx, &opts) == S24_OK) return device;
    print_message("skipped: %s\n", s24_ctx_error(ctx));
    return NULL;
}

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

/* ---- products -------------------------------------------------------------------------------- */

typedef struct problem {
    s24_ctx *ctx;
    s24_device *device;
    s24_dtype dtype;
    int64_t m, n, k, ldx, ldy;
    uint16_t *x, *w, *y, *bias, *residual; /* host */
    void *gpu[4];                          /* x, y, bias, residual */
    s24_device_weight *weight;
    void *work;
} problem;

static uint32_t random_state = 1;

static void fill(problem *p, uint16_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        float v = (float)(int)(random_state >> 16) / 32768.0f - 1.0f;
        assert_ok(p->ctx, s24_convert(&to[i], p->dtype, &v, S24_F32, 1));
    }
}

static float value(const problem *p, const uint16_t *from, int64_t i)
{
    float v;
    assert_ok(p->ctx, s24_convert(&v, S24_F32, &from[i], p->dtype, 1));
    return v;
}

static void *upload(problem *p, const void *host, size_t bytes)
{
    void *memory;
    assert_ok(p->ctx, s24_device_alloc(&memory, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, memory, host, bytes, NULL));
    return memory;
}

static void problem_make(problem *p)
{
    p->ldx = (p->k + 15) / 8 * 8;
    p->ldy = (p->n + 15) / 8 * 8;
    p->x = malloc((size_t)(p->m * p->ldx) * 2);
    p->w = malloc((size_t)(p->n * p->k) * 2);
    p->y = malloc((size_t)((p->m + 1) * p->ldy) * 2);
    p->bias = malloc((size_t)p->n * 2);
    p->residual = malloc((size_t)(p->m * p->ldy) * 2);
    memset(p->x, 0xff, (size_t)(p->m * p->ldx) * 2); /* NaN beyond k must not matter */
    for (int64_t r = 0; r < p->m; r++)
        fill(p, p->x + r * p->ldx, p->k);
    fill(p, p->w, p->n * p->k);
    fill(p, p->bias, p->n);
    fill(p, p->residual, p->m * p->ldy);
    s24_dense w = {p->w, p->dtype, p->n, p->k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_matrix *matrix;
    assert_ok(p->ctx, s24_matrix_create(&matrix, p->ctx, &w, &opts));
    assert_ok(p->ctx, s24_matrix_to_dense(p->ctx, &w, matrix));
    assert_ok(p->ctx, s24_device_weight_create(&p->weight, p->ctx, p->device, matrix, NULL));
    s24_matrix_destroy(matrix);
    p->gpu[0] = upload(p, p->x, (size_t)(p->m * p->ldx) * 2);
    p->gpu[1] = upload(p, p->residual, (size_t)(p->m * p->ldy) * 2); /* y: filled later */
    p->gpu[2] = upload(p, p->bias, (size_t)p->n * 2);
    p->gpu[3] = upload(p, p->residual, (size_t)(p->m * p->ldy) * 2);
    assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->gpu[1], NULL));
    memset(p->y, 0xff, (size_t)((p->m + 1) * p->ldy) * 2);
    p->gpu[1] = upload(p, p->y, (size_t)((p->m + 1) * p->ldy) * 2);
    size_t bytes = s24_device_linear_work_bytes(p->device, p->weight);
    assert_ok(p->ctx, s24_device_alloc(&p->work, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_clear(p->ctx, p->device, p->work, bytes, NULL));
}

static void problem_free(problem *p)
{
    for (int i = 0; i < 4; i++)
        assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->gpu[i], NULL));
    assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->work, NULL));
    s24_device_weight_destroy(p->weight);
    free(p->x);
    free(p->w);
    free(p->y);
    free(p->bias);
    free(p->residual);
}

static double activated(double v, s24_activation activation)
{
    switch (activation) {
    case S24_ACTIVATION_RELU:
        return v > 0 ? v : 0;
    case S24_ACTIVATION_GELU:
        return 0.5 * v * (1 + erf(v / sqrt(2.0)));
    case S24_ACTIVATION_GELU_TANH:
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case S24_ACTIVATION_SILU:
        return v / (1 + exp(-v));
    default:
        return v;
    }
}

static void expect(problem *p, const s24_device_linear_args *args)
{
    const double ulp = p->dtype == S24_BF16 ? 1.0 / 256 : 1.0 / 2048;
    for (int64_t r = 0; r <= p->m; r++)
        for (int64_t c = 0; c < p->ldy; c++) {
            if (r == p->m || c >= p->n) { /* beyond the output */
                assert_int_equal(p->y[r * p->ldy + c], 0xffff);
                continue;
            }
            double sum = 0, size = 0;
            for (int64_t i = 0; i < p->k; i++) {
                double term =
                    (double)value(p, p->x, r * p->ldx + i) * (double)value(p, p->w, c * p->k + i);
                sum += term;
                size += fabs(term);
            }
            if (args->bias) sum += (double)value(p, p->bias, c);
            /* The hardware's tanh is all that GELU needs in 16 bits. */
            const double slack = args->activation == S24_ACTIVATION_GELU ? 4e-4 * fabs(sum) : 0;
            sum = activated(sum, args->activation);
            if (args->residual) sum += (double)value(p, p->residual, r * p->ldy + c);
            double got = (double)value(p, p->y, r * p->ldy + c);
            if (!(fabs(got - sum) <= ulp * fabs(sum) + slack + 4e-6 * size + 2e-4 * ulp * 256))
                fail_msg("tile %s, %s, m %d n %d k %d, activation %d: row %d column %d is %g, "
                         "expected %g",
                         args->tile ? args->tile : "chosen", s24_dtype_name(p->dtype), (int)p->m,
                         (int)p->n, (int)p->k, (int)args->activation, (int)r, (int)c, got, sum);
        }
}

/* Twice: the second run must give the same bits, whatever the first left in the work memory. */
static void run_twice(problem *p, const char *tile, s24_activation activation, int bias,
                      int residual)
{
    size_t bytes = (size_t)((p->m + 1) * p->ldy) * 2;
    uint16_t *first = malloc(bytes);
    s24_dense x = {p->gpu[0], p->dtype, p->m, p->k, p->ldx};
    s24_dense y = {p->gpu[1], p->dtype, p->m, p->n, p->ldy};
    s24_dense r = {p->gpu[3], p->dtype, p->m, p->n, p->ldy};
    s24_device_linear_args args = {.size = sizeof args,
                                   .x = &x,
                                   .y = &y,
                                   .bias = bias ? p->gpu[2] : NULL,
                                   .activation = activation,
                                   .residual = residual ? &r : NULL,
                                   .work = p->work,
                                   .work_bytes = s24_device_linear_work_bytes(p->device, p->weight),
                                   .tile = tile};
    for (int turn = 0; turn < 2; turn++) {
        memset(p->y, 0xff, bytes);
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->gpu[1], p->y, bytes, NULL));
        assert_ok(p->ctx, s24_device_linear(p->ctx, p->device, p->weight, &args));
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->y, p->gpu[1], bytes, NULL));
        assert_ok(p->ctx, s24_device_wait(p->ctx, p->device, NULL));
        if (turn == 0) memcpy(first, p->y, bytes);
    }
    assert_memory_equal(first, p->y, bytes);
    free(first);
    expect(p, &args);
}

static void test_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 8, 64},     {2, 72, 4},     {7, 64, 132},
                                        {16, 136, 704}, {17, 130, 192}, {127, 200, 68},
                                        {129, 65, 320}, {200, 264, 256}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    int turn = 0;
    for (size_t s = 0; device && s < sizeof shapes / sizeof *shapes; s++) {
        problem p = {.ctx = ctx,
                     .device = device,
                     .dtype = s % 2 ? S24_F16 : S24_BF16,
                     .m = shapes[s][0],
                     .n = shapes[s][1],
                     .k = shapes[s][2]};
        problem_make(&p);
        run_twice(&p, NULL, S24_ACTIVATION_NONE, 1, 0);
        for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++, turn++)
            run_twice(&p, tile, (s24_activation)(turn % 5), turn % 3 > 0, turn % 2);
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        problem p = {.ctx = ctx, .device = device, .dtype = S24_BF16, .m = 4, .n = 64, .k = 64};
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
        assert_refused(ctx, S24_ERROR_DTYPE, "y is f16",
                       s24_device_linear(ctx, device, p.weight, &args));
        y.dtype = S24_BF16;
        y.cols = 56;
        assert_refused(ctx, S24_ERROR_SHAPE, "expected [4, 64]",
                       s24_device_linear(ctx, device, p.weight, &args));
        y.cols = 64;
        args.tile = "1x1";
        assert_refused(ctx, S24_ERROR_ARGUMENT, "no tile named",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.tile = NULL;
        args.work = p.work;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "work is 0 bytes",
                       s24_device_linear(ctx, device, p.weight, &args));
        void *memory;
        assert_refused(ctx, S24_ERROR_MEMORY, "allocating",
                       s24_device_alloc(&memory, ctx, device, (size_t)1 << 50, NULL));
        run_twice(&p, NULL, S24_ACTIVATION_NONE, 0, 0); /* it still works */
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void same_as_host(s24_ctx *ctx, s24_device *device, s24_dtype dtype, int64_t n, int64_t k,
                         int magnitude)
{
    problem p = {.ctx = ctx, .device = device, .dtype = dtype};
    size_t bytes = (size_t)(n * k) * 2;
    uint16_t *dense = malloc(bytes), *back = malloc(bytes);
    fill(&p, dense, n * k);
    for (int64_t i = 0; i < n * k; i += 7) /* equal magnitudes, zeros of both signs */
        dense[i] = (uint16_t)(i % 2 ? 0x8000 : i % 3 ? 0x3c00 : 0xbc00);
    if (!magnitude)
        for (int64_t i = 0; i < n * k; i++)
            if (i % 4 == i / 4 % 4 || i % 4 == i / 16 % 4 || i % 4 == (i / 4 + 1) % 4) dense[i] = 0;
    s24_dense view = {dense, dtype, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts,
                            .select = magnitude ? S24_SELECT_MAGNITUDE : S24_SELECT_STRICT};
    s24_matrix *host, *matrix;
    s24_device_weight *weight;
    assert_ok(ctx, s24_matrix_create(&host, ctx, &view, &opts));
    void *memory = upload(&p, dense, bytes);
    view.data = memory;
    assert_ok(ctx, s24_device_weight_from_dense(&weight, ctx, device, &view, &opts, NULL));
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
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (size_t s = 0; device && s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 4; i++)
            same_as_host(ctx, device, i % 2 ? S24_F16 : S24_BF16, shapes[s][0], shapes[s][1],
                         i / 2);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
