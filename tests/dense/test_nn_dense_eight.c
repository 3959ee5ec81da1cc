// SPDX-License-Identifier: Apache-2.0
/* Dense products in 8 bits, where the engine has them: to the bit what the rule says, and what a
   2:4 product with int8 activations gives of the same weight. */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "dense/dense.h"
#include "nn_failing.h"
#include "vec/vec.h"

enum { MOST_M = 70 };

typedef struct product {
    int64_t n, k, ldx, ldy;
    s24_dtype x_dtype, y_dtype;
    s24_activation activation;
    int bias, residual;
} product;

/* A weight, what it is in integers, and its product. */
typedef struct weight {
    product p;
    float *w, *scales, *bias;
    int8_t *values;
    s24i_dense_weight *dense;
    s24i_dense_runner *runner;
} weight;

static float *floats(int64_t count, uint64_t seed)
{
    float *x = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = test_uniform(&seed);
    return x;
}

static s24_ctx *context(int threads, uint32_t cpu)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads, .cpu_mask = cpu};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

static int is_here(void)
{
    s24_ctx *ctx = context(1, 0);
    const int here = s24i_dense_takes_eight(ctx, 64);
    s24_ctx_destroy(ctx);
    if (!here)
        print_message("skipped: %s has no product of 8 bits on this CPU\n", s24_dense_engine());
    return here;
}

static void open_weight(weight *w, s24_ctx *ctx, product p)
{
    *w = (weight){.p = p, .w = floats(p.n * p.k, 1), .bias = p.bias ? floats(p.n, 2) : NULL};
    w->values = malloc((size_t)(p.n * p.k));
    w->scales = malloc((size_t)p.n * sizeof(float));
    for (int64_t c = 0; c < p.k; c++) /* a row of zeros */
        w->w[(p.n - 1) * p.k + c] = 0;
    const s24_dense dw = {w->w, S24_F32, p.n, p.k, 0};
    assert_int_equal(s24_dense_quantize(w->values, w->scales, ctx, &dw, "int8"), S24_OK);
    assert_int_equal(s24i_dense_eight_create(&w->dense, ctx, &dw), S24_OK);
    assert_int_equal(s24i_dense_engine.runner_create(&w->runner, ctx, 0), S24_OK);
    assert_true(s24i_dense_engine.weight_bytes(w->dense) >= (size_t)(p.n * (p.k + 8)));
}

static void close_weight(weight *w)
{
    s24i_dense_engine.weight_destroy(w->dense);
    s24i_dense_engine.runner_destroy(w->runner);
    free(w->w);
    free(w->values);
    free(w->scales);
    free(w->bias);
}

/* Before activation and residual, in the rule's own steps. */
static float expected(const weight *w, const float *x, int64_t col)
{
    uint32_t largest = 0;
    float inverse;
    int32_t sum = 0;
    for (int64_t l = 0; l < w->p.k; l++) {
        uint32_t bits;
        memcpy(&bits, x + l, sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    const float scale = s24i_token_scale(largest, &inverse);
    for (int64_t l = 0; l < w->p.k && isfinite(scale); l++)
        sum += (int32_t)nearbyintf(x[l] * inverse) * w->values[col * w->p.k + l];
    const float scaled = (float)sum * w->scales[col], whole = scaled * scale;
    return w->bias ? whole + w->bias[col] : whole;
}

static void *of_dtype(const float *x, int64_t count, s24_dtype dtype)
{
    void *to = malloc((size_t)count * sizeof *x);
    assert_int_equal(s24_convert(to, dtype, x, S24_F32, count), S24_OK);
    return to;
}

static float *widened(const void *x, int64_t count, s24_dtype dtype)
{
    float *to = malloc((size_t)count * sizeof *to);
    assert_int_equal(s24_convert(to, S24_F32, x, dtype, count), S24_OK);
    return to;
}

/* Tokens as models have them, and some that are not: zeros, one so small that it is nothing, one
   with a NaN and one with an Inf. */
static float *tokens_of(const product *p, int64_t m)
{
    float *x = floats(m * p->ldx, 3);
    for (int64_t l = 0; m > 9 && l < p->k; l++) {
        x[l] = 0;
        x[2 * p->ldx + l] *= 0x1p-122f;
    }
    if (m > 9) x[5 * p->ldx + p->k / 2] = NAN;
    if (m > 9) x[7 * p->ldx] = -INFINITY;
    return x;
}

static void check_run(s24_ctx *ctx, const weight *w, int64_t m)
{
    const product *p = &w->p;
    float *drawn = tokens_of(p, m), *before = floats(m * p->ldy, 4);
    void *x = of_dtype(drawn, m * p->ldx, p->x_dtype),
         *y = of_dtype(before, m * p->ldy, p->y_dtype);
    float *read = widened(x, m * p->ldx, p->x_dtype), *held = widened(y, m * p->ldy, p->y_dtype);
    const s24_dense dx = {x, p->x_dtype, m, p->k, p->ldx}, dy = {y, p->y_dtype, m, p->n, p->ldy};
    const s24i_dense_job job = {.weight = w->dense,
                                .y = &dy,
                                .x = &dx,
                                .bias = w->bias,
                                .activation = p->activation,
                                .accumulate = p->residual};
    const s24_status status = s24i_dense_engine.run(w->runner, ctx, &job);
    if (status != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    float *got = widened(y, m * p->ldy, p->y_dtype);
    for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < p->ldy; col++) {
            const int64_t at = row * p->ldy + col;
            if (col >= p->n) {
                assert_true(got[at] == held[at]);
                continue;
            }
            const float sum = expected(w, read + row * p->ldx, col);
            const double want =
                activation_of((double)sum, p->activation) + (p->residual ? (double)held[at] : 0);
            const double slack = p->y_dtype == S24_BF16 ? 0x1p-8 * (fabs(want) + 1e-3) : 0;
            const int exact = !p->activation && !p->residual;
            if (isnan(want) ? !isnan(got[at])
                            : !(fabs((double)got[at] - want) <=
                                slack + (exact ? 0 : 1e-6 * (fabs(want) + fabs((double)sum) + 1))))
                fail_msg("m %lld n %lld k %lld act %d at %lld, %lld: expected %g, got %g",
                         (long long)m, (long long)p->n, (long long)p->k, (int)p->activation,
                         (long long)row, (long long)col, want, (double)got[at]);
        }
    free(drawn), free(before), free(x), free(y), free(read), free(held), free(got);
}

/* Threads share by rows and by columns, and the sums of many of either come in pieces. */
static void shapes(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 4},     {2, 64},   {7, 12},    {64, 16},
                                       {193, 100}, {96, 384}, {2000, 36}, {272, 1028}};
    static const int64_t ms[] = {1, 16, MOST_M};
    if (!is_here()) skip();
    for (int threads = 1; threads <= 3; threads += 2) {
        s24_ctx *ctx = context(threads, 0);
        const int narrow = s24i_vec_find(s24_ctx_cpu(ctx))->narrow != NULL;
        for (size_t i = 0; i < 4 * sizeof sizes / sizeof *sizes; i++) {
            const int64_t *size = sizes[i / 4];
            const int way = (int)i % 4 * 3 % 8; /* 0, 3, 6, 1 */
            weight w;
            open_weight(&w, ctx,
                        (product){.n = size[0],
                                  .k = size[1],
                                  .ldx = size[1] + way % 2 * 5,
                                  .ldy = size[0] + way % 3 * 3,
                                  .x_dtype = narrow && way & 2 ? S24_BF16 : S24_F32,
                                  .y_dtype = narrow && way & 4 ? S24_BF16 : S24_F32,
                                  .activation = (s24_activation)(way % 5),
                                  .bias = way % 3 != 0,
                                  .residual = way % 4 == 1});
            assert_int_equal(s24i_dense_engine.takes_bf16(w.dense), narrow);
            for (size_t j = 0; j < sizeof ms / sizeof *ms; j++)
                check_run(ctx, &w, ms[j]);
            check_run(ctx, &w, ms[0]); /* by what is prepared */
            close_weight(&w);
        }
        s24_ctx_destroy(ctx);
    }
}

/* A 2:4 weight made dense has the same integers, sums and scales: the same bits. */
static void as_two_four(void **state)
{
    enum { M = 21, N = 80, K = 128 };
    float y[2][M * N];
    s24_matrix *matrix, *integers;
    s24_plan *plan;
    s24_dense_linear *linear;
    (void)state;
    if (!is_here()) skip();
    float *w = floats(N * K, 1), *x = floats(M * K, 2);
    s24_ctx *ctx = context(2, 0);
    const s24_dense dw = {w, S24_F32, N, K, 0}, dx = {x, S24_F32, M, K, 0};
    const s24_dense dy[2] = {{y[0], S24_F32, M, N, 0}, {y[1], S24_F32, M, N, 0}};
    const s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
    const s24_plan_opts eight = {.size = sizeof eight, .activations = S24_I8};
    assert_int_equal(s24_matrix_create(&matrix, ctx, &dw, &opts), S24_OK);
    assert_int_equal(s24_matrix_to_dense(ctx, &dw, matrix), S24_OK);
    assert_int_equal(s24_matrix_quantize(&integers, ctx, matrix, "int8"), S24_OK);
    assert_int_equal(s24_plan_create(&plan, ctx, integers, &eight), S24_OK);
    const size_t bytes = s24_plan_work_bytes(plan, ctx, M);
    void *work = s24_ctx_alloc(ctx, bytes + 1);
    const s24_linear_args args = {.y = &dy[0], .x = &dx, .work = work, .work_bytes = bytes};
    assert_int_equal(s24_plan_run(ctx, plan, &args), S24_OK);
    assert_int_equal(s24_dense_linear_create_as(&linear, ctx, &dw, S24_I8, NULL, 0), S24_OK);
    assert_int_equal(s24_dense_linear_dtype(linear), S24_I8);
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy[1], &dx, NULL), S24_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    s24_dense_linear_destroy(linear);
    s24_ctx_free(ctx, work);
    s24_plan_destroy(plan);
    s24_matrix_destroy(integers);
    s24_matrix_destroy(matrix);
    s24_ctx_destroy(ctx);
    free(w);
    free(x);
}

static s24_dtype dtype_of(s24_ctx *ctx, int64_t k, s24_dtype asked)
{
    float *w = floats(3 * k, 1);
    const s24_dense dw = {w, S24_F32, 3, k, 0};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create_as(&linear, ctx, &dw, asked, NULL, 0), S24_OK);
    const s24_dtype dtype = s24_dense_linear_dtype(linear);
    s24_dense_linear_destroy(linear);
    free(w);
    return dtype;
}

/* Without VNNI, or where a sum could leave 32 bits, it is the product of bf16. */
static void where_there_is_none(void **state)
{
    (void)state;
    s24_ctx *all = context(1, 0), *less = context(1, s24_cpu_parse("avx2"));
    const int here = s24i_dense_takes_eight(all, 64);
    assert_int_equal(dtype_of(all, 64, S24_I8), here ? S24_I8 : S24_BF16);
    assert_int_equal(dtype_of(all, 66, S24_I8), S24_BF16);
    assert_int_equal(dtype_of(all, 65540, S24_I8), S24_BF16);
    assert_int_equal(dtype_of(less, 64, S24_I8), S24_BF16);
    assert_int_equal(dtype_of(all, 64, S24_BF16), S24_BF16);
    assert_int_equal(dtype_of(all, 64, S24_F32), S24_F32);
    assert_int_equal(s24_dense_linear_dtype(NULL), S24_DTYPE_NONE);
    s24_ctx_destroy(less);
    s24_ctx_destroy(all);
}

static void errors(void **state)
{
    (void)state;
    s24_ctx *ctx = context(1, 0);
    float w[3 * 4] = {0};
    const s24_dense dw = {w, S24_F32, 3, 4, 0};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create_as(&linear, ctx, &dw, S24_F16, NULL, 0),
                     S24_ERROR_DTYPE);
    assert_string_equal(s24_ctx_error(ctx),
                        "a dense product is asked for in f16; f32, bf16 or i8 was expected");
    assert_null(linear);
    w[6] = INFINITY;
    if (s24i_dense_takes_eight(ctx, 4))
        assert_int_equal(s24_dense_linear_create_as(&linear, ctx, &dw, S24_I8, NULL, 0),
                         S24_ERROR_NOT_FINITE);
    s24_ctx_destroy(ctx);
}

static s24_status make_and_run(s24_ctx *ctx)
{
    uint16_t w[12] = {0};
    float bias[3] = {0}, y[6] = {0}, x[8] = {0};
    const s24_dense dw = {w, S24_BF16, 3, 4, 0}, dy = {y, S24_F32, 2, 3, 0},
                    dx = {x, S24_F32, 2, 4, 0};
    s24_dense_linear *linear;
    s24_status status =
        s24_dense_linear_create_as(&linear, ctx, &dw, S24_I8, bias, S24_ACTIVATION_RELU);
    if (status == S24_OK) status = s24_dense_linear_run(linear, ctx, &dy, &dx, &dy);
    s24_dense_linear_destroy(linear);
    return status;
}

static void out_of_memory(void **state)
{
    (void)state;
    assert_true(count_failures(make_and_run) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(as_two_four),
        cmocka_unit_test(where_there_is_none),
        cmocka_unit_test(errors),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("nn_dense_eight", tests, NULL, NULL);
}
