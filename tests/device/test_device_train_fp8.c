// SPDX-License-Identifier: Apache-2.0
/* Matrices in 8 bits on a device, bit for bit what the CPU rounds, and products of them against
   sums in double. Says in a line where there is no GPU. */
#include "device_train_support.h"

static const int64_t shapes[][2] = {{1, 16}, {5, 32}, {128, 64}, {131, 80}, {515, 768}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What a matrix becomes, and 2^−e. */
static uint8_t *round_here(float *scale, const float *x, int64_t count, s24_dtype to)
{
    uint8_t *bytes = malloc((size_t)count);
    float *scaled = malloc((size_t)count * sizeof *scaled);
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    const int e = s24i_fp8_exponent(most, to == S24_E5M2);
    for (int64_t i = 0; i < count; i++)
        scaled[i] = isfinite(x[i]) ? x[i] * s24i_fp8_power(e) : NAN;
    assert_int_equal(s24_convert(bytes, to, scaled, S24_F32, count), S24_OK);
    *scale = s24i_fp8_power(-e);
    free(scaled);
    return bytes;
}

static void read_bytes(gpu *g, void *to, const void *there, int64_t count)
{
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, to, there, (size_t)count, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
}

/* NaN of either sign is one. */
static int same(uint8_t a, uint8_t b, s24_dtype dtype)
{
    const uint8_t lowest = dtype == S24_E4M3 ? 0x7f : 0x7d;
    return a == b || ((a & 0x7f) >= lowest && (b & 0x7f) >= lowest);
}

static void check(gpu *g, const array *x, int64_t rows, int64_t cols, s24_dtype to)
{
    const int64_t wide = (rows + 15) / 16 * 16;
    float scale, got[2];
    uint8_t *want = round_here(&scale, x->host, rows * cols, to);
    uint8_t *left = malloc((size_t)(rows * cols)), *turned = malloc((size_t)(wide * cols));
    void *to_there = poisoned(g, (size_t)(rows * cols));
    void *turned_there = poisoned(g, (size_t)(wide * cols)), *numbers = poisoned(g, 16);
    void *each_there = poisoned(g, (size_t)rows * sizeof(float));
    DO(g, fp8, .dtype = g->dtype, .to_dtype = to, .rows = rows, .cols = cols, .ld = cols,
       .from = x->there, .to = to_there, .scale = numbers, .each = each_there);
    DO(g, fp8, .dtype = g->dtype, .to_dtype = to, .rows = rows, .cols = cols, .ld = cols,
       .from = x->there, .turned = turned_there, .known = 1, .scale = numbers);
    read_bytes(g, left, to_there, rows * cols);
    read_bytes(g, turned, turned_there, wide * cols);
    read_bytes(g, got, numbers, sizeof got);
    assert_true(got[0] == scale);
    float *each = read_back(g, each_there, S24_F32, rows);
    for (int64_t r = 0; r < rows; r++)
        assert_true(each[r] == scale);
    free(each);
    release(g, each_there);
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t across = i % cols * wide + i / cols;
        if (!same(left[i], want[i], to) || !same(turned[across], want[i], to))
            fail_msg("[%d, %d] at %d: %g is %02x and %02x, expected %02x", (int)rows, (int)cols,
                     (int)i, (double)x->host[i], left[i], turned[across], want[i]);
    }
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = rows; r < wide; r++)
            assert_int_equal(turned[c * wide + r], 0);
    release(g, numbers);
    release(g, turned_there);
    release(g, to_there);
    free(turned);
    free(left);
    free(want);
}

static void test_rounding(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < SHAPES; i++)
        for (int way = 0; way < 4; way++) {
            g.dtype = way % 2 ? S24_F16 : S24_BF16;
            array x = array_make(&g, shapes[i][0] * shapes[i][1], way < 2 ? 3.0f : 1e-4f);
            check(&g, &x, shapes[i][0], shapes[i][1], way < 2 ? S24_E4M3 : S24_E5M2);
            array_free(&g, &x);
        }
    gpu_end(&g);
}

/* Nothing but zeros; one number that is not finite. */
static void test_guards(void **state)
{
    static const float odd[] = {0.0f, INFINITY, NAN, 1e-30f};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            float host[64] = {[17] = odd[i], [18] = i == 0 || i == 3 ? 0.0f : 2.0f};
            uint16_t bits[64];
            assert_ok(g.ctx, s24_convert(bits, g.dtype, host, S24_F32, 64));
            assert_ok(g.ctx, s24_convert(host, S24_F32, bits, g.dtype, 64));
            array x = {64, host, upload(&g, bits, sizeof bits)};
            check(&g, &x, 4, 16, k ? S24_E5M2 : S24_E4M3);
            release(&g, x.there);
        }
    gpu_end(&g);
}

/* y[m,n] (+)= a·bᵀ (+ bias) of operands in 8 bits. */
static void check_product(gpu *g, int64_t m, int64_t n, int64_t k, int adds)
{
    const s24_dtype of_a = adds ? S24_E5M2 : S24_E4M3;
    array a = array_make(g, m * k, 2.0f), b = array_make(g, n * k, 1e-3f);
    array bias = array_make(g, n, 1.0f), y = wide_make(g, m * n, 1.0f);
    void *work = work_memory(g), *a8 = poisoned(g, (size_t)(m * k));
    void *b8 = poisoned(g, (size_t)(n * k)), *scales = poisoned(g, 32);
    float *scale_a = scales, *scale_b = scale_a + 4, here[2];
    uint8_t *bytes[2] = {round_here(&here[0], a.host, m * k, of_a),
                         round_here(&here[1], b.host, n * k, S24_E4M3)};
    float *wide[2] = {malloc((size_t)(m * k) * 4), malloc((size_t)(n * k) * 4)};
    assert_ok(g->ctx, s24_convert(wide[0], S24_F32, bytes[0], of_a, m * k));
    assert_ok(g->ctx, s24_convert(wide[1], S24_F32, bytes[1], S24_E4M3, n * k));
    DO(g, fp8, .dtype = g->dtype, .to_dtype = of_a, .rows = m, .cols = k, .ld = k, .from = a.there,
       .to = a8, .scale = scale_a);
    DO(g, fp8, .dtype = g->dtype, .to_dtype = S24_E4M3, .rows = n, .cols = k, .ld = k,
       .from = b.there, .to = b8, .scale = scale_b);
    const s24_dense out = {adds ? y.there : work, adds ? S24_F32 : g->dtype, m, n, n};
    const s24_dense left = {a8, of_a, m, k, k}, right = {b8, S24_E4M3, n, k, k};
    char *rest = (char *)work + (1 << 20);
    DO(g, product, .y = &out, .a = &left, .b = &right, .transposed_b = 1, .add = adds,
       .bias = adds ? NULL : bias.there, .work = rest,
       .work_bytes = S24_DEVICE_TRAIN_WORK - (1 << 20), .scale_a = scale_a, .scale_b = scale_b);
    float *got = read_back(g, out.data, out.dtype, m * n);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < k; j++) {
            const double part = (double)wide[0][i / n * k + j] * (double)wide[1][i % n * k + j];
            sum += part;
            size += fabs(part);
        }
        const double scale = (double)here[0] * (double)here[1];
        const double added = adds ? (double)y.host[i] : (double)bias.host[i % n];
        const double want = scale * sum + added;
        /* Sums of Hopper's 8-bit products keep some 14 bits until they are added in f32. */
        if (!(fabs(want - (double)got[i]) <=
              1e-3 * scale * size + (adds ? 1e-5 : 1.0 / 128) * (1 + fabs(want))))
            fail_msg("[%d, %d] of %d, %s: %g at %d, expected %g", (int)m, (int)n, (int)k,
                     s24_dtype_name(g->dtype), (double)got[i], (int)i, want);
    }
    free(got);
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        free(wide[i]);
    }
    release(g, scales);
    release(g, b8);
    release(g, a8);
    release(g, work);
    array_free(g, &y);
    array_free(g, &bias);
    array_free(g, &b);
    array_free(g, &a);
}

static void test_products(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int adds = 0; adds < 2; adds++) {
        g.dtype = adds ? S24_F16 : S24_BF16;
        check_product(&g, 1, 16, 16, adds);
        check_product(&g, 35, 48, 64, adds);
        check_product(&g, 128, 192, 512, adds);
        g.dtype = adds ? S24_BF16 : S24_F16;
        check_product(&g, 77, 64, 768, adds);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    void *x = poisoned(&g, 4096), *scale = poisoned(&g, 16);
    REFUSED(&g, S24_ERROR_DTYPE, "to_dtype is i8; expected e4m3 or e5m2", fp8, .dtype = g.dtype,
            .to_dtype = S24_I8, .rows = 4, .cols = 16, .ld = 16, .from = x, .scale = scale);
    REFUSED(&g, S24_ERROR_SHAPE, "columns that 16 divides", fp8, .dtype = g.dtype,
            .to_dtype = S24_E4M3, .rows = 4, .cols = 24, .ld = 24, .from = x, .scale = scale);
    REFUSED(&g, S24_ERROR_ARGUMENT, "scale is NULL", fp8, .dtype = g.dtype, .to_dtype = S24_E4M3,
            .rows = 4, .cols = 16, .ld = 16, .from = x);
    s24_dense y = {x, g.dtype, 16, 16, 16}, a = {x, S24_E4M3, 16, 16, 16};
    s24_dense b = {x, S24_E5M2, 16, 16, 16};
    REFUSED(&g, S24_ERROR_UNSUPPORTED, "each with a scale", product, .y = &y, .a = &a, .b = &b,
            .transposed_b = 1);
    a.dtype = S24_E5M2;
    REFUSED(&g, S24_ERROR_DTYPE, "e4m3 of a or b", product, .y = &y, .a = &a, .b = &b,
            .transposed_b = 1, .scale_a = scale, .scale_b = scale);
    a = (s24_dense){x, S24_E4M3, 16, 24, 32};
    b = (s24_dense){x, S24_E5M2, 16, 24, 32};
    REFUSED(&g, S24_ERROR_SHAPE, "expected both to be multiples of 16", product, .y = &y, .a = &a,
            .b = &b, .transposed_b = 1, .scale_a = scale, .scale_b = scale);
    release(&g, scale);
    release(&g, x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
