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
    s24_dtype dtype, y_dtype, bias_dtype;
    int64_t m, n, k, ldx, ldy;
    void *x, *w, *y, *bias, *residual; /* host */
    float *x_scale, *w_scale;
    void *gpu[6];       /* x, y, bias, residual, x_scale, w_scale */
    double *sum, *size; /* [m, n]: x·wᵀ, and the sum of its terms' magnitudes */
    s24_device_weight *weight;
    void *work;
} problem;

static uint32_t random_state = 1;

/* From −1 to 1. */
static float random_float(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(int)(random_state >> 16) / 32768.0f - 1.0f;
}

/* Element i of an array: floating point from −1 to 1, integers from −127 to 127. */
static void put_random(problem *p, void *to, s24_dtype dtype, int64_t i)
{
    char *at = (char *)to + (size_t)i * s24_dtype_bytes(dtype);
    float v = random_float() * (dtype == S24_I8 || dtype == S24_I32 ? 127 : 1);
    int32_t integer = (int32_t)v;
    if (dtype == S24_I32)
        memcpy(at, &integer, sizeof integer);
    else
        assert_ok(p->ctx, s24_convert(at, dtype, &v, S24_F32, 1));
}

static void fill(problem *p, void *to, s24_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put_random(p, to, dtype, i);
}

static double value(const problem *p, const void *from, s24_dtype dtype, int64_t i)
{
    const char *at = (const char *)from + (size_t)i * s24_dtype_bytes(dtype);
    int32_t integer;
    float v;
    if (dtype == S24_I32) {
        memcpy(&integer, at, sizeof integer);
        return integer;
    }
    assert_ok(p->ctx, s24_convert(&v, S24_F32, at, dtype, 1));
    return (double)v;
}

static void *upload(problem *p, const void *host, size_t bytes)
{
    void *memory;
    assert_ok(p->ctx, s24_device_alloc(&memory, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, memory, host, bytes, NULL));
    return memory;
}

static void sum_up(problem *p)
{
    float *x = malloc((size_t)(p->m * p->k) * 4), *w = malloc((size_t)(p->n * p->k) * 4);
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t i = 0; i < p->k; i++)
            x[r * p->k + i] = (float)value(p, p->x, p->dtype, r * p->ldx + i);
    for (int64_t i = 0; i < p->n * p->k; i++)
        w[i] = (float)value(p, p->w, p->dtype, i);
    p->sum = malloc((size_t)(p->m * p->n) * sizeof *p->sum);
    p->size = malloc((size_t)(p->m * p->n) * sizeof *p->size);
    for (int64_t at = 0; at < p->m * p->n; at++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < p->k; i++) {
            double term = (double)x[at / p->n * p->k + i] * (double)w[at % p->n * p->k + i];
            sum += term;
            size += fabs(term);
        }
        p->sum[at] = sum;
        p->size[at] = size;
    }
    free(x);
    free(w);
}

static void make_operands(problem *p)
{
    const size_t bytes = s24_dtype_bytes(p->dtype), y_bytes = s24_dtype_bytes(p->y_dtype);
    const int integers = p->y_dtype == S24_I8 || p->y_dtype == S24_I32;
    p->ldx = (p->k + 31) / 16 * 16;
    p->ldy = (p->n + 31) / 16 * 16;
    p->bias_dtype = integers ? S24_F32 : p->y_dtype;
    p->x = malloc((size_t)(p->m * p->ldx) * bytes);
    p->w = malloc((size_t)(p->n * p->k) * bytes);
    p->y = malloc((size_t)((p->m + 1) * p->ldy) * y_bytes);
    p->bias = malloc((size_t)p->n * 4);
    p->residual = malloc((size_t)(p->m * p->ldy) * y_bytes);
    p->x_scale = malloc((size_t)p->m * 4);
    p->w_scale = malloc((size_t)p->n * 4);
    memset(p->x, 0xff, (size_t)(p->m * p->ldx) * bytes); /* NaN beyond k must not matter */
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t i = 0; i < p->k; i++)
            put_random(p, p->x, p->dtype, r * p->ldx + i);
    fill(p, p->w, p->dtype, p->n * p->k);
    fill(p, p->bias, p->bias_dtype, p->n);
    fill(p, p->residual, p->y_dtype, p->m * p->ldy);
    /* Products of integers are large. */
    for (int64_t i = 0; i < p->m; i++)
        p->x_scale[i] = (1.5f + random_float()) * (p->dtype == S24_I8 ? 0x1p-12f : 1);
    for (int64_t i = 0; i < p->n; i++)
        p->w_scale[i] = 1.5f + random_float();
    memset(p->y, 0xff, (size_t)((p->m + 1) * p->ldy) * y_bytes);
}

static void problem_make(problem *p)
{
    make_operands(p);
    s24_dense w = {p->w, p->dtype, p->n, p->k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    s24_matrix *matrix;
    assert_ok(p->ctx, s24_matrix_create(&matrix, p->ctx, &w, &opts));
    assert_ok(p->ctx, s24_matrix_to_dense(p->ctx, &w, matrix));
    assert_ok(p->ctx, s24_device_weight_create(&p->weight, p->ctx, p->device, matrix, NULL));
    s24_matrix_destroy(matrix);
    sum_up(p);
    const size_t y_bytes = s24_dtype_bytes(p->y_dtype);
    p->gpu[0] = upload(p, p->x, (size_t)(p->m * p->ldx) * s24_dtype_bytes(p->dtype));
    p->gpu[1] = upload(p, p->y, (size_t)((p->m + 1) * p->ldy) * y_bytes);
    p->gpu[2] = upload(p, p->bias, (size_t)p->n * s24_dtype_bytes(p->bias_dtype));
    p->gpu[3] = upload(p, p->residual, (size_t)(p->m * p->ldy) * y_bytes);
    p->gpu[4] = upload(p, p->x_scale, (size_t)p->m * 4);
    p->gpu[5] = upload(p, p->w_scale, (size_t)p->n * 4);
    size_t bytes = s24_device_linear_work_bytes(p->device, p->weight);
    assert_ok(p->ctx, s24_device_alloc(&p->work, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_clear(p->ctx, p->device, p->work, bytes, NULL));
}

static void problem_free(problem *p)
{
    for (int i = 0; i < 6; i++)
        assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->gpu[i], NULL));
    assert_ok(p->ctx, s24_device_free(p->ctx, p->device, p->work, NULL));
    s24_device_weight_destroy(p->weight);
    void *const host[] = {p->x,       p->w,       p->y,   p->bias, p->residual,
                          p->x_scale, p->w_scale, p->sum, p->size};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        free(host[i]);
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

/* What rounding to Y's dtype may make of a value, and the sums' own error, which sums up as the
   hardware's: i8 exactly, of 8-bit floats 14 bits of the largest, else f32. */
static double slack(const problem *p, const s24_device_linear_args *args, double v, double size)
{
    const int plain =
        !args->x_scale && !args->w_scale && !args->bias && !args->residual && !args->activation;
    const double sums = p->dtype == S24_I8                             ? 1e-6
                        : p->dtype == S24_E4M3 || p->dtype == S24_E5M2 ? 4e-4
                                                                       : 4e-6;
    switch (p->y_dtype) {
    case S24_BF16:
        return fabs(v) / 256 + sums * size + 2e-4;
    case S24_F16:
        return fabs(v) / 2048 + sums * size + 3e-5;
    case S24_I8:
    case S24_I32:
        return plain ? 0 : 0.51 + 1e-6 * fabs(v) + sums * size;
    default:
        return 1e-6 * fabs(v) + sums * size + 1e-5;
    }
}

static void expect(problem *p, const s24_device_linear_args *args)
{
    const size_t bytes = s24_dtype_bytes(p->y_dtype);
    const unsigned char poison[4] = {255, 255, 255, 255};
    for (int64_t r = 0; r <= p->m; r++)
        for (int64_t c = 0; c < p->ldy; c++) {
            if (r == p->m || c >= p->n) { /* beyond the output */
                const char *at = (const char *)p->y + (size_t)(r * p->ldy + c) * bytes;
                assert_memory_equal(at, poison, bytes);
                continue;
            }
            double scale = (args->x_scale ? (double)p->x_scale[r] : 1) *
                           (args->w_scale ? (double)p->w_scale[c] : 1);
            double sum = p->sum[r * p->n + c] * scale, size = p->size[r * p->n + c] * scale;
            if (args->bias) sum += value(p, p->bias, p->bias_dtype, c);
            /* The hardware's tanh is all that GELU needs in 16 bits. */
            const double rough = args->activation == S24_ACTIVATION_GELU ? 4e-4 * fabs(sum) : 0;
            sum = activated(sum, args->activation);
            if (args->residual) sum += value(p, p->residual, p->y_dtype, r * p->ldy + c);
            if (p->y_dtype == S24_I8) sum = sum < -128 ? -128 : sum > 127 ? 127 : sum;
            double got = value(p, p->y, p->y_dtype, r * p->ldy + c);
            if (!(fabs(got - sum) <= slack(p, args, sum, size) + rough))
                fail_msg("tile %s, %s to %s, m %d n %d k %d, activation %d, bias %d, residual %d, "
                         "scales %d: row %d column %d is %g, expected %g",
                         args->tile ? args->tile : "chosen", s24_dtype_name(p->dtype),
                         s24_dtype_name(p->y_dtype), (int)p->m, (int)p->n, (int)p->k,
                         (int)args->activation, args->bias != NULL, args->residual != NULL,
                         args->w_scale != NULL, (int)r, (int)c, got, sum);
        }
}

static int products_run;

enum { WITH_BIAS = 1, WITH_RESIDUAL = 2, WITH_SCALES = 4 };

/* Twice: the second run must give the same bits, whatever the first left in the work memory. */
static void run_twice(problem *p, const char *tile, s24_activation activation, int with)
{
    size_t bytes = (size_t)((p->m + 1) * p->ldy) * s24_dtype_bytes(p->y_dtype);
    char *first = malloc(bytes);
    s24_dense x = {p->gpu[0], p->dtype, p->m, p->k, p->ldx};
    s24_dense y = {p->gpu[1], p->y_dtype, p->m, p->n, p->ldy};
    s24_dense r = {p->gpu[3], p->y_dtype, p->m, p->n, p->ldy};
    s24_device_linear_args args = {.size = sizeof args,
                                   .x = &x,
                                   .y = &y,
                                   .bias = with & WITH_BIAS ? p->gpu[2] : NULL,
                                   .activation = activation,
                                   .residual = with & WITH_RESIDUAL ? &r : NULL,
                                   .x_scale = with & WITH_SCALES ? p->gpu[4] : NULL,
                                   .w_scale = with & WITH_SCALES ? p->gpu[5] : NULL,
                                   .work = p->work,
                                   .work_bytes = s24_device_linear_work_bytes(p->device, p->weight),
                                   .tile = tile};
    for (int turn = 0; turn < 2; turn++) {
        memset(p->y, 0xff, bytes);
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->gpu[1], p->y, bytes, NULL));
        s24_status status = s24_device_linear(p->ctx, p->device, p->weight, &args);
        /* 8-bit dtypes have not every tile, and a short k nothing to share. */
        if (tile && (s24_dtype_bytes(p->dtype) == 1 || strchr(tile, '/')) &&
            status == S24_ERROR_UNSUPPORTED && strstr(s24_ctx_error(p->ctx), "cannot be used")) {
            free(first);
            return;
        }
        assert_int_equal(status, S24_OK);
        assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, p->y, p->gpu[1], bytes, NULL));
        assert_ok(p->ctx, s24_device_wait(p->ctx, p->device, NULL));
        if (turn == 0) memcpy(first, p->y, bytes);
    }
    assert_memory_equal(first, p->y, bytes);
    expect(p, &args);
    free(first);
    products_run++;
}

/* Every tile in every pair of dtypes. Sums of i8 without scales are beyond 16 bits and f16. */
static void test_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 8, 64},     {2, 72, 4},      {7, 64, 132},
                                        {16, 136, 704}, {17, 130, 192},  {127, 200, 68},
                                        {129, 65, 320}, {200, 264, 256}, {9, 70, 2820}};
    static const s24_dtype dtypes[][2] = {
        {S24_BF16, S24_BF16}, {S24_F16, S24_F16},  {S24_BF16, S24_F32},  {S24_F16, S24_F32},
        {S24_I8, S24_I32},    {S24_I8, S24_I8},    {S24_I8, S24_BF16},   {S24_I8, S24_F16},
        {S24_I8, S24_F32},    {S24_E4M3, S24_F16}, {S24_E4M3, S24_BF16}, {S24_E4M3, S24_F32},
        {S24_E5M2, S24_F16},  {S24_E5M2, S24_F32}, {S24_E5M2, S24_BF16}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    int turn = 0;
    for (size_t d = 0; device && d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            problem p = {.ctx = ctx,
                         .device = device,
                         .dtype = dtypes[d][0],
                         .y_dtype = dtypes[d][1],
                         .m = shapes[s][0],
                         .n = shapes[s][1],
                         .k = shapes[s][2]};
            const int large = p.dtype == S24_I8 && p.y_dtype != S24_I32 && p.y_dtype != S24_F32;
            problem_make(&p);
            run_twice(&p, NULL, S24_ACTIVATION_NONE, large ? WITH_SCALES : 0);
            for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++, turn++) {
                int with = turn * 5 % 8;
                run_twice(&p, tile, (s24_activation)(turn % 5), large ? with | WITH_SCALES : with);
            }
            problem_free(&p);
        }
    if (device) assert_true(products_run > turn / 2); /* what cannot be used is the exception */
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
        args.tile = "1x1";
        assert_refused(ctx, S24_ERROR_ARGUMENT, "no tile named",
                       s24_device_linear(ctx, device, p.weight, &args));
        args.tile = NULL;
        args.work = p.work;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "work is 0 bytes",
                       s24_device_linear(ctx, device, p.weight, &args));
        s24_device_choice choices[2] = {{S24_BF16, 4, 64, 64, "128x96"},
                                        {S24_BF16, 3, 64, 64, "1x1"}};
        assert_refused(ctx, S24_ERROR_ARGUMENT, "no tile named",
                       s24_device_tune(ctx, device, choices, 2));
        assert_ok(ctx, s24_device_tune(ctx, device, choices, 1));
        assert_string_equal(s24_device_linear_tile(device, p.weight, 4), "128x96");
        assert_string_not_equal(s24_device_linear_tile(device, p.weight, 3), "128x96");
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
