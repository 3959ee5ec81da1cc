// SPDX-License-Identifier: Apache-2.0
/* Exact search against a sort of f64 scores, and the share of gold documents found. */
#include "support.h"

#include <math.h>

#include "nn_ctx.h"

static s24_dense view(float *data, int64_t rows, int64_t cols, int64_t ld)
{
    return (s24_dense){data, S24_F32, rows, cols, ld};
}

/* Small integers: every sum is exact, and ties abound. */
static float *integers(int64_t count, uint64_t seed)
{
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(test_random(&seed) % 5) - 2.0f;
    return data;
}

/* How many documents go before document d: better, or as good with a lower index. */
static int64_t rank_of(const float *scores, int64_t count, int64_t d)
{
    int64_t rank = 0;
    for (int64_t i = 0; i < count; i++)
        rank += scores[i] > scores[d] || (scores[i] == scores[d] && i < d);
    return rank;
}

static void check_nearest(int64_t queries, int64_t documents, int64_t cols, int64_t k, int as_half)
{
    const int64_t ld = cols + 3;
    float *q = integers(queries * ld, 1), *d = integers(documents * ld, 2);
    float *scores = malloc((size_t)documents * sizeof *scores);
    int64_t *indices = malloc((size_t)(queries * k) * sizeof *indices);
    float *best = malloc((size_t)(queries * k) * sizeof *best);
    s24_dense qv = view(q, queries, cols, ld), dv = view(d, documents, cols, ld);
    uint16_t *half = malloc((size_t)(documents * ld) * sizeof *half);
    assert_int_equal(s24_convert(half, S24_F16, d, S24_F32, documents * ld), S24_OK);
    const s24_dense hv = {half, S24_F16, documents, cols, ld};
    if (s24_nearest(indices, best, ctx, &qv, as_half ? &hv : &dv, k) != S24_OK)
        fail_msg("%s", s24_ctx_error(ctx));
    for (int64_t i = 0; i < queries; i++) {
        for (int64_t j = 0; j < documents; j++) {
            scores[j] = 0;
            for (int64_t c = 0; c < cols; c++)
                scores[j] += q[i * ld + c] * d[j * ld + c];
        }
        for (int64_t r = 0; r < k; r++) {
            assert_int_equal(rank_of(scores, documents, indices[i * k + r]), r);
            assert_true(best[i * k + r] == scores[indices[i * k + r]]);
        }
    }
    free(q);
    free(d);
    free(half);
    free(scores);
    free(indices);
    free(best);
}

static void test_nearest(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        const int half = run % 2;
        s24_ctx_set_threads(ctx, run < 2 ? 1 : 3);
        check_nearest(1, 1, 1, 1, half);
        check_nearest(3, 7, 5, 7, half);     /* all of them, in order */
        check_nearest(130, 50, 17, 5, half); /* more queries than go in one pass */
        check_nearest(2, 1000, 384, 10, half);
    }
}

/* Threads that share the documents of few queries find what one does, ties included. */
static void test_parts(void **state)
{
    enum { DOCUMENTS = 40001, COLS = 3, QUERIES = 2 };
    float *q = integers(QUERIES * COLS, 5), *d = integers(DOCUMENTS * COLS, 6);
    int64_t *expected = malloc(QUERIES * DOCUMENTS * sizeof *expected);
    int64_t *found = malloc(QUERIES * DOCUMENTS * sizeof *found);
    float *scores = malloc(QUERIES * DOCUMENTS * sizeof *scores);
    int8_t *rounded = malloc(DOCUMENTS * COLS);
    float *scales = malloc(DOCUMENTS * sizeof *scales);
    const s24_dense qv = view(q, QUERIES, COLS, 0), dv = view(d, DOCUMENTS, COLS, 0);
    const s24_rounded all = {dv, {rounded, S24_I8, DOCUMENTS, COLS, 0}, scales};
    (void)state;
    assert_int_equal(s24_round_rows(rounded, scales, ctx, &dv), S24_OK);
    for (int64_t k = 1; k <= DOCUMENTS;
         k = k == DOCUMENTS ? k + 1 : (k * 34 < DOCUMENTS ? k * 34 : DOCUMENTS)) {
        const size_t bytes = (size_t)(QUERIES * k) * sizeof *found;
        s24_ctx_set_threads(ctx, 1);
        assert_int_equal(s24_nearest(expected, scores, ctx, &qv, &dv, k), S24_OK);
        for (int64_t i = 1; i < k; i++)
            assert_true(scores[i - 1] > scores[i] ||
                        (scores[i - 1] == scores[i] && expected[i - 1] < expected[i]));
        for (int threads = 2; threads <= 16; threads += 7) {
            s24_ctx_set_threads(ctx, threads);
            assert_int_equal(s24_nearest(found, scores, ctx, &qv, &dv, k), S24_OK);
            assert_memory_equal(found, expected, bytes);
            assert_int_equal(s24_nearest_rounded(found, scores, ctx, &qv, &all, k), S24_OK);
            assert_memory_equal(found, expected, bytes);
        }
    }
    free(q);
    free(d);
    free(expected);
    free(found);
    free(scores);
    free(rounded);
    free(scales);
}

static void test_accuracy(void **state)
{
    /* Query i's scores are column i of the documents. */
    float q[] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, d[] = {3, 1, 9, 2, 1, 1, 2, 1, 0};
    const int64_t gold[] = {2, 2, 0};
    double share = 0;
    (void)state;
    s24_dense qv = view(q, 3, 3, 0), dv = view(d, 3, 3, 0);
    /* Beaten by one document; by none, as a tie is no defeat; by none. */
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &qv, &dv, gold, 1), S24_OK);
    assert_true(fabs(share - 2.0 / 3.0) < 1e-12);
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &qv, &dv, gold, 2), S24_OK);
    assert_true(share == 1.0);
    /* More than there are: every document is among them. */
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &qv, &dv, gold, 5), S24_OK);
    assert_true(share == 1.0);
}

/* What the best by integers may miss is scored exactly: the result is that of s24_nearest. */
static void check_rounded(int64_t queries, int64_t documents, int64_t cols, int64_t k)
{
    float *q = integers(queries * cols, 3), *d = malloc((size_t)(documents * cols) * sizeof *d);
    int8_t *rounded = malloc((size_t)(documents * cols));
    float *scales = malloc((size_t)documents * sizeof *scales);
    int64_t *expected = malloc((size_t)(queries * k) * sizeof *expected);
    int64_t *found = malloc((size_t)(queries * k) * sizeof *found);
    float *best = malloc((size_t)(queries * k) * sizeof *best);
    float *scores = malloc((size_t)(queries * k) * sizeof *scores);
    uint64_t seed = 4;
    for (int64_t i = 0; i < documents * cols; i++)
        d[i] = test_uniform(&seed);
    const s24_dense qv = view(q, queries, cols, 0), dv = view(d, documents, cols, 0);
    const s24_rounded all = {dv, {rounded, S24_I8, documents, cols, 0}, scales};
    assert_int_equal(s24_round_rows(rounded, scales, ctx, &dv), S24_OK);
    for (int64_t i = 0; i < documents * cols; i++)
        assert_true(fabsf(d[i] - scales[i / cols] * rounded[i]) <= 0.501f * scales[i / cols]);
    assert_int_equal(s24_nearest(expected, best, ctx, &qv, &dv, k), S24_OK);
    assert_int_equal(s24_nearest_rounded(found, scores, ctx, &qv, &all, k), S24_OK);
    assert_memory_equal(found, expected, (size_t)(queries * k) * sizeof *found);
    assert_memory_equal(scores, best, (size_t)(queries * k) * sizeof *best);
    free(q);
    free(d);
    free(rounded);
    free(scales);
    free(expected);
    free(found);
    free(best);
    free(scores);
}

static void test_rounded(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        s24_ctx_set_threads(ctx, threads);
        check_rounded(1, 1, 1, 1);
        check_rounded(2, 9, 3, 9);
        check_rounded(70, 300, 50, 7);
        check_rounded(3, 5000, 384, 10);
    }
}

/* A document whose score is not a number comes last and is found by nobody. */
static void test_not_a_number(void **state)
{
    float q[] = {1, 1}, d[] = {NAN, 0, 1, 1, -5, 0};
    const int64_t gold = 0;
    int64_t indices[3];
    float scores[3];
    double share = 1;
    (void)state;
    s24_dense qv = view(q, 1, 2, 0), dv = view(d, 3, 2, 0);
    assert_int_equal(s24_nearest(indices, scores, ctx, &qv, &dv, 3), S24_OK);
    assert_int_equal(indices[0], 1);
    assert_int_equal(indices[1], 2);
    assert_int_equal(indices[2], 0);
    assert_true(isinf(scores[2]) && scores[2] < 0);
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &qv, &dv, &gold, 2), S24_OK);
    assert_true(share == 0.0);
}

static void test_refused(void **state)
{
    float data[12] = {0};
    int64_t indices[4], gold[2] = {0, 3};
    float scores[4];
    double share;
    (void)state;
    s24_dense q = view(data, 2, 2, 0), d = view(data, 3, 2, 0), wide = view(data, 3, 3, 0);
    s24_dense half = {data, S24_F16, 2, 2, 0}, tight = view(data, 2, 2, 1);
    assert_int_equal(s24_nearest(indices, scores, ctx, &q, &d, 4), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "k is 4");
    assert_int_equal(s24_nearest(indices, scores, ctx, &q, &d, 0), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_nearest(indices, scores, ctx, &q, &wide, 1), S24_ERROR_SHAPE);
    assert_sentence(ctx, "2 columns, documents 3");
    assert_int_equal(s24_nearest(indices, scores, ctx, &half, &d, 1), S24_ERROR_DTYPE);
    assert_sentence(ctx, "queries is f16");
    assert_int_equal(s24_nearest(indices, scores, ctx, &tight, &d, 1), S24_ERROR_SHAPE);
    assert_int_equal(s24_nearest(NULL, scores, ctx, &q, &d, 1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "indices is NULL");
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &q, &d, gold, 1), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "gold[1] is 3");
    assert_int_equal(s24_retrieval_accuracy(&share, ctx, &q, &d, gold, 0), S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "k is 0, at least 1");
    int8_t bytes[6];
    s24_rounded rounded = {d, {bytes, S24_I8, 3, 2, 0}, NULL};
    assert_int_equal(s24_nearest_rounded(indices, scores, ctx, &q, &rounded, 1),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "scales is NULL");
    rounded.scales = scores;
    rounded.integers.rows = 2;
    assert_int_equal(s24_nearest_rounded(indices, scores, ctx, &q, &rounded, 1), S24_ERROR_SHAPE);
    rounded.integers = d;
    assert_int_equal(s24_nearest_rounded(indices, scores, ctx, &q, &rounded, 1), S24_ERROR_DTYPE);
    assert_sentence(ctx, "integers is f32, i8 is expected");
    data[3] = NAN;
    assert_int_equal(s24_round_rows(bytes, scores, ctx, &d), S24_ERROR_NOT_FINITE);
    assert_sentence(ctx, "row 1");
}

static s24_status search(s24_ctx *failing_ctx)
{
    float data[12] = {0};
    int64_t indices[2];
    float scores[2];
    double share;
    s24_dense q = view(data, 2, 2, 0), d = view(data, 3, 2, 0);
    s24_status status = s24_nearest(indices, scores, failing_ctx, &q, &d, 1);
    const int64_t gold[2] = {0, 1};
    if (status == S24_OK) status = s24_retrieval_accuracy(&share, failing_ctx, &q, &d, gold, 1);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(search) >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest),  cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_accuracy), cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, ctx_setup, ctx_teardown);
}
