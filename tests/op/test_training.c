// SPDX-License-Identifier: Apache-2.0
/*
 * The steps of training in 2:4 apart from its products, against what the authors of 2by4 computed,
 * and with small numbers worked by hand.
 */
#include "support.h"

#include <math.h>

#include "core_support.h"
#include "op/op.h"
#include "safetensors_mini.h"

static void test_masks(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    uint64_t seed = 7;
    enum { N = 5, K = 13, LD = 17 };
    for (int d = 0; d < TWO_FOUR_DTYPES; d++) {
        s24_dtype dtype = two_four_dtypes[d];
        char *data = random_dense(dtype, N, 16, LD, 0, &seed), *to = malloc(N * LD * 4);
        uint8_t mask[N * K];
        for (int i = 0; i < N * K; i++)
            mask[i] = (uint8_t)(test_random(&seed) % 3);
        memset(to, 0x5a, N * LD * 4);
        s24_dense src = {data, dtype, N, K, LD}, dst = {to, dtype, N, K, LD};
        assert_ok(ctx, s24_mask_apply(ctx, &dst, &src, mask));
        for (int i = 0; i < N * LD; i++) {
            uint32_t got = 0, expected = 0x5a5a5a5au;
            size_t bytes = s24_dtype_bytes(dtype);
            memcpy(&got, to + (size_t)i * bytes, bytes);
            if (i % LD < K) expected = 0;
            if (i % LD < K && mask[i / LD * K + i % LD])
                memcpy(&expected, data + (size_t)i * bytes, bytes);
            assert_memory_equal(&got, &expected, bytes);
        }
        assert_ok(ctx, s24_mask_apply(ctx, &src, &src, mask));
        for (int r = 0; r < N; r++)
            assert_memory_equal(s24i_dense_at(&src, r, 0), s24i_dense_at(&dst, r, 0),
                                K * s24_dtype_bytes(dtype));
        dst.dtype = dtype == S24_F32 ? S24_F16 : S24_F32;
        dst.data = malloc(N * LD * 4);
        assert_refused(ctx, S24_ERROR_DTYPE, "for both", s24_mask_apply(ctx, &dst, &src, mask));
        free(dst.data);
        free(data);
        free(to);
    }
    const uint8_t before[6] = {1, 0, 1, 0, 7, 1}, after[6] = {1, 1, 0, 0, 1, 0};
    int64_t flips;
    assert_ok(ctx, s24_mask_flips(&flips, ctx, before, after, 6));
    assert_int_equal(flips, 3);
    assert_refused(ctx, S24_ERROR_ARGUMENT, "after is NULL",
                   s24_mask_flips(&flips, ctx, before, NULL, 6));
    assert_refused(ctx, S24_ERROR_SHAPE, "count is -1",
                   s24_mask_flips(&flips, ctx, before, after, -1));
    ctx_off(&h, ctx);
}

static void test_soft_threshold(void **state)
{
    (void)state;
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 1);
    float data[12] = {0.9f, -0.1f, 0.4f, -0.6f, 2, -2, 1, 2, 0, 0, -0.0f, 0}, to[12];
    uint8_t mask[12];
    s24_dense src = {data, S24_F32, 1, 12, 0}, dst = {to, S24_F32, 1, 12, 0};
    const float expected[12] = {0.5f, 0, 0, -0.2f};
    const uint8_t kept[12] = {1, 0, 0, 1}; /* three of a size: none is above the third */
    assert_ok(ctx, s24_soft_threshold(ctx, &dst, mask, &src, 2.0f));
    for (int i = 0; i < 12; i++)
        assert_float_equal(to[i], 2 * expected[i], 1e-7);
    assert_memory_equal(mask, kept, sizeof kept);
    double scale;
    src.cols = 4;
    assert_ok(ctx, s24_soft_threshold_scale(&scale, ctx, &src));
    assert_float_equal(scale, 57.0f / 29.0f, 1e-6);
    src.data = data + 8;
    assert_ok(ctx, s24_soft_threshold_scale(&scale, ctx, &src));
    assert_float_equal(scale, 1, 0);
    src.dtype = S24_I8;
    assert_refused(ctx, S24_ERROR_DTYPE, "src is i8", s24_soft_threshold_scale(&scale, ctx, &src));
    src.dtype = S24_F32;
    assert_refused(ctx, S24_ERROR_SHAPE, "dst is [1, 12]; expected [1, 4]",
                   s24_soft_threshold(ctx, &dst, NULL, &src, 1));
    ctx_off(&h, ctx);
}

static s24_dense view_of(const mini_tensor *t)
{
    return (s24_dense){(void *)(uintptr_t)t->data, t->dtype, t->shape[0], t->shape[1], 0};
}

static void test_by4(void **state)
{
    (void)state;
    char path[4096];
    if (!golden_path(path, sizeof path, "train/by4_pretrain.safetensors")) SKIP_WITHOUT(path);
    heap h = {0};
    s24_ctx *ctx = ctx_on(&h, 2);
    mini_file file = mini_open(path);
    const mini_tensor weight = mini_get(&file, "weight");
    const mini_tensor mask = mini_get(&file, "sparse24.mask");
    const mini_tensor out = mini_get(&file, "sparse24.out");
    const mini_tensor soft = mini_get(&file, "soft_threshold24.out");
    const mini_tensor soft_mask = mini_get(&file, "soft_threshold24.mask");
    const mini_tensor beta = mini_get(&file, "soft_threshold24.beta");
    const mini_tensor grad = mini_get(&file, "masked_add.grad_in");
    const mini_tensor decayed = mini_get(&file, "masked_add.grad_out_alpha2e-4");
    s24_dense w = view_of(&weight);
    uint8_t *ours = malloc(mask.bytes);
    float *to = malloc(weight.bytes);
    s24_dense dst = {to, S24_F32, w.rows, w.cols, 0};
    const int64_t count = w.rows * w.cols;

    assert_ok(ctx, s24_magnitude_mask(ours, ctx, &w, 0));
    assert_memory_equal(ours, mask.data, mask.bytes);
    assert_ok(ctx, s24_mask_apply(ctx, &dst, &w, ours));
    for (int64_t i = 0; i < count; i++)
        assert_true(to[i] == ((const float *)out.data)[i]);

    assert_ok(ctx, s24_soft_threshold(ctx, &dst, ours, &w, 1));
    for (int64_t i = 0; i < count; i++) {
        assert_true(to[i] == ((const float *)soft.data)[i]);
        if (to[i] != 0) assert_true(ours[i] && ((const uint8_t *)soft_mask.data)[i]);
    }
    double scale;
    assert_ok(ctx, s24_soft_threshold_scale(&scale, ctx, &w));
    assert_float_equal(scale, (double)*(const float *)beta.data, 1e-5);

    memcpy(to, grad.data, grad.bytes);
    assert_ok(ctx, s24_masked_decay(ctx, &dst, &w, mask.data, 2e-4f));
    assert_memory_equal(to, decayed.data, decayed.bytes);
    dst.dtype = S24_F16;
    assert_refused(ctx, S24_ERROR_DTYPE, "grad is f16",
                   s24_masked_decay(ctx, &dst, &w, mask.data, 2e-4f));
    free(to);
    free(ours);
    mini_close(&file);
    ctx_off(&h, ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_soft_threshold),
        cmocka_unit_test(test_by4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
