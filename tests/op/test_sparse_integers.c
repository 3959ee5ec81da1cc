// SPDX-License-Identifier: Apache-2.0
/*
 * Products of 8-bit integers in blocks of 4x1: every row of the table that this CPU has against
 * integer sums, for few and many tokens of f32 and bf16, on operands between inaccessible pages;
 * formats that are converted, memory that ends, and what is refused.
 */
#include "support.h"

#include <math.h>

#include "base/token_scale.h"
#include "core_support.h"
#include "guarded.h"

typedef struct sides {
    int64_t m, n, k;
    int every; /* one block in so many is there */
} sides;

static const sides shapes[] = {{1, 4, 1, 1},       {3, 20, 70, 2},  {16, 64, 128, 5},
                               {17, 36, 65, 3},    {64, 32, 64, 1}, {65, 16, 200, 4},
                               {130, 40, 333, 10}, {33, 8, 16, 99}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct problem {
    sides s;
    int8_t *w;     /* [n, k] */
    float *scales; /* [n] */
    s24_sparse *sparse;
    guarded x, y, work;
} problem;

static s24_sparse *sparse_of(s24_ctx *ctx, const problem *p, s24_format format)
{
    const s24_dense dense = {p->w, S24_I8, p->s.n, p->s.k, 0};
    const int64_t rows = format == S24_FORMAT_BSR ? 4 : 0;
    const s24_sparse_parts as = {.format = format, .block_rows = rows, .block_cols = rows / 4};
    s24_sparse *sparse;
    assert_ok(ctx, s24_sparse_create(&sparse, ctx, &dense, &as));
    return sparse;
}

static void make_problem(problem *p, s24_ctx *ctx, const sides *s, uint64_t *seed)
{
    *p = (problem){.s = *s,
                   .w = calloc((size_t)(s->n * s->k), 1),
                   .scales = calloc((size_t)s->n, sizeof(float)),
                   .x = guard((size_t)(s->m * s->k) * sizeof(float), sizeof(float), 1),
                   .y = guard((size_t)(s->m * s->n) * sizeof(float), sizeof(float), 1)};
    for (int64_t i = 0; i < s->n / 4 * s->k; i++) {
        if (test_random(seed) % (unsigned)s->every) continue;
        for (int64_t o = 0; o < 4; o++)
            p->w[(i / s->k * 4 + o) * s->k + i % s->k] = (int8_t)(test_random(seed) & 255);
    }
    for (int64_t n = 0; n < s->n; n++)
        p->scales[n] = (float)(n % 7) / 64;
    for (int64_t i = 0; i < s->m * s->k; i++)
        ((float *)p->x.data)[i] = test_uniform(seed);
    p->sparse = sparse_of(ctx, p, S24_FORMAT_BSR);
}

static void drop(problem *p)
{
    s24_sparse_destroy(p->sparse);
    unguard(p->x);
    unguard(p->y);
    free(p->w);
    free(p->scales);
}

/* What the rule says of an output, from x as it is stored. */
static float expected(const problem *p, int64_t m, int64_t n)
{
    const sides *s = &p->s;
    const float *x = p->x.data;
    uint32_t largest = 0;
    float inverse;
    int64_t sum = 0;
    for (int64_t k = 0; k < s->k; k++) {
        uint32_t bits;
        memcpy(&bits, &x[m * s->k + k], sizeof bits);
        bits &= 0x7fffffffu;
        if (bits > largest) largest = bits;
    }
    const float scale = s24i_token_scale(largest, &inverse);
    if (scale > 0)
        for (int64_t k = 0; k < s->k; k++)
            sum += p->w[n * s->k + k] * (int64_t)rintf(x[m * s->k + k] * inverse);
    return (float)sum * p->scales[n] * scale;
}

static void run_plan(problem *p, s24_ctx *ctx, const s24_plan *plan)
{
    const sides *s = &p->s;
    const size_t bytes = s24_plan_work_bytes(plan, ctx, s->m);
    const s24_dense x = {p->x.data, S24_F32, s->m, s->k, 0};
    const s24_dense y = {p->y.data, S24_F32, s->m, s->n, 0};
    p->work = guard(bytes, 64, 1);
    const s24_linear_args args = {.y = &y, .x = &x, .work = p->work.data, .work_bytes = bytes};
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    unguard(p->work);
}

static void check(const problem *p, const char *kernel)
{
    for (int64_t m = 0; m < p->s.m; m++)
        for (int64_t n = 0; n < p->s.n; n++) {
            const float wanted = expected(p, m, n);
            const float got = ((float *)p->y.data)[m * p->s.n + n];
            if (got != wanted && !(isnan(got) && isnan(wanted)))
                fail_msg("%s: [%d, %d] of %d tokens is %g, expected %g", kernel, (int)m, (int)n,
                         (int)p->s.m, (double)got, (double)wanted);
        }
}

static void run_shape(s24_ctx *ctx, const sides *s, const char *kernel, uint64_t *seed)
{
    problem p;
    s24_plan *plan;
    make_problem(&p, ctx, s, seed);
    ((float *)p.x.data)[0] = 0;
    assert_ok(ctx, s24_sparse_plan_integers(&plan, ctx, p.sparse, p.scales, kernel));
    assert_string_equal(s24_plan_kernel(plan, s->m), kernel);
    run_plan(&p, ctx, plan);
    check(&p, kernel);
    if (s->m > 2) {
        memset((float *)p.x.data + s->k, 0, (size_t)s->k * sizeof(float));
        ((float *)p.x.data)[2 * s->k] = NAN;
        run_plan(&p, ctx, plan);
        check(&p, kernel);
    }
    s24_plan_destroy(plan);
    drop(&p);
}

static void test_every_row(void **state)
{
    heap h = {.fail_at = 0};
    const char *kernel;
    uint32_t cpu;
    uint64_t seed = 11;
    int rows = 0;
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        s24_ctx *ctx = ctx_on(&h, threads);
        for (int i = 0; (kernel = s24_sparse_kernel_name(i, NULL, &cpu)); i++) {
            if (!strstr(kernel, "_i8_") || cpu & ~s24_ctx_cpu(ctx)) continue;
            rows++;
            for (int j = 0; j < SHAPES; j++)
                run_shape(ctx, &shapes[j], kernel, &seed);
        }
        ctx_off(&h, ctx);
    }
    assert_true(rows >= 2);
}

/* All formats are the same numbers, and the best row is taken. */
static void test_every_format(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 3;
    problem p;
    (void)state;
    make_problem(&p, ctx, &shapes[3], &seed);
    for (int format = S24_FORMAT_COO; format <= S24_FORMAT_BSR; format++) {
        s24_sparse *w = sparse_of(ctx, &p, (s24_format)format);
        s24_plan *plan;
        assert_ok(ctx, s24_sparse_plan_integers(&plan, ctx, w, p.scales, NULL));
        run_plan(&p, ctx, plan);
        check(&p, s24_plan_kernel(plan, 1));
        s24_plan_destroy(plan);
        s24_sparse_destroy(w);
    }
    drop(&p);
    ctx_off(&h, ctx);
}

/* x and y of bf16 with every part of the epilogue: what f32 gives, rounded. */
static void test_bf16(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 7;
    problem p;
    s24_plan *plan;
    float bias[64], wide[16 * 64];
    uint16_t x[16 * 128], y[16 * 64];
    (void)state;
    make_problem(&p, ctx, &shapes[2], &seed);
    for (int i = 0; i < 64; i++)
        bias[i] = test_uniform(&seed);
    assert_ok(ctx, s24_convert(x, S24_BF16, p.x.data, S24_F32, 16 * 128));
    assert_ok(ctx, s24_convert(p.x.data, S24_F32, x, S24_BF16, 16 * 128));
    assert_ok(ctx, s24_sparse_plan_integers(&plan, ctx, p.sparse, NULL, NULL));
    const size_t bytes = s24_plan_work_bytes(plan, ctx, 16);
    void *work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    const s24_dense xs[] = {{p.x.data, S24_F32, 16, 128, 0}, {x, S24_BF16, 16, 128, 0}};
    const s24_dense ys[] = {{wide, S24_F32, 16, 64, 0}, {y, S24_BF16, 16, 64, 0}};
    for (int i = 0; i < 2; i++) {
        const s24_linear_args args = {.y = &ys[i],
                                      .x = &xs[i],
                                      .bias = bias,
                                      .activation = S24_ACTIVATION_RELU,
                                      .work = work,
                                      .work_bytes = bytes};
        assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    }
    for (int i = 0; i < 16 * 64; i++) {
        uint16_t rounded;
        assert_ok(ctx, s24_convert(&rounded, S24_BF16, &wide[i], S24_F32, 1));
        assert_int_equal(y[i], rounded);
    }
    free(work);
    s24_plan_destroy(plan);
    drop(&p);
    ctx_off(&h, ctx);
}

static void test_refusals(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    const float values[] = {1}, bad[] = {1, 1, -1, 1};
    const int64_t starts[] = {0, 1, 1, 1, 1, 1};
    const int32_t index[] = {0};
    const int8_t one[] = {1};
    s24_sparse_parts parts = {.format = S24_FORMAT_CSR,
                              .dtype = S24_F32,
                              .rows = 4,
                              .cols = 4,
                              .stored = 1,
                              .starts = starts,
                              .index = index,
                              .values = values};
    s24_sparse *floats, *four, *five, *wide;
    s24_plan *plan;
    (void)state;
    assert_ok(ctx, s24_sparse_from_parts(&floats, ctx, &parts));
    parts.dtype = S24_I8;
    parts.values = one;
    assert_ok(ctx, s24_sparse_from_parts(&four, ctx, &parts));
    parts.rows = 5;
    assert_ok(ctx, s24_sparse_from_parts(&five, ctx, &parts));
    parts.rows = 4;
    parts.cols = (1 << 17) + 1;
    assert_ok(ctx, s24_sparse_from_parts(&wide, ctx, &parts));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "w is NULL",
                   s24_sparse_plan_integers(&plan, ctx, NULL, NULL, NULL));
    assert_refused(ctx, S24_ERROR_DTYPE, "w is f32; expected i8",
                   s24_sparse_plan_integers(&plan, ctx, floats, NULL, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "4",
                   s24_sparse_plan_integers(&plan, ctx, five, NULL, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "131073 columns",
                   s24_sparse_plan_integers(&plan, ctx, wide, NULL, NULL));
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "scale 2 is -1",
                   s24_sparse_plan_integers(&plan, ctx, four, bad, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "named \"none\"",
                   s24_sparse_plan_integers(&plan, ctx, four, NULL, "none"));
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "multiplies floats; integers were asked for",
                   s24_sparse_plan_integers(&plan, ctx, four, NULL, "sparse_csr_f32_ref"));
    assert_refused(ctx, S24_ERROR_UNSUPPORTED, "integers throughout; floats were asked for",
                   s24_sparse_plan(&plan, ctx, four, "sparse_4x1_i8_ref"));
    s24_sparse_destroy(floats);
    s24_sparse_destroy(four);
    s24_sparse_destroy(five);
    s24_sparse_destroy(wide);
    ctx_off(&h, ctx);
}

static void test_memory(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 3;
    problem p;
    s24_plan *plan = NULL;
    int failures = 0;
    (void)state;
    make_problem(&p, ctx, &shapes[1], &seed);
    s24_sparse *csr = sparse_of(ctx, &p, S24_FORMAT_CSR);
    for (int64_t calls = h.calls; !plan; failures++) {
        h.fail_at = h.calls + 1 + failures;
        const s24_status status = s24_sparse_plan_integers(&plan, ctx, csr, NULL, NULL);
        assert_true(status == S24_OK || (status == S24_ERROR_MEMORY && !plan));
        assert_true(h.calls > calls);
    }
    assert_true(failures > 2);
    s24_plan_destroy(plan);
    s24_sparse_destroy(csr);
    drop(&p);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row), cmocka_unit_test(test_every_format),
        cmocka_unit_test(test_bf16),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
