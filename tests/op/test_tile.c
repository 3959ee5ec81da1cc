// SPDX-License-Identifier: Apache-2.0
/*
 * Selections of 4x4 tiles: against what PyTorch and the authors of 2by4 kept, against all 90
 * patterns, and as matrices that are 2:4 in both directions.
 */
#include "support.h"

#include <math.h>

#include "core_support.h"
#include "op/op.h"
#include "safetensors_mini.h"

static const s24_select tile_selects[] = {S24_SELECT_TILE_BEST, S24_SELECT_TILE_GREEDY,
                                          S24_SELECT_TILE_SIGNED, S24_SELECT_TILE_CAUSAL1122};
enum { RULES = sizeof tile_selects / sizeof *tile_selects };

/* ---- the tables ------------------------------------------------------------------------------ */

/* Bose and Nelson's construction, places from 1. */
static int (*next_exchange)[2];
static void merge(int i, int j, int x, int y)
{
    if (x == 1 || (x == 2 && y == 1)) {
        if (x == 1 && y == 2) (*next_exchange)[0] = i, (*next_exchange++)[1] = j + 1;
        (*next_exchange)[0] = i, (*next_exchange++)[1] = j;
        if (x == 2) (*next_exchange)[0] = i + 1, (*next_exchange++)[1] = j;
        return;
    }
    int left = x / 2, right = (x % 2 ? y : y + 1) / 2;
    merge(i, j, left, right);
    merge(i + left, j + right, x - left, y - right);
    merge(i + left, j, x - left, right);
}
static void network(int i, int count)
{
    if (count < 2) return;
    network(i, count / 2);
    network(i + count / 2, count - count / 2);
    merge(i, i + count / 2, count / 2, count - count / 2);
}

static void test_network(void **state)
{
    (void)state;
    static const int listed[][2] = {
#define TILE_EXCHANGE(i, j) {i, j},
#include "kernel/tile_exchanges.def"
#undef TILE_EXCHANGE
    };
    enum { COUNT = sizeof listed / sizeof *listed };
    int made[2 * COUNT][2];
    next_exchange = made;
    network(1, 16);
    assert_int_equal(next_exchange - made, COUNT);
    for (int e = 0; e < COUNT; e++)
        for (int side = 0; side < 2; side++)
            assert_int_equal(listed[e][side], made[e][side] - 1);
    next_exchange = made;
    network(1, 4);
    assert_int_equal(next_exchange - made, 5);
    for (int e = 0; e < 5; e++)
        assert_true(listed[e][0] == made[e][0] - 1 && listed[e][1] == made[e][1] - 1);
}

static const unsigned patterns[][4] = {
#define TILE_PATTERN(a, b, c, d) {a, b, c, d},
#include "kernel/tile_patterns.def"
#undef TILE_PATTERN
};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static void test_patterns(void **state)
{
    (void)state;
    static const unsigned rows[6] = {0x3, 0x5, 0x9, 0x6, 0xa, 0xc};
    int count = 0;
    for (int i = 0; i < 6 * 6 * 6 * 6; i++) {
        unsigned p[4] = {rows[i / 216], rows[i / 36 % 6], rows[i / 6 % 6], rows[i % 6]};
        int good = 1;
        for (int c = 0; c < 4; c++)
            good &= (p[0] >> c & 1) + (p[1] >> c & 1) + (p[2] >> c & 1) + (p[3] >> c & 1) == 2;
        if (!good) continue;
        assert_memory_equal(patterns[count], p, sizeof p);
        count++;
    }
    assert_int_equal(count, PATTERNS);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static unsigned mask_of(s24_ctx *ctx, const float *tile, s24_select select)
{
    uint8_t mask[16];
    unsigned bits = 0;
    s24_dense src = {(void *)(uintptr_t)tile, S24_F32, 4, 4, 0};
    assert_ok(ctx, s24_tile_mask(mask, ctx, &src, select, 1));
    for (int i = 0; i < 16; i++)
        bits |= (unsigned)mask[i] << i;
    return bits;
}

/* "1010/0110/…", row by row. */
static unsigned bits_of(const char *text)
{
    unsigned bits = 0;
    for (int i = 0; *text; text++)
        if (*text != '/') bits |= (unsigned)(*text - '0') << i++;
    return bits;
}

static void test_known_tiles(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    const float zeros[16] = {0};
    const float worked[16] = {9, 1, 7, 4, 1, 2, 3, 0, 8, 3, 5, 4, 1, 2, 6, 2};
    const float stuck[16] = {16, 15, 1, 2, 14, 3, 13, 4, 5, 12, 11, 6, 7, 8, 9, 10};
    const float few[16] = {5, -9, 1, 1, 7, 2, 6, 3, 9, 9, 4, 1, 8, 2, 3, 9};
    assert_int_equal(mask_of(ctx, zeros, S24_SELECT_TILE_GREEDY), bits_of("1010/0110/1100/0001"));
    assert_int_equal(mask_of(ctx, zeros, S24_SELECT_TILE_SIGNED), bits_of("1010/0110/1100/0001"));
    assert_int_equal(mask_of(ctx, zeros, S24_SELECT_TILE_BEST), bits_of("1100/1100/0011/0011"));
    assert_int_equal(mask_of(ctx, worked, S24_SELECT_TILE_GREEDY), bits_of("1010/0101/1001/0110"));
    assert_int_equal(mask_of(ctx, stuck, S24_SELECT_TILE_GREEDY), bits_of("1100/1010/0110/0001"));
    assert_int_equal(mask_of(ctx, few, S24_SELECT_TILE_CAUSAL1122), bits_of("1000/1000/0110/0011"));
    /* −9 is the largest magnitude and the smallest number. */
    const float minus[16] = {-9, 5, 4, 1, 8, 1, 2, 7, 7.5f, 1, 3, 6.5f, 1, 6, 5.5f, 2};
    assert_true(mask_of(ctx, minus, S24_SELECT_TILE_GREEDY) & 1u);
    assert_false(mask_of(ctx, minus, S24_SELECT_TILE_SIGNED) & 1u);
    ctx_off(&h, ctx);
}

static void test_best_of_all(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 5;
    for (int round = 0; round < ROUNDS(4000); round++) {
        float w[16];
        double most = -1, kept = 0;
        for (int i = 0; i < 16; i++)
            w[i] = round % 2 ? test_uniform(&seed) : (float)((int)(test_random(&seed) % 7) - 3);
        for (int p = 0; p < PATTERNS; p++) {
            double sum = 0;
            for (int i = 0; i < 16; i++)
                sum += patterns[p][i / 4] >> i % 4 & 1 ? fabs((double)w[i]) : 0;
            most = fmax(most, sum);
        }
        unsigned mask = mask_of(ctx, w, S24_SELECT_TILE_BEST);
        for (int i = 0; i < 16; i++)
            kept += mask >> i & 1 ? fabs((double)w[i]) : 0;
        assert_true(kept >= most * (1 - 4e-7));
    }
    ctx_off(&h, ctx);
}

static void test_nonfinite(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float w[16] = {1, 1, 1, NAN, 1, -INFINITY, 1, 1, 1, 1, NAN, 1, INFINITY, 1, 1, 1};
    unsigned wanted = 1u << 3 | 1u << 5 | 1u << 10 | 1u << 12;
    assert_int_equal(mask_of(ctx, w, S24_SELECT_TILE_BEST) & wanted, wanted);
    w[3] = w[10] = INFINITY;
    assert_int_equal(mask_of(ctx, w, S24_SELECT_TILE_GREEDY) & wanted, wanted);
    uint8_t mask[16];
    s24_dense src = {w, S24_F32, 4, 4, 0};
    assert_refused(ctx, S24_ERROR_NOT_FINITE, "row 0, column 3",
                   s24_tile_mask(mask, ctx, &src, S24_SELECT_TILE_BEST, 0));
    ctx_off(&h, ctx);
}

/* ---- matrices -------------------------------------------------------------------------------- */

static void *turned(const void *data, size_t bytes, int64_t rows, int64_t cols, int64_t ld)
{
    char *to = malloc((size_t)(rows * cols) * bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(to + (size_t)(c * rows + r) * bytes,
                   (const char *)data + (size_t)(r * ld + c) * bytes, bytes);
    return to;
}

static void same_matrix(const s24_matrix *a, const s24_matrix *b)
{
    size_t indices = (size_t)(s24_matrix_rows(a) * ((s24_matrix_cols(a) + 7) / 8));
    assert_int_equal(s24_matrix_rows(a), s24_matrix_rows(b));
    assert_int_equal(s24_matrix_cols(a), s24_matrix_cols(b));
    assert_memory_equal(s24_matrix_indices(a), s24_matrix_indices(b), indices);
    assert_memory_equal(s24_matrix_values(a), s24_matrix_values(b), s24_matrix_bytes(a) - indices);
}

/* The pair is what masks make of src and of its transpose; both are 2:4 along n too. */
static void check_pair(s24_ctx *ctx, const s24_dense *src, s24_select select)
{
    const size_t bytes = s24_dtype_bytes(src->dtype);
    const int64_t n = src->rows, k = src->cols;
    uint8_t *mask = malloc((size_t)(n * k));
    assert_ok(ctx, s24_tile_mask(mask, ctx, src, select, 0));
    int two_four;
    s24_dense view = {mask, S24_I8, n, k, 0};
    assert_ok(ctx, s24_check(&two_four, NULL, ctx, &view));
    assert_true(two_four);
    assert_ok(ctx, s24_check_along_n(&two_four, NULL, ctx, &view));
    assert_true(two_four);

    s24_matrix *w, *wt;
    s24_matrix_opts opts = {.size = sizeof opts, .select = select};
    s24_matrix *alone = make(ctx, src, &opts);
    assert_ok(ctx, s24_matrix_create_pair(&w, &wt, ctx, src, &opts));
    same_matrix(alone, w);
    void *flipped = turned(src->data, bytes, n, k, s24i_dense_ld(src));
    void *flipped_mask = turned(mask, 1, n, k, k);
    s24_dense transposed = {flipped, src->dtype, k, n, 0};
    s24_matrix_opts masked = {.size = sizeof masked, .select = S24_SELECT_MASK, .mask = mask};
    s24_matrix *expected = make(ctx, src, &masked);
    same_matrix(expected, w);
    s24_matrix_destroy(expected);
    masked.mask = flipped_mask;
    expected = make(ctx, &transposed, &masked);
    same_matrix(expected, wt);
    s24_matrix_destroy(expected);
    s24_matrix_destroy(alone);
    s24_matrix_destroy(w);
    s24_matrix_destroy(wt);
    free(flipped);
    free(flipped_mask);
    free(mask);
}

static void test_pairs(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{4, 4}, {8, 12}, {68, 20}, {264, 36}, {260, 516}};
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 3;
    for (int d = 0; d < TWO_FOUR_DTYPES; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int64_t n = shapes[s][0], k = shapes[s][1], ld = k + 3;
            void *data = random_dense(two_four_dtypes[d], n, k, ld, (int)s % 2, &seed);
            s24_dense src = {data, two_four_dtypes[d], n, k, ld};
            for (int r = 0; r < RULES; r++)
                check_pair(ctx, &src, tile_selects[r]);
            free(data);
        }
    ctx_off(&h, ctx);
}

/* A last tile of fewer rows: as with rows below it that nothing prefers. */
static void test_missing_rows(void **state)
{
    (void)state;
    enum { K = 20 };
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    uint64_t seed = 11;
    for (int rows = 1; rows < 8; rows++)
        for (int r = 0; r < RULES; r++) {
            float data[8 * K];
            uint8_t mask[8 * K], full[8 * K];
            int two_four;
            for (int i = 0; i < 8 * K; i++)
                data[i] = i < rows * K ? fabsf(test_uniform(&seed)) + 1 : 0;
            s24_dense src = {data, S24_F32, rows, K, 0};
            s24_dense view = {mask, S24_I8, rows, K, 0};
            assert_ok(ctx, s24_tile_mask(mask, ctx, &src, tile_selects[r], 0));
            assert_ok(ctx, s24_check_along_n(&two_four, NULL, ctx, &view));
            assert_true(two_four);
            src.rows = 8;
            assert_ok(ctx, s24_tile_mask(full, ctx, &src, tile_selects[r], 0));
            assert_memory_equal(mask, full, (size_t)(rows * K));
        }
    ctx_off(&h, ctx);
}

/* transpose makes what a transposed copy would, however it is selected. */
static void test_transposed(void **state)
{
    (void)state;
    enum { N = 260, K = 21 };
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 23;
    for (int d = 0; d < TWO_FOUR_DTYPES; d++)
        for (int select = S24_SELECT_STRICT; select <= S24_SELECT_MVUE24; select++) {
            s24_dtype dtype = two_four_dtypes[d];
            size_t bytes = s24_dtype_bytes(dtype);
            void *data = random_dense(dtype, K, N, N, select == S24_SELECT_STRICT, &seed);
            void *source = turned(data, bytes, K, N, N); /* [N, K] */
            uint8_t *mask = random_dense(S24_I8, K, N, N, 1, &seed);
            uint8_t *source_mask = turned(mask, 1, K, N, N);
            s24_matrix_opts opts = {
                .size = sizeof opts,
                .select = (s24_select)select,
                .mask = mask,
                .seed = 9,
                .dtype = dtype == S24_I8 && select == S24_SELECT_MVUE24 ? S24_F32 : 0};
            if (dtype != S24_F32) opts.dtype = S24_F32; /* MVUE24 may leave a narrow range */
            s24_dense src = {data, dtype, K, N, 0};
            s24_matrix *expected = make(ctx, &src, &opts);
            src = (s24_dense){source, dtype, N, K, 0};
            opts.transpose = 1;
            opts.mask = source_mask;
            s24_matrix *w = make(ctx, &src, &opts);
            same_matrix(expected, w);
            s24_matrix_destroy(expected);
            s24_matrix_destroy(w);
            free(source_mask);
            free(mask);
            free(source);
            free(data);
        }
    ctx_off(&h, ctx);
}

static void test_refusals(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[8 * 8];
    uint8_t mask[64];
    int two_four;
    s24_bad_group bad;
    s24_matrix *w, *wt;
    for (int i = 0; i < 64; i++)
        data[i] = (float)(i % 8 / 2 % 2); /* 2:4 along k, not along n */
    s24_dense src = {data, S24_F32, 8, 8, 0};
    assert_ok(ctx, s24_check_along_n(&two_four, &bad, ctx, &src));
    assert_true(!two_four && bad.row == 0 && bad.col == 2 && bad.nonzeros == 4);
    assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR, "not 2:4 along n: column 2, rows 0 to 3",
                   s24_matrix_create_pair(&w, &wt, ctx, &src, NULL));
    assert_true(!w && !wt);
    for (int i = 0; i < 64; i++)
        mask[i] = i % 4 < 2;
    s24_matrix_opts opts = {.size = sizeof opts, .select = S24_SELECT_MASK, .mask = mask};
    assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR, "mask is not 2:4 along n: column 0, rows 0 to 3",
                   s24_matrix_create_pair(&w, &wt, ctx, &src, &opts));
    opts.select = S24_SELECT_MAGNITUDE;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "a pair is made by",
                   s24_matrix_create_pair(&w, &wt, ctx, &src, &opts));
    assert_int_equal(s24_matrix_create_pair(NULL, &wt, ctx, &src, &opts), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_matrix_create_pair(&w, NULL, ctx, &src, &opts), S24_ERROR_ARGUMENT);
    assert_int_equal(s24_matrix_create_pair(&w, &wt, NULL, &src, &opts), S24_ERROR_ARGUMENT);
    opts.select = S24_SELECT_TILE_BEST;
    src.rows = 6;
    assert_refused(ctx, S24_ERROR_SHAPE, "6 rows; its transpose needs",
                   s24_matrix_create_pair(&w, &wt, ctx, &src, &opts));
    opts.transpose = 2;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "transpose is 2",
                   s24_matrix_create(&w, ctx, &src, &opts));
    assert_refused(ctx, S24_ERROR_ARGUMENT, "expected one of S24_SELECT_TILE_*",
                   s24_tile_mask(mask, ctx, &src, S24_SELECT_MAGNITUDE, 0));
    src.rows = 8;
    opts.transpose = 0;
    int64_t fails = 0, before = h.calls;
    s24_status status = S24_ERROR_MEMORY;
    for (; status == S24_ERROR_MEMORY; fails++) { /* every allocation fails once */
        h.calls = before;
        h.fail_at = before + 1 + fails;
        status = s24_matrix_create_pair(&w, &wt, ctx, &src, &opts);
    }
    assert_int_equal(status, S24_OK);
    assert_int_equal(fails, 6); /* the mask, two matrices with their handles, and none */
    h.fail_at = 0;
    s24_matrix_destroy(w);
    s24_matrix_destroy(wt);
    ctx_off(&h, ctx);
}

/* ---- golden vectors -------------------------------------------------------------------------- */

static float element(const mini_tensor *t, int64_t i)
{
    return s24i_load_f32(t->data, t->dtype, i);
}

/* What PyTorch kept, and its packed values group by group: an underfilled one may have its zero
   first. */
static void check_torch(s24_ctx *ctx, const mini_file *file, const char *dtype, const char *rule,
                        s24_select select)
{
    char name[96];
    s24_matrix *w, *wt;
    snprintf(name, sizeof name, "%s.dense", dtype);
    const mini_tensor dense = mini_get(file, name);
    snprintf(name, sizeof name, "%s.%s.pruned", dtype, rule);
    const mini_tensor pruned = mini_get(file, name);
    const int64_t n = dense.shape[0], k = dense.shape[1];
    s24_dense src = {(void *)(uintptr_t)dense.data, dense.dtype, n, k, 0};
    s24_matrix_opts opts = {.size = sizeof opts, .select = select};
    assert_ok(ctx, s24_matrix_create_pair(&w, &wt, ctx, &src, &opts));
    float *back = dense_of(ctx, w), *turned_back = dense_of(ctx, wt);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++) {
            assert_true(back[r * k + c] == element(&pruned, r * k + c));
            assert_true(turned_back[c * n + r] == element(&pruned, r * k + c));
        }
    snprintf(name, sizeof name, "%s.%s.cutlass.packed", dtype, rule);
    const mini_tensor packed = mini_get(file, name);
    snprintf(name, sizeof name, "%s.%s.cutlass.packed_t", dtype, rule);
    const mini_tensor packed_t = mini_get(file, name);
    const s24_matrix *ours[2] = {w, wt};
    const mini_tensor *their_values[2] = {&packed, &packed_t};
    for (int64_t i = 0; i < n * k; i += 4)
        for (int side = 0; side < 2; side++) {
            const mini_tensor *t = their_values[side];
            const void *values = s24_matrix_values(ours[side]);
            float first = s24i_load_f32(values, dense.dtype, i / 2);
            float second = s24i_load_f32(values, dense.dtype, i / 2 + 1);
            assert_true(first + second == element(t, i / 2) + element(t, i / 2 + 1));
        }
    free(back);
    free(turned_back);
    s24_matrix_destroy(w);
    s24_matrix_destroy(wt);
}

static void test_torch(void **state)
{
    (void)state;
    char path[4096];
    if (!golden_path(path, sizeof path, "formats/torch_tile.safetensors")) SKIP_WITHOUT(path);
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    mini_file file = mini_open(path);
    for (int d = 0; d < 2; d++) {
        const char *dtype = d ? "bf16" : "f16";
        check_torch(ctx, &file, dtype, "largest_abs_values_greedy", S24_SELECT_TILE_GREEDY);
        check_torch(ctx, &file, dtype, "largest_values_greedy", S24_SELECT_TILE_SIGNED);
        check_torch(ctx, &file, dtype, "causal1122", S24_SELECT_TILE_CAUSAL1122);
    }
    mini_close(&file);
    ctx_off(&h, ctx);
}

/* Σ|w| of every tile equal to theirs, the mask but for ties of those sums. */
static void test_by4(void **state)
{
    (void)state;
    char path[4096], name[64];
    if (!golden_path(path, sizeof path, "train/by4_pretrain.safetensors")) SKIP_WITHOUT(path);
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    mini_file file = mini_open(path);
    const mini_tensor theirs = mini_get(&file, "transposable.patterns");
    for (int i = 0; i < PATTERNS * 16; i++)
        assert_int_equal(((const uint8_t *)theirs.data)[i],
                         patterns[i / 16][i % 16 / 4] >> i % 4 & 1);
    for (int d = 0; d < 2; d++) {
        snprintf(name, sizeof name, "transposable.%s.weight", d ? "bf16" : "f16");
        const mini_tensor weight = mini_get(&file, name);
        snprintf(name, sizeof name, "transposable.%s.mask", d ? "bf16" : "f16");
        const mini_tensor mask = mini_get(&file, name);
        const int64_t n = weight.shape[0], k = weight.shape[1];
        s24_dense src = {(void *)(uintptr_t)weight.data, weight.dtype, n, k, 0};
        uint8_t *ours = malloc((size_t)(n * k));
        int differing = 0;
        assert_ok(ctx, s24_tile_mask(ours, ctx, &src, S24_SELECT_TILE_BEST, 0));
        for (int64_t t = 0; t < n * k / 16; t++) {
            double sums[2] = {0, 0};
            int differs = 0;
            for (int i = 0; i < 16; i++) {
                int64_t at = (t / (k / 4) * 4 + i / 4) * k + t % (k / 4) * 4 + i % 4;
                double size = fabs((double)element(&weight, at));
                int kept = ((const uint8_t *)mask.data)[at] != 0;
                sums[0] += ours[at] ? size : 0;
                sums[1] += kept ? size : 0;
                differs |= ours[at] != kept;
            }
            assert_true(sums[0] >= sums[1] * (1 - 1e-6));
            differing += differs;
        }
        print_message("%s: %d of %d tiles chosen otherwise, with sums no smaller\n", name,
                      differing, (int)(n * k / 16));
        assert_true(differing <= n * k / 16 / 50);
        free(ours);
    }
    mini_close(&file);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network),      cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_known_tiles),  cmocka_unit_test(test_best_of_all),
        cmocka_unit_test(test_nonfinite),    cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_missing_rows), cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_torch),
        cmocka_unit_test(test_by4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
