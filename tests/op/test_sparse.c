// SPDX-License-Identifier: Apache-2.0
/*
 * Sparse matrices that are not 2:4: every format out of every other and out of dense, against
 * PyTorch's vectors, and parts that are refused by their place.
 */
#include "support.h"

#include "core_support.h"
#include "safetensors_mini.h"

static const s24_sparse_parts kinds[] = {
    {.format = S24_FORMAT_COO},
    {.format = S24_FORMAT_CSR},
    {.format = S24_FORMAT_CSC},
    {.format = S24_FORMAT_BSR, .block_rows = 1, .block_cols = 4},
    {.format = S24_FORMAT_BSR, .block_rows = 4, .block_cols = 1},
    {.format = S24_FORMAT_BSR, .block_rows = 8, .block_cols = 8},
    {.format = S24_FORMAT_BSR, .block_rows = 16, .block_cols = 16},
    {.format = S24_FORMAT_BSR, .block_rows = 32, .block_cols = 32},
    {.format = S24_FORMAT_BSR, .block_rows = 64, .block_cols = 64},
    {.format = S24_FORMAT_BSR, .block_rows = 128, .block_cols = 128},
};
enum { KINDS = sizeof kinds / sizeof *kinds, ROWS = 128, COLS = 256, CELLS = ROWS * COLS };
static const s24_dtype dtypes[] = {S24_F32, S24_F16, S24_BF16, S24_I8, S24_E4M3, S24_E5M2};

/* Numbers of which one in `every` is not zero; 0: none. */
static void fill(void *data, s24_dtype dtype, int every)
{
    uint64_t seed = 7 + (uint64_t)every;
    float row[COLS];
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            const int value = 1 + (int)(test_random(&seed) % 60);
            row[c] = every && test_random(&seed) % (unsigned)every == 0 ? (float)value : 0;
        }
        assert_int_equal(s24_convert((char *)data + (size_t)r * COLS * s24_dtype_bytes(dtype),
                                     dtype, row, S24_F32, COLS),
                         S24_OK);
    }
}

static void same_dense(s24_ctx *ctx, const s24_sparse *w, const s24_dense *expected)
{
    const size_t bytes =
        (size_t)(expected->rows * expected->cols) * s24_dtype_bytes(expected->dtype);
    void *back = malloc(bytes);
    const s24_dense view = {back, expected->dtype, expected->rows, expected->cols, 0};
    assert_int_equal(s24_sparse_to_dense(ctx, &view, w), S24_OK);
    assert_memory_equal(back, expected->data, bytes);
    free(back);
}

/* The parts of one as another's, value for value. */
static void same_parts(const s24_sparse *a, const s24_sparse *b)
{
    const s24_sparse_parts x = s24_sparse_get(a), y = s24_sparse_get(b);
    const size_t cells = x.format == S24_FORMAT_BSR ? (size_t)(x.block_rows * x.block_cols) : 1;
    assert_int_equal(x.stored, y.stored);
    if (!x.stored) return;
    assert_memory_equal(x.index, y.index, (size_t)x.stored * sizeof *x.index);
    assert_memory_equal(x.values, y.values, (size_t)x.stored * cells * s24_dtype_bytes(x.dtype));
}

static void all_pairs(s24_ctx *ctx, const s24_dense *dense)
{
    s24_sparse *of_dense[KINDS], *turned, *copy;
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(s24_sparse_create(&of_dense[i], ctx, dense, &kinds[i]), S24_OK);
        same_dense(ctx, of_dense[i], dense);
        const s24_sparse_parts parts = s24_sparse_get(of_dense[i]);
        assert_int_equal(s24_sparse_from_parts(&copy, ctx, &parts), S24_OK);
        same_parts(copy, of_dense[i]);
        same_dense(ctx, copy, dense);
        s24_sparse_destroy(copy);
    }
    for (int i = 0; i < KINDS; i++)
        for (int j = 0; j < KINDS; j++) {
            assert_int_equal(s24_sparse_convert(&turned, ctx, of_dense[i], &kinds[j]), S24_OK);
            same_parts(turned, of_dense[j]);
            s24_sparse_destroy(turned);
        }
    for (int i = 0; i < KINDS; i++)
        s24_sparse_destroy(of_dense[i]);
}

static void test_any_to_any(void **state)
{
    heap h = {.fail_at = -1};
    s24_ctx *ctx = ctx_on(&h, 1);
    (void)state;
    void *data = malloc(CELLS * sizeof(float));
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int every = 0; every < 300; every = every * 6 + 1) {
            const s24_dense dense = {data, dtypes[d], ROWS, COLS, 0};
            fill(data, dtypes[d], every);
            all_pairs(ctx, &dense);
        }
    free(data);
    ctx_off(&h, ctx);
}

static void test_zeros(void **state)
{
    heap h = {.fail_at = -1};
    s24_ctx *ctx = ctx_on(&h, 1);
    (void)state;
    float data[8] = {0, -0.0f, 3, 0, 0, 0, 0, 0};
    const s24_dense dense = {data, S24_F32, 2, 4, 0};
    s24_sparse *w, *stored, *columns;
    assert_int_equal(s24_sparse_create(&w, ctx, &dense, &kinds[1]), S24_OK);
    assert_int_equal(s24_sparse_get(w).stored, 1);
    const int64_t starts[] = {0, 2, 2};
    const int32_t index[] = {0, 2};
    const float values[] = {0, 3};
    const s24_sparse_parts parts = {.format = S24_FORMAT_CSR,
                                    .dtype = S24_F32,
                                    .rows = 2,
                                    .cols = 4,
                                    .stored = 2,
                                    .starts = starts,
                                    .index = index,
                                    .values = values};
    assert_int_equal(s24_sparse_from_parts(&stored, ctx, &parts), S24_OK);
    assert_int_equal(s24_sparse_convert(&columns, ctx, stored, &kinds[2]), S24_OK);
    assert_int_equal(s24_sparse_get(columns).stored, 2);
    s24_sparse_destroy(columns);
    s24_sparse_destroy(stored);
    s24_sparse_destroy(w);
    s24_sparse_destroy(NULL);
    ctx_off(&h, ctx);
}

/* ---- PyTorch's vectors ----------------------------------------------------------------------- */

static mini_tensor get(const mini_file *file, const char *dtype, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", dtype, what);
    return mini_get(file, name);
}

static void same_tensor(const void *data, size_t bytes, mini_tensor expected)
{
    assert_int_equal(bytes, expected.bytes);
    assert_memory_equal(data, expected.data, bytes);
}

/* PyTorch's indices are wider. */
static void same_index(const int32_t *index, int64_t count, const void *expected)
{
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(index[i], ((const int64_t *)expected)[i]);
}

static void golden_dtype(s24_ctx *ctx, const mini_file *file, const char *dtype)
{
    static const struct {
        int kind;
        const char *dense, *starts, *index, *values;
    } rows[] = {{1, "dense", "csr.crow", "csr.col", "csr.values"},
                {2, "dense", "csc.ccol", "csc.row", "csc.values"},
                {6, "bsr16.dense", "bsr16.crow", "bsr16.col", "bsr16.values"}};
    s24_sparse *w;
    for (int i = 0; i < 3; i++) {
        const mini_tensor dense = get(file, dtype, rows[i].dense);
        const s24_dense view = {(void *)(uintptr_t)dense.data, dense.dtype, dense.shape[0],
                                dense.shape[1], 0};
        assert_int_equal(s24_sparse_create(&w, ctx, &view, &kinds[rows[i].kind]), S24_OK);
        const s24_sparse_parts p = s24_sparse_get(w);
        const mini_tensor starts = get(file, dtype, rows[i].starts);
        same_tensor(p.starts, starts.bytes, starts);
        const mini_tensor index = get(file, dtype, rows[i].index);
        assert_int_equal(index.bytes, p.stored * 8);
        same_index(p.index, p.stored, index.data);
        const mini_tensor values = get(file, dtype, rows[i].values);
        same_tensor(p.values, values.bytes, values);
        s24_sparse_destroy(w);
    }
    const mini_tensor dense = get(file, dtype, "dense"), places = get(file, dtype, "coo.indices");
    const s24_dense view = {(void *)(uintptr_t)dense.data, dense.dtype, dense.shape[0],
                            dense.shape[1], 0};
    assert_int_equal(s24_sparse_create(&w, ctx, &view, &kinds[0]), S24_OK);
    const s24_sparse_parts p = s24_sparse_get(w);
    assert_int_equal(places.shape[1], p.stored);
    same_index(p.rows_of, p.stored, places.data);
    same_index(p.index, p.stored, (const int64_t *)places.data + p.stored);
    s24_sparse_destroy(w);
}

static void test_golden(void **state)
{
    char path[512];
    heap h = {.fail_at = -1};
    (void)state;
    if (!golden_path(path, sizeof path, "formats/coo_csr_csc_bsr.safetensors")) SKIP_WITHOUT(path);
    s24_ctx *ctx = ctx_on(&h, 1);
    mini_file file = mini_open(path);
    golden_dtype(ctx, &file, "f32");
    golden_dtype(ctx, &file, "f16");
    mini_close(&file);
    ctx_off(&h, ctx);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refuse(s24_ctx *ctx, const s24_sparse_parts *parts, s24_status status, const char *what)
{
    s24_sparse *w = (s24_sparse *)ctx;
    assert_int_equal(s24_sparse_from_parts(&w, ctx, parts), status);
    assert_null(w);
    if (!strstr(s24_ctx_error(ctx), what)) fail_msg("%s: %s", what, s24_ctx_error(ctx));
}

static void test_parts_are_refused(void **state)
{
    static const float values[64];
    static const struct {
        s24_format format;
        int64_t starts[4];
        int32_t index[3], rows_of[3];
        const char *what;
    } rows[] = {
        {S24_FORMAT_CSR, {1, 1, 2, 3}, {0, 1, 2}, {0}, "starts[0] is 1, expected 0"},
        {S24_FORMAT_CSR, {0, 2, 1, 3}, {0, 1, 2}, {0}, "starts[2] is 1, expected 2 to 3"},
        {S24_FORMAT_CSR, {0, 1, 2, 4}, {0, 1, 2}, {0}, "starts[3] is 4, expected 2 to 3"},
        {S24_FORMAT_CSR, {0, 1, 2, 2}, {0, 1, 2}, {0}, "starts[3] is 2, expected the end, 3"},
        {S24_FORMAT_CSR, {0, 1, 2, 3}, {0, 4, 2}, {0}, "line 1, index[1] is 4, expected 0 to 3"},
        {S24_FORMAT_CSR, {0, 1, 2, 3}, {0, -1, 2}, {0}, "index[1] is -1"},
        {S24_FORMAT_CSR, {0, 0, 3, 3}, {0, 2, 2}, {0}, "line 1, index[2] is 2 after 2"},
        {S24_FORMAT_CSR, {0, 0, 3, 3}, {1, 0, 2}, {0}, "line 1, index[1] is 0 after 1"},
        {S24_FORMAT_COO, {0}, {0, 1, 4}, {0, 1, 2}, "entry 2 is at (2, 4), outside [3, 4]"},
        {S24_FORMAT_COO, {0}, {0, 1, 1}, {0, 3, 2}, "entry 1 is at (3, 1)"},
        {S24_FORMAT_COO, {0}, {0, 1, 1}, {0, 2, 1}, "entry 2 at (1, 1) follows (2, 1)"},
        {S24_FORMAT_COO, {0}, {0, 1, 1}, {0, 1, 1}, "entry 2 at (1, 1) follows (1, 1)"},
    };
    heap h = {.fail_at = -1};
    s24_ctx *ctx = ctx_on(&h, 1);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const s24_sparse_parts parts = {.format = rows[i].format,
                                        .dtype = S24_F32,
                                        .rows = 3,
                                        .cols = 4,
                                        .stored = 3,
                                        .starts = rows[i].starts,
                                        .index = rows[i].index,
                                        .rows_of = rows[i].rows_of,
                                        .values = values};
        refuse(ctx, &parts, S24_ERROR_FORMAT, rows[i].what);
    }
    s24_sparse_parts parts = {.format = S24_FORMAT_CSR, .dtype = S24_F32, .rows = 3, .cols = 4};
    refuse(ctx, &parts, S24_ERROR_ARGUMENT, "a part of the sparse matrix is NULL");
    parts.stored = 13;
    refuse(ctx, &parts, S24_ERROR_FORMAT, "13 stored values of [3, 4]");
    parts.dtype = S24_I64;
    refuse(ctx, &parts, S24_ERROR_DTYPE, "of i64");
    parts = (s24_sparse_parts){.format = 9, .dtype = S24_F32, .rows = 3, .cols = 4};
    refuse(ctx, &parts, S24_ERROR_ARGUMENT, "format 9 is none");
    parts = (s24_sparse_parts){.format = S24_FORMAT_BSR, .dtype = S24_F32, .rows = 16, .cols = 20};
    refuse(ctx, &parts, S24_ERROR_SHAPE, "a block of 0x0; expected 1x4, 4x1");
    parts.block_rows = parts.block_cols = 8;
    refuse(ctx, &parts, S24_ERROR_SHAPE, "blocks of 8x8 do not divide [16, 20]");
    parts.rows = 0;
    refuse(ctx, &parts, S24_ERROR_SHAPE, "[0, 20]; sides of 1");
    ctx_off(&h, ctx);
}

/* Each allocation fails in turn, and nothing is left. */
static void test_memory(void **state)
{
    float data[16 * 16] = {1, 2, 3};
    const s24_dense dense = {data, S24_F32, 16, 16, 0};
    (void)state;
    for (int to = 0; to < 7; to++)
        for (int64_t fail_at = 1;; fail_at++) {
            heap h = {.fail_at = 0};
            s24_ctx *ctx = ctx_on(&h, 1);
            s24_sparse *w = NULL, *turned = NULL;
            h.calls = 0;
            h.fail_at = fail_at;
            s24_status status = s24_sparse_create(&w, ctx, &dense, &kinds[2]);
            if (status == S24_OK) status = s24_sparse_convert(&turned, ctx, w, &kinds[to]);
            s24_sparse_destroy(turned);
            s24_sparse_destroy(w);
            const int64_t calls = h.calls;
            ctx_off(&h, ctx);
            if (calls < fail_at) break;
            assert_int_equal(status, S24_ERROR_MEMORY);
        }
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 1; i <= 4; i++)
        assert_int_equal(s24_format_parse(s24_format_name((s24_format)i)), i);
    assert_null(s24_format_name((s24_format)0));
    assert_null(s24_format_name((s24_format)5));
    assert_int_equal(s24_format_parse("ell"), 0);
    assert_int_equal(s24_format_parse(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_to_any), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_golden),     cmocka_unit_test(test_parts_are_refused),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
