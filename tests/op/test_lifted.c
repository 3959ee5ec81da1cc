// SPDX-License-Identifier: Apache-2.0
/*
 * Lifted matrices: every group of every width there and back to the bit, what is refused, and
 * products that are those of the dense matrix, and to the bit those of tokens lifted before.
 */
#include "support.h"

#include <math.h>

#include "core_support.h"
#include "guarded.h"

/* A matrix with at most lift − 2 non-zeros of every lift, some with fewer, and some −0; or of
   columns that are dense, and two of every four after them. */
static float *sparse_rows(int64_t rows, int64_t cols, int lift, uint64_t *seed)
{
    const int group = lift < 0 ? 4 : lift;
    float *w = malloc((size_t)(rows * cols) * sizeof *w);
    for (int64_t i = 0; i < rows * cols; i++)
        w[i] = test_random(seed) % 9 ? test_uniform(seed) : -0.0f;
    for (int64_t at = 0; at < rows * cols; at += group) {
        const uint64_t one = test_random(seed) % (unsigned)group;
        const uint64_t further = 1 + test_random(seed) % (unsigned)(group - 1);
        if (at % cols < -(int64_t)lift) continue;
        w[at + (int64_t)one] = w[at + (int64_t)((one + further) % (unsigned)group)] = 0.0f;
    }
    return w;
}

static s24_matrix *lifted(s24_ctx *ctx, const float *w, int64_t rows, int64_t cols, int lift)
{
    s24_matrix *matrix;
    const s24_dense dense = {(void *)(uintptr_t)w, S24_F32, rows, cols, 0};
    assert_ok(ctx, s24_matrix_lift(&matrix, ctx, &dense, lift));
    assert_int_equal(s24_matrix_cols(matrix), s24_lifted_cols(cols, lift));
    return matrix;
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(s24_pattern_lift("6:8"), 8);
    assert_int_equal(s24_pattern_lift("4:6"), 6);
    assert_int_equal(s24_pattern_lift("30:32"), 32);
    assert_int_equal(s24_pattern_lift("dense:4"), -4);
    assert_int_equal(s24_pattern_lift("dense:128"), -128);
    const char *const others[] = {
        "2:4",     "4:8",      "5:7",    "6:8 ",   "32:34",           "6", "dense:6", "dense:-4",
        "dense:0", "dense:8x", "dense:", "-10:-8", "unstructured:0.5"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(s24_pattern_lift(others[i]), 0);
    assert_int_equal(s24_pattern_lift(NULL), 0);
    assert_int_equal(s24_lifted_cols(16, 8), 24);
    assert_int_equal(s24_lifted_cols(12, 8), 0);
    assert_int_equal(s24_lifted_cols(16, 4), 0);
    assert_int_equal(s24_lifted_cols(0, 8), 0);
    assert_int_equal(s24_lifted_cols(INT64_MAX - 7, 8), 0);
    assert_int_equal(s24_lifted_cols(16, -12), 28);
    assert_int_equal(s24_lifted_cols(16, -16), 0);
    assert_int_equal(s24_lifted_cols(18, -8), 0);
    assert_int_equal(s24_lifted_cols(16, -6), 0);
    for (int64_t cols = 4; cols < 100; cols++)
        for (int lift = -40; lift <= 32; lift++) {
            const int64_t wide = s24_lifted_cols(cols, lift);
            char text[S24_LIFT_BYTES];
            const int is_lift = lift < 0 ? lift % 4 == 0 : lift >= 6 && lift % 2 == 0;
            assert_int_equal(s24_lift_pattern(text, lift) != NULL, is_lift);
            if (s24_lift_pattern(text, lift)) assert_int_equal(s24_pattern_lift(text), lift);
            if (wide) assert_int_equal(s24_lowered_cols(wide, lift), cols);
        }
    assert_int_equal(s24_lowered_cols(20, 8), 0);
    assert_int_equal(s24_lowered_cols(16, -8), 0);
    assert_int_equal(s24_lowered_cols(20, -8), 12);
    assert_int_equal(s24_lowered_cols(20, 7), 0);
}

/* Each of the 256 groups of eight, in a row of its own. */
static void test_all_groups(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 2);
    (void)state;
    for (unsigned mask = 0; mask < 256; mask++) {
        float w[8], back[8];
        s24_matrix *matrix;
        for (int i = 0; i < 8; i++)
            w[i] = mask >> i & 1 ? (float)(i + 1) : 0.0f;
        const s24_dense dense = {w, S24_F32, 1, 8, 0}, to = {back, S24_F32, 1, 8, 0};
        const s24_status status = s24_matrix_lift(&matrix, ctx, &dense, 8);
        if (__builtin_popcount(mask) > 6) {
            assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR,
                           "src is not 6:8: row 0, columns 0 to 7 (group 0) have", status);
            assert_null(matrix);
            continue;
        }
        assert_ok(ctx, status);
        assert_ok(ctx, s24_lifted_to_dense(ctx, &to, matrix, 8));
        assert_memory_equal(w, back, sizeof w);
        s24_matrix_destroy(matrix);
    }
    ctx_off(&h, ctx);
}

static void test_there_and_back(void **state)
{
    heap h = {.fail_at = 0};
    uint64_t seed = 1;
    (void)state;
    for (int lift = -40; lift <= 32; lift += lift < 0 ? 4 : 2) {
        if (lift >= 0 && lift < 6) continue;
        s24_ctx *ctx = ctx_on(&h, 1 + abs(lift) % 3);
        const int64_t rows = 5, cols = lift < 0 ? 44 - lift % 16 : lift * (1 + lift % 11);
        float *w = sparse_rows(rows, cols, lift, &seed), *back = malloc(5 * 352 * sizeof *back);
        uint16_t *half = malloc(5 * 352 * sizeof *half), *back16 = malloc(5 * 352 * sizeof *back16);
        s24_matrix *matrix = lifted(ctx, w, rows, cols, lift);
        const s24_dense to = {back, S24_F32, rows, cols, 0};
        assert_ok(ctx, s24_lifted_to_dense(ctx, &to, matrix, lift));
        for (int64_t i = 0; i < rows * cols; i++)
            w[i] += 0.0f; /* −0 comes back as 0 */
        assert_memory_equal(w, back, (size_t)(rows * cols) * sizeof *w);
        s24_matrix_destroy(matrix);
        assert_ok(ctx, s24_convert(half, S24_BF16, w, S24_F32, rows * cols));
        const s24_dense narrow = {half, S24_BF16, rows, cols, 0};
        const s24_dense to16 = {back16, S24_BF16, rows, cols, 0};
        assert_ok(ctx, s24_matrix_lift(&matrix, ctx, &narrow, lift));
        assert_ok(ctx, s24_lifted_to_dense(ctx, &to16, matrix, lift));
        assert_memory_equal(half, back16, (size_t)(rows * cols) * sizeof *half);
        s24_matrix_destroy(matrix);
        free(back16);
        free(half);
        free(back);
        free(w);
        ctx_off(&h, ctx);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product {
    int64_t m, n, k;
    int lift, threads;
    s24_dtype dtype, activations; /* of the weight; its values are exact in bf16 */
} product;

static float *lift_by_hand(const float *x, const product *p)
{
    const int64_t cols = s24_lifted_cols(p->k, p->lift), windows = p->lift / 2 - 1;
    const int64_t dense = -(int64_t)p->lift;
    float *to = malloc((size_t)(p->m * cols) * sizeof *to);
    for (int64_t m = 0; m < p->m; m++)
        for (int64_t c = 0; c < cols; c++)
            to[m * cols + c] = x[m * p->k + (c < 2 * dense ? c / 8 * 4 + c % 4
                                             : dense > 0   ? c - dense
                                                           : c / 4 / windows * p->lift +
                                                               c / 4 % windows * 2 + c % 4)];
    return to;
}

static s24_matrix *weight_of(s24_ctx *ctx, const product *p, float *w)
{
    uint16_t *half = malloc((size_t)(p->n * p->k) * sizeof *half);
    s24_matrix *matrix, *integers;
    assert_ok(ctx, s24_convert(half, S24_BF16, w, S24_F32, p->n * p->k));
    assert_ok(ctx, s24_convert(w, S24_F32, half, S24_BF16, p->n * p->k));
    const s24_dense narrow = {half, S24_BF16, p->n, p->k, 0}, wide = {w, S24_F32, p->n, p->k, 0};
    assert_ok(ctx, s24_matrix_lift(&matrix, ctx, p->dtype == S24_BF16 ? &narrow : &wide, p->lift));
    free(half);
    if (p->dtype != S24_I8) return matrix;
    assert_ok(ctx, s24_matrix_quantize(&integers, ctx, matrix, "int8"));
    s24_matrix_destroy(matrix);
    assert_ok(ctx, s24_lifted_to_dense(ctx, &wide, integers, p->lift));
    return integers;
}

/* y of a plan, with every part of the epilogue, from x of rows of length `ld`. */
static float *run_plan(s24_ctx *ctx, const s24_plan *plan, const product *p, const s24_dense *x)
{
    const size_t bytes = s24_plan_work_bytes(plan, ctx, p->m);
    guarded work = guard(bytes ? bytes : 64, 64, 1);
    float *y = malloc((size_t)(p->m * p->n) * sizeof *y),
          *bias = malloc((size_t)p->n * sizeof *bias);
    float *gate = malloc((size_t)(p->m * p->n) * sizeof *gate);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        gate[i] = (float)(i % 7) - 2.0f;
        y[i] = (float)(i % 5); /* the residual, in place */
    }
    for (int64_t i = 0; i < p->n; i++)
        bias[i] = (float)(i % 3);
    const s24_dense dy = {y, S24_F32, p->m, p->n, 0}, dg = {gate, S24_F32, p->m, p->n, 0};
    const s24_linear_args args = {.y = &dy,
                                  .x = x,
                                  .bias = bias,
                                  .gate = &dg,
                                  .residual = &dy,
                                  .activation = S24_ACTIVATION_RELU,
                                  .work = work.data,
                                  .work_bytes = bytes};
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    unguard(work);
    free(gate);
    free(bias);
    return y;
}

static void check_sums(const float *y, const float *x, const float *w, const product *p)
{
    for (int64_t i = 0; i < p->m * p->n; i++) {
        const int64_t m = i / p->n, n = i % p->n;
        double sum = (double)(n % 3), size = 1;
        for (int64_t k = 0; k < p->k; k++) {
            sum += (double)x[m * p->k + k] * w[n * p->k + k];
            size += fabs((double)x[m * p->k + k] * w[n * p->k + k]);
        }
        sum = (sum > 0 ? sum : 0) * (double)(i % 7 - 2) + (double)(i % 5);
        const double room = p->activations ? 0.05 : p->dtype == S24_BF16 ? 0.01 : 1e-5;
        if (fabs(y[i] - sum) > room * size)
            fail_msg("[%d, %d] of %d tokens, lift %d, is %g, expected %g", (int)m, (int)n,
                     (int)p->m, p->lift, y[i], sum);
    }
}

static void run_product(const product *p, uint64_t *seed)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, p->threads);
    const s24_plan_opts as_it_is = {.size = sizeof as_it_is, .activations = p->activations};
    s24_plan_opts opts = as_it_is;
    s24_plan *plan, *before;
    opts.lift = p->lift;
    float *w = sparse_rows(p->n, p->k, p->lift, seed);
    s24_matrix *matrix = weight_of(ctx, p, w);
    guarded x = guard((size_t)(p->m * p->k) * sizeof(float), sizeof(float), 1);
    for (int64_t i = 0; i < p->m * p->k; i++)
        ((float *)x.data)[i] = test_uniform(seed);
    float *by_hand = lift_by_hand(x.data, p);
    const s24_dense dx = {x.data, S24_F32, p->m, p->k, 0};
    const s24_dense dl = {by_hand, S24_F32, p->m, s24_lifted_cols(p->k, p->lift), 0};
    assert_ok(ctx, s24_plan_create(&plan, ctx, matrix, &opts));
    assert_ok(ctx, s24_plan_create(&before, ctx, matrix, &as_it_is));
    float *y = run_plan(ctx, plan, p, &dx), *expected = run_plan(ctx, before, p, &dl);
    check_sums(y, x.data, w, p);
    /* Blocks of tokens may be summed in another order. */
    if (p->m <= 512) assert_memory_equal(y, expected, (size_t)(p->m * p->n) * sizeof *y);
    s24_plan_destroy(before);
    s24_plan_destroy(plan);
    s24_matrix_destroy(matrix);
    unguard(x);
    free(expected);
    free(y);
    free(by_hand);
    free(w);
    ctx_off(&h, ctx);
}

static void test_products(void **state)
{
    uint64_t seed = 7;
    const product products[] = {
        {1, 33, 64, 8, 1, S24_F32, 0},       {5, 48, 96, 8, 2, S24_F32, 0},
        {64, 20, 40, 8, 1, S24_F32, 0},      {517, 17, 16, 8, 2, S24_F32, 0},
        {3, 16, 96, 6, 1, S24_F32, 0},       {18, 9, 64, 32, 3, S24_F32, 0},
        {7, 40, 160, 10, 1, S24_BF16, 0},    {33, 32, 64, 8, 2, S24_BF16, 0},
        {9, 32, 128, 8, 1, S24_I8, 0},       {20, 31, 64, 8, 2, S24_I8, S24_I8},
        {600, 16, 64, 8, 1, S24_I8, S24_I8}, {5, 33, 64, -16, 1, S24_F32, 0},
        {64, 20, 44, -40, 2, S24_F32, 0},    {517, 17, 16, -4, 2, S24_F32, 0},
        {9, 40, 160, -64, 1, S24_BF16, 0},   {20, 31, 64, -32, 2, S24_I8, S24_I8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        run_product(&products[i], &seed);
}

/* Tokens of bf16, in rows of another length. */
static void test_bf16_tokens(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 2);
    const product p = {530, 24, 48, 8, 2, S24_BF16, 0};
    const s24_plan_opts opts = {.size = sizeof opts, .lift = 8};
    uint64_t seed = 3;
    s24_plan *plan;
    enum { LD = 56 };
    float *w = sparse_rows(p.n, p.k, p.lift, &seed), *wide = calloc(530 * LD, sizeof *wide);
    uint16_t *narrow = calloc(530 * LD, sizeof *narrow);
    s24_matrix *matrix = weight_of(ctx, &p, w);
    (void)state;
    for (int i = 0; i < 530 * LD; i++)
        wide[i] = test_uniform(&seed);
    assert_ok(ctx, s24_convert(narrow, S24_BF16, wide, S24_F32, 530 * LD));
    assert_ok(ctx, s24_convert(wide, S24_F32, narrow, S24_BF16, 530 * LD));
    assert_ok(ctx, s24_plan_create(&plan, ctx, matrix, &opts));
    const s24_dense x = {wide, S24_F32, p.m, p.k, LD}, x16 = {narrow, S24_BF16, p.m, p.k, LD};
    float *y = run_plan(ctx, plan, &p, &x);
    if (s24_plan_takes(plan, S24_BF16)) {
        float *y16 = run_plan(ctx, plan, &p, &x16);
        assert_memory_equal(y, y16, (size_t)(p.m * p.n) * sizeof *y);
        free(y16);
    }
    free(y);
    s24_plan_destroy(plan);
    s24_matrix_destroy(matrix);
    free(narrow);
    free(wide);
    free(w);
    ctx_off(&h, ctx);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_clash(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 1);
    const s24_plan_opts opts = {.size = sizeof opts, .lift = 8};
    /* Windows of columns 0 1 2 3, 2 3 4 5, 4 5 6 7: row 1 has column 3 twice. */
    const float values[2 * 6] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 0, 5, 6};
    const uint8_t indices[2 * 2] = {0x4 | 0xe << 4, 0xe, 0xc | 0xd << 4, 0x4};
    float back[2 * 8];
    const s24_dense to = {back, S24_F32, 2, 8, 0}, other = {back, S24_F32, 1, 16, 0};
    s24_matrix *matrix, *turned;
    s24_plan *plan;
    (void)state;
    assert_ok(ctx, s24_matrix_from_packed(&matrix, ctx, values, indices, S24_F32, 2, 12));
    const char *sentence = "two windows have a non-zero for row 1, column 3";
    assert_refused(ctx, S24_ERROR_FORMAT, sentence, s24_lifted_check(ctx, matrix, 8));
    assert_refused(ctx, S24_ERROR_FORMAT, sentence, s24_lifted_to_dense(ctx, &to, matrix, 8));
    assert_refused(ctx, S24_ERROR_FORMAT, sentence, s24_plan_create(&plan, ctx, matrix, &opts));
    assert_null(plan);
    assert_refused(ctx, S24_ERROR_SHAPE, "of a multiple of 8 columns",
                   s24_lifted_check(ctx, matrix, 6));
    assert_refused(ctx, S24_ERROR_ARGUMENT,
                   "lift is 7; expected an even number of 6 to 32, or minus",
                   s24_lifted_check(ctx, matrix, 7));
    assert_ok(ctx, s24_matrix_transpose(&turned, ctx, matrix));
    assert_refused(ctx, S24_ERROR_SHAPE, "a transposed view", s24_lifted_check(ctx, turned, 8));
    s24_matrix_destroy(turned);
    s24_matrix_destroy(matrix);
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL", s24_lifted_check(ctx, NULL, 8));
    assert_ok(ctx, s24_matrix_from_packed(&matrix, ctx, values, indices, S24_F32, 1, 12));
    assert_refused(ctx, S24_ERROR_SHAPE, "dst is [1, 16]; expected [1, 8]",
                   s24_lifted_to_dense(ctx, &other, matrix, 8));
    s24_matrix_destroy(matrix);
    ctx_off(&h, ctx);
}

static void test_refusals(void **state)
{
    heap h = {.fail_at = 0};
    s24_ctx *ctx = ctx_on(&h, 2);
    float w[3 * 16] = {0};
    s24_matrix *matrix;
    const s24_dense dense = {w, S24_F32, 3, 16, 0}, narrow = {w, S24_F32, 3, 12, 16};
    (void)state;
    for (int i = 0; i < 7; i++)
        w[2 * 16 + 8 + i] = 1.0f;
    assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR,
                   "src is not 6:8: row 2, columns 8 to 15 (group 1) have 7 non-zeros; expected at "
                   "most 6",
                   s24_matrix_lift(&matrix, ctx, &dense, 8));
    assert_refused(ctx, S24_ERROR_SHAPE, "src has 12 columns; expected a multiple of 8",
                   s24_matrix_lift(&matrix, ctx, &narrow, 8));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "lift is 4", s24_matrix_lift(&matrix, ctx, &dense, 4));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL", s24_matrix_lift(&matrix, ctx, NULL, 8));
    w[5] = NAN;
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "src", s24_matrix_lift(&matrix, ctx, &dense, 8));
    assert_null(matrix);
    ctx_off(&h, ctx);
}

/* Whichever allocation fails, it is said, and nothing is left. */
static void test_memory_ends(void **state)
{
    uint64_t seed = 11;
    float *w = sparse_rows(4, 16, 8, &seed), back[4 * 16];
    const s24_dense dense = {w, S24_F32, 4, 16, 0}, to = {back, S24_F32, 4, 16, 0};
    const s24_plan_opts opts = {.size = sizeof opts, .lift = 8};
    (void)state;
    for (int64_t fail_after = 1, done = 0; !done; fail_after++) {
        heap h = {.fail_at = 0};
        s24_ctx *ctx = ctx_on(&h, 1);
        s24_matrix *matrix = NULL;
        s24_plan *plan = NULL;
        h.fail_at = h.calls + fail_after;
        s24_status status = s24_matrix_lift(&matrix, ctx, &dense, 8);
        if (status == S24_OK) status = s24_lifted_to_dense(ctx, &to, matrix, 8);
        if (status == S24_OK) status = s24_plan_create(&plan, ctx, matrix, &opts);
        done = status == S24_OK;
        assert_true(done || status == S24_ERROR_MEMORY);
        s24_plan_destroy(plan);
        s24_matrix_destroy(matrix);
        ctx_off(&h, ctx);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),          cmocka_unit_test(test_all_groups),
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_products),
        cmocka_unit_test(test_bf16_tokens),    cmocka_unit_test(test_clash),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
