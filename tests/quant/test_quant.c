// SPDX-License-Identifier: Apache-2.0
/*
 * Quantised matrices: integers and scales of every scheme against their definition, what else takes
 * them, and every refusal.
 */
#include "support.h"

#include <math.h>

#include "base/base.h"
#include "core_support.h"
#include "kernel/kernel.h"

enum { N = 9, K = 332 };

/* A 2:4 matrix of weights with outliers, a row of zeros, and a group of them. */
static s24_matrix *float_matrix(s24_ctx *ctx, s24_dtype dtype, uint64_t seed)
{
    static float data[N * K];
    for (int i = 0; i < N * K; i++) {
        data[i] = test_uniform(&seed) * (test_random(&seed) % 50 ? 0.1f : 1);
        if (i / K == 3 || (i / K == 5 && i % K < 128)) data[i] = 0;
        if (i / K == 4) data[i] *= 1e-30f;
    }
    s24_dense src = {data, S24_F32, N, K, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = dtype};
    return make(ctx, &src, &opts);
}

static s24_matrix *quantized(s24_ctx *ctx, const s24_matrix *src, const char *scheme)
{
    s24_matrix *q = NULL;
    assert_ok(ctx, s24_matrix_quantize(&q, ctx, src, scheme));
    return q;
}

/* The least squared error of one group in 4 bits, by the list of divisors that the header names. */
static double least_error(const float *w, int64_t begin, int64_t end, float largest)
{
    static const double divisors[] = {7, 7.5, 8, 8.5, 9, 10, 11, 12, 13, 14, 16};
    double best = INFINITY;
    for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
        double sum = 0, scale = (double)largest / divisors[d];
        for (int64_t c = begin; c < end; c++) {
            double q = nearbyint((double)w[c] / scale);
            q = q < -8 ? -8 : q > 7 ? 7 : q;
            sum += pow(q * scale - (double)w[c], 2);
        }
        best = sum < best ? sum : best;
    }
    return best;
}

static void check_group(const float *w, const float *back, int64_t begin, int64_t end, int bits,
                        float scale)
{
    float largest = 0;
    double error = 0;
    for (int64_t c = begin; c < end; c++)
        largest = fabsf(w[c]) > largest ? fabsf(w[c]) : largest;
    if (largest == 0) assert_true(scale == 0);
    if (bits == 8) assert_true(scale == largest / 127);
    for (int64_t c = begin; c < end; c++) {
        error += pow((double)back[c] - (double)w[c], 2);
        if (bits == 8) assert_true(fabsf(back[c] - w[c]) <= 0.50001f * scale);
        if (w[c] == 0) assert_true(back[c] == 0);
    }
    if (bits == 4 && largest > 0) assert_true(error <= 1.001 * least_error(w, begin, end, largest));
}

static void test_schemes(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 3);
    static const s24_dtype dtypes[] = {S24_F32, S24_BF16, S24_F16};
    int bits, schemes = 0;
    int64_t group;
    for (const char *name; (name = s24_scheme_name(schemes, &bits, &group)); schemes++) {
        s24_matrix *w = float_matrix(ctx, dtypes[schemes % 3], 7);
        s24_matrix *q = quantized(ctx, w, name);
        const int64_t width = group ? group : K, stride = (K + width - 1) / width;
        assert_int_equal(s24_matrix_dtype(q), S24_I8);
        assert_int_equal(s24_matrix_bits(q), bits);
        assert_int_equal(s24_matrix_group(q), width);
        assert_int_equal(s24_matrix_bytes(q), N * (K / 2 + (K + 7) / 8 + 4 * stride));
        assert_memory_equal(s24_matrix_indices(q), s24_matrix_indices(w), N * ((K + 7) / 8));
        const int8_t *values = s24_matrix_values(q);
        for (int i = 0; i < N * K / 2; i++)
            assert_true(bits == 8 ? values[i] >= -127 : values[i] >= -8 && values[i] <= 7);
        float *want = dense_of(ctx, w), *back = dense_of(ctx, q);
        for (int64_t r = 0; r < N; r++)
            for (int64_t c = 0; c < K; c += width)
                check_group(want + r * K, back + r * K, c, c + width < K ? c + width : K, bits,
                            s24_matrix_scales(q)[r * stride + c / width]);
        free(want), free(back);
        s24_matrix_destroy(w), s24_matrix_destroy(q);
    }
    assert_int_equal(schemes, 6);
    assert_null(s24_scheme_name(-1, NULL, NULL));
    s24_matrix *w = float_matrix(ctx, S24_F32, 7), *q = quantized(ctx, w, NULL);
    assert_int_equal(s24_matrix_bits(q), 8);
    assert_int_equal(s24_matrix_group(q), K);
    assert_int_equal(s24_matrix_bits(w), 0);
    assert_int_equal(s24_matrix_group(w), 0);
    assert_null(s24_matrix_scales(w));
    s24_matrix_destroy(w), s24_matrix_destroy(q);
    ctx_off(&h, ctx);
}

/* Threads do not change a byte; copies and views keep the scales. */
static void test_copies_and_views(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_matrix *w = float_matrix(ctx, S24_F32, 8), *one = quantized(ctx, w, "int4-g64");
    s24_ctx_set_threads(ctx, 4);
    s24_matrix *four = quantized(ctx, w, "int4-g64"), *copy, *view, *view_copy;
    s24_matrix_destroy(w);
    assert_ok(ctx, s24_matrix_copy(&copy, ctx, four));
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, four));
    assert_ok(ctx, s24_matrix_copy(&view_copy, ctx, view));
    s24_matrix_destroy(four);
    assert_memory_equal(s24_matrix_values(one), s24_matrix_values(copy), N * K / 2);
    assert_memory_equal(s24_matrix_scales(one), s24_matrix_scales(copy), N * 6 * sizeof(float));
    assert_int_equal(s24_matrix_bits(copy), 4);
    float *a = dense_of(ctx, one), *b = dense_of(ctx, view), *c = dense_of(ctx, view_copy);
    for (int r = 0; r < N; r++)
        for (int k = 0; k < K; k++)
            assert_true(a[r * K + k] == b[k * N + r]);
    assert_memory_equal(b, c, sizeof *b * N * K);
    free(a), free(b), free(c);
    s24_matrix_destroy(one), s24_matrix_destroy(copy);
    s24_matrix_destroy(view), s24_matrix_destroy(view_copy);
    ctx_off(&h, ctx);
}

/* To the form of a file and back, and what that form must not hold. */
static void test_stored_form(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    const char *name;
    static uint8_t values[N * K / 2];
    s24_matrix *w = float_matrix(ctx, S24_F32, 21), *back;
    s24_quantized from = {.rows = N, .cols = K};
    for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++) {
        s24_matrix *q = quantized(ctx, w, name);
        assert_ok(ctx, s24_matrix_to_quantized(values, ctx, q));
        from.bits = s24_matrix_bits(q), from.group = s24_matrix_group(q);
        from.values = values, from.indices = s24_matrix_indices(q);
        from.scales = s24_matrix_scales(q);
        assert_ok(ctx, s24_matrix_from_quantized(&back, ctx, &from));
        assert_memory_equal(s24_matrix_values(back), s24_matrix_values(q), N * K / 2);
        assert_int_equal(s24_matrix_bytes(back), s24_matrix_bytes(q));
        s24_matrix_destroy(back), s24_matrix_destroy(q);
    }
    s24_matrix *q = quantized(ctx, w, "int4-g64");
    float scales[N * 6];
    uint8_t codes[N * ((K + 7) / 8)];
    memcpy(scales, s24_matrix_scales(q), sizeof scales);
    memcpy(codes, s24_matrix_indices(q), sizeof codes);
    const s24_quantized good = {N, K, 4, 64, values, codes, scales};
    s24_quantized bad = good;
    bad.bits = 3;
    assert_refused(ctx, S24_ERROR_DTYPE, "integers of 3 bits; expected 8 or 4",
                   s24_matrix_from_quantized(&back, ctx, &bad));
    bad = good, bad.group = 32;
    assert_refused(ctx, S24_ERROR_SHAPE, "a scale for 32 columns; expected 64, 128",
                   s24_matrix_from_quantized(&back, ctx, &bad));
    bad = good, bad.cols = 6;
    assert_refused(ctx, S24_ERROR_SHAPE, "a packed matrix of [9, 6]",
                   s24_matrix_from_quantized(&back, ctx, &bad));
    bad = good, bad.scales = NULL;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "scales is NULL",
                   s24_matrix_from_quantized(&back, ctx, &bad));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "from is NULL",
                   s24_matrix_from_quantized(&back, ctx, NULL));
    scales[7] = -0.5f;
    assert_refused(ctx, S24_ERROR_FORMAT, "the scale of row 1, column 64 is -0.5",
                   s24_matrix_from_quantized(&back, ctx, &good));
    scales[7] = NAN;
    assert_refused(ctx, S24_ERROR_FORMAT, "the scale of row 1, column 64 is nan",
                   s24_matrix_from_quantized(&back, ctx, &good));
    scales[7] = 0;
    codes[3] = 0x50;
    assert_refused(ctx, S24_ERROR_FORMAT, "row 0, column 24 (group 6)",
                   s24_matrix_from_quantized(&back, ctx, &good));
    assert_null(back);
    assert_refused(ctx, S24_ERROR_DTYPE, "src is not quantised",
                   s24_matrix_to_quantized(values, ctx, w));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL",
                   s24_matrix_to_quantized(values, ctx, NULL));
    s24_matrix_destroy(w), s24_matrix_destroy(q);
    ctx_off(&h, ctx);
}

/* Scales of zero: the outputs are what the epilogue makes of 0, with every kernel. */
static void test_scales_of_zero(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    static const int8_t values[3 * 72] = {1, -8, 7, 3, -1};
    static const float scales[3 * 2] = {0};
    static float x[9 * 144], y[9 * 3], bias[3] = {0.5f, -2, 3};
    uint8_t codes[3 * 18];
    for (int i = 0; i < 9 * 144; i++)
        x[i] = (float)(i % 7) - 3;
    memset(codes, 0xee, sizeof codes);
    const char *name;
    int levels = 0;
    for (int i = 0; (name = s24_kernel_name(i, NULL, NULL)); i++) {
        s24_dtype activations;
        const int bits = s24_kernel_bits(i, &activations);
        s24_quantized from = {3, 144, bits, activations ? 144 : 128, values, codes, scales};
        s24_matrix *q;
        s24_plan *plan;
        s24_plan_opts opts = {.size = sizeof opts, .kernel = name, .activations = activations};
        if (!bits) continue;
        assert_ok(ctx, s24_matrix_from_quantized(&q, ctx, &from));
        if (s24_plan_create(&plan, ctx, q, &opts) != S24_OK) { /* not for this CPU */
            s24_matrix_destroy(q);
            continue;
        }
        for (int64_t m = 1; m <= 9; m += 4) {
            const s24_dense dx = {x, S24_F32, m, 144, 0}, dy = {y, S24_F32, m, 3, 0};
            const size_t bytes = s24_plan_work_bytes(plan, ctx, m);
            void *work = s24_ctx_alloc(ctx, bytes + 1);
            s24_linear_args args = {
                .y = &dy, .x = &dx, .bias = bias, .work = work, .work_bytes = bytes};
            assert_ok(ctx, s24_plan_run(ctx, plan, &args));
            for (int64_t o = 0; o < 3 * m; o++)
                assert_true(y[o] == bias[o % 3]);
            s24_ctx_free(ctx, work);
        }
        levels++;
        s24_plan_destroy(plan), s24_matrix_destroy(q);
    }
    assert_true(levels >= 3); /* w8, w4 and i8 in scalar code at least */
    ctx_off(&h, ctx);
}

static void check_product(const float *y, const float *x, const float *w, int64_t m, int64_t n,
                          int64_t k, int w_transposed)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < k; l++) {
                double p = (double)x[i * k + l] * (double)w[w_transposed ? l * n + j : j * k + l];
                sum += p;
                size += fabs(p);
            }
            assert_true(fabs((double)y[i * n + j] - sum) <= 0x1p-15 * size);
        }
}

static const char *const levels[] = {"baseline",   "avx2", "avxvnni", "avx512", "avx512vnni",
                                     "avx512bf16", "amx",  "neon",    "dotprod"};

/* Sums along both sides of every scheme on every level of the CPU, through plans and without. */
static void test_products(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx;
    enum { M = 5 };
    static float x[M * K], xn[M * N], y[M * K];
    uint64_t seed = 3;
    for (int i = 0; i < M * K; i++)
        x[i] = xn[i % (M * N)] = test_uniform(&seed);
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
        s24_ctx_opts opts = {.size = sizeof opts,
                             .allocator = {heap_alloc, heap_free, &h},
                             .cpu_mask = s24_cpu_parse(levels[level]),
                             .threads = 2};
        assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
        const char *name;
        for (int i = 0; (name = s24_scheme_name(i, NULL, NULL)); i++) {
            s24_matrix *w = float_matrix(ctx, S24_F32, 9), *q = quantized(ctx, w, name);
            float *dense = dense_of(ctx, q);
            s24_dense along_k = {x, S24_F32, M, K, 0}, out_n = {y, S24_F32, M, N, 0};
            assert_ok(ctx, s24_linear(ctx, &out_n, &along_k, q, NULL));
            check_product(y, x, dense, M, N, K, 0);
            s24_dense along_n = {xn, S24_F32, M, N, 0}, out_k = {y, S24_F32, M, K, 0};
            assert_ok(ctx, s24_mm_dense_sparse(ctx, &out_k, &along_n, q));
            check_product(y, xn, dense, M, K, N, 1);
            free(dense);
            s24_matrix_destroy(w), s24_matrix_destroy(q);
        }
        s24_ctx_destroy(ctx);
    }
    assert_int_equal(h.blocks, 0);
}

static void test_plans(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_matrix *w = float_matrix(ctx, S24_F32, 9), *q = quantized(ctx, w, "int4-g128");
    s24_plan *plan;
    s24_plan_opts opts = {.size = sizeof opts, .kernel = "linear_w4_ref"};
    assert_ok(ctx, s24_plan_create(&plan, ctx, q, &opts));
    assert_string_equal(s24_plan_kernel(plan, 1), "linear_w4_ref");
    s24_plan_destroy(plan);
    opts.kernel = "linear_f32_ref"; /* fits every dtype */
    assert_ok(ctx, s24_plan_create(&plan, ctx, q, &opts));
    s24_plan_destroy(plan);
    opts.kernel = "linear_w8_ref";
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "computes on i8 weights; the matrix is i4",
                   s24_plan_create(&plan, ctx, q, &opts));
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "computes on i8 weights; the matrix is f32",
                   s24_plan_create(&plan, ctx, w, &opts));
    opts.activations = S24_BF16;
    assert_refused(ctx, S24_ERROR_DTYPE, "activations is bf16; expected none or i8",
                   s24_plan_create(&plan, ctx, q, &opts));
    opts.activations = S24_I8;
    opts.kernel = "linear_w4_ref";
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "computes on float activations",
                   s24_plan_create(&plan, ctx, q, &opts));
    opts.kernel = NULL;
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "takes i8 activations and a matrix of f32",
                   s24_plan_create(&plan, ctx, w, &opts));
    s24_matrix_destroy(w), s24_matrix_destroy(q);
    ctx_off(&h, ctx);
}

/* Integers times activations that are quantised as they come, against the quantised weights. */
static void test_integer_plans(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 31;
    s24_ctx *ctx = ctx_on(&h, 2);
    s24_matrix *w = float_matrix(ctx, S24_F32, 12), *q = quantized(ctx, w, "int8");
    s24_matrix *grouped = quantized(ctx, w, "int8-g64"), *wide;
    static float back[N * K], x[7 * K], y[7 * N], none[S24I_MAX_INTEGER_K + 8];
    s24_dense dense = {back, S24_F32, N, K, 0}, dx = {x, S24_F32, 7, K, 0};
    s24_dense dy = {y, S24_F32, 7, N, 0}, row = {none, S24_F32, 1, S24I_MAX_INTEGER_K + 8, 0};
    assert_ok(ctx, s24_matrix_to_dense(ctx, &dense, q));
    for (int i = 0; i < 7 * K; i++)
        x[i] = test_uniform(&seed);
    s24_plan_opts opts = {.size = sizeof opts, .activations = S24_I8};
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, q, &opts));
    const size_t bytes = s24_plan_work_bytes(plan, ctx, 7);
    void *work = s24_ctx_alloc(ctx, bytes);
    s24_linear_args args = {.y = &dy, .x = &dx, .work = work, .work_bytes = bytes};
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    for (int i = 0; i < 7 * N; i++) {
        double sum = 0, size = 0, largest = 0;
        for (int k = 0; k < K; k++) {
            const double wk = (double)back[i % N * K + k], xk = (double)x[i / N * K + k];
            sum += wk * xk, size += fabs(wk), largest = fmax(largest, fabs(xk));
        }
        assert_true(fabs((double)y[i] - sum) <= 0.501 * largest / 127 * size + 1e-6 * fabs(sum));
    }
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "this one has scales for groups of columns",
                   s24_plan_create(&plan, ctx, grouped, &opts));
    s24_matrix_opts as = {.size = sizeof as};
    s24_matrix *wide_q = quantized(ctx, wide = make(ctx, &row, &as), "int8");
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "w has 262152 columns; with i8 activations at most",
                   s24_plan_create(&plan, ctx, wide_q, &opts));
    s24_matrix_destroy(w), s24_matrix_destroy(q), s24_matrix_destroy(grouped);
    s24_matrix_destroy(wide), s24_matrix_destroy(wide_q);
    ctx_off(&h, ctx);
}

/* Every level of the CPU has the same integers: without an epilogue, the same bits. */
static void test_levels_of_integer_plans(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 32;
    enum { M = 19 };
    static float x[M * K], y[M * N], first[M * N];
    for (int i = 0; i < M * K; i++)
        x[i] = i / K == 4 ? 0 : test_uniform(&seed); /* a token of zeros */
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
        s24_ctx *ctx;
        s24_ctx_opts as = {.size = sizeof as,
                           .allocator = {heap_alloc, heap_free, &h},
                           .cpu_mask = s24_cpu_parse(levels[level]),
                           .threads = 1 + (int)level % 3};
        assert_int_equal(s24_ctx_create(&ctx, &as), S24_OK);
        s24_matrix *w = float_matrix(ctx, S24_F32, 12), *q = quantized(ctx, w, "int8");
        s24_plan *plan;
        s24_plan_opts opts = {.size = sizeof opts, .activations = S24_I8};
        assert_ok(ctx, s24_plan_create(&plan, ctx, q, &opts));
        const size_t bytes = s24_plan_work_bytes(plan, ctx, M);
        void *work = s24_ctx_alloc(ctx, bytes);
        const s24_dense dx = {x, S24_F32, M, K, 0}, dy = {level ? y : first, S24_F32, M, N, 0};
        const s24_linear_args args = {.y = &dy, .x = &dx, .work = work, .work_bytes = bytes};
        assert_ok(ctx, s24_plan_run(ctx, plan, &args));
        if (level) assert_memory_equal(y, first, sizeof y);
        s24_ctx_free(ctx, work);
        s24_plan_destroy(plan);
        s24_matrix_destroy(w), s24_matrix_destroy(q);
        s24_ctx_destroy(ctx);
    }
    for (int i = 4 * N; i < 5 * N; i++)
        assert_true(first[i] == 0);
    assert_int_equal(h.blocks, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_matrix *w = float_matrix(ctx, S24_F32, 9), *q = quantized(ctx, w, "int8"), *view, *bad;
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, w));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no quantisation scheme named \"int3\"",
                   s24_matrix_quantize(&bad, ctx, w, "int3"));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL",
                   s24_matrix_quantize(&bad, ctx, NULL, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "src is a transposed view",
                   s24_matrix_quantize(&bad, ctx, view, NULL));
    assert_refused(ctx, S24_ERROR_DTYPE, "src holds integers already",
                   s24_matrix_quantize(&bad, ctx, q, NULL));
    assert_null(bad);
    s24_matrix_destroy(w), s24_matrix_destroy(q), s24_matrix_destroy(view);
    float data[16] = {0, 1, 0, 2, 3, 0, 0, 4, 0, 0, 0, 0, 0, INFINITY, 0, 1};
    s24_dense src = {data, S24_F32, 2, 8, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .allow_nonfinite = 1};
    w = make(ctx, &src, &opts);
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "row 1, column 5 (group 1)",
                   s24_matrix_quantize(&bad, ctx, w, "int4"));
    s24_matrix_destroy(w);
    data[13] = 0;
    w = make(ctx, &src, &opts);
    for (int64_t i = 1; i <= 2; i++) { /* storage and handle */
        h.fail_at = h.calls + i;
        assert_refused(ctx, S24_ERROR_MEMORY, "out of memory",
                       s24_matrix_quantize(&bad, ctx, w, "int4"));
    }
    h.fail_at = 0;
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemes),       cmocka_unit_test(test_copies_and_views),
        cmocka_unit_test(test_stored_form),   cmocka_unit_test(test_scales_of_zero),
        cmocka_unit_test(test_products),      cmocka_unit_test(test_plans),
        cmocka_unit_test(test_integer_plans), cmocka_unit_test(test_levels_of_integer_plans),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
