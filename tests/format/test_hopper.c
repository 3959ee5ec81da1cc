// SPDX-License-Identifier: Apache-2.0
/* The order of Hopper's sparse tensor cores: places by the tables of docs/format.md, round trips of
   odd shapes, refusals. */
#include "core_support.h"

#include <stdlib.h>
#include <string.h>

#include "format/format.h"

static s24_matrix *random_matrix(s24_ctx *ctx, s24_dtype dtype, int64_t n, int64_t k)
{
    float *w = malloc((size_t)(n * k) * sizeof *w);
    uint32_t state = 12345;
    for (int64_t i = 0; i < n * k; i++) {
        state = state * 1664525u + 1013904223u;
        w[i] = (float)(int)(state >> 24) - 128.0f;
    }
    s24_dense dense = {w, S24_F32, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MAGNITUDE, .dtype = dtype};
    s24_matrix *matrix;
    assert_ok(ctx, s24_matrix_create(&matrix, ctx, &dense, &opts));
    free(w);
    return matrix;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16, S24_I8, S24_E4M3, S24_E5M2};
    static const int64_t shapes[][2] = {{1, 4}, {64, 64}, {65, 128}, {130, 132}, {200, 68}};
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int64_t n = shapes[s][0], k = shapes[s][1];
            s24_matrix *matrix = random_matrix(ctx, dtypes[d], n, k), *back;
            int64_t cols = s24_dtype_bytes(dtypes[d]) == 2 ? 64 : 128;
            size_t bytes = s24_hopper_bytes(dtypes[d], n, k);
            assert_int_equal(bytes, ((n + 63) / 64) * ((k + cols - 1) / cols) *
                                        (cols == 64 ? 4608 : 5120));
            uint8_t *packed = malloc(bytes + 1);
            packed[bytes] = 0x5a;
            assert_ok(ctx, s24_matrix_to_hopper(packed, ctx, matrix));
            assert_int_equal(packed[bytes], 0x5a);
            assert_ok(ctx, s24_matrix_from_hopper(&back, ctx, packed, dtypes[d], n, k));
            assert_memory_equal(s24_matrix_values(back), s24_matrix_values(matrix),
                                (size_t)(n * k / 2) * s24_dtype_bytes(dtypes[d]));
            assert_memory_equal(s24_matrix_indices(back), s24_matrix_indices(matrix),
                                (size_t)(n * s24i_index_stride(k)));
            free(packed);
            s24_matrix_destroy(back);
            s24_matrix_destroy(matrix);
        }
    ctx_off(&h, ctx);
}

/* One group alone: its two values and its code are where the hardware looks for them. */
static void one_place(s24_ctx *ctx, s24_dtype dtype, int row, int group, size_t value, size_t code,
                      int high)
{
    enum { K = 128 };
    size_t element = s24_dtype_bytes(dtype), bytes = s24_hopper_bytes(dtype, 64, K);
    uint8_t *values = calloc(64 * K / 2, element), *indices = malloc(64 * K / 8);
    memset(indices, 0xee, 64 * K / 8);
    memset(values + ((size_t)row * K / 2 + (size_t)group * 2) * element, 0x11, element);
    memset(values + ((size_t)row * K / 2 + (size_t)group * 2 + 1) * element, 0x22, element);
    uint8_t *at = &indices[row * K / 8 + group / 2];
    *at = (uint8_t)(group % 2 ? 0x4e : 0xe4);
    s24_matrix *matrix;
    assert_ok(ctx, s24_matrix_from_packed(&matrix, ctx, values, indices, dtype, 64, K));
    uint8_t *packed = malloc(bytes);
    assert_ok(ctx, s24_matrix_to_hopper(packed, ctx, matrix));
    for (size_t i = 0; i < bytes; i++) {
        size_t in = i % (element == 2 ? 4608 : 5120);
        int expected = in < 4096 ? 0 : 0xee;
        if (i >= value && i < value + element) expected = 0x11;
        if (i >= value + element && i < value + 2 * element) expected = 0x22;
        if (i == code) expected = high ? 0x4e : 0xe4;
        assert_int_equal(packed[i], expected);
    }
    free(values);
    free(indices);
    free(packed);
    s24_matrix_destroy(matrix);
}

static void test_places(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    one_place(ctx, S24_BF16, 0, 0, 0, 4096, 0);
    one_place(ctx, S24_BF16, 8, 0, 256, 4096 + 2, 0);
    one_place(ctx, S24_F16, 1, 4, 128 + 16, 4096 + 20, 0);
    one_place(ctx, S24_F16, 17, 8, 2048 + 512 + 16, 4096 + 152, 0);
    one_place(ctx, S24_BF16, 63, 15, 4092, 4607, 1);
    one_place(ctx, S24_BF16, 0, 16, 4608, 4608 + 4096, 0); /* the second block */
    one_place(ctx, S24_I8, 0, 0, 0, 4096, 0);
    one_place(ctx, S24_I8, 8, 0, 256, 4096 + 8, 0);           /* lane 1 */
    one_place(ctx, S24_I8, 1, 9, 128 + 16 + 2, 4096 + 48, 1); /* lane 6 */
    one_place(ctx, S24_E4M3, 0, 16, 2048, 4096 + 4, 0);       /* the second step */
    one_place(ctx, S24_E4M3, 63, 31, 4094, 4096 + 1023, 1);
    ctx_off(&h, ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    s24_matrix *matrix = random_matrix(ctx, S24_F32, 4, 8), *out;
    uint8_t packed[4608] = {0};
    assert_refused(ctx, S24_ERROR_DTYPE, "Hopper order of f32",
                   s24_matrix_to_hopper(packed, ctx, matrix));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "packed is NULL",
                   s24_matrix_to_hopper(NULL, ctx, matrix));
    assert_refused(ctx, S24_ERROR_SHAPE, "multiple of 4",
                   s24_matrix_from_hopper(&out, ctx, packed, S24_BF16, 4, 6));
    assert_refused(ctx, S24_ERROR_FORMAT, "row 0, columns 0 to 3",
                   s24_matrix_from_hopper(&out, ctx, packed, S24_BF16, 4, 8));
    assert_null(out);
    assert_int_equal(s24_hopper_bytes(S24_F32, 4, 8), 0);
    s24_matrix_destroy(matrix);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
