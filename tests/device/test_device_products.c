// SPDX-License-Identifier: Apache-2.0
/* Products on a GPU: every tile against sums in double over odd shapes, in every pair of dtypes. */
#include "device_product.h"

/* Every tile in every pair of dtypes. Sums of i8 without scales are beyond 16 bits and f16, and all
   but saturate in i8. */
static void test_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 8, 64},     {2, 72, 4},     {7, 64, 132},    {16, 136, 704}, {17, 130, 192},
        {127, 208, 68}, {129, 65, 320}, {200, 264, 256}, {9, 70, 2820},  {8, 72, 6020}};
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
            const int saturates = p.y_dtype == S24_I8;
            problem_make(&p);
            if (!s24_device_linear_tile(device, p.weight, p.m)) { /* 8-bit floats before 8.9 */
                assert_true(p.dtype == S24_E4M3 || p.dtype == S24_E5M2);
                problem_free(&p);
                continue;
            }
            run_twice(&p, NULL, S24_ACTIVATION_NONE, large ? WITH_SCALES : 0);
            for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++, turn++) {
                int with = turn * 5 % 8;
                run_twice(&p, tile, (s24_activation)(turn % 5), large ? with | WITH_SCALES : with);
                if (saturates) run_twice(&p, tile, S24_ACTIVATION_NONE, 0);
                if (saturates) run_twice(&p, tile, S24_ACTIVATION_NONE, WITH_SCALES | WITH_BIAS);
            }
            problem_free(&p);
        }
    /* On Hopper what cannot be used is the exception; other GPUs have few of the tiles. */
    const int hopper = device && strstr(s24_device_text(device), "capability 9.0") != NULL;
    if (device) assert_true(products_run > (hopper ? turn / 2 : 300));
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* From 8 bits to 8 bits, as encoders go from product to product: one scale for all tokens or one
   each, GELU and none, every tile. */
static void test_eight_to_eight(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 64, 64}, {17, 130, 192}, {129, 72, 320}, {200, 264, 256}, {300, 328, 128}};
    static const s24_dtype dtypes[] = {S24_E4M3, S24_I8};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    for (int64_t s = 0; device && s < 10; s++) {
        const int64_t *shape = shapes[s / 2];
        problem p = {.ctx = ctx,
                     .device = device,
                     .dtype = dtypes[s % 2],
                     .y_dtype = dtypes[s % 2],
                     .m = shape[0],
                     .n = shape[1],
                     .k = shape[2]};
        problem_make(&p);
        const int there = s24_device_linear_tile(device, p.weight, p.m) != NULL;
        for (int i = -1; there; i++) {
            tile = i < 0 ? NULL : s24_device_tile_name(device, i);
            if (i >= 0 && !tile) break;
            run_twice(&p, tile, S24_ACTIVATION_GELU, WITH_FACTORS | WITH_BIAS);
            run_twice(&p, tile, S24_ACTIVATION_GELU, i % 2 ? WITH_SCALES : WITH_FACTORS);
            run_twice(&p, tile, i % 2 ? S24_ACTIVATION_NONE : S24_ACTIVATION_RELU,
                      WITH_FACTORS | WITH_BIAS);
        }
        problem_free(&p);
        p.y_dtype = S24_BF16;
        problem_make(&p);
        for (int i = 0; there && (tile = s24_device_tile_name(device, i)) != NULL; i++)
            run_twice(&p, tile, i % 2 ? S24_ACTIVATION_GELU : S24_ACTIVATION_NONE,
                      WITH_FACTORS | WITH_BIAS);
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Each number of tokens from 1 to 17, where tiles begin and end, in every tile. */
static void test_few_tokens(void **state)
{
    (void)state;
    static const s24_dtype dtypes[][2] = {
        {S24_BF16, S24_BF16}, {S24_I8, S24_I32}, {S24_E4M3, S24_BF16}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    int turn = 0;
    for (int d = 0; device && d < 3; d++)
        for (int64_t m = 1; m <= 17; m++) {
            problem p = {.ctx = ctx,
                         .device = device,
                         .dtype = dtypes[d][0],
                         .y_dtype = dtypes[d][1],
                         .m = m,
                         .n = 60 + m,
                         .k = 192 + 4 * m};
            problem_make(&p);
            const int there = s24_device_linear_tile(device, p.weight, m) != NULL;
            assert_true(there || p.dtype == S24_E4M3); /* before 8.9 */
            if (there) run_twice(&p, NULL, S24_ACTIVATION_NONE, 0);
            for (int i = 0; there && (tile = s24_device_tile_name(device, i)) != NULL; i++, turn++)
                run_twice(&p, tile, (s24_activation)(turn % 5), turn * 5 % 8);
            problem_free(&p);
        }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* More tiles than processors, whose blocks are then launched in pairs. */
static void test_many_tiles(void **state)
{
    (void)state;
    static const char *const tiles[] = {NULL, "256x200", "192x192", "64x144"};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    problem p = {.ctx = ctx,
                 .device = device,
                 .dtype = S24_BF16,
                 .y_dtype = S24_BF16,
                 .m = 3079,
                 .n = 2056,
                 .k = 68};
    if (device) problem_make(&p);
    for (size_t i = 0; device && i < sizeof tiles / sizeof *tiles; i++)
        run_twice(&p, tiles[i], S24_ACTIVATION_NONE, 0);
    if (device) problem_free(&p);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Products in a row, whose blocks meet on a processor: what one loads must not be late for, or
   in the way of, what another multiplies with. */
static void test_in_a_row(void **state)
{
    (void)state;
    enum { TIMES = 40, ROW = 3 };
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        problem p = {.ctx = ctx, .device = device, .dtype = S24_BF16, .y_dtype = S24_BF16};
        const char *tile;
        p.m = 8;
        p.n = p.k = 4096;
        problem_make(&p);
        for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++) {
            const int before = products_run;
            const size_t bytes = (size_t)y_count(&p) * 2;
            run_twice(&p, tile, S24_ACTIVATION_NONE, 0);
            char *first = malloc(bytes);
            memcpy(first, p.y, bytes);
            for (int turn = 0; products_run > before && turn < TIMES; turn++) {
                run_in_a_row(&p, tile, ROW);
                assert_memory_equal(first, p.y, bytes);
            }
            free(first);
        }
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* W·X with the tokens of X and Y in columns. */
static void test_columns(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 8, 64},     {2, 72, 4},    {7, 64, 132},
                                        {16, 136, 704}, {127, 65, 68}, {130, 200, 320},
                                        {200, 264, 256}};
    static const s24_dtype dtypes[][2] = {
        {S24_BF16, S24_BF16}, {S24_F16, S24_F16}, {S24_BF16, S24_F32}, {S24_F16, S24_F32}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    int turn = 0;
    products_run = 0;
    for (size_t d = 0; device && d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            problem p = {.ctx = ctx,
                         .device = device,
                         .dtype = dtypes[d][0],
                         .y_dtype = dtypes[d][1],
                         .m = shapes[s][0],
                         .n = shapes[s][1],
                         .k = shapes[s][2],
                         .columns = 1};
            problem_make(&p);
            run_twice(&p, NULL, S24_ACTIVATION_NONE, 0);
            for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++, turn++)
                run_twice(&p, tile, (s24_activation)(turn % 5), turn * 5 % 8);
            problem_free(&p);
        }
    if (device) assert_true(products_run > 100);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void test_columns_refused(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int i = 0; device && i < 2; i++) {
        const s24_dtype dtype = i ? S24_I8 : S24_F16;
        problem p = {.ctx = ctx, .device = device, .dtype = dtype, .y_dtype = S24_F16};
        p.m = 16;
        p.n = p.k = 64;
        p.columns = 1;
        problem_make(&p);
        s24_dense x = {p.gpu[0], dtype, 60, 16, p.ldx}, y = {p.gpu[1], S24_F16, 64, 16, p.ldy};
        s24_device_linear_args args = {.size = sizeof args, .x = &x, .y = &y};
        if (i)
            assert_refused(ctx, S24_ERROR_UNSUPPORTED, "side by side only",
                           s24_device_mm_sparse_dense(ctx, device, p.weight, &args));
        else
            assert_refused(ctx, S24_ERROR_SHAPE, "expected [64, 16]",
                           s24_device_mm_sparse_dense(ctx, device, p.weight, &args));
        problem_free(&p);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* X·W, the sum along n: linear of W's transpose, which a pair has packed, as dX = dY·W needs it. */
static void test_dense_sparse(void **state)
{
    (void)state;
    enum { M = 19, N = 136, K = 200 };
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    if (device) {
        problem p = {.ctx = ctx, .device = device, .dtype = S24_F16, .y_dtype = S24_F32};
        uint16_t *w = malloc(sizeof *w * N * K), *x = malloc(sizeof *x * M * N);
        float *y = malloc(sizeof *y * M * K);
        fill(&p, w, S24_F16, (int64_t)N * K);
        fill(&p, x, S24_F16, (int64_t)M * N);
        const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_TILE_BEST};
        const s24_dense dw = {upload(&p, w, sizeof *w * N * K), S24_F16, N, K, 0};
        const s24_dense dx = {upload(&p, x, sizeof *x * M * N), S24_F16, M, N, 0};
        const s24_dense dy = {upload(&p, y, sizeof *y * M * K), S24_F32, M, K, 0};
        s24_device_weight *forward, *backward;
        assert_ok(ctx, s24_device_weight_pair_from_dense(&forward, &backward, ctx, device, &dw,
                                                         &opts, NULL));
        assert_ok(ctx, s24_device_weight_to_dense(ctx, device, &dw, forward, NULL));
        const s24_device_linear_args args = {.size = sizeof args, .x = &dx, .y = &dy};
        assert_ok(ctx, s24_device_linear(ctx, device, backward, &args));
        assert_ok(ctx, s24_device_copy(ctx, device, w, dw.data, sizeof *w * N * K, NULL));
        assert_ok(ctx, s24_device_copy(ctx, device, y, dy.data, sizeof *y * M * K, NULL));
        assert_ok(ctx, s24_device_wait(ctx, device, NULL));
        for (int64_t at = 0; at < M * K; at++) {
            double sum = 0;
            for (int64_t i = 0; i < N; i++)
                sum +=
                    value(&p, x, S24_F16, at / K * N + i) * value(&p, w, S24_F16, i * K + at % K);
            assert_true(fabs((double)y[at] - sum) <= 1e-4);
        }
        s24_device_weight_destroy(forward);
        s24_device_weight_destroy(backward);
        void *const there[] = {dw.data, dx.data, dy.data};
        for (int i = 0; i < 3; i++)
            assert_ok(ctx, s24_device_free(ctx, device, there[i], NULL));
        free(w);
        free(x);
        free(y);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* GELU of sums that f16 does not hold, or only just: X's first two elements are added. */
static void test_gelu_of_large(void **state)
{
    (void)state;
    enum { N = 64, TOKENS = 8 };
    static const float halves[TOKENS] = {65504, -65504, 30000, -30000, INFINITY, NAN, -20, 0};
    static const float expected[TOKENS] = {INFINITY, 0, 60000, 0, INFINITY, NAN, 0, 0};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    const char *tile;
    if (device) {
        problem p = {.ctx = ctx, .device = device, .dtype = S24_F16, .y_dtype = S24_F16};
        float w[N * N] = {0}, x[TOKENS * N] = {0}, got[TOKENS * N];
        uint16_t narrow[TOKENS * N];
        s24_matrix *matrix;
        for (int r = 0; r < N; r++)
            w[r * N] = w[r * N + 1] = 1;
        for (int t = 0; t < TOKENS; t++)
            x[t * N] = x[t * N + 1] = halves[t];
        const s24_matrix_opts opts = {.size = sizeof opts, .dtype = S24_F16};
        const s24_dense dense = {w, S24_F32, N, N, 0};
        assert_ok(ctx, s24_matrix_create(&matrix, ctx, &dense, &opts));
        assert_ok(ctx, s24_device_weight_create(&p.weight, ctx, device, matrix, NULL));
        s24_matrix_destroy(matrix);
        assert_ok(ctx, s24_convert(narrow, S24_F16, x, S24_F32, TOKENS * N));
        const s24_dense dx = {upload(&p, narrow, sizeof narrow), S24_F16, TOKENS, N, 0};
        const s24_dense dy = {upload(&p, narrow, sizeof narrow), S24_F16, TOKENS, N, 0};
        for (int i = 0; (tile = s24_device_tile_name(device, i)) != NULL; i++) {
            const s24_device_linear_args args = {.size = sizeof args,
                                                 .x = &dx,
                                                 .y = &dy,
                                                 .activation = S24_ACTIVATION_GELU,
                                                 .tile = tile};
            if (s24_device_linear(ctx, device, p.weight, &args) != S24_OK) continue;
            assert_ok(ctx, s24_device_copy(ctx, device, narrow, dy.data, sizeof narrow, NULL));
            assert_ok(ctx, s24_device_wait(ctx, device, NULL));
            assert_ok(ctx, s24_convert(got, S24_F32, narrow, S24_F16, TOKENS * N));
            for (int at = 0; at < TOKENS * N; at++) {
                const float of = expected[at / N];
                if (isnan(of) ? !isnan(got[at]) : got[at] != of)
                    fail_msg("tile %s: GELU of %g is %g", tile, 2 * (double)halves[at / N],
                             (double)got[at]);
            }
        }
        s24_device_weight_destroy(p.weight);
        assert_ok(ctx, s24_device_free(ctx, device, dx.data, NULL));
        assert_ok(ctx, s24_device_free(ctx, device, dy.data, NULL));
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),     cmocka_unit_test(test_eight_to_eight),
        cmocka_unit_test(test_few_tokens),   cmocka_unit_test(test_many_tiles),
        cmocka_unit_test(test_columns),      cmocka_unit_test(test_columns_refused),
        cmocka_unit_test(test_dense_sparse), cmocka_unit_test(test_gelu_of_large),
        cmocka_unit_test(test_in_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
