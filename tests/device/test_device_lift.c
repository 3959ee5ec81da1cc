// SPDX-License-Identifier: Apache-2.0
/*
 * Lifted matrices on a device: tokens with their columns repeated, bit for bit, and a matrix put
 * back together. Says in a line where there is no GPU; what is refused is asked of a device that is
 * none, too.
 */
#include "device_support.h"

#include "device/device_train.h"
#include "op/op.h"

static const int lifts[] = {8, 6, 16, 32, -8, -64};

static int64_t cols_of(int lift, int64_t times)
{
    return lift < 0 ? 64 - lift + 8 * times : (int64_t)(lift % 8 ? 8 : 1) * lift * 2 * times;
}

static void *fetch(gpu *g, const void *there, size_t bytes)
{
    void *host = malloc(bytes);
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, host, there, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    return host;
}

/* x [rows, cols] there against the CPU's own lines, with a number of poison after. */
static void check_tokens(gpu *g, int64_t rows, int64_t cols, int lift)
{
    const int64_t lifted = s24_lifted_cols(cols, lift);
    const size_t bytes = (size_t)(rows * lifted) * 2;
    array x = array_make(g, rows * cols, 1);
    uint16_t *bits = malloc((size_t)(rows * cols) * 2), *expected = malloc(bytes);
    void *to = poisoned(g, bytes + 16);
    const s24_device_train_lift_args args = {.size = sizeof args,
                                             .dtype = g->dtype,
                                             .rows = rows,
                                             .cols = cols,
                                             .lift = lift,
                                             .to = to,
                                             .from = x.there};
    assert_ok(g->ctx, s24_convert(bits, g->dtype, x.host, S24_F32, rows * cols));
    const s24_dense tokens = {bits, g->dtype, rows, cols, 0};
    s24i_lift_tokens(expected, g->ctx, &tokens, lift);
    assert_ok(g->ctx, s24_device_train_lift(g->ctx, g->device, &args));
    uint16_t *got = fetch(g, to, bytes + 16);
    assert_memory_equal(got, expected, bytes);
    for (int i = 0; i < 8; i++)
        assert_int_equal(got[bytes / 2 + (size_t)i], 0xffff);
    free(got);
    free(bits);
    free(expected);
    release(g, to);
    array_free(g, &x);
}

static void test_tokens(void **state)
{
    gpu g;
    (void)state;
    if (!gpu_here(&g)) return;
    static const s24_dtype dtypes[] = {S24_F16, S24_BF16};
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof lifts / sizeof *lifts; i++) {
            g.dtype = dtypes[d];
            check_tokens(&g, 1, cols_of(lifts[i], 1), lifts[i]);
            check_tokens(&g, 37, cols_of(lifts[i], 3), lifts[i]);
            check_tokens(&g, 1500, cols_of(lifts[i], 7), lifts[i]);
        }
    gpu_end(&g);
}

/* A matrix with as many non-zeros as fit, among them such as become zero with a sign. */
static void check_back(gpu *g, int64_t rows, int64_t cols, int lift)
{
    const int64_t count = rows * cols, lifted = s24_lifted_cols(cols, lift);
    const int group = lift < 0 ? 4 : lift;
    array w = array_make(g, count, 1);
    uint16_t *bits = malloc((size_t)count * 2), *flat = malloc((size_t)(rows * lifted) * 2);
    s24_matrix *matrix;
    for (int64_t i = 0; i < count; i++) {
        const int64_t col = i % cols + (lift < 0 ? lift : 0);
        const int64_t zero = (i / cols * 7919 + col / group) % (group - 1);
        if (col >= 0 && (col % group == zero || col % group == group - 1)) w.host[i] = 0;
    }
    assert_ok(g->ctx, s24_convert(bits, g->dtype, w.host, S24_F32, count));
    const s24_dense src = {bits, g->dtype, rows, cols, 0}, dst = {flat, g->dtype, rows, lifted, 0};
    assert_ok(g->ctx, s24_matrix_lift(&matrix, g->ctx, &src, lift));
    assert_ok(g->ctx, s24_matrix_to_dense(g->ctx, &dst, matrix));
    void *from = upload(g, flat, (size_t)(rows * lifted) * 2), *to = poisoned(g, (size_t)count * 2);
    const s24_device_train_lift_args args = {.size = sizeof args,
                                             .dtype = g->dtype,
                                             .rows = rows,
                                             .cols = cols,
                                             .lift = lift,
                                             .back = 1,
                                             .to = to,
                                             .from = from};
    assert_ok(g->ctx, s24_device_train_lift(g->ctx, g->device, &args));
    uint16_t *got = fetch(g, to, (size_t)count * 2);
    for (int64_t i = 0; i < count; i++)
        if ((got[i] | bits[i]) & 0x7fff) assert_int_equal(got[i], bits[i]);
    free(got);
    free(bits);
    free(flat);
    release(g, to);
    release(g, from);
    s24_matrix_destroy(matrix);
    array_free(g, &w);
}

static void test_back(void **state)
{
    gpu g;
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (size_t i = 0; i < sizeof lifts / sizeof *lifts; i++) {
        check_back(&g, 16, cols_of(lifts[i], 2), lifts[i]);
        check_back(&g, 301, cols_of(lifts[i], 5), lifts[i]);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    s24_ctx *ctx;
    s24_device *device;
    char *memory = aligned_alloc(16, 256);
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    const s24_device_train_lift_args good = {.size = sizeof good,
                                             .dtype = S24_BF16,
                                             .rows = 1,
                                             .cols = 16,
                                             .lift = 8,
                                             .to = memory + 128,
                                             .from = memory};
    assert_ok(ctx, s24_device_train_lift(ctx, device, &good));
    s24_device_train_lift_args bad = good;
    bad.cols = 8; /* 12 lifted ones */
    assert_refused(ctx, S24_ERROR_SHAPE, "8 columns and a lift of 8",
                   s24_device_train_lift(ctx, device, &bad));
    bad = good;
    bad.lift = 7;
    assert_refused(ctx, S24_ERROR_SHAPE, "a lift of 7", s24_device_train_lift(ctx, device, &bad));
    bad = good;
    bad.to = memory;
    assert_refused(ctx, S24_ERROR_ARGUMENT, "to is from", s24_device_train_lift(ctx, device, &bad));
    bad = good;
    bad.dtype = S24_F32;
    assert_refused(ctx, S24_ERROR_DTYPE, "f32", s24_device_train_lift(ctx, device, &bad));
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens), cmocka_unit_test(test_back),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
