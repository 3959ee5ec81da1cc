// SPDX-License-Identifier: Apache-2.0
/* The dense engine of this build: products at any number of rows against f64 arithmetic. */
#include "support.h"

#include <math.h>
#include <sys/wait.h>

#include "activation.h"
#include "dense/dense.h"
#include "nn_failing.h"

typedef struct product {
    int64_t m, n, k, ldx, ldy;
    s24_activation activation;
    int bias, residual; /* residual: 0 none, 1 its own, 2 y itself */
} product;

static float *floats(int64_t count, uint64_t seed)
{
    float *x = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = test_uniform(&seed);
    return x;
}

static void check_run(s24_ctx *ctx, s24_dense_linear *linear, const product *p, const float *w,
                      const float *bias)
{
    float *x = floats(p->m * p->ldx, 3), *y = floats(p->m * p->ldy, 4);
    float *r = floats(p->m * p->ldy, p->residual == 2 ? 4 : 5);
    const s24_dense dx = {x, S24_F32, p->m, p->k, p->ldx}, dy = {y, S24_F32, p->m, p->n, p->ldy},
                    dr = {r, S24_F32, p->m, p->n, p->ldy};
    const s24_dense *residual = p->residual == 1 ? &dr : p->residual == 2 ? &dy : NULL;
    const float *untouched = p->ldy > p->n ? &y[p->n] : NULL;
    const float before = untouched ? *untouched : 0;
    const s24_status status = s24_dense_linear_run(linear, ctx, &dy, &dx, residual);
    if (status != S24_OK) fail_msg("%s", s24_ctx_error(ctx));
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const int64_t row = i / p->n, col = i % p->n;
        double sum = bias ? bias[col] : 0, magnitude = fabs(sum);
        for (int64_t l = 0; l < p->k; l++) {
            const double term = (double)x[row * p->ldx + l] * w[col * p->k + l];
            sum += term;
            magnitude += fabs(term);
        }
        sum = activation_of(sum, p->activation) + (residual ? r[row * p->ldy + col] : 0);
        const double error = fabs(sum - y[row * p->ldy + col]);
        if (!(error <= 1.2e-7 * (double)(p->k + 4) * (magnitude + 1) + 3e-6))
            fail_msg("m %lld n %lld k %lld act %d at %lld: expected %g, got %g", (long long)p->m,
                     (long long)p->n, (long long)p->k, (int)p->activation, (long long)i, sum,
                     (double)y[row * p->ldy + col]);
    }
    if (untouched) assert_true(*untouched == before);
    free(x);
    free(y);
    free(r);
}

static void check(s24_ctx *ctx, product p)
{
    float *w = floats(p.n * p.k, 1), *bias = p.bias ? floats(p.n, 2) : NULL;
    const s24_dense dw = {w, S24_F32, p.n, p.k, 0};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &dw, bias, p.activation), S24_OK);
    const int64_t ms[] = {1, 2, 16, 50};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
        p.m = ms[i];
        check_run(ctx, linear, &p, w, bias);
        check_run(ctx, linear, &p, w, bias);
    }
    s24_dense_linear_destroy(linear);
    free(w);
    free(bias);
}

static void shapes(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{1, 1}, {2, 64}, {7, 3}, {64, 16}, {70, 36}, {96, 384}, {193, 65}};
    for (int threads = 1; threads <= 2; threads++) {
        s24_ctx *ctx;
        const s24_ctx_opts opts = {.size = sizeof opts, .threads = threads};
        assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int variant = 0; variant < 12; variant += 2 * threads - 1)
                check(ctx, (product){.n = sizes[i][0],
                                     .k = sizes[i][1],
                                     .ldx = sizes[i][1] + variant % 2 * 5,
                                     .ldy = sizes[i][0] + variant % 3 * 3,
                                     .activation = (s24_activation)(variant % 5),
                                     .bias = variant % 5 != 0,
                                     .residual = variant % 3});
        s24_ctx_destroy(ctx);
    }
}

/* More different m than any cache of prepared products holds, twice over. */
static void many_row_counts(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    float *w = floats(48 * 20, 1), *bias = floats(48, 2);
    const s24_dense dw = {w, S24_F32, 48, 20, 0};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &dw, bias, S24_ACTIVATION_GELU), S24_OK);
    product p = {.n = 48, .k = 20, .ldx = 20, .ldy = 48, .activation = S24_ACTIVATION_GELU};
    for (int64_t i = 0; i < 160; i++) {
        p.m = 1 + i % 80;
        check_run(ctx, linear, &p, w, bias);
    }
    s24_dense_linear_destroy(linear);
    free(w);
    free(bias);
    s24_ctx_destroy(ctx);
}

static void bf16(void **state)
{
    (void)state;
    enum { M = 9, N = 40, K = 52 };
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    float *w = floats(N * K, 1), *x = floats(M * K, 3), y[M * N];
    const s24_dense dw = {w, S24_F32, N, K, 0}, dx = {x, S24_F32, M, K, 0},
                    dy = {y, S24_F32, M, N, 0};
    s24i_dense_weight *weight;
    s24i_dense_runner *runner;
    assert_int_equal(s24i_dense_engine.weight_create(&weight, ctx, &dw, S24_BF16), S24_OK);
    assert_int_equal(s24i_dense_engine.runner_create(&runner, ctx, M * K), S24_OK);
    const s24i_dense_job job = {.weight = weight, .y = &dy, .x = &dx};
    assert_int_equal(s24i_dense_engine.run(runner, ctx, &job), S24_OK);
    for (int i = 0; i < M * N; i++) {
        double sum = 0, magnitude = 0;
        for (int l = 0; l < K; l++) {
            sum += (double)x[i / N * K + l] * w[i % N * K + l];
            magnitude += fabs((double)x[i / N * K + l] * w[i % N * K + l]);
        }
        assert_true(fabs(sum - y[i]) <= magnitude / 128); /* two roundings of 2^−9 */
    }
    assert_true(s24i_dense_engine.weight_bytes(weight) >= N * K * sizeof(uint16_t));
    s24i_dense_engine.weight_destroy(weight);
    s24i_dense_engine.runner_destroy(runner);
    free(w);
    free(x);
    s24_ctx_destroy(ctx);
}

/* A weight given as bf16, with a stride, is the f32 one of the same values run as bf16. */
static void bf16_weight(void **state)
{
    (void)state;
    enum { M = 5, N = 7, K = 24, LD = 29 };
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    float *w = floats(N * LD, 1), *x = floats(M * K, 2), wide[N * LD], y[M * N];
    uint16_t narrow[N * LD];
    assert_int_equal(s24_convert(narrow, S24_BF16, w, S24_F32, N * LD), S24_OK);
    assert_int_equal(s24_convert(wide, S24_F32, narrow, S24_BF16, N * LD), S24_OK);
    const s24_dense dw = {narrow, S24_BF16, N, K, LD}, dx = {x, S24_F32, M, K, 0},
                    dy = {y, S24_F32, M, N, 0};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &dw, NULL, 0), S24_OK);
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy, &dx, NULL), S24_OK);
    for (int i = 0; i < M * N; i++) {
        double sum = 0, magnitude = 0;
        for (int l = 0; l < K; l++) {
            const double term = (double)x[i / N * K + l] * (double)wide[i % N * LD + l];
            sum += term;
            magnitude += fabs(term);
        }
        assert_true(fabs(sum - (double)y[i]) <= 0x1p-8 * magnitude); /* x may be narrowed too */
    }
    s24_dense_linear_destroy(linear);
    free(w);
    free(x);
    s24_ctx_destroy(ctx);
}

static void errors(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    float w[12] = {0}, y[6], x[8] = {0};
    s24_dense_linear *linear;
    const s24_dense half = {w, S24_F16, 3, 4, 0}, flat = {w, S24_F32, 3, 4, 2},
                    good = {w, S24_F32, 3, 4, 0};
    assert_int_equal(s24_dense_linear_create(&linear, ctx, NULL, NULL, 0), S24_ERROR_ARGUMENT);
    assert_null(linear);
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &half, NULL, 0), S24_ERROR_DTYPE);
    assert_string_equal(s24_ctx_error(ctx), "w is f16; f32 or bf16 was expected");
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &flat, NULL, 0), S24_ERROR_SHAPE);
    if (strstr(s24_dense_engine(), "BLAS")) { /* it counts in int */
        const s24_dense tall = {w, S24_F32, INT64_C(1) << 31, 4, 0};
        assert_int_equal(s24_dense_linear_create(&linear, ctx, &tall, NULL, 0),
                         S24_ERROR_UNSUPPORTED);
        assert_non_null(strstr(s24_ctx_error(ctx), "w's rows: 2147483648 is more than the"));
    }
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &good, NULL, (s24_activation)9),
                     S24_ERROR_ARGUMENT);
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &good, NULL, 0), S24_OK);
    const s24_dense dy = {y, S24_F32, 2, 3, 0}, dx = {x, S24_F32, 2, 4, 0},
                    narrow = {x, S24_F32, 2, 3, 0}, tall = {y, S24_F32, 1, 3, 0};
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy, &narrow, NULL), S24_ERROR_SHAPE);
    assert_string_equal(s24_ctx_error(ctx), "x is [2, 3]; [2, 4] was expected");
    assert_int_equal(s24_dense_linear_run(linear, ctx, &tall, &dx, NULL), S24_ERROR_SHAPE);
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy, &dx, &tall), S24_ERROR_SHAPE);
    float padded[8];
    const s24_dense wide = {padded, S24_F32, 2, 3, 5}, same = {padded, S24_F32, 2, 3, 4};
    assert_int_equal(s24_dense_linear_run(linear, ctx, &wide, &dx, &same), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy, &dx, NULL), S24_OK);
    s24_dense_linear_destroy(linear);
    s24_dense_linear_destroy(NULL);
    assert_true(strlen(s24_dense_engine()) > 0);
    s24_ctx_destroy(ctx);
}

static s24_status make_and_run(s24_ctx *ctx)
{
    float w[12] = {0}, bias[3] = {0}, y[6] = {0}, x[8] = {0}, r[6] = {0};
    const s24_dense dw = {w, S24_F32, 3, 4, 0}, dy = {y, S24_F32, 2, 3, 0},
                    dx = {x, S24_F32, 2, 4, 0}, dr = {r, S24_F32, 2, 3, 0};
    s24_dense_linear *linear;
    s24_status status = s24_dense_linear_create(&linear, ctx, &dw, bias, S24_ACTIVATION_RELU);
    if (status == S24_OK) status = s24_dense_linear_run(linear, ctx, &dy, &dx, &dr);
    s24_dense_linear_destroy(linear);
    return status;
}

static s24_status make_narrow(s24_ctx *ctx)
{
    uint16_t w[12] = {0};
    const s24_dense dw = {w, S24_BF16, 3, 4, 0};
    s24_dense_linear *linear;
    const s24_status status = s24_dense_linear_create(&linear, ctx, &dw, NULL, 0);
    s24_dense_linear_destroy(linear);
    return status;
}

static void out_of_memory(void **state)
{
    (void)state;
    assert_true(count_failures(make_and_run) > 2);
    assert_true(count_failures(make_narrow) > 2);
}

/* A child of a process that has multiplied on two threads multiplies on two of its own. */
static void after_fork(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer starts no threads after a fork\n");
    skip();
#endif
    s24_ctx *ctx;
    int status;
    const s24_ctx_opts opts = {.size = sizeof opts, .threads = 2};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    float *w = floats(192 * 64, 1);
    const s24_dense dw = {w, S24_F32, 192, 64, 0};
    product p = {.m = 70, .n = 192, .k = 64, .ldx = 64, .ldy = 192};
    s24_dense_linear *linear;
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &dw, NULL, p.activation), S24_OK);
    check_run(ctx, linear, &p, w, NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); /* ends a child that hangs */
        check_run(ctx, linear, &p, w, NULL);
        p.m = 3;
        check_run(ctx, linear, &p, w, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_run(ctx, linear, &p, w, NULL);
    s24_dense_linear_destroy(linear);
    s24_ctx_destroy(ctx);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),     cmocka_unit_test(many_row_counts),
        cmocka_unit_test(bf16),       cmocka_unit_test(bf16_weight),
        cmocka_unit_test(errors),     cmocka_unit_test(out_of_memory),
        cmocka_unit_test(after_fork),
    };
    return cmocka_run_group_tests_name("nn_dense", tests, NULL, NULL);
}
