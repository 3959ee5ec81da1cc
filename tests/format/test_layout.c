// SPDX-License-Identifier: Apache-2.0
/*
 * The layouts that files may hold: there and back for odd shapes, every byte that must not be,
 * plans that multiply with a weight where it lies, refusals.
 */
#include "support.h"

#include "core_support.h"
#include "product_support.h"

/* Of a value's dtype: bytes of an item, and items of a group. */
static const struct {
    const char *name;
    s24_dtype dtype;
    size_t item, items;
} layouts[] = {{"rows16-f32", S24_F32, 4, 2},
               {"rows16-f16", S24_F16, 2, 2},
               {"rows16-bf16", S24_BF16, 2, 2},
               {"rows16-bf16-pairs", S24_BF16, 4, 1}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static s24_matrix *random_matrix(s24_ctx *ctx, s24_dtype dtype, int64_t n, int64_t k,
                                 uint64_t *seed)
{
    char *dense = random_dense(dtype, n, k, k, 1, seed);
    const s24_dense view = {dense, dtype, n, k, 0};
    s24_matrix *w = make(ctx, &view, NULL);
    free(dense);
    return w;
}

/* A weight in a layout, in memory of just its size, which the caller frees. */
static void *lay_out(s24_ctx *ctx, const s24_matrix *w, const char *layout)
{
    const size_t bytes = s24_layout_bytes(layout, s24_matrix_rows(w), s24_matrix_cols(w));
    assert_true(bytes > 0 && bytes % 64 == 0);
    void *data = aligned_alloc(64, bytes);
    memset(data, 0xa5, bytes);
    assert_ok(ctx, s24_matrix_to_layout(data, ctx, w, layout));
    return data;
}

static void the_names(void **state)
{
    s24_dtype dtype;
    int64_t rows;
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        assert_string_equal(s24_layout_name(i, &dtype, &rows), layouts[i].name);
        assert_int_equal(dtype, layouts[i].dtype);
        assert_int_equal(rows, 16);
    }
    assert_null(s24_layout_name(LAYOUTS, NULL, NULL));
    assert_null(s24_layout_name(-1, NULL, NULL));
}

/* As docs/format.md draws it: every value and code at its place, and nothing else. */
static void check_places(const uint8_t *data, const s24_matrix *w, int l)
{
    const int64_t n = s24_matrix_rows(w), k = s24_matrix_cols(w), blocks = (k + 31) / 32;
    const size_t item = layouts[l].item, items = layouts[l].items, block = 64 + 128 * items * item;
    const uint8_t *values = s24_matrix_values(w), *indices = s24_matrix_indices(w);
    for (int64_t r = 0; r < (n + 15) / 16 * 16; r++) {
        for (int64_t g = 0; g < 8 * blocks; g++) {
            const uint8_t *at = data + (size_t)(r / 16 * blocks + g / 8) * block;
            const int there = r < n && 4 * g < k;
            const int code = there ? indices[r * ((k + 7) / 8) + g / 2] >> g % 2 * 4 & 15 : 4;
            assert_int_equal(at[4 * (r % 16) + g % 8 / 2] >> g % 2 * 4 & 15, code);
            for (size_t i = 0; i < items; i++) {
                static const uint8_t zeros[4];
                const size_t slot = items * (size_t)(g % 8) + i;
                assert_memory_equal(
                    at + 64 + (slot * 16 + (size_t)r % 16) * item,
                    there ? values + ((size_t)(r * (k / 4) + g) * items + i) * item : zeros, item);
            }
        }
    }
}

static void there_and_back(void **state)
{
    static const int64_t ks[] = {4, 8, 28, 32, 36, 60, 64, 100};
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 5;
    (void)state;
    for (int l = 0; l < LAYOUTS; l++)
        for (int64_t n = 1; n < 50; n += n < 17 ? 1 : 7)
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                s24_matrix *again, *w = random_matrix(ctx, layouts[l].dtype, n, ks[i], &seed);
                uint8_t *data = lay_out(ctx, w, layouts[l].name);
                check_places(data, w, l);
                const s24_laid_out from = {layouts[l].name, n, ks[i], data};
                assert_ok(ctx, s24_matrix_from_layout(&again, ctx, &from));
                assert_int_equal(s24_matrix_bytes(again), s24_matrix_bytes(w));
                const size_t codes = (size_t)(n * ((ks[i] + 7) / 8));
                assert_memory_equal(s24_matrix_indices(again), s24_matrix_indices(w), codes);
                assert_memory_equal(s24_matrix_values(again), s24_matrix_values(w),
                                    s24_matrix_bytes(w) - codes);
                s24_matrix_destroy(again);
                s24_matrix_destroy(w);
                free(data);
            }
    ctx_off(&h, ctx);
}

/* Each half byte of the codes with each of its values, and each byte past the matrix. */
static void what_must_not_be_is_found(void **state)
{
    enum { N = 18, K = 36, BLOCKS = 4 };
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 9;
    (void)state;
    for (int l = 0; l < LAYOUTS; l++) {
        s24_matrix *again, *w = random_matrix(ctx, layouts[l].dtype, N, K, &seed);
        uint8_t *data = lay_out(ctx, w, layouts[l].name);
        const s24_laid_out from = {layouts[l].name, N, K, data};
        const size_t bytes = s24_layout_bytes(layouts[l].name, N, K), block = bytes / BLOCKS;
        for (size_t i = 0; i < bytes; i++) {
            const int64_t row = (int64_t)(i / block / 2 * 16), col = (int64_t)(i / block % 2 * 32);
            const size_t in = i % block;
            const size_t lane = in < 64 ? in / 4 : (in - 64) / layouts[l].item % 16;
            const size_t group =
                in < 64 ? in % 4 * 2 : (in - 64) / layouts[l].item / 16 / layouts[l].items;
            const uint8_t was = data[i];
            for (int bits = 1; bits < (in < 64 ? 256 : 2); bits++) {
                const int64_t r = row + (int64_t)lane, c = col + 4 * (int64_t)group;
                const int low_there = r < N && c < K, high_there = r < N && c + 4 < K;
                data[i] = (uint8_t)(was ^ bits);
                const int low = data[i] & 15, high = data[i] >> 4;
                int good = low_there; /* a value */
                if (in < 64)
                    good = (low_there ? (low & 3) < low >> 2 : low == 4) &&
                           (high_there ? (high & 3) < high >> 2 : high == 4);
                const s24_status status = s24_layout_check(ctx, &from);
                if (status != (good ? S24_OK : S24_ERROR_FORMAT))
                    fail_msg("%s: byte %zu of 0x%02x: %s", layouts[l].name, i, data[i],
                             s24_status_text(status));
                if (good) continue;
                assert_int_equal(s24_matrix_from_layout(&again, ctx, &from), S24_ERROR_FORMAT);
                assert_null(again);
                char place[64];
                snprintf(
                    place, sizeof place, "row %d, column %d", (int)r,
                    (int)(in < 64 && (low_there ? (low & 3) < low >> 2 : low == 4) ? c + 4 : c));
                if (!strstr(s24_ctx_error(ctx), place))
                    fail_msg("\"%s\" does not say \"%s\"", s24_ctx_error(ctx), place);
            }
            data[i] = was;
        }
        free(data);
        s24_matrix_destroy(w);
    }
    ctx_off(&h, ctx);
}

static void run(s24_ctx *ctx, const s24_plan *plan, const s24_dense *y, const s24_dense *x)
{
    const size_t bytes = s24_plan_work_bytes(plan, ctx, x->rows);
    void *work = bytes ? s24_ctx_alloc(ctx, bytes) : NULL;
    const s24_linear_args args = {.y = y, .x = x, .work = work, .work_bytes = bytes};
    assert_ok(ctx, s24_plan_run(ctx, plan, &args));
    s24_ctx_free(ctx, work);
}

/* The same bits as a plan of the matrix, whatever the CPU has; its memory is the caller's. */
static void plans_in_place(void **state)
{
    static const uint32_t masks[] = {0, S24_CPU_BASELINE, S24_CPU_BASELINE | S24_CPU_AVX2,
                                     S24_CPU_BASELINE | S24_CPU_AVX2 | S24_CPU_AVX512};
    uint64_t seed = 3;
    int in_place = 0;
    (void)state;
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        for (int l = 0; l < LAYOUTS; l++) {
            s24_ctx *ctx;
            s24_plan *own, *lying;
            const s24_ctx_opts opts = {.size = sizeof opts, .cpu_mask = masks[m], .threads = 2};
            assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
            weight t = make_weight(ctx, layouts[l].dtype, 35, 72, &seed);
            void *data = lay_out(ctx, t.w, layouts[l].name);
            const s24_laid_out from = {layouts[l].name, t.n, t.k, data};
            const char *mine = s24_layout_of(ctx, layouts[l].dtype);
            assert_ok(ctx, s24_plan_create(&own, ctx, t.w, NULL));
            if (!mine || strcmp(mine, layouts[l].name) != 0) {
                assert_refused(ctx, S24_ERROR_UNSUPPORTED, "another layout than rows16-",
                               s24_plan_create_in_place(&lying, ctx, &from));
                assert_null(lying);
            } else {
                assert_ok(ctx, s24_plan_create_in_place(&lying, ctx, &from));
                assert_string_equal(s24_plan_kernel(lying, 1), s24_plan_kernel(own, 1));
                assert_int_equal(s24_plan_bytes(lying), s24_plan_bytes(own));
                for (int64_t rows = 1; rows < 40; rows += 19) {
                    s24_dense x = make_dense(rows, t.k, 0, &seed);
                    s24_dense y = make_dense(rows, t.n, 1, &seed);
                    s24_dense z = make_dense(rows, t.n, 1, &seed);
                    run(ctx, own, &y, &x);
                    run(ctx, lying, &z, &x);
                    assert_memory_equal(y.data, z.data, (size_t)(rows * y.ld) * sizeof(float));
                    free(x.data);
                    free(y.data);
                    free(z.data);
                }
                s24_plan_destroy(lying);
                in_place++;
            }
            s24_plan_destroy(own);
            free(data);
            drop_weight(&t);
            s24_ctx_destroy(ctx);
        }
    if (s24_cpu_detect() != S24_CPU_BASELINE) assert_true(in_place >= 3);
}

static void refusals(void **state)
{
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 1;
    s24_matrix *out, *turned, *w = random_matrix(ctx, S24_F32, 16, 32, &seed);
    s24_plan *plan;
    uint8_t *data = lay_out(ctx, w, "rows16-f32");
    (void)state;
    assert_int_equal(s24_layout_bytes("rows16-f32", 16, 32), 1088);
    assert_int_equal(s24_layout_bytes("rows16-f64", 16, 32), 0);
    assert_int_equal(s24_layout_bytes(NULL, 16, 32), 0);
    assert_int_equal(s24_layout_bytes("rows16-f32", 0, 32), 0);
    assert_int_equal(s24_layout_bytes("rows16-f32", 16, 30), 0);
    assert_int_equal(s24_layout_bytes("rows16-f32", INT64_MAX, 4), 0);
    assert_int_equal(s24_layout_bytes("rows16-f32", 1, INT64_MAX / 4 * 4), 0);
    assert_int_equal(s24_layout_bytes("rows16-f32", INT64_C(1) << 32, INT64_C(1) << 30), 0);
    assert_null(s24_layout_of(ctx, S24_I8));
    assert_null(s24_layout_of(ctx, S24_E4M3));
    assert_null(s24_layout_of(NULL, S24_F32));
    const s24_laid_out unknown = {"rows17", 16, 32, data}, empty = {"rows16-f32", 16, 32, NULL},
                       odd = {"rows16-f32", 16, 30, data}, nameless = {NULL, 16, 32, data},
                       askew = {"rows16-f32", 16, 32, data + 4};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"rows17\"",
                   s24_matrix_from_layout(&out, ctx, &unknown));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"rows17\"",
                   s24_plan_create_in_place(&plan, ctx, &unknown));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"\"",
                   s24_plan_create_in_place(&plan, ctx, &nameless));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "data is NULL", s24_layout_check(ctx, &empty));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "layout is NULL", s24_layout_check(ctx, &nameless));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "data is NULL",
                   s24_plan_create_in_place(&plan, ctx, &empty));
    assert_refused(ctx, S24_ERROR_SHAPE, "[16, 30]", s24_layout_check(ctx, &odd));
    assert_refused(ctx, S24_ERROR_SHAPE, "[16, 30]", s24_plan_create_in_place(&plan, ctx, &odd));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "not aligned to 64",
                   s24_plan_create_in_place(&plan, ctx, &askew));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "from is NULL", s24_layout_check(ctx, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL",
                   s24_matrix_to_layout(data, ctx, NULL, "rows16-f32"));
    assert_refused(ctx, S24_ERROR_DTYPE, "rows16-f16 is of f16; the matrix is f32",
                   s24_matrix_to_layout(data, ctx, w, "rows16-f16"));
    assert_ok(ctx, s24_matrix_transpose(&turned, ctx, w));
    assert_refused(ctx, S24_ERROR_SHAPE, "transposed",
                   s24_matrix_to_layout(data, ctx, turned, "rows16-f32"));
    const s24_laid_out good = {"rows16-f32", 16, 32, data};
    h.fail_at = h.calls + 1;
    assert_refused(ctx, S24_ERROR_MEMORY, "out of memory",
                   s24_matrix_from_layout(&out, ctx, &good));
    if (s24_layout_of(ctx, S24_F32)) {
        h.fail_at = h.calls + 1;
        assert_refused(ctx, S24_ERROR_MEMORY, "out of memory",
                       s24_plan_create_in_place(&plan, ctx, &good));
    }
    s24_matrix_destroy(turned);
    s24_matrix_destroy(w);
    free(data);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names),      cmocka_unit_test(there_and_back),
        cmocka_unit_test(plans_in_place), cmocka_unit_test(what_must_not_be_is_found),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
