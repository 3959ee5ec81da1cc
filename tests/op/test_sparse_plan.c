// SPDX-License-Identifier: Apache-2.0
/*
 * Products with sparse matrices: every row of the table that this CPU has against sums in double,
 * for each format and block, few and many tokens, on operands between inaccessible pages, with
 * every part of the epilogue.
 */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "core_support.h"
#include "guarded.h"

typedef struct sides {
    int64_t m, n, k, block_rows, block_cols; /* blocks 0: CSR */
    int every;                               /* one block in so many is there */
} sides;

static const sides shapes[] = {
    {1, 5, 7, 0, 0, 3},      {3, 33, 40, 0, 0, 2},       {17, 64, 129, 0, 0, 10},
    {64, 96, 200, 0, 0, 8},  {65, 31, 33, 0, 0, 1},      {50, 20, 24, 0, 0, 1000},
    {1, 8, 8, 8, 8, 1},      {2, 64, 96, 16, 16, 3},     {5, 48, 64, 16, 16, 2},
    {16, 32, 64, 32, 32, 2}, {33, 64, 128, 64, 64, 2},   {70, 128, 256, 128, 128, 2},
    {49, 24, 40, 8, 8, 4},   {4, 128, 128, 128, 128, 1}, {20, 32, 48, 16, 16, 1000},
    {18, 16, 32, 4, 1, 3},   {18, 16, 32, 1, 4, 3},      {1, 20, 57, 4, 1, 3},
    {4, 64, 160, 4, 1, 5},   {33, 68, 96, 4, 1, 4},      {97, 36, 129, 4, 1, 6},
    {7, 12, 24, 4, 1, 1000}, {2, 4, 65540, 4, 1, 3000},  {9, 4, 65540, 4, 1, 3000},
    {2, 1, 65540, 0, 0, 99}, {6, 1, 65540, 0, 0, 3000},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* A matrix of random blocks. */
static float *blocks_of(const sides *s, uint64_t *seed)
{
    const int64_t r = s->block_rows ? s->block_rows : 1, c = s->block_cols ? s->block_cols : 1;
    float *w = calloc((size_t)(s->n * s->k), sizeof *w);
    for (int64_t i = 0; i < s->n / r; i++)
        for (int64_t j = 0; j < s->k / c; j++)
            for (int64_t a = 0; a < r * c && (test_random(seed) % (unsigned)s->every == 0 || a);
                 a++)
                w[(i * r + a / c) * s->k + j * c + a % c] = test_uniform(seed);
    return w;
}

/* Of the dtype, to whose values w is rounded. */
static s24_sparse *sparse_of(s24_ctx *ctx, const sides *s, float *w, s24_dtype dtype)
{
    s24_sparse *sparse;
    uint16_t *narrow = malloc((size_t)(s->n * s->k) * sizeof *narrow);
    s24_dense dense = {w, S24_F32, s->n, s->k, 0};
    if (dtype != S24_F32) {
        assert_ok(ctx, s24_convert(narrow, dtype, w, S24_F32, s->n * s->k));
        assert_ok(ctx, s24_convert(w, S24_F32, narrow, dtype, s->n * s->k));
        dense.data = narrow;
        dense.dtype = dtype;
    }
    const s24_sparse_parts as = {.format = s->block_rows ? S24_FORMAT_BSR : S24_FORMAT_CSR,
                                 .block_rows = s->block_rows,
                                 .block_cols = s->block_cols};
    assert_ok(ctx, s24_sparse_create(&sparse, ctx, &dense, &as));
    free(narrow);
    return sparse;
}

/* Operands of a run; part: bits of bias, gate, residual, and above them the activation. */
typedef struct operands {
    guarded x, y, bias, work;
    float *gate, *residual;
    s24_linear_args args;
    s24_dense dx, dy, dgate, dresidual;
} operands;

static guarded random_guarded(int64_t count, int at_end, uint64_t *seed)
{
    guarded g = guard((size_t)count * sizeof(float), sizeof(float), at_end);
    for (int64_t i = 0; i < count; i++)
        ((float *)g.data)[i] = test_uniform(seed);
    return g;
}

static void make_operands(operands *o, const sides *s, const s24_plan *plan, s24_ctx *ctx, int part,
                          uint64_t *seed)
{
    const int at_end = part & 1;
    const size_t bytes = s24_plan_work_bytes(plan, ctx, s->m);
    *o = (operands){.x = random_guarded(s->m * s->k, at_end, seed),
                    .y = random_guarded(s->m * s->n, at_end, seed),
                    .bias = random_guarded(s->n, 1, seed),
                    .work = guard(bytes ? bytes : 64, 64, 1)};
    o->gate = malloc((size_t)(s->m * s->n) * sizeof *o->gate);
    o->residual = malloc((size_t)(s->m * s->n) * sizeof *o->residual);
    for (int64_t i = 0; i < s->m * s->n; i++) {
        o->gate[i] = test_uniform(seed);
        o->residual[i] = test_uniform(seed);
    }
    o->dx = (s24_dense){o->x.data, S24_F32, s->m, s->k, 0};
    o->dy = (s24_dense){o->y.data, S24_F32, s->m, s->n, 0};
    o->dgate = (s24_dense){o->gate, S24_F32, s->m, s->n, 0};
    o->dresidual = (s24_dense){o->residual, S24_F32, s->m, s->n, 0};
    o->args = (s24_linear_args){.y = &o->dy,
                                .x = &o->dx,
                                .bias = part & 1 ? o->bias.data : NULL,
                                .gate = part & 2 ? &o->dgate : NULL,
                                .residual = part & 4 ? &o->dresidual : NULL,
                                .activation = (s24_activation)(part >> 3),
                                .work = bytes ? o->work.data : NULL,
                                .work_bytes = bytes};
}

static void drop_operands(operands *o)
{
    unguard(o->x);
    unguard(o->y);
    unguard(o->bias);
    unguard(o->work);
    free(o->gate);
    free(o->residual);
}

/* The columns of a row that are not zero, of which alone sums are made: an emulator takes minutes
   for the others. */
static int64_t columns_of(int32_t *columns, const float *row, int64_t k)
{
    int64_t count = 0;
    for (int64_t i = 0; i < k; i++)
        if (row[i] != 0) columns[count++] = (int32_t)i;
    return count;
}

static void check_output(const operands *o, const sides *s, int64_t i, double sum, double bound,
                         const char *kernel)
{
    const int64_t m = i / s->n, n = i % s->n;
    if (o->args.bias) sum += o->args.bias[n];
    sum = activation_of(sum, o->args.activation);
    if (o->args.gate) sum *= o->gate[i];
    if (o->args.residual) sum += o->residual[i];
    const double got = ((float *)o->y.data)[i];
    if (fabs(got - sum) > bound)
        fail_msg("%s: [%d, %d] of %d tokens is %g, expected %g", kernel, (int)m, (int)n, (int)s->m,
                 got, sum);
}

static void check_outputs(const operands *o, const sides *s, const float *w, const char *kernel)
{
    /* Rows of bf16 round x. */
    const double share = strstr(kernel, "_bf16_") ? 0.005 : 1e-6;
    int32_t *columns = malloc((size_t)s->k * sizeof *columns);
    for (int64_t n = 0; n < s->n; n++) {
        const float *row = w + n * s->k;
        const int64_t count = columns_of(columns, row, s->k);
        for (int64_t m = 0; m < s->m; m++) {
            const float *x = (float *)o->x.data + m * s->k;
            double sum = 0, size = 1;
            for (int64_t i = 0; i < count; i++) {
                const double product = (double)x[columns[i]] * (double)row[columns[i]];
                sum += product;
                size += fabs(product);
            }
            check_output(o, s, m * s->n + n, sum, share * size, kernel);
        }
    }
    free(columns);
}

static void run_shape(s24_ctx *ctx, const sides *s, const char *kernel, uint64_t *seed)
{
    float *w = blocks_of(s, seed);
    s24_sparse *sparse = sparse_of(ctx, s, w, strstr(kernel, "_bf16_") ? S24_BF16 : S24_F32);
    s24_plan *plan;
    const s24_status status = s24_sparse_plan(&plan, ctx, sparse, kernel);
    if (status == S24_ERROR_UNSUPPORTED) {
        assert_null(plan);
    } else {
        assert_ok(ctx, status);
        assert_string_equal(s24_plan_kernel(plan, s->m), kernel);
        for (int part = 0; part < 40; part += 1 + (int)(test_random(seed) % 7)) {
            operands o;
            make_operands(&o, s, plan, ctx, part, seed);
            assert_ok(ctx, s24_plan_run(ctx, plan, &o.args));
            check_outputs(&o, s, w, kernel);
            drop_operands(&o);
        }
    }
    s24_plan_destroy(plan);
    s24_sparse_destroy(sparse);
    free(w);
}

static void test_every_row(void **state)
{
    heap h = {.fail_at = 0};
    const char *kernel;
    uint32_t cpu;
    uint64_t seed = 3;
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        s24_ctx *ctx = ctx_on(&h, threads);
        for (int i = 0; (kernel = s24_sparse_kernel_name(i, NULL, &cpu)); i++)
            for (int j = 0; j < SHAPES && !(cpu & ~s24_ctx_cpu(ctx)); j++)
                run_shape(ctx, &shapes[j], kernel, &seed);
        ctx_off(&h, ctx);
    }
}

/* Other dtypes are widened, and the best row is one of the table. */
static void test_other_dtypes(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 5;
    const sides s = {9, 32, 48, 16, 16, 2};
    float *w = blocks_of(&s, &seed), *rounded = calloc(32 * 48, sizeof *rounded);
    uint16_t halves[32 * 48];
    (void)state;
    assert_ok(ctx, s24_convert(halves, S24_BF16, w, S24_F32, 32 * 48));
    assert_ok(ctx, s24_convert(rounded, S24_F32, halves, S24_BF16, 32 * 48));
    const s24_dense dense = {halves, S24_BF16, 32, 48, 0};
    const s24_sparse_parts as = {.format = S24_FORMAT_BSR, .block_rows = 16, .block_cols = 16};
    s24_sparse *sparse;
    s24_plan *plan;
    operands o;
    assert_ok(ctx, s24_sparse_create(&sparse, ctx, &dense, &as));
    assert_ok(ctx, s24_sparse_plan(&plan, ctx, sparse, NULL));
    make_operands(&o, &s, plan, ctx, 7, &seed);
    assert_ok(ctx, s24_plan_run(ctx, plan, &o.args));
    check_outputs(&o, &s, rounded, s24_plan_kernel(plan, 9));
    drop_operands(&o);
    s24_plan_destroy(plan);
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no kernel of sparse matrices named \"none\"",
                   s24_sparse_plan(&plan, ctx, sparse, "none"));
    assert_refused(ctx, S24_ERROR_UNSUPPORTED,
                   "multiplies csr; this matrix is multiplied as bsr of squares",
                   s24_sparse_plan(&plan, ctx, sparse, "sparse_csr_f32_ref"));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "w is NULL", s24_sparse_plan(&plan, ctx, NULL, NULL));
    s24_sparse_destroy(sparse);
    free(rounded);
    free(w);
    ctx_off(&h, ctx);
}

/* x and y of bf16, of every mixture, give what f32 gives, rounded once. */
static void check_bf16(s24_ctx *ctx, const sides *s, uint64_t *seed)
{
    const int64_t m = s->m, n = s->n, k = s->k;
    float *w = blocks_of(s, seed), *x = calloc((size_t)(m * k), sizeof *x), y[60 * 32];
    uint16_t *narrow = calloc((size_t)(m * k), sizeof *narrow), halves[60 * 32];
    s24_sparse *sparse = sparse_of(ctx, s, w, S24_BF16);
    s24_plan *plan;
    assert_ok(ctx, s24_sparse_plan(&plan, ctx, sparse, NULL));
    for (int64_t i = 0; i < m * k; i++)
        x[i] = test_uniform(seed);
    assert_ok(ctx, s24_convert(narrow, S24_BF16, x, S24_F32, m * k));
    assert_ok(ctx, s24_convert(x, S24_F32, narrow, S24_BF16, m * k));
    const size_t bytes = s24_plan_work_bytes(plan, ctx, m);
    void *work = aligned_alloc(64, (bytes + 64) / 64 * 64);
    const s24_dense xs[] = {{x, S24_F32, m, k, 0}, {narrow, S24_BF16, m, k, 0}};
    const s24_dense ys[] = {{y, S24_F32, m, n, 0}, {halves, S24_BF16, m, n, 0}};
    s24_linear_args args = {.work = work, .work_bytes = bytes, .x = &xs[0], .y = &ys[0]};
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    for (int from = 0; s24_plan_takes(plan, S24_BF16) && from < 2; from++) {
        args.x = &xs[from];
        args.y = &ys[1];
        assert_ok(ctx, s24_plan_run(ctx, plan, &args));
        for (int64_t i = 0; i < m * n; i++) {
            uint16_t expected;
            assert_ok(ctx, s24_convert(&expected, S24_BF16, &y[i], S24_F32, 1));
            assert_int_equal(halves[i], expected);
        }
    }
    s24_plan_destroy(plan);
    s24_sparse_destroy(sparse);
    free(work);
    free(narrow);
    free(x);
    free(w);
}

static void test_bf16(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 9;
    (void)state;
    for (int64_t m = 1; m < 60; m += 7) {
        const sides squares = {m, 32, 48, 16, 16, 2}, strips = {m, 28, 43, 4, 1, 3};
        check_bf16(ctx, &squares, &seed);
        check_bf16(ctx, &strips, &seed);
    }
    ctx_off(&h, ctx);
}

/* Columns of x that no strip has may be infinite or NaN, also where an odd one fills up a line. */
static void test_what_is_not_stored_is_not_multiplied(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    const char *kernel;
    uint32_t cpu;
    uint64_t seed = 11;
    (void)state;
    for (int i = 0; (kernel = s24_sparse_kernel_name(i, NULL, &cpu)); i++)
        for (int64_t m = 1; m < 40 && !(cpu & ~s24_ctx_cpu(ctx)); m += 19) {
            const sides s = {m, 8, 11, 4, 1, 1};
            float *w = blocks_of(&s, &seed);
            for (int64_t n = 0; n < s.n; n++)
                w[n * s.k] = w[n * s.k + 10] = 0;
            s24_sparse *sparse =
                sparse_of(ctx, &s, w, strstr(kernel, "_bf16_") ? S24_BF16 : S24_F32);
            s24_plan *plan = NULL;
            if (s24_sparse_plan(&plan, ctx, sparse, kernel) == S24_OK) {
                operands o;
                make_operands(&o, &s, plan, ctx, 0, &seed);
                for (int64_t t = 0; t < m; t++) {
                    ((float *)o.x.data)[t * s.k] = INFINITY;
                    ((float *)o.x.data)[t * s.k + 10] = NAN;
                }
                assert_ok(ctx, s24_plan_run(ctx, plan, &o.args));
                for (int64_t at = 0; at < m * s.n; at++)
                    if (!isfinite(((float *)o.y.data)[at]))
                        fail_msg("%s: %d tokens, element %d", kernel, (int)m, (int)at);
                drop_operands(&o);
            }
            s24_plan_destroy(plan);
            s24_sparse_destroy(sparse);
            free(w);
        }
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_what_is_not_stored_is_not_multiplied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
