// SPDX-License-Identifier: Apache-2.0
/*
 * Plans against sums in double: every kernel row that this CPU runs, with bias, activations and
 * residuals; refusals; contexts that mask what a row needs.
 */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "base/base.h"
#include "core_support.h"
#include "product_support.h"

static void one_plan(s24_ctx *ctx, const weight *t, const char *kernel, int64_t m,
                     s24_activation activation, int residual, int gated, uint64_t *seed)
{
    s24_plan *plan;
    s24_plan_opts opts = {.size = sizeof opts, .kernel = kernel};
    assert_ok(ctx, s24_plan_create(&plan, ctx, t->w, &opts));
    assert_string_equal(s24_plan_kernel(plan, m), kernel);
    assert_true(s24_plan_bytes(plan) > 0);
    s24_dense x = make_dense(m, t->k, 0, seed), y = make_dense(m, t->n, 0, seed);
    s24_dense other = make_dense(m, t->n, 0.25f, seed), gate = make_dense(m, t->n, 0, seed);
    if (residual == 2) /* y itself */
        memcpy(y.data, other.data, sizeof(float) * (size_t)(m * y.ld));
    float bias[256];
    for (int64_t i = 0; i < t->n; i++)
        bias[i] = test_uniform(seed);
    size_t bytes = s24_plan_work_bytes(plan, ctx, m);
    void *work = bytes ? s24_ctx_alloc(ctx, bytes) : NULL;
    s24_linear_args args = {.y = &y,
                            .x = &x,
                            .bias = bias,
                            .activation = activation,
                            .gate = gated ? &gate : NULL,
                            .work = work,
                            .work_bytes = bytes};
    if (residual) args.residual = residual == 2 ? &y : &other;
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    double share = tolerance(kernel, t->k);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t n = 0; n < t->n; n++) {
            double exact = (double)bias[n], size = fabs(exact);
            for (int64_t k = 0; k < t->k; k++) {
                double term = t->dense[n * t->k + k] * (double)*at(&x, i, k);
                exact += term;
                size += fabs(term);
            }
            exact = activation_of(exact, activation) * (gated ? (double)*at(&gate, i, n) : 1);
            exact += residual ? 0.25 : 0;
            double off = fabs((double)*at(&y, i, n) - exact);
            /* The activations' slope is under 1.2; 2⁻²⁰ is for their own error. */
            if (!(off <= 1.2 * share * (size + 1) + 1e-6))
                fail_msg("%s, m %d, activation %d: y[%d, %d] off by %g", kernel, (int)m,
                         (int)activation, (int)i, (int)n, off);
        }
    }
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    free(x.data), free(y.data), free(other.data), free(gate.data);
}

/* Rows of quantised matrices: test_quant has them. */
static int needs_scales(int row)
{
    s24_dtype activations;
    return s24_kernel_bits(row, &activations) == 4 || activations != S24_DTYPE_NONE;
}

static void test_plans_of_every_row(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 7, 4}, {2, 16, 36}, {5, 33, 64}, {67, 50, 132}};
    heap h = {0};
    uint64_t seed = 53;
    s24_ctx *ctx = ctx_on(&h, 1);
    uint32_t cpu;
    s24_dtype dtype;
    const char *name;
    for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
        if (needs_scales(row)) continue;
        if (cpu & ~s24_ctx_cpu(ctx)) continue;
        for (int s = 0; s < 4; s++) {
            weight t = make_weight(ctx, dtype, shapes[s][1], shapes[s][2], &seed);
            s24_ctx_set_threads(ctx, 1 + s % 3);
            for (int a = 0; a < 5; a++)
                one_plan(ctx, &t, name, shapes[s][0], (s24_activation)a, (a + s) % 3, (a + s) % 2,
                         &seed);
            drop_weight(&t);
        }
    }
    assert_null(s24_kernel_name(-1, NULL, NULL));
    assert_null(s24_kernel_name(1000, NULL, NULL));
    ctx_off(&h, ctx);
}

/* An infinite input reaches the outputs whose stored weights meet it, and no others. */
static void test_infinite_inputs(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    enum { N = 35, K = 36 };
    uint32_t cpu;
    s24_dtype dtype;
    const char *name;
    for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
        if (needs_scales(row)) continue;
        if (cpu & ~s24_ctx_cpu(ctx)) continue;
        for (int64_t m = 1; m <= 40; m += 13) {
            float data[N * K], y[40 * N], x[40 * K];
            for (int i = 0; i < N * K; i++) /* even rows keep 0 and 1, odd ones 2 and 3 */
                data[i] = i / K % 2 == i % 4 / 2 ? 1 : 0;
            for (int i = 0; i < 40 * K; i++)
                x[i] = 1;
            x[(m - 1) * K + K - 1] = INFINITY; /* the last token's last column */
            s24_dense src = {data, S24_F32, N, K, 0}, dx = {x, S24_F32, m, K, 0},
                      dy = {y, S24_F32, m, N, 0};
            s24_matrix_opts opts = {.size = sizeof opts, .dtype = dtype};
            s24_plan_opts by_name = {.size = sizeof by_name, .kernel = name};
            s24_matrix *w = make(ctx, &src, &opts);
            s24_plan *plan;
            assert_ok(ctx, s24_plan_create(&plan, ctx, w, &by_name));
            size_t bytes = s24_plan_work_bytes(plan, ctx, m);
            void *work = bytes ? s24_ctx_alloc(ctx, bytes) : NULL;
            s24_linear_args args = {.y = &dy, .x = &dx, .work = work, .work_bytes = bytes};
            assert_ok(ctx, s24_plan_run(ctx, plan, &args));
            for (int64_t i = 0; i < m * N; i++) {
                float expected = i / N == m - 1 && i % N % 2 ? INFINITY : K / 2;
                assert_true(y[i] == expected);
            }
            s24_ctx_free(ctx, work);
            s24_plan_destroy(plan);
            s24_matrix_destroy(w);
        }
    }
    ctx_off(&h, ctx);
}

/* Memory that a run may not be given: out of its alignment, or shared with what it writes. */
static void test_bad_memory(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 60;
    s24_ctx *ctx = ctx_on(&h, 1);
    enum { M = 40, N = 8, K = 12, LD = 32 };
    weight t = make_weight(ctx, S24_F32, N, K, &seed);
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, NULL));
    size_t bytes = s24_plan_work_bytes(plan, ctx, M);
    float *both = s24_ctx_alloc(ctx, sizeof *both * M * LD + bytes);
    void *work = both + M * LD;
    memset(both, 0, sizeof *both * M * LD);
    /* Columns of one buffer side by side share no byte. */
    s24_dense x = {both, S24_F32, M, K, LD}, y = {both + K, S24_F32, M, N, LD}, part;
    s24_linear_args good = {.y = &y, .x = &x, .work = work, .work_bytes = bytes}, args = good;
    assert_ok(ctx, s24_plan_run(ctx, plan, &good));
    const struct {
        int64_t from; /* elements after both */
        int64_t ld;
    } overlapping[] = {{0, LD}, {K - 1, LD}, {LD - 1, LD}, {LD, LD}, {LD + K - 1, LD}, {K, LD + 1}};
    for (size_t i = 0; i < sizeof overlapping / sizeof *overlapping; i++) {
        part = (s24_dense){both + overlapping[i].from, S24_F32, M, N, overlapping[i].ld};
        args.y = &part;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "y overlaps x", s24_plan_run(ctx, plan, &args));
    }
    args = good;
    part = (s24_dense){both + K + 1, S24_F32, M, N, LD};
    args.residual = &part;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "residual overlaps y; expected y itself",
                   s24_plan_run(ctx, plan, &args));
    args.residual = NULL, args.gate = &part;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "gate overlaps y; expected y itself",
                   s24_plan_run(ctx, plan, &args));
    args.gate = &y, args.residual = &y;
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    args = good, args.bias = both + K + LD;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "bias overlaps y", s24_plan_run(ctx, plan, &args));
    args.bias = (const float *)(const void *)((const char *)both + 1);
    assert_refused(ctx, S24_ERROR_ARGUMENT, "bias.data is not aligned",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    part = (s24_dense){(char *)both + 2, S24_F32, M, K, LD};
    args.x = &part;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "x.data is not aligned to its elements of 4 bytes",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    part = (s24_dense){(char *)both + 4 * K + 1, S24_F32, M, N, LD};
    args.y = &part;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "y.data is not aligned to its elements of 4 bytes",
                   s24_plan_run(ctx, plan, &args));
    args = good, args.work = both;
    if (bytes)
        assert_refused(ctx, S24_ERROR_ARGUMENT, "work overlaps x", s24_plan_run(ctx, plan, &args));
    s24_ctx_free(ctx, both);
    s24_plan_destroy(plan);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

static void test_plan_refusals(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 59;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F16, 6, 8, &seed);
    s24_matrix *view;
    s24_plan *plan;
    s24_plan_opts opts = {.size = sizeof opts, .kernel = "no_such_kernel"};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "there is no kernel named \"no_such_kernel\"",
                   s24_plan_create(&plan, ctx, t.w, &opts));
    opts.size = 0;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_plan_opts.size is 0",
                   s24_plan_create(&plan, ctx, t.w, &opts));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "w is NULL", s24_plan_create(&plan, ctx, NULL, NULL));
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, t.w));
    assert_refused(ctx, S24_ERROR_SHAPE, "transposed view",
                   s24_plan_create(&plan, ctx, view, NULL));
    assert_null(plan);
    s24_matrix_destroy(view);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

static void test_run_refusals(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 59;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F16, 6, 8, &seed);
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, NULL));
    s24_dense x = make_dense(3, 8, 0, &seed), y = make_dense(3, 6, 0, &seed), wide = x;
    size_t bytes = s24_plan_work_bytes(plan, ctx, 3);
    char *work = s24_ctx_alloc(ctx, bytes + 64);
    s24_linear_args good = {.y = &y, .x = &x, .work = work, .work_bytes = bytes}, args = good;
    assert_ok(ctx, s24_plan_run(ctx, plan, &good));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "plan is NULL", s24_plan_run(ctx, NULL, &good));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "args is NULL", s24_plan_run(ctx, plan, NULL));
    wide.cols = 7;
    args.x = &wide;
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [3, 7]; expected [3, 8]",
                   s24_plan_run(ctx, plan, &args));
    wide = x, wide.rows = 0;
    assert_refused(ctx, S24_ERROR_SHAPE, "x is [0, 8]; expected at least one row",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    args.gate = &x;
    assert_refused(ctx, S24_ERROR_SHAPE, "gate is [3, 8]; expected [3, 6]",
                   s24_plan_run(ctx, plan, &args));
    wide = y, wide.dtype = S24_BF16;
    args.gate = &wide;
    assert_refused(ctx, S24_ERROR_DTYPE, "gate is bf16; expected f32",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    args.residual = &x;
    assert_refused(ctx, S24_ERROR_SHAPE, "residual is [3, 8]; expected [3, 6]",
                   s24_plan_run(ctx, plan, &args));
    s24_dense other_ld = y;
    other_ld.ld++;
    args.residual = &other_ld;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "leading dimension of 10; expected y's 9",
                   s24_plan_run(ctx, plan, &args));
    args = good;
    args.activation = (s24_activation)6;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "activation is 6; expected 0 to 5",
                   s24_plan_run(ctx, plan, &args));
    if (bytes) {
        args = good;
        args.work_bytes--;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_plan_work_bytes asks for",
                       s24_plan_run(ctx, plan, &args));
        args = good;
        args.work = work + 4;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "aligned to 64", s24_plan_run(ctx, plan, &args));
    }
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    s24_plan_destroy(NULL);
    free(x.data), free(y.data);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

static void test_strides_under_the_width(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 62;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F32, 6, 8, &seed);
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, NULL));
    s24_dense x = make_dense(3, 8, 0, &seed), y = make_dense(3, 6, 0, &seed), narrow = x;
    const s24_linear_args good = {.y = &y, .x = &x};
    s24_linear_args args = good;
    narrow.ld = 7, args.x = &narrow;
    assert_refused(ctx, S24_ERROR_SHAPE, "x has a leading dimension of 7; expected 0 or at least",
                   s24_plan_run(ctx, plan, &args));
    args = good, narrow = y, narrow.ld = 5, args.y = &narrow;
    assert_refused(ctx, S24_ERROR_SHAPE, "y has a leading dimension of 5; expected 0 or at least",
                   s24_plan_run(ctx, plan, &args));
    args = good, args.residual = &narrow;
    assert_refused(ctx, S24_ERROR_SHAPE, "residual has a leading dimension of 5; expected",
                   s24_plan_run(ctx, plan, &args));
    args = good, args.gate = &narrow;
    assert_refused(ctx, S24_ERROR_SHAPE, "gate has a leading dimension of 5; expected",
                   s24_plan_run(ctx, plan, &args));
    s24_plan_destroy(plan);
    free(x.data), free(y.data);
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* bf16 activations where a row takes them; where it does not, a sentence says what it takes. */
static void test_activations(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 67;
    s24_ctx *ctx = ctx_on(&h, 1);
    uint32_t cpu;
    s24_dtype dtype;
    const char *name;
    for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
        if (needs_scales(row)) continue;
        if (cpu & ~s24_ctx_cpu(ctx)) continue;
        weight t = make_weight(ctx, dtype, 5, 8, &seed);
        s24_plan_opts by_name = {.size = sizeof by_name, .kernel = name};
        s24_plan *plan;
        assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, &by_name));
        uint16_t x[3 * 8], y[3 * 5], one = s24i_f32_to_bf16(1);
        for (int i = 0; i < 3 * 8; i++)
            x[i] = one;
        s24_dense dx = {x, S24_BF16, 3, 8, 0}, dy = {y, S24_BF16, 3, 5, 0};
        size_t bytes = s24_plan_work_bytes(plan, ctx, 3);
        void *work = bytes ? s24_ctx_alloc(ctx, bytes) : NULL;
        s24_linear_args args = {.y = &dy, .x = &dx, .work = work, .work_bytes = bytes};
        assert_int_equal(s24_plan_takes(plan, S24_F32), 1);
        assert_int_equal(s24_plan_takes(plan, S24_I8), 0);
        if (!s24_plan_takes(plan, S24_BF16)) {
            assert_refused(ctx, S24_ERROR_DTYPE, "x is bf16; expected f32",
                           s24_plan_run(ctx, plan, &args));
        } else {
            assert_ok(ctx, s24_plan_run(ctx, plan, &args));
            for (int i = 0; i < 3 * 5; i++) {
                double sum = 0;
                for (int k = 0; k < 8; k++)
                    sum += t.dense[i % 5 * 8 + k];
                assert_true(fabs(s24i_bf16_to_f32(y[i]) - sum) <= fabs(sum) / 256 + 1e-5);
            }
            dx.dtype = S24_F16;
            assert_refused(ctx, S24_ERROR_DTYPE, "x is f16; expected f32 or bf16",
                           s24_plan_run(ctx, plan, &args));
        }
        s24_ctx_free(ctx, work);
        s24_plan_destroy(plan);
        drop_weight(&t);
    }
    assert_int_equal(s24_plan_takes(NULL, S24_F32), 0);
    ctx_off(&h, ctx);
}

/* A context that masks features neither plans with nor runs what needs them. */
static void test_masked_cpu(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline",   "avx2", "avxvnni", "avx512", "avx512vnni",
                                         "avx512bf16", "amx",  "neon",    "dotprod"};
    heap h = {0};
    uint64_t seed = 61;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_BF16, 20, 64, &seed);
    for (int i = 0; i < 8; i++) {
        s24_ctx *masked;
        s24_ctx_opts opts = {.size = sizeof opts, .cpu_mask = s24_cpu_parse(levels[i])};
        assert_int_equal(s24_ctx_create(&masked, &opts), S24_OK);
        uint32_t cpu;
        s24_dtype dtype;
        const char *name;
        for (int row = 0; (name = s24_kernel_name(row, &cpu, &dtype)); row++) {
            if (needs_scales(row)) continue;
            if ((cpu & ~s24_ctx_cpu(ctx)) || !(cpu & ~s24_ctx_cpu(masked))) continue;
            if (dtype != S24_F32 && dtype != S24_BF16) continue;
            s24_plan_opts by_name = {.size = sizeof by_name, .kernel = name};
            s24_plan *plan;
            assert_refused(masked, S24_ERROR_UNSUPPORTED, name,
                           s24_plan_create(&plan, masked, t.w, &by_name));
            assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, &by_name));
            s24_dense x = make_dense(2, 64, 0, &seed), y = make_dense(2, 20, 0, &seed);
            s24_linear_args args = {.y = &y, .x = &x};
            assert_refused(masked, S24_ERROR_UNSUPPORTED, "this context has",
                           s24_plan_run(masked, plan, &args));
            s24_plan_destroy(plan);
            free(x.data), free(y.data);
        }
        s24_ctx_destroy(masked);
    }
    drop_weight(&t);
    ctx_off(&h, ctx);
}

/* Rows of weights beyond 2^31 bytes, of which there is no memory: refused before they are read. */
static void rows_beyond_memory_are_refused(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_matrix *w;
    void *nowhere = (void *)(uintptr_t)64;
    const s24_dense src = {nowhere, S24_F32, 1, INT64_C(1) << 33, 0};
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    h.fail_at = h.calls + 1;
    assert_refused(ctx, S24_ERROR_MEMORY, "[1, 8589934592]",
                   s24_matrix_create(&w, ctx, &src, &opts));
    assert_null(w);
    h.fail_at = h.calls + 1;
    assert_refused(ctx, S24_ERROR_MEMORY, "[1, 8589934592]",
                   s24_matrix_from_packed(&w, ctx, nowhere, nowhere, S24_BF16, 1, src.cols));
    assert_null(w);
    h.fail_at = 0;
    ctx_off(&h, ctx);
}

/* Views of memory that nobody has, and that is never looked at. */
static void work_beyond_counting_is_refused(void **state)
{
    (void)state;
    heap h = {0};
    uint64_t seed = 61;
    s24_ctx *ctx = ctx_on(&h, 1);
    weight t = make_weight(ctx, S24_F16, 6, 8, &seed);
    s24_plan *plan;
    assert_ok(ctx, s24_plan_create(&plan, ctx, t.w, NULL));
    s24_dense x = {(void *)(uintptr_t)64, S24_F32, INT64_C(1) << 56, 8, 0};
    s24_dense y = {(void *)((uintptr_t)1 << 62), S24_F32, x.rows, 6, 0};
    const s24_linear_args args = {.y = &y, .x = &x};
    assert_int_equal(s24_plan_work_bytes(plan, ctx, x.rows), SIZE_MAX);
    assert_int_equal(s24_plan_work_bytes(plan, ctx, INT64_MAX), SIZE_MAX);
    assert_refused(ctx, S24_ERROR_SHAPE, "x has 72057594037927936 rows; a plan of [6, 8] takes at",
                   s24_plan_run(ctx, plan, &args));
    s24_plan_destroy(plan);
    drop_weight(&t);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_of_every_row),
        cmocka_unit_test(test_infinite_inputs),
        cmocka_unit_test(test_bad_memory),
        cmocka_unit_test(test_plan_refusals),
        cmocka_unit_test(test_run_refusals),
        cmocka_unit_test(test_strides_under_the_width),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_masked_cpu),
        cmocka_unit_test(work_beyond_counting_is_refused),
        cmocka_unit_test(rows_beyond_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
