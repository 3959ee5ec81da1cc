// SPDX-License-Identifier: Apache-2.0
/*
 * The layouts that files may hold: there and back for odd shapes, every byte that must not be,
 * plans that multiply with a weight where it lies, refusals.
 */
#include "support.h"

#include "core_support.h"
#include "product_support.h"

/* Of floats: bytes of an item, and items of a group. Of integers: the scheme that makes them, bits,
   columns that share a scale, 0 for all, and rows of a block. */
static const struct {
    const char *name;
    s24_dtype dtype;
    size_t item, items;
    const char *scheme;
    int bits, group, rows;
} layouts[] = {{"rows16-f32", S24_F32, 4, 2, NULL, 0, 0, 16},
               {"rows16-f16", S24_F16, 2, 2, NULL, 0, 0, 16},
               {"rows16-bf16", S24_BF16, 2, 2, NULL, 0, 0, 16},
               {"rows16-bf16-pairs", S24_BF16, 4, 1, NULL, 0, 0, 16},
               {"rows16-i8", S24_I8, 0, 0, "int8", 8, 0, 16},
               {"rows16-i8-g64", S24_I8, 0, 0, "int8-g64", 8, 64, 16},
               {"rows16-i8-g128", S24_I8, 0, 0, "int8-g128", 8, 128, 16},
               {"rows16-i4", S24_I8, 0, 0, "int4", 4, 0, 16},
               {"rows16-i4-g64", S24_I8, 0, 0, "int4-g64", 4, 64, 16},
               {"rows16-i4-g128", S24_I8, 0, 0, "int4-g128", 4, 128, 16},
               {"rows64-i8", S24_I8, 0, 0, "int8", 8, 0, 64},
               {"rows64-i8-g64", S24_I8, 0, 0, "int8-g64", 8, 64, 64},
               {"rows64-i8-g128", S24_I8, 0, 0, "int8-g128", 8, 128, 64},
               {"rows64-i4", S24_I8, 0, 0, "int4", 4, 0, 64},
               {"rows64-i4-g64", S24_I8, 0, 0, "int4-g64", 4, 64, 64},
               {"rows64-i4-g128", S24_I8, 0, 0, "int4-g128", 4, 128, 64}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, FLOATS = 4 };

static s24_matrix *random_floats(s24_ctx *ctx, s24_dtype dtype, int64_t n, int64_t k,
                                 uint64_t *seed)
{
    char *dense = random_dense(dtype, n, k, k, 1, seed);
    const s24_dense view = {dense, dtype, n, k, 0};
    s24_matrix *w = make(ctx, &view, NULL);
    free(dense);
    return w;
}

/* One that layout l holds. */
static s24_matrix *random_matrix(s24_ctx *ctx, int l, int64_t n, int64_t k, uint64_t *seed)
{
    if (!layouts[l].scheme) return random_floats(ctx, layouts[l].dtype, n, k, seed);
    s24_matrix *integers, *floats = random_floats(ctx, S24_F32, n, k, seed);
    assert_ok(ctx, s24_matrix_quantize(&integers, ctx, floats, layouts[l].scheme));
    s24_matrix_destroy(floats);
    return integers;
}

/* The name of the layout that holds a scheme's integers of k columns. */
static const char *name_of(int l, int64_t k)
{
    return k == layouts[l].group ? layouts[l - (layouts[l].group == 64 ? 1 : 2)].name
                                 : layouts[l].name;
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
        int64_t group;
        assert_int_equal(rows, layouts[i].rows);
        assert_int_equal(s24_layout_bits(layouts[i].name, &group), layouts[i].bits);
        assert_int_equal(group, layouts[i].group);
    }
    assert_int_equal(s24_layout_bits("rows17", NULL), 0);
    assert_int_equal(s24_layout_bits(NULL, NULL), 0);
    assert_null(s24_layout_name(LAYOUTS, NULL, NULL));
    assert_null(s24_layout_name(-1, NULL, NULL));
}

/* The code of a group of integers as docs/format.md has it: one after the other, or places of a
   pair's values byte by byte. */
static int integer_code(const uint8_t *block, int64_t lane, int64_t group, int pairs)
{
    const uint8_t *word = block + 4 * lane;
    if (!pairs) return word[group / 2] >> group % 2 * 4 & 15;
    const int64_t at = group / 2 * 2, first = group % 2 * 2;
    return (word[first] >> at & 3) | (word[first + 1] >> at & 3) << 2;
}

/* And value i of a row. */
static int integer_value(const uint8_t *block, int64_t lane, int64_t i, int bits, int pairs)
{
    const uint8_t *values = block + 64;
    int at = 0;
    if (bits == 8)
        at = values[pairs ? i / 4 * 64 + 4 * lane + i % 4 : 16 * i + lane];
    else if (pairs)
        at = values[i / 8 * 64 + 4 * lane + i % 4] >> (i % 8 < 4 ? 4 : 0);
    else
        at = values[i / 2 * 16 + lane] >> i % 2 * 4;
    return bits == 8 ? (int8_t)at : (int)((((unsigned)at & 15) ^ 8) - 8);
}

/* As docs/format.md draws it: scales of 16 rows before the k blocks that they serve, those of whole
   rows before all. */
static void check_integer_places(const uint8_t *data, const s24_matrix *w, int l)
{
    const int64_t n = s24_matrix_rows(w), k = s24_matrix_cols(w), blocks = (k + 31) / 32;
    const int64_t each = layouts[l].group && layouts[l].group < k ? layouts[l].group : k;
    const int64_t groups = (k + each - 1) / each, quarters = layouts[l].rows / 16;
    const int whole = each == k, pairs = quarters > 1, bits = layouts[l].bits;
    const int64_t run = each == 64 ? 2 : 4; /* k blocks of a segment */
    const uint8_t *at = data;
    for (int64_t first = 0; first < n; first += layouts[l].rows) {
        const uint8_t *head = at;
        if (whole) at += 64 * quarters;
        for (int64_t q0 = 0; q0 < blocks; q0 += run)
            for (int64_t quarter = 0; quarter < quarters; quarter++) {
                const uint8_t *scales = whole ? head + 64 * quarter : at;
                if (!whole) at += 64;
                for (int64_t q = q0; q < blocks && q < q0 + run; q++, at += 64 + 32 * bits)
                    for (int64_t lane = 0; lane < 16; lane++) {
                        const int64_t r = first + 16 * quarter + lane;
                        float scale;
                        memcpy(&scale, scales + 4 * lane, sizeof scale);
                        assert_true(scale ==
                                    (r < n ? s24_matrix_scales(w)[r * groups + 32 * q / each] : 0));
                        for (int64_t g = 0; g < 8; g++) {
                            const int64_t all = 8 * q + g;
                            const int there = r < n && 4 * all < k;
                            const uint8_t *codes = s24_matrix_indices(w);
                            assert_int_equal(
                                integer_code(at, lane, g, pairs),
                                there ? codes[r * ((k + 7) / 8) + all / 2] >> all % 2 * 4 & 15 : 4);
                            for (int64_t i = 0; i < 2; i++)
                                assert_int_equal(integer_value(at, lane, 2 * g + i, bits, pairs),
                                                 there ? ((const int8_t *)s24_matrix_values(
                                                             w))[r * (k / 2) + 2 * all + i]
                                                       : 0);
                        }
                    }
            }
    }
    assert_int_equal(at - data, s24_layout_bytes(layouts[l].name, n, k));
}

/* As docs/format.md draws it: every value and code at its place, and nothing else. */
static void check_places(const uint8_t *data, const s24_matrix *w, int l)
{
    if (layouts[l].bits) {
        check_integer_places(data, w, l);
        return;
    }
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
    static const int64_t ks[] = {4, 8, 28, 32, 36, 60, 64, 100, 196, 260};
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 5;
    (void)state;
    for (int l = 0; l < LAYOUTS; l++)
        for (int64_t n = 1; n < 100; n += layouts[l].bits ? 23 : n < 17 ? 1 : 7)
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
                s24_matrix *again, *w = random_matrix(ctx, l, n, ks[i], &seed);
                const char *name = name_of(l, ks[i]);
                uint8_t *data = lay_out(ctx, w, name);
                check_places(data, w, l);
                const s24_laid_out from = {name, n, ks[i], data};
                assert_ok(ctx, s24_matrix_from_layout(&again, ctx, &from));
                assert_int_equal(s24_matrix_bytes(again), s24_matrix_bytes(w));
                const size_t codes = (size_t)(n * ((ks[i] + 7) / 8));
                const int64_t group = s24_matrix_group(w);
                const size_t scales =
                    group ? (size_t)(n * ((ks[i] + group - 1) / group)) * sizeof(float) : 0;
                assert_int_equal(s24_matrix_bits(again), s24_matrix_bits(w));
                assert_int_equal(s24_matrix_group(again), group);
                assert_memory_equal(s24_matrix_indices(again), s24_matrix_indices(w), codes);
                assert_memory_equal(s24_matrix_values(again), s24_matrix_values(w),
                                    s24_matrix_bytes(w) - codes - scales);
                if (scales)
                    assert_memory_equal(s24_matrix_scales(again), s24_matrix_scales(w), scales);
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
    for (int l = 0; l < FLOATS; l++) {
        s24_matrix *again, *w = random_matrix(ctx, l, N, K, &seed);
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

/* Any byte of integers changed in one of six ways: refused with a place, or a matrix whose form
   this is. */
static void what_must_not_be_is_found_in_integers(void **state)
{
    enum { N = 70, K = 100 };
    static const uint8_t changes[] = {0x01, 0x02, 0x10, 0x40, 0x80, 0xff};
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 19;
    (void)state;
    for (int l = FLOATS; l < LAYOUTS; l++) {
        int refused[3] = {0};
        s24_matrix *again, *w = random_matrix(ctx, l, N, K, &seed);
        uint8_t *data = lay_out(ctx, w, layouts[l].name);
        const size_t bytes = s24_layout_bytes(layouts[l].name, N, K);
        uint8_t *back = aligned_alloc(64, bytes);
        const s24_laid_out from = {layouts[l].name, N, K, data};
        for (size_t i = 0; i < bytes; i++) {
            const uint8_t change = changes[i * 5 / 4 % sizeof changes];
            data[i] ^= change;
            const s24_status status = s24_layout_check(ctx, &from);
            const int rank = strstr(s24_ctx_error(ctx), "none of 4, 8, 9, C, D and E") ? 0
                             : strstr(s24_ctx_error(ctx), "negative or not finite")    ? 1
                                                                                       : 2;
            if (status != S24_OK) refused[rank]++;
            assert_int_equal(s24_matrix_from_layout(&again, ctx, &from), status);
            if (status == S24_OK) {
                assert_ok(ctx, s24_matrix_to_layout(back, ctx, again, layouts[l].name));
                assert_memory_equal(back, data, bytes);
                s24_matrix_destroy(again);
            }
            data[i] ^= change;
        }
        for (int rank = 0; rank < 3; rank++)
            if (!refused[rank]) fail_msg("%s: nothing of kind %d", layouts[l].name, rank);
        free(back);
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
            const int bits = layouts[l].bits;
            weight t = make_weight(ctx, bits ? S24_F32 : layouts[l].dtype, 135, 200, &seed);
            if (bits) {
                s24_matrix *floats = t.w;
                assert_ok(ctx, s24_matrix_quantize(&t.w, ctx, floats, layouts[l].scheme));
                s24_matrix_destroy(floats);
            }
            void *data = lay_out(ctx, t.w, layouts[l].name);
            const s24_laid_out from = {layouts[l].name, t.n, t.k, data};
            const char *mine = bits ? s24_layout_of_integers(ctx, bits, layouts[l].group)
                                    : s24_layout_of(ctx, layouts[l].dtype);
            const s24_plan_opts rounds = {.size = sizeof rounds, .rounds = 1};
            assert_ok(ctx, s24_plan_create(&own, ctx, t.w, &rounds));
            if (!mine || strcmp(mine, layouts[l].name) != 0) {
                assert_refused(ctx, S24_ERROR_UNSUPPORTED, "another layout than rows",
                               s24_plan_create_in_place(&lying, ctx, &from, NULL));
                assert_null(lying);
            } else {
                assert_ok(ctx, s24_plan_create_in_place(&lying, ctx, &from, &rounds));
                assert_string_equal(s24_plan_kernel(lying, 1), s24_plan_kernel(own, 1));
                assert_int_equal(s24_plan_bytes(lying), s24_plan_bytes(own));
                for (int64_t rows = 1; rows < 80; rows += 19) {
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
    s24_matrix *out, *turned, *w = random_floats(ctx, S24_F32, 16, 32, &seed), *integers;
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
    assert_null(s24_layout_of_integers(ctx, 5, 0));
    assert_null(s24_layout_of_integers(ctx, 8, 32));
    assert_null(s24_layout_of_integers(NULL, 8, 0));
    const s24_laid_out unknown = {"rows17", 16, 32, data}, empty = {"rows16-f32", 16, 32, NULL},
                       odd = {"rows16-f32", 16, 30, data}, nameless = {NULL, 16, 32, data},
                       askew = {"rows16-f32", 16, 32, data + 4};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"rows17\"",
                   s24_matrix_from_layout(&out, ctx, &unknown));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"rows17\"",
                   s24_plan_create_in_place(&plan, ctx, &unknown, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "no layout named \"\"",
                   s24_plan_create_in_place(&plan, ctx, &nameless, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "data is NULL", s24_layout_check(ctx, &empty));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "layout is NULL", s24_layout_check(ctx, &nameless));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "data is NULL",
                   s24_plan_create_in_place(&plan, ctx, &empty, NULL));
    assert_refused(ctx, S24_ERROR_SHAPE, "[16, 30]", s24_layout_check(ctx, &odd));
    assert_refused(ctx, S24_ERROR_SHAPE, "[16, 30]",
                   s24_plan_create_in_place(&plan, ctx, &odd, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "not aligned to 64",
                   s24_plan_create_in_place(&plan, ctx, &askew, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "from is NULL", s24_layout_check(ctx, NULL));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "src is NULL",
                   s24_matrix_to_layout(data, ctx, NULL, "rows16-f32"));
    assert_refused(ctx, S24_ERROR_DTYPE, "rows16-f16 is of f16; the matrix is f32",
                   s24_matrix_to_layout(data, ctx, w, "rows16-f16"));
    assert_refused(ctx, S24_ERROR_DTYPE, "rows64-i8 is of quantised i8; the matrix is f32",
                   s24_matrix_to_layout(data, ctx, w, "rows64-i8"));
    assert_ok(ctx, s24_matrix_quantize(&integers, ctx, w, "int4"));
    assert_refused(ctx, S24_ERROR_DTYPE,
                   "8 bits with a scale for 32 columns; the matrix has 4 bits",
                   s24_matrix_to_layout(data, ctx, integers, "rows64-i8"));
    assert_refused(ctx, S24_ERROR_DTYPE, "4 bits with a scale for 64 columns; the matrix has 4",
                   s24_matrix_to_layout(data, ctx, integers, "rows64-i4-g64"));
    s24_matrix_destroy(integers);
    const s24_plan_opts lifts = {.size = sizeof lifts, .lift = 8};
    const s24_laid_out lying = {"rows16-f32", 16, 32, data};
    assert_refused(ctx, S24_ERROR_ARGUMENT, "`rounds` of s24_plan_opts alone",
                   s24_plan_create_in_place(&plan, ctx, &lying, &lifts));
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
                       s24_plan_create_in_place(&plan, ctx, &good, NULL));
    }
    s24_matrix_destroy(turned);
    s24_matrix_destroy(w);
    free(data);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(plans_in_place),
        cmocka_unit_test(what_must_not_be_is_found),
        cmocka_unit_test(what_must_not_be_is_found_in_integers),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
