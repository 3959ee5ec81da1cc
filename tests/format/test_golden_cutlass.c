// SPDX-License-Identifier: Apache-2.0
/*
 * PyTorch's CUTLASS layout against vectors that PyTorch made: import gives the dense matrix, export
 * gives values that decode to it, and metadata bit for bit where every group is full.
 */
#include "support.h"

#include "safetensors_mini.h"
#include "sparse24/sparse24.h"

enum { ROWS = 64, COLS = 256 };

static void same_dense(s24_ctx *ctx, const s24_matrix *w, const mini_tensor *dense)
{
    void *back = malloc(dense->bytes);
    memset(back, 0x5a, dense->bytes);
    s24_dense view = {back, dense->dtype, ROWS, COLS, 0};
    assert_int_equal(s24_matrix_to_dense(ctx, &view, w), S24_OK);
    /* Not memcmp: a −0 in a dropped place comes back as +0. */
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        float a[2];
        assert_int_equal(s24_convert(&a[0], S24_F32,
                                     (char *)back + (size_t)i * s24_dtype_bytes(dense->dtype),
                                     dense->dtype, 1),
                         S24_OK);
        assert_int_equal(
            s24_convert(&a[1], S24_F32,
                        (const char *)dense->data + (size_t)i * s24_dtype_bytes(dense->dtype),
                        dense->dtype, 1),
            S24_OK);
        assert_true(a[0] == a[1]);
    }
    free(back);
}

static void one(s24_ctx *ctx, const mini_file *file, const char *dtype, const char *kind)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s.dense", dtype, kind);
    mini_tensor dense = mini_get(file, name);
    snprintf(name, sizeof name, "%s.%s.values", dtype, kind);
    mini_tensor values = mini_get(file, name);
    snprintf(name, sizeof name, "%s.%s.meta", dtype, kind);
    mini_tensor meta = mini_get(file, name);
    assert_int_equal(dense.shape[0], ROWS);
    assert_int_equal(dense.shape[1], COLS);

    s24_matrix *imported, *packed, *again;
    assert_int_equal(
        s24_matrix_from_cutlass(&imported, ctx, values.data, meta.data, dense.dtype, ROWS, COLS),
        S24_OK);
    same_dense(ctx, imported, &dense);

    s24_dense source = {(void *)(uintptr_t)dense.data, dense.dtype, ROWS, COLS, 0};
    assert_int_equal(s24_matrix_create(&packed, ctx, &source, NULL), S24_OK);
    void *out_values = malloc(values.bytes), *out_meta = malloc(meta.bytes);
    assert_int_equal(s24_matrix_to_cutlass(out_values, out_meta, ctx, packed), S24_OK);
    if (!strcmp(kind, "full")) {
        assert_memory_equal(out_values, values.data, values.bytes);
        assert_memory_equal(out_meta, meta.data, meta.bytes);
    }
    assert_int_equal(
        s24_matrix_from_cutlass(&again, ctx, out_values, out_meta, dense.dtype, ROWS, COLS),
        S24_OK);
    same_dense(ctx, again, &dense);
    free(out_values);
    free(out_meta);
    s24_matrix_destroy(imported);
    s24_matrix_destroy(packed);
    s24_matrix_destroy(again);
}

static void test_torch_cutlass(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"f16", "bf16", "i8"};
    char path[4096];
    if (!golden_path(path, sizeof path, "formats/torch_cutlass.safetensors")) SKIP_WITHOUT(path);
    mini_file file = mini_open(path);
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    for (int i = 0; i < 3; i++) {
        one(ctx, &file, dtypes[i], "full");
        one(ctx, &file, dtypes[i], "underfilled");
    }
    s24_ctx_destroy(ctx);
    mini_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch_cutlass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
