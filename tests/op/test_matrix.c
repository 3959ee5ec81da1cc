// SPDX-License-Identifier: Apache-2.0
/*
 * 2:4 matrices: made from dense and packed memory in all dtypes, copied, viewed, taken back to
 * dense; refusals with their sentences; every allocation failing in turn. How they are chosen:
 * test_select.c.
 */
#include "support.h"

#include <math.h>

#include "base/base.h"
#include "core_support.h"
#include "format/format.h"
#include "op/op.h"

static void test_strict_every_pair_of_dtypes(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 3);
    uint64_t seed = 5;
    enum { N = 9, K = 44, LD = 50 };
    for (int a = 0; a < TWO_FOUR_DTYPES; a++) {
        for (int b = 0; b < TWO_FOUR_DTYPES; b++) {
            s24_dtype from = two_four_dtypes[a], to = two_four_dtypes[b];
            char *data = random_dense(from, N, K, LD, 1, &seed);
            s24_dense src = {data, from, N, K, LD};
            s24_matrix_opts opts = {.size = sizeof opts, .dtype = to, .allow_nonfinite = 1};
            s24_matrix *w = make(ctx, &src, &opts);
            assert_int_equal(s24_matrix_rows(w), N);
            assert_int_equal(s24_matrix_cols(w), K);
            assert_int_equal(s24_matrix_dtype(w), to);
            assert_false(s24_matrix_is_transposed(w));
            assert_int_equal(s24_matrix_bytes(w), N * K / 2 * s24_dtype_bytes(to) + N * 6);
            float *back = dense_of(ctx, w);
            for (int64_t r = 0; r < N; r++) {
                for (int64_t c = 0; c < K; c++) {
                    char once[4];
                    float wanted = s24i_load_f32(data, from, r * LD + c);
                    s24i_store_f32(once, to, 0, wanted);
                    wanted = s24i_load_f32(once, to, 0);
                    float got = back[r * K + c];
                    assert_true(got == wanted || (isnan(got) && isnan(wanted)));
                }
            }
            free(back);
            free(data);
            s24_matrix_destroy(w);
        }
    }
    ctx_off(&h, ctx);
}

/* Two of every group are other than zero, but in every seventh group fewer in rows from the third
   on: whole stretches have none such, and others have some. */
static char *two_of_four(s24_dtype dtype, int64_t n, int64_t k, uint64_t *seed)
{
    char *data = calloc((size_t)(n * k), s24_dtype_bytes(dtype));
    for (int64_t g = 0; g < n * k / 4; g++) {
        const int first = (int)(test_random(seed) % 4), step = 1 + (int)(test_random(seed) % 3);
        const int fewer = 4 * g / k > 1 && g % 7 == 0;
        s24i_store_f32(data, dtype, 4 * g + first, fewer ? -0.0f : -2.0f);
        s24i_store_f32(data, dtype, 4 * g + (first + step) % 4, fewer && g % 2 ? 0.0f : 1.0f);
    }
    return data;
}

/* The bytes are by the non-zeros alone, whichever kernel finds them. */
static void test_strict_bytes(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 3);
    uint64_t seed = 6;
    enum { N = 5, K = 1036, CODES = (K + 7) / 8 };
    for (int a = 0; a < TWO_FOUR_DTYPES; a++) {
        const s24_dtype dtype = two_four_dtypes[a];
        const size_t bytes = s24_dtype_bytes(dtype);
        char *data = two_of_four(dtype, N, K, &seed), values[K / 2 * 4];
        uint8_t indices[CODES];
        s24_dense src = {data, dtype, N, K, 0};
        s24_matrix *w = make(ctx, &src, NULL);
        for (int64_t r = 0; r < N; r++) {
            s24i_pack_row(values, dtype, indices, data + (size_t)(r * K) * bytes, dtype, K);
            assert_memory_equal((const char *)s24_matrix_values(w) + (size_t)(r * K / 2) * bytes,
                                values, K / 2 * bytes);
            assert_memory_equal(s24_matrix_indices(w) + r * CODES, indices, CODES);
        }
        free(data);
        s24_matrix_destroy(w);
    }
    ctx_off(&h, ctx);
}

static void test_strict_refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    float data[3 * 8] = {0};
    s24_dense src = {data, S24_F32, 3, 8, 0};
    s24_matrix *w = (s24_matrix *)data;
    data[2 * 8 + 4] = data[2 * 8 + 5] = data[2 * 8 + 7] = 1;
    assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR, "row 2, columns 4 to 7 (group 1) have 3 non-zeros",
                   s24_matrix_create(&w, ctx, &src, NULL));
    assert_null(w);
    data[0] = NAN; /* comes before: what is not a number is not judged further */
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "NaN at row 0, column 0 (group 0)",
                   s24_matrix_create(&w, ctx, &src, NULL));
    data[0] = 0;
    data[2 * 8 + 7] = -INFINITY;
    data[2 * 8 + 4] = 0;
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "Inf at row 2, column 7 (group 1)",
                   s24_matrix_create(&w, ctx, &src, NULL));
    s24_matrix_opts opts = {.size = sizeof opts, .allow_nonfinite = 1};
    w = make(ctx, &src, &opts);
    float *back = dense_of(ctx, w);
    assert_true(back[2 * 8 + 7] == -INFINITY && back[2 * 8 + 5] == 1);
    free(back);
    s24_matrix_destroy(w);
    /* A finite value that the target cannot hold. */
    data[2 * 8 + 7] = 70000;
    opts = (s24_matrix_opts){.size = sizeof opts, .dtype = S24_F16};
    assert_refused(ctx, S24_ERROR_NOT_FINITE,
                   "row 2, column 7 (group 1) is beyond the range of f16",
                   s24_matrix_create(&w, ctx, &src, &opts));
    opts.dtype = S24_E4M3;
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "range of e4m3",
                   s24_matrix_create(&w, ctx, &src, &opts));
    ctx_off(&h, ctx);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[16] = {0};
    uint8_t mask[16] = {0};
    s24_matrix *w;
    s24_matrix_opts opts = {.size = sizeof opts};
#define REFUSED(status, words, ...)                                                                \
    do {                                                                                           \
        s24_dense src = {__VA_ARGS__};                                                             \
        int yes;                                                                                   \
        assert_refused(ctx, status, words, s24_matrix_create(&w, ctx, &src, &opts));               \
        assert_null(w);                                                                            \
        assert_refused(ctx, status, words, s24_check(&yes, NULL, ctx, &src));                      \
        assert_refused(ctx, status, words, s24_magnitude_mask(mask, ctx, &src, 0));                \
    } while (0)
    REFUSED(S24_ERROR_ARGUMENT, "src.data is NULL", NULL, S24_F32, 1, 4, 0);
    REFUSED(S24_ERROR_ARGUMENT, "src.data is not aligned to its elements of 4 bytes",
            (char *)data + 2, S24_F32, 1, 4, 0);
    REFUSED(S24_ERROR_ARGUMENT, "src.data is not aligned to its elements of 2 bytes",
            (char *)data + 1, S24_BF16, 1, 4, 0);
    REFUSED(S24_ERROR_SHAPE, "src has 6 columns; 2:4 needs a multiple of 4", data, S24_F32, 2, 6,
            0);
    REFUSED(S24_ERROR_SHAPE, "src is [0, 4]; expected at least one row", data, S24_F32, 0, 4, 0);
    REFUSED(S24_ERROR_SHAPE, "src is [4, 0]", data, S24_F32, 4, 0, 0);
    REFUSED(S24_ERROR_SHAPE, "src is [-1, 4]", data, S24_F32, -1, 4, 0);
    REFUSED(S24_ERROR_SHAPE, "leading dimension of 7; expected 0 or at least its 8", data, S24_F32,
            2, 8, 7);
    REFUSED(S24_ERROR_SHAPE, "more bytes than memory", data, S24_F32, INT64_MAX, 8, 0);
    REFUSED(S24_ERROR_SHAPE, "more bytes than memory", data, S24_F32, 4, 4, INT64_MAX);
    REFUSED(S24_ERROR_DTYPE, "src is i32; expected f32, f16, bf16, i8, e4m3 or e5m2", data, S24_I32,
            2, 4, 0);
    REFUSED(S24_ERROR_DTYPE, "unknown dtype 77", data, (s24_dtype)77, 2, 4, 0);
#undef REFUSED
    s24_dense src = {data, S24_F32, 2, 8, 0};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL", s24_matrix_create(&w, ctx, NULL, NULL));
    assert_int_equal(s24_matrix_create(NULL, ctx, &src, NULL), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_matrix_create(&w, NULL, &src, NULL), S24_ERROR_ARGUMENT);
    opts.size = 1;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "s24_matrix_opts.size is 1",
                   s24_matrix_create(&w, ctx, &src, &opts));
    opts = (s24_matrix_opts){.size = sizeof opts, .select = (s24_select)9};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "select is 9; expected 0 to 7",
                   s24_matrix_create(&w, ctx, &src, &opts));
    opts = (s24_matrix_opts){.size = sizeof opts, .dtype = S24_F64};
    assert_refused(ctx, S24_ERROR_DTYPE, "s24_matrix_opts.dtype is f64",
                   s24_matrix_create(&w, ctx, &src, &opts));
    opts = (s24_matrix_opts){.size = sizeof opts, .select = S24_SELECT_MASK};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "mask is NULL",
                   s24_matrix_create(&w, ctx, &src, &opts));
    opts = (s24_matrix_opts){.size = sizeof opts, .select = S24_SELECT_MVUE24, .dtype = S24_I8};
    assert_refused(ctx, S24_ERROR_DTYPE, "i8", s24_matrix_create(&w, ctx, &src, &opts));
    int yes;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "two_four is NULL", s24_check(NULL, NULL, ctx, &src));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "mask is NULL", s24_magnitude_mask(NULL, ctx, &src, 0));
    assert_int_equal(s24_check(&yes, NULL, NULL, &src), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_matrix_rows(NULL) + s24_matrix_cols(NULL), 0);
    s24_matrix_destroy(NULL);
    ctx_off(&h, ctx);
}

/* ---- packed memory, copies and views --------------------------------------------------------- */

static void test_from_packed(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    const int8_t values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    uint8_t indices[4] = {0x4e, 0x0d, 0x98, 0x0c};
    s24_matrix *w;
    assert_ok(ctx, s24_matrix_from_packed(&w, ctx, values, indices, S24_I8, 2, 12));
    assert_memory_equal(s24_matrix_values(w), values, 12);
    assert_memory_equal(s24_matrix_indices(w), indices, 4);
    assert_ptr_not_equal(s24_matrix_values(w), values);
    assert_int_equal((uintptr_t)s24_matrix_values(w) % 64, 0);
    s24_matrix_destroy(w);
    indices[2] = 0x9a;
    assert_refused(ctx, S24_ERROR_FORMAT, "row 1, column 0 (group 0)",
                   s24_matrix_from_packed(&w, ctx, values, indices, S24_I8, 2, 12));
    assert_null(w);
    indices[2] = 0x98;
    indices[3] = 0x4c; /* beyond k */
    assert_refused(ctx, S24_ERROR_FORMAT, "row 1, column 12",
                   s24_matrix_from_packed(&w, ctx, values, indices, S24_I8, 2, 12));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "indices is NULL",
                   s24_matrix_from_packed(&w, ctx, values, NULL, S24_I8, 2, 12));
    assert_refused(ctx, S24_ERROR_DTYPE, "i64",
                   s24_matrix_from_packed(&w, ctx, values, indices, S24_I64, 2, 12));
    assert_refused(ctx, S24_ERROR_SHAPE, "[2, 10]",
                   s24_matrix_from_packed(&w, ctx, values, indices, S24_I8, 2, 10));
    assert_refused(
        ctx, S24_ERROR_SHAPE, "more bytes",
        s24_matrix_from_packed(&w, ctx, values, indices, S24_F32, INT64_MAX / 8, INT64_MAX & ~3));
    ctx_off(&h, ctx);
}

static void test_copies_and_views(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 23;
    static const int64_t shapes[][2] = {{1, 4}, {7, 12}, {16, 64}, {17, 68}, {50, 132}};
    for (int s = 0; s < 5; s++) {
        for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
            int64_t n = shapes[s][0], k = shapes[s][1];
            s24_dtype dtype = two_four_dtypes[d];
            char *data = random_dense(dtype, n, k, k, 1, &seed);
            s24_dense src = {data, dtype, n, k, 0};
            s24_matrix *w = make(ctx, &src, NULL), *view, *copy, *twice;
            assert_ok(ctx, s24_matrix_transpose(&view, ctx, w));
            assert_ptr_equal(s24_matrix_values(view), s24_matrix_values(w));
            s24_matrix_destroy(w); /* the view keeps the storage */
            assert_true(s24_matrix_is_transposed(view));
            assert_int_equal(s24_matrix_rows(view), k);
            assert_int_equal(s24_matrix_cols(view), n);
            assert_ok(ctx, s24_matrix_copy(&copy, ctx, view));
            assert_true(s24_matrix_is_transposed(copy));
            assert_ptr_not_equal(s24_matrix_values(view), s24_matrix_values(copy));
            s24_matrix_destroy(view);
            assert_ok(ctx, s24_matrix_transpose(&twice, ctx, copy));
            assert_false(s24_matrix_is_transposed(twice));
            float *turned = dense_of(ctx, copy), *back = dense_of(ctx, twice);
            for (int64_t r = 0; r < n; r++) {
                for (int64_t c = 0; c < k; c++) {
                    assert_true(back[r * k + c] == s24i_load_f32(data, dtype, r * k + c));
                    assert_true(turned[c * n + r] == back[r * k + c]);
                }
            }
            free(turned);
            free(back);
            free(data);
            s24_matrix_destroy(copy);
            s24_matrix_destroy(twice);
        }
    }
    ctx_off(&h, ctx);
}

static void test_to_dense_targets(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[2 * 4] = {0, 1.5f, 0, -300, 2.5f, 0, 0, 0};
    s24_dense src = {data, S24_F32, 2, 4, 0};
    s24_matrix *w = make(ctx, &src, NULL), *view;
    int8_t to[2 * 6];
    memset(to, 0x5a, sizeof to);
    s24_dense dst = {to, S24_I8, 2, 4, 6};
    assert_ok(ctx, s24_matrix_to_dense(ctx, &dst, w));
    const int8_t expected[12] = {0, 2, 0, -128, 0x5a, 0x5a, 2, 0, 0, 0, 0x5a, 0x5a};
    assert_memory_equal(to, expected, sizeof to); /* the gaps are left alone */
    dst.cols = 5;
    assert_refused(ctx, S24_ERROR_SHAPE, "dst is [2, 5]; expected [2, 4]",
                   s24_matrix_to_dense(ctx, &dst, w));
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, w));
    assert_refused(ctx, S24_ERROR_SHAPE, "expected [4, 2]", s24_matrix_to_dense(ctx, &dst, view));
    dst = (s24_dense){to, S24_BOOL, 2, 4, 0};
    assert_refused(ctx, S24_ERROR_DTYPE, "dst is bool", s24_matrix_to_dense(ctx, &dst, w));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL", s24_matrix_to_dense(ctx, &src, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "dst is NULL", s24_matrix_to_dense(ctx, NULL, w));
    s24_matrix_destroy(view);
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

static void test_cutlass_refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    int8_t values[16 * 64];
    uint32_t meta[16 * 4];
    s24_matrix *w, *view;
    memset(values, 1, sizeof values);
    memset(meta, 0xee, sizeof meta);
    assert_ok(ctx, s24_matrix_from_cutlass(&w, ctx, values, meta, S24_E4M3, 16, 128));
    assert_ok(ctx, s24_matrix_transpose(&view, ctx, w));
    assert_refused(ctx, S24_ERROR_SHAPE, "transposed view",
                   s24_matrix_to_cutlass(values, meta, ctx, view));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "meta is NULL",
                   s24_matrix_to_cutlass(values, NULL, ctx, w));
    s24_matrix_destroy(view);
    s24_matrix_destroy(w);
    meta[0] = 0xeeeeee0eu; /* row 0, group 1: both values at position 0 */
    assert_refused(ctx, S24_ERROR_FORMAT, "row 0, columns 4 to 7 (group 1)",
                   s24_matrix_from_cutlass(&w, ctx, values, meta, S24_I8, 16, 128));
    assert_null(w);
    assert_refused(ctx, S24_ERROR_SHAPE, "a multiple of 16 rows and of 128 columns",
                   s24_matrix_from_cutlass(&w, ctx, values, meta, S24_I8, 16, 64));
    assert_refused(ctx, S24_ERROR_SHAPE, "a multiple of 32 rows and of 64 columns",
                   s24_matrix_from_cutlass(&w, ctx, values, meta, S24_F16, 16, 64));
    assert_refused(ctx, S24_ERROR_DTYPE, "f32",
                   s24_matrix_from_cutlass(&w, ctx, values, meta, S24_F32, 32, 64));
    float data[4] = {1};
    s24_dense src = {data, S24_F32, 1, 4, 0};
    w = make(ctx, &src, NULL);
    assert_refused(ctx, S24_ERROR_DTYPE, "f32", s24_matrix_to_cutlass(values, meta, ctx, w));
    s24_matrix_destroy(w);
    ctx_off(&h, ctx);
}

/* ---- out of memory
   ------------------------------------------------------------------------------- */

static s24_status make_all(s24_ctx *ctx)
{
    static float data[8 * 16];
    s24_matrix *w = NULL, *copy = NULL, *view = NULL, *packed = NULL;
    s24_status status;
    s24_dense src = {data, S24_F32, 8, 16, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = S24_F16};
    for (int i = 0; i < 8 * 16; i++)
        data[i] = (float)(i % 5);
    TRY_DONE(s24_matrix_create(&w, ctx, &src, &opts));
    TRY_DONE(s24_matrix_copy(&copy, ctx, w));
    TRY_DONE(s24_matrix_transpose(&view, ctx, w));
    TRY_DONE(s24_matrix_from_packed(&packed, ctx, s24_matrix_values(w), s24_matrix_indices(w),
                                    S24_F16, 8, 16));
done:
    s24_matrix_destroy(w);
    s24_matrix_destroy(copy);
    s24_matrix_destroy(view);
    s24_matrix_destroy(packed);
    return status;
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    int64_t at = 0;
    for (;;) {
        h.fail_at = h.calls + ++at;
        s24_status status = make_all(ctx);
        assert_int_equal(h.blocks, 1); /* the context itself */
        if (status == S24_OK) break;
        assert_int_equal(status, S24_ERROR_MEMORY);
        assert_non_null(strstr(s24_ctx_error(ctx), "out of memory"));
    }
    assert_int_equal(at, 8); /* seven allocations */
    h.fail_at = 0;
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strict_every_pair_of_dtypes),
        cmocka_unit_test(test_strict_bytes),
        cmocka_unit_test(test_strict_refusals),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_from_packed),
        cmocka_unit_test(test_copies_and_views),
        cmocka_unit_test(test_to_dense_targets),
        cmocka_unit_test(test_cutlass_refusals),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
