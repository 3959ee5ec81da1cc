// SPDX-License-Identifier: Apache-2.0
/* The first context of a process that multiplies dense bounds oneDNN; a program of its own, because
   the bound is the process's. */
#include "support.h"

#include "sparse24/nn.h"

enum { N = 64, K = 32 };

static void count_warnings(void *user, s24_log_level level, const char *text)
{
    if (level != S24_LOG_WARNING) return;
    assert_non_null(strstr(text, "dense products use avx2 where this context may use baseline"));
    ++*(int *)user;
}

static s24_ctx *bounded(const char *level, int *warnings)
{
    s24_ctx *ctx;
    const s24_ctx_opts opts = {.size = sizeof opts,
                               .threads = 1,
                               .log = count_warnings,
                               .user = warnings,
                               .cpu_mask = level ? s24_cpu_parse(level) : 0};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    return ctx;
}

/* A weight of ones by rows of ones. */
static void multiply(s24_ctx *ctx)
{
    static float w[N * K], x[3 * K], y[3 * N];
    s24_dense_linear *linear;
    for (int i = 0; i < N * K; i++)
        w[i] = 1;
    for (int i = 0; i < 3 * K; i++)
        x[i] = 1;
    const s24_dense dw = {w, S24_F32, N, K, 0}, dx = {x, S24_F32, 3, K, 0},
                    dy = {y, S24_F32, 3, N, 0};
    assert_int_equal(s24_dense_linear_create(&linear, ctx, &dw, NULL, S24_ACTIVATION_NONE), S24_OK);
    assert_int_equal(s24_dense_linear_run(linear, ctx, &dy, &dx, NULL), S24_OK);
    for (int i = 0; i < 3 * N; i++)
        assert_true(y[i] == K);
    s24_dense_linear_destroy(linear);
}

static void the_first_context_bounds(void **state)
{
    (void)state;
    int warnings = 0;
    assert_int_equal(s24_dense_engine_cpu(NULL), 0);
    if (strncmp(s24_dense_engine(), "oneDNN", 6) != 0 || !(s24_cpu_detect() & S24_CPU_AVX2)) {
        print_message("skipped: the engine is %s\n", s24_dense_engine());
        skip();
    }
    s24_ctx *first = bounded("avx2", &warnings), *all = bounded(NULL, &warnings),
            *less = bounded("baseline", &warnings);
    const uint32_t avx2 = S24_CPU_BASELINE | S24_CPU_AVX2;
    multiply(first);
    assert_int_equal(s24_dense_engine_cpu(first), avx2);
    multiply(all); /* keeps the bound, which is within what it may use */
    assert_int_equal(s24_dense_engine_cpu(all), avx2);
    assert_int_equal(warnings, 0);
    multiply(less); /* is right too, and says what it used */
    assert_int_equal(s24_dense_engine_cpu(less), avx2);
    assert_int_equal(warnings, 1);
    s24_ctx_destroy(first);
    s24_ctx_destroy(all);
    s24_ctx_destroy(less);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_context_bounds)};
    return cmocka_run_group_tests_name("nn_dense_bound", tests, NULL, NULL);
}
