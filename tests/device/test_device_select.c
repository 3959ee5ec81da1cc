// SPDX-License-Identifier: Apache-2.0
/*
 * Selecting and packing on a GPU: the bytes of the CPU's functions, over every way to select,
 * random numbers of every exponent, ties, zeros of both signs, NaN and Inf, and shapes at the edges
 * of blocks and tiles. Skipped in a line where there is no GPU.
 */
#include "support.h"

#include <math.h>

#include "device_support.h"

/* The device and a context of one thread; NULL after a line where there is no GPU. */
static s24_device *device_on_one_thread(s24_ctx **ctx)
{
    gpu g = {0};
    *ctx = NULL;
    if (!gpu_here(&g)) return NULL;
    *ctx = g.ctx;
    s24_ctx_set_threads(g.ctx, 1);
    return g.device;
}

static void *device_upload(s24_ctx *ctx, s24_device *device, const void *host, size_t bytes)
{
    gpu g = {.ctx = ctx, .device = device};
    return upload(&g, host, bytes);
}

static const int64_t shapes[][2] = {{1, 4},    {4, 4},     {3, 12},     {64, 64},   {68, 60},
                                    {66, 132}, {128, 260}, {132, 1000}, {200, 196}, {300, 1004}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

enum { ANY, TIES, SMALL, NONFINITE, KINDS };

/* [n, k] of leading dimension ld. */
static void *make_source(s24_dtype dtype, int64_t n, int64_t k, int64_t ld, int kind, int two_four,
                         uint64_t *seed)
{
    char *data = random_dense(dtype, n, k, ld, two_four, seed);
    const size_t bytes = s24_dtype_bytes(dtype);
    for (int64_t i = 0; i < n * k; i++) {
        char *at = data + (size_t)(i / k * ld + i % k) * bytes;
        float v = (float)((int)(test_random(seed) % 5) - 2), old;
        assert_int_equal(s24_convert(&old, S24_F32, at, dtype, 1), S24_OK);
        if (kind == SMALL) v = test_uniform(seed);
        if (kind == NONFINITE && test_random(seed) % 4)
            v = test_uniform(seed);
        else if (kind == NONFINITE)
            v = test_random(seed) % 3 == 0 ? NAN : test_random(seed) % 2 ? INFINITY : -INFINITY;
        if (kind == ANY) v = old;
        if (two_four && old == 0) v = 0;
        if (v == 0 && test_random(seed) % 2) v = -v;
        assert_int_equal(s24_convert(at, dtype, &v, S24_F32, 1), S24_OK);
        if (isnan(v) && bytes == 2) /* NaN of several payloads and signs */
            *(uint16_t *)(void *)at |= (uint16_t)(0x8000u * (test_random(seed) % 2) + 1);
    }
    return data;
}

static void assert_same(const s24_matrix *got, const s24_matrix *expected, const char *what)
{
    const size_t indices =
        (size_t)(s24_matrix_rows(expected) * ((s24_matrix_cols(expected) + 7) / 8));
    const size_t values = s24_matrix_bytes(expected) - indices;
    assert_int_equal(s24_matrix_rows(got), s24_matrix_rows(expected));
    assert_int_equal(s24_matrix_cols(got), s24_matrix_cols(expected));
    if (memcmp(s24_matrix_indices(got), s24_matrix_indices(expected), indices) ||
        memcmp(s24_matrix_values(got), s24_matrix_values(expected), values)) {
        print_message("%s\n", what);
        assert_memory_equal(s24_matrix_indices(got), s24_matrix_indices(expected), indices);
        assert_memory_equal(s24_matrix_values(got), s24_matrix_values(expected), values);
    }
}

typedef struct source {
    s24_ctx *ctx;
    s24_device *device;
    s24_dense host, there;
    uint8_t *mask, *mask_there;
    s24_matrix_opts opts; /* the host's mask */
    char what[160];
} source;

static source source_make(s24_ctx *ctx, s24_device *device, s24_dtype dtype, const int64_t *shape,
                          s24_select select, int kind, int pair, uint64_t *seed)
{
    const int64_t n = shape[0], k = shape[1], ld = kind % 2 ? k + 3 : k;
    const size_t bytes = (size_t)(n * ld) * s24_dtype_bytes(dtype);
    source s = {.ctx = ctx, .device = device};
    void *data = make_source(dtype, n, k, ld, kind, select == S24_SELECT_STRICT, seed);
    s.host = (s24_dense){data, dtype, n, k, ld};
    s.mask = random_dense(S24_I8, n, k, k, 1, seed);
    s.opts = (s24_matrix_opts){.size = sizeof s.opts,
                               .select = select,
                               .mask = select == S24_SELECT_MASK ? s.mask : NULL,
                               .seed = test_random(seed),
                               .allow_nonfinite = kind == NONFINITE};
    if (pair) { /* 2:4 both ways */
        s24_dense view = {s.mask, S24_I8, n, k, 0};
        assert_ok(ctx, s24_tile_mask(s.mask, ctx, &view, S24_SELECT_TILE_GREEDY, 0));
        if (select == S24_SELECT_STRICT)
            assert_ok(ctx, s24_mask_apply(ctx, &s.host, &s.host, s.mask));
    }
    s.there = s.host;
    s.there.data = device_upload(ctx, device, data, bytes);
    s.mask_there = device_upload(ctx, device, s.mask, (size_t)(n * k));
    snprintf(s.what, sizeof s.what, "%s [%d, %d], select %d, kind %d%s", s24_dtype_name(dtype),
             (int)n, (int)k, (int)select, kind, pair ? ", a pair" : "");
    return s;
}

static void source_free(source *s)
{
    assert_ok(s->ctx, s24_device_free(s->ctx, s->device, s->there.data, NULL));
    assert_ok(s->ctx, s24_device_free(s->ctx, s->device, s->mask_there, NULL));
    free(s->host.data);
    free(s->mask);
}

static s24_matrix *fetched(source *s, s24_device_weight *w)
{
    s24_matrix *matrix;
    assert_ok(s->ctx, s24_device_weight_to_matrix(&matrix, s->ctx, s->device, w, NULL));
    s24_device_weight_destroy(w);
    return matrix;
}

/* In the GPU's own order, and in the canonical one. */
static void check_one(source *s)
{
    s24_matrix *expected, *got;
    s24_device_weight *w;
    s24_status status = s24_matrix_create(&expected, s->ctx, &s->host, &s->opts);
    s24_matrix_opts there = s->opts;
    there.mask = s->mask_there;
    if (status != S24_OK) { /* MVUE24 beyond f16's range, or of NaN */
        assert_int_equal(status, S24_ERROR_NOT_FINITE);
        if (s24_dtype_bytes(s->host.dtype) == 2)
            assert_int_equal(
                s24_device_weight_from_dense(&w, s->ctx, s->device, &s->there, &there, NULL),
                status);
        assert_int_equal(s24_device_matrix_create(&got, s->ctx, s->device, &s->there, &there, NULL),
                         status);
        return;
    }
    if (s24_dtype_bytes(s->host.dtype) == 2) {
        assert_ok(s->ctx,
                  s24_device_weight_from_dense(&w, s->ctx, s->device, &s->there, &there, NULL));
        got = fetched(s, w);
        assert_same(got, expected, s->what);
        s24_matrix_destroy(got);
    }
    assert_ok(s->ctx, s24_device_matrix_create(&got, s->ctx, s->device, &s->there, &there, NULL));
    assert_same(got, expected, s->what);
    s24_matrix_destroy(got);
    assert_ok(s->ctx, s24_device_matrix_create(&got, s->ctx, s->device, &s->host, &s->opts, NULL));
    assert_same(got, expected, s->what);
    s24_matrix_destroy(got);
    s24_matrix_destroy(expected);
}

static void test_one_direction(void **state)
{
    (void)state;
    s24_ctx *ctx;
    uint64_t seed = 77;
    s24_device *device = device_on_one_thread(&ctx);
    for (int d = 0; device && d < TWO_FOUR_DTYPES; d++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int select = S24_SELECT_STRICT; select <= S24_SELECT_TILE_CAUSAL1122; select++)
                for (int kind = 0; kind < KINDS; kind++) {
                    s24_dtype dtype = two_four_dtypes[d];
                    if (kind == NONFINITE && dtype == S24_I8) continue;
                    if (select == S24_SELECT_MVUE24 && s24_dtype_bytes(dtype) == 1) continue;
                    source s = source_make(ctx, device, dtype, shapes[shape], (s24_select)select,
                                           kind, 0, &seed);
                    check_one(&s);
                    source_free(&s);
                }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Made at once and made again in place. */
static void check_pair(source *s)
{
    s24_matrix *expected[2], *got;
    s24_device_weight *w[2];
    s24_matrix_opts there = s->opts;
    there.mask = s->mask_there;
    assert_ok(s->ctx,
              s24_matrix_create_pair(&expected[0], &expected[1], s->ctx, &s->host, &s->opts));
    assert_ok(s->ctx, s24_device_weight_pair_from_dense(&w[0], &w[1], s->ctx, s->device, &s->there,
                                                        &there, NULL));
    for (int turn = 0; turn < 2; turn++) {
        for (int side = 0; side < 2; side++) {
            assert_ok(s->ctx, s24_device_weight_to_matrix(&got, s->ctx, s->device, w[side], NULL));
            assert_same(got, expected[side], s->what);
            s24_matrix_destroy(got);
        }
        if (turn) break;
        s24_dense other = s->there; /* something else between */
        s24_matrix_opts best = {.size = sizeof best, .select = S24_SELECT_TILE_SIGNED};
        assert_ok(s->ctx, s24_device_weight_update(s->ctx, w[0], w[1], &other, &best, NULL));
        assert_ok(s->ctx, s24_device_weight_update(s->ctx, w[0], w[1], &s->there, &there, NULL));
        assert_ok(s->ctx, s24_device_weight_verify(s->ctx, w[0], NULL));
    }
    for (int side = 0; side < 2; side++) {
        s24_device_weight_destroy(w[side]);
        s24_matrix_destroy(expected[side]);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    static const s24_select selects[] = {S24_SELECT_STRICT,      S24_SELECT_MASK,
                                         S24_SELECT_TILE_BEST,   S24_SELECT_TILE_GREEDY,
                                         S24_SELECT_TILE_SIGNED, S24_SELECT_TILE_CAUSAL1122};
    s24_ctx *ctx;
    uint64_t seed = 99;
    s24_device *device = device_on_one_thread(&ctx);
    for (int d = 0; device && d < 2; d++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (size_t r = 0; r < sizeof selects / sizeof *selects; r++)
                for (int kind = 0; kind < KINDS; kind++) {
                    if (shapes[shape][0] % 4) continue;
                    source s = source_make(ctx, device, d ? S24_BF16 : S24_F16, shapes[shape],
                                           selects[r], kind, 1, &seed);
                    check_pair(&s);
                    source_free(&s);
                }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void test_masks(void **state)
{
    (void)state;
    s24_ctx *ctx;
    uint64_t seed = 55;
    s24_device *device = device_on_one_thread(&ctx);
    for (int d = 0; device && d < TWO_FOUR_DTYPES; d++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int select = S24_SELECT_MAGNITUDE; select <= S24_SELECT_TILE_CAUSAL1122;
                 select++) {
                const int64_t n = shapes[shape][0], k = shapes[shape][1];
                if (select == S24_SELECT_MASK || select == S24_SELECT_MVUE24) continue;
                source s = source_make(ctx, device, two_four_dtypes[d], shapes[shape],
                                       (s24_select)select, shape % 3, 0, &seed);
                const size_t bytes = (size_t)(n * s.host.ld) * s24_dtype_bytes(s.host.dtype),
                             count = (size_t)(n * k);
                uint8_t *expected = malloc(count), *got = malloc(count);
                char *back = malloc(bytes);
                void *work;
                assert_ok(ctx, s24_device_alloc(&work, ctx, device, 32, NULL));
                if (select == S24_SELECT_MAGNITUDE)
                    assert_ok(ctx, s24_magnitude_mask(expected, ctx, &s.host, 0));
                else
                    assert_ok(ctx, s24_tile_mask(expected, ctx, &s.host, (s24_select)select, 0));
                assert_ok(ctx, s24_device_mask(s.mask_there, ctx, device, &s.there,
                                               (s24_select)select, work, NULL));
                assert_ok(ctx, s24_device_copy(ctx, device, got, s.mask_there, count, NULL));
                assert_ok(ctx, s24_device_wait(ctx, device, NULL));
                assert_memory_equal(got, expected, count);
                assert_ok(ctx, s24_device_mask_apply(ctx, device, &s.there, &s.there, s.mask_there,
                                                     NULL));
                assert_ok(ctx, s24_device_copy(ctx, device, back, s.there.data, bytes, NULL));
                assert_ok(ctx, s24_device_wait(ctx, device, NULL));
                assert_ok(ctx, s24_mask_apply(ctx, &s.host, &s.host, expected));
                assert_memory_equal(back, s.host.data, bytes);
                assert_ok(ctx, s24_device_free(ctx, device, work, NULL));
                free(back);
                free(got);
                free(expected);
                source_free(&s);
            }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* The criteria that only choose: weights and reports as the CPU has them. */
static void test_pruning(void **state)
{
    (void)state;
    enum { N = 70, K = 132 };
    s24_ctx *ctx;
    uint64_t seed = 12;
    s24_device *device = device_on_one_thread(&ctx);
    const char *criterion;
    for (int c = 0; device && (criterion = s24_criterion_name(c)); c++) {
        if (s24_criterion_needs_stats(criterion) || s24_criterion_needs_gradients(criterion))
            continue;
        float *w[2] = {make_source(S24_F32, N, K, K, SMALL, 0, &seed), malloc(N * K * sizeof **w)};
        s24_prune_report report[2];
        int unsupported = 0; /* on a device */
        memcpy(w[1], w[0], N * K * sizeof **w);
        for (int turn = 0; turn < 2; turn++) {
            const s24_dense dense = {w[turn], S24_F32, N, K, 0};
            const s24_prune_opts opts = {
                .size = sizeof opts, .criterion = criterion, .device = turn ? device : NULL};
            const s24_status status = s24_prune(&report[turn], ctx, &dense, NULL, &opts);
            unsupported = turn && status == S24_ERROR_UNSUPPORTED;
            assert_true(unsupported || status == S24_OK);
        }
        if (!unsupported) assert_memory_equal(w[0], w[1], N * K * sizeof **w);
        if (!unsupported) assert_memory_equal(&report[0], &report[1], sizeof *report);
        free(w[0]);
        free(w[1]);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void test_checks_and_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device = device_on_one_thread(&ctx);
    float data[8 * 64] = {0};
    uint16_t half[8 * 64] = {0};
    s24_dense src = {data, S24_F32, 8, 64, 0}, narrow = {half, S24_BF16, 8, 64, 0};
    s24_matrix_opts opts = {.size = sizeof opts};
    s24_device_weight *w = NULL, *wt = NULL;
    s24_matrix *matrix;
    s24_bad_group bad;
    int two_four;
    if (device) {
        assert_ok(ctx, s24_device_check(&two_four, &bad, ctx, device, &src, NULL));
        assert_true(two_four);
        data[3 * 64 + 41] = data[3 * 64 + 42] = data[3 * 64 + 43] = 1;
        data[5 * 64] = data[5 * 64 + 1] = data[5 * 64 + 2] = data[5 * 64 + 3] = NAN;
        assert_ok(ctx, s24_device_check(&two_four, &bad, ctx, device, &src, NULL));
        assert_true(!two_four && bad.row == 3 && bad.col == 40 && bad.nonzeros == 3);
        assert_refused(ctx, S24_ERROR_NOT_FINITE, "row 5, column 0",
                       s24_device_matrix_create(&matrix, ctx, device, &src, &opts, NULL));
        opts.allow_nonfinite = 1;
        assert_refused(ctx, S24_ERROR_NOT_TWO_FOUR, "row 3, columns 40 to 43",
                       s24_device_matrix_create(&matrix, ctx, device, &src, &opts, NULL));
        opts.transpose = 1;
        assert_refused(ctx, S24_ERROR_UNSUPPORTED, "neither turns nor converts",
                       s24_device_matrix_create(&matrix, ctx, device, &src, &opts, NULL));
        opts = (s24_matrix_opts){.size = sizeof opts, .select = S24_SELECT_MAGNITUDE};
        assert_refused(
            ctx, S24_ERROR_ARGUMENT, "a pair is made by",
            s24_device_weight_pair_from_dense(&w, &wt, ctx, device, &narrow, &opts, NULL));
        opts.select = S24_SELECT_STRICT;
        for (int r = 1; r < 4; r++)
            half[r * 64 + 7] = 0x3f80; /* 2:4 along k alone */
        narrow.data = device_upload(ctx, device, half, sizeof half);
        assert_refused(
            ctx, S24_ERROR_NOT_TWO_FOUR, "column 7, rows 0 to 3",
            s24_device_weight_pair_from_dense(&w, &wt, ctx, device, &narrow, &opts, NULL));
        assert_ok(ctx, s24_device_weight_from_dense(&w, ctx, device, &narrow, &opts, NULL));
        narrow.rows = 6;
        assert_refused(ctx, S24_ERROR_SHAPE, "expected [6, 64]",
                       s24_device_weight_update(ctx, w, NULL, &narrow, &opts, NULL));
        narrow.rows = 8;
        opts.select = S24_SELECT_MASK;
        assert_refused(ctx, S24_ERROR_ARGUMENT, "mask is NULL",
                       s24_device_weight_update(ctx, w, NULL, &narrow, &opts, NULL));
        s24_device_weight_destroy(w);
        assert_ok(ctx, s24_device_free(ctx, device, narrow.data, NULL));
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_direction),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_pruning),
        cmocka_unit_test(test_checks_and_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
