// SPDX-License-Identifier: Apache-2.0
/* Vector operations: every row that this CPU runs against f64 arithmetic. */
#include "nn_vec.h"

#include "activation.h"
#include "guarded.h"
#include "io/file/io.h"

enum { PAD = S24I_VEC_PAD };

static void check_product(const s24i_vec *vec, int64_t m, int64_t n, int64_t k, int scaled)
{
    const int64_t lda = k + 3, ldb = s24i_round_up(n, PAD), ldc = ldb + PAD;
    float *a = floats(m * lda, 1, 1.0f), *b = floats(k * ldb, 2, 1.0f);
    float *c = floats(m * ldc, 3, 1.0f), *scale = floats(m, 4, 2.0f);
    const float after = c[m * ldc - 1];
    const s24i_product job = {c, ldc, a, lda, b, ldb, scaled ? scale : NULL, m, n, k};
    vec->product(&job);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < k; l++) {
            const double term = (double)a[i / n * lda + l] * b[l * ldb + i % n];
            sum += term;
            magnitude += fabs(term);
        }
        const double factor = scaled ? scale[i / n] : 1.0;
        assert_close(factor * sum, c[i / n * ldc + i % n],
                     1e-7 * (double)(k + 1) * magnitude * 2 + 1e-12, "product", i);
    }
    assert_true(c[m * ldc - 1] == after); /* nothing after n rounded up */
    free(a);
    free(b);
    free(c);
    free(scale);
}

static void product_row(const s24i_vec *vec)
{
    const int64_t ms[] = {1, 3, 6, 12, 17, 48}, ns[] = {1, 15, 16, 32, 49, 64, 130},
                  ks[] = {1, 5, 32, 129};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
            for (size_t l = 0; l < sizeof ks / sizeof *ks; l++)
                check_product(vec, ms[i], ns[j], ks[l], (int)(j % 2));
}
static void product(void **state)
{
    (void)state;
    each_row(product_row);
}

/* What pair products sum: bf16 as f32, subnormals as zero. */
static float widened(uint16_t bits)
{
    float x;
    assert_int_equal(s24_convert(&x, S24_F32, &bits, S24_BF16, 1), S24_OK);
    return x;
}

/* Operands end where nothing may be touched, and k counts pairs. */
static void check_pair_product(const s24i_vec *vec, int64_t m, int64_t n, int64_t k, int scaled)
{
    const int64_t lda = k + 3, ldb = s24i_round_up(n, PAD), ldc = ldb + PAD;
    const int64_t a_pairs = (m - 1) * lda + k, b_pairs = k * ldb;
    const guarded a = guard((size_t)a_pairs * 4, 4, 1), b = guard((size_t)b_pairs * 4, 4, 1);
    float *c = floats(m * ldc, 3, 1.0f), *scale = floats(m, 4, 2.0f);
    float *from = floats(2 * (a_pairs + b_pairs), 21, 1.0f);
    const float after = c[m * ldc - 1];
    assert_int_equal(s24_convert(a.data, S24_BF16, from, S24_F32, 2 * a_pairs), S24_OK);
    assert_int_equal(s24_convert(b.data, S24_BF16, from + 2 * a_pairs, S24_F32, 2 * b_pairs),
                     S24_OK);
    const uint16_t *x = a.data, *w = b.data;
    const s24i_product job = {c, ldc, a.data, lda, b.data, ldb, scaled ? scale : NULL, m, n, k};
    vec->pair_product(&job);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < 2 * k; l++) {
                const double term =
                    (double)widened(x[2 * i * lda + l]) * widened(w[2 * (l / 2 * ldb + j) + l % 2]);
                sum += term;
                magnitude += fabs(term);
            }
            assert_close((scaled ? scale[i] : 1.0) * sum, c[i * ldc + j],
                         1.2e-7 * (double)(2 * k + 2) * magnitude + 1e-12, "pairs", i * n + j);
        }
    assert_true(c[m * ldc - 1] == after); /* nothing after n rounded up */
    unguard(a);
    unguard(b);
    free(c);
    free(scale);
    free(from);
}

/* Rows, columns and pairs of one tile, of several, and of parts of them. */
static void pair_product_row(const s24i_vec *vec)
{
    const int64_t ms[] = {1, 15, 16, 24, 33, 49}, ns[] = {1, 16, 31, 48, 100},
                  ks[] = {1, 15, 16, 17, 32, 65};
    if (!vec->pair_product) return;
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
        for (size_t j = 0; j < sizeof ns / sizeof *ns; j++)
            for (size_t l = 0; l < sizeof ks / sizeof *ks; l++)
                check_pair_product(vec, ms[i], ns[j], ks[l], (int)(j % 2));
}
static void pair_product(void **state)
{
    (void)state;
    each_row(pair_product_row);
}

static void check_softmax(const s24i_vec *vec, int64_t n, float spread, const float *mask)
{
    const int64_t ld = s24i_round_up(n, PAD), rows = 3;
    float *s = floats(rows * ld, 5, spread), *before = malloc((size_t)(rows * ld) * sizeof(float));
    float inverse[3];
    memcpy(before, s, (size_t)(rows * ld) * sizeof(float));
    const s24i_softmax job = {s, ld, rows, n, 0.25f, mask, 0, inverse};
    vec->softmax(&job);
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = 0.25 * before[r * ld + i] + (mask ? mask[i] : 0);
            most = x > most ? x : most;
        }
        for (int64_t i = 0; i < n; i++)
            sum += exp(0.25 * before[r * ld + i] + (mask ? mask[i] : 0) - most);
        for (int64_t i = 0; i < n; i++) {
            const double x = 0.25 * before[r * ld + i] + (mask ? mask[i] : 0) - most;
            /* Relative: 2 ulp of exp and |x| roundings of its argument. */
            const double p = exp(x) / sum;
            assert_close(p, (double)s[r * ld + i] * inverse[r],
                         p * (1e-6 + 2.4e-7 * fabs(x)) + 1e-37, "softmax", i);
        }
    }
    free(s);
    free(before);
}

static void softmax_row(const s24i_vec *vec)
{
    float mask[160], all[160];
    for (int i = 0; i < 160; i++) {
        mask[i] = i % 3 == 1 ? -3.402823466e38f : 0.0f;
        all[i] = -3.402823466e38f;
    }
    for (int64_t n = 1; n <= 70; n++) {
        check_softmax(vec, n, 10.0f, NULL);
        check_softmax(vec, n, 1000.0f, NULL); /* most of a row underflows to 0 */
        check_softmax(vec, n, 10.0f, mask);
    }
    /* All masked: every token alike. */
    float s[3 * 32] = {1, 2, 3}, inverse[3];
    const s24i_softmax job = {s, 32, 3, 21, 0.5f, all, 0, inverse};
    vec->softmax(&job);
    for (int i = 0; i < 21; i++)
        assert_close(1.0 / 21, (double)s[i] * inverse[0], 1e-8, "uniform", i);
}
static void softmax(void **state)
{
    (void)state;
    each_row(softmax_row);
}

static void transpose_row(const s24i_vec *vec)
{
    for (int64_t rows = 1; rows < 40; rows += 3)
        for (int64_t cols = 1; cols < 40; cols += 5) {
            const int64_t lds = cols + 2, ldd = s24i_round_up(rows, PAD);
            float *src = floats(rows * lds, 6, 1.0f), *dst = floats(cols * ldd, 7, 1.0f);
            vec->transpose(dst, ldd, src, lds, rows, cols);
            for (int64_t i = 0; i < cols * ldd; i++) {
                const int64_t c = i / ldd, r = i % ldd;
                assert_true(dst[i] == (r < rows ? src[r * lds + c] : 0.0f));
            }
            free(src);
            free(dst);
        }
}
static void transpose(void **state)
{
    (void)state;
    each_row(transpose_row);
}

static void check_layer_norm(const s24i_vec *vec, int64_t n, double shift)
{
    float *x = floats(2 * n, 8, 1.0f), *gamma = floats(n, 9, 1.0f), *beta = floats(n, 10, 1.0f);
    double *before = malloc((size_t)(2 * n) * sizeof(double));
    for (int64_t i = 0; i < 2 * n; i++)
        before[i] = x[i] = (float)((double)x[i] + shift);
    const s24i_layer_norm norm = {gamma, beta, 1e-5f, n};
    vec->layer_norm(x, 2, &norm);
    for (int64_t r = 0; r < 2; r++) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < n; i++)
            mean += before[r * n + i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += (before[r * n + i] - mean) * (before[r * n + i] - mean) / (double)n;
        const double factor = 1 / sqrt(variance + 1e-5);
        for (int64_t i = 0; i < n; i++)
            assert_close((before[r * n + i] - mean) * factor * gamma[i] + beta[i], x[r * n + i],
                         2e-6 + 2.4e-7 * fabs(shift) * factor * 2, "layer norm", i);
    }
    free(x);
    free(gamma);
    free(beta);
    free(before);
}
static void layer_norm_row(const s24i_vec *vec)
{
    for (int64_t n = 1; n <= 50; n++)
        check_layer_norm(vec, n, 0);
    check_layer_norm(vec, 384, 100); /* the variance of numbers far from 0 */
    check_layer_norm(vec, 1027, -7);
}
static void layer_norm(void **state)
{
    (void)state;
    each_row(layer_norm_row);
}

static void epilogue_row(const s24i_vec *vec)
{
    for (int activation = 0; activation <= S24_ACTIVATION_GELU_QUICK; activation++)
        for (int64_t n = 1; n < 300; n += 37) {
            float *x = floats(n, 11, 9.0f), *bias = floats(n, 12, 1.0f), *y = floats(n, 13, 1.0f);
            float *sum = malloc((size_t)n * sizeof(float)), *same = floats(n, 11, 9.0f);
            memcpy(sum, y, (size_t)n * sizeof(float));
            vec->epilogue(sum, x, bias, (s24_activation)activation, 1, n);
            vec->epilogue(same, same, NULL, (s24_activation)activation, 0, n);
            for (int64_t i = 0; i < n; i++) {
                const double v = (double)x[i] + bias[i];
                assert_close(activation_of(v, (s24_activation)activation) + y[i], sum[i], 3e-6,
                             "bias, activation, sum", i);
                assert_close(activation_of(x[i], (s24_activation)activation), same[i], 3e-6,
                             "activation in place", i);
            }
            free(x);
            free(bias);
            free(y);
            free(sum);
            free(same);
        }
    /* Far out the activations are 0 and x, never NaN. */
    float far[4] = {-1e30f, 1e30f, -50.0f, 50.0f}, out[4];
    for (int activation = S24_ACTIVATION_RELU; activation <= S24_ACTIVATION_GELU_QUICK;
         activation++) {
        vec->epilogue(out, far, NULL, (s24_activation)activation, 0, 4);
        assert_close(0, out[0], 1e-7, "very far below", activation);
        assert_true(out[1] == 1e30f);
        assert_close(0, out[2], 1e-20, "far below", activation);
        assert_close(50, out[3], 1e-5, "far above", activation);
    }
}
/* A NaN that comes in must come out: it says that something is wrong. */
static void nan_row(const s24i_vec *vec)
{
    for (int activation = 0; activation <= S24_ACTIVATION_GELU_QUICK; activation++) {
        float x[20], y[20];
        for (int i = 0; i < 20; i++)
            x[i] = i % 7 == 3 ? NAN : 1.0f;
        vec->epilogue(y, x, NULL, (s24_activation)activation, 0, 20);
        for (int i = 0; i < 20; i++)
            assert_int_equal(isnan(y[i]) != 0, i % 7 == 3);
    }
    float s[32] = {0}, inverse[1];
    s[3] = NAN;
    const s24i_softmax job = {s, 32, 1, 20, 1.0f, NULL, 0, inverse};
    vec->softmax(&job);
    assert_true(isnan(s[0] * inverse[0]));
    if (!vec->pair_softmax) return;
    s[2] = NAN;
    vec->pair_softmax(&job);
    assert_true(isnan(inverse[0]));
    const float wide[3] = {1.0f, NAN, -INFINITY};
    uint16_t narrow[3];
    vec->narrow(narrow, wide, 3);
    assert_int_equal(narrow[0], 0x3f80);
    assert_true((narrow[1] & 0x7fff) > 0x7f80);
    assert_int_equal(narrow[2], 0xff80);
}
static void nan_comes_through(void **state)
{
    (void)state;
    each_row(nan_row);
}
static void epilogue(void **state)
{
    (void)state;
    each_row(epilogue_row);
}

/* Sums with rows at a time have the bits of those with one row. */
static void check_dots(const s24i_vec *vec, const float *a, int64_t n)
{
    enum { ROWS = 11, ROOM = 96 };
    uint16_t half[ROWS * ROOM];
    int8_t bytes[ROWS * ROOM];
    float y[ROWS];
    const int64_t ld = n + 5;
    for (int i = 0; i < ROWS * ROOM; i++) {
        half[i] = (uint16_t)(0x2e00 + 37 * i % 0x0e00 + (i % 3 ? 0x8000 : 0));
        bytes[i] = (int8_t)(i * 29 % 255 - 127);
    }
    for (int64_t rows = 0; rows <= ROWS; rows++) {
        vec->dots_half(y, a, half, ld, rows, n);
        for (int64_t r = 0; r < rows; r++)
            assert_true(y[r] == vec->dot_half(a, half + r * ld, n));
        vec->dots_bytes(y, a, bytes, ld, rows, n);
        for (int64_t r = 0; r < rows; r++)
            assert_true(y[r] == vec->dot_bytes(a, bytes + r * ld, n));
    }
}

/* What a mask keeps of n weights of each dtype, in their own bits, and how large it and all are. */
static void check_keep(const s24i_vec *vec, const float *a, int64_t n)
{
    static const s24_dtype dtypes[] = {S24_F32, S24_F16, S24_BF16};
    uint8_t mask[128];
    char x[4 * 128], y[4 * 128 + 1];
    for (int d = 0; d < 3; d++) {
        const size_t bytes = s24_dtype_bytes(dtypes[d]);
        double sums[2], whole = 0, kept = 0;
        float wide[128];
        assert_int_equal(s24_convert(x, dtypes[d], a, S24_F32, n), S24_OK);
        assert_int_equal(s24_convert(wide, S24_F32, x, dtypes[d], n), S24_OK);
        y[(size_t)n * bytes] = 77;
        for (int64_t i = 0; i < n; i++) {
            mask[i] = i * 7 % 5 > 2;
            whole += fabs((double)wide[i]);
            kept += mask[i] ? fabs((double)wide[i]) : 0.0;
        }
        vec->keep(sums, y, x, mask, dtypes[d], n);
        assert_true(fabs(whole - sums[0]) <= 1e-6 * whole && fabs(kept - sums[1]) <= 1e-6 * kept);
        assert_int_equal(y[(size_t)n * bytes], 77);
        for (int64_t i = 0; i < n; i++)
            assert_memory_equal(y + (size_t)i * bytes, mask[i] ? x + (size_t)i * bytes : "\0\0\0\0",
                                bytes);
    }
}

static void rows_row(const s24i_vec *vec)
{
    for (int64_t n = 1; n < 80; n++) {
        float *a = floats(n, 14, 1.0f), *b = floats(n, 15, 1.0f), *y = floats(n, 16, 1.0f);
        float *z = floats(n, 16, 1.0f);
        double dot = 0;
        for (int64_t i = 0; i < n; i++)
            dot += (double)a[i] * b[i];
        assert_close(dot, vec->dot(a, b, n), 1e-7 * (double)n, "dot", n);
        uint16_t half[80];
        int8_t bytes[80];
        double of_half = 0, of_bytes = 0;
        assert_int_equal(s24_convert(half, S24_F16, b, S24_F32, n), S24_OK);
        assert_int_equal(s24_convert(z, S24_F32, half, S24_F16, n), S24_OK);
        for (int64_t i = 0; i < n; i++) {
            bytes[i] = (int8_t)(127 * b[i]);
            of_half += (double)a[i] * z[i];
            of_bytes += (double)a[i] * bytes[i];
        }
        assert_close(of_half, vec->dot_half(a, half, n), 1e-7 * (double)n, "dot_half", n);
        assert_close(of_bytes, vec->dot_bytes(a, bytes, n), 2e-5 * (double)n, "dot_bytes", n);
        check_dots(vec, a, n);
        check_keep(vec, a, n);
        memcpy(z, y, (size_t)n * sizeof *z);
        vec->axpy(y, 0.5f, a, n);
        for (int64_t i = 0; i < n; i++)
            assert_close((double)z[i] + 0.5 * a[i], y[i], 2e-7, "axpy", i);
        vec->maximum(y, b, n);
        for (int64_t i = 0; i < n; i++)
            assert_true(y[i] >= b[i]);
        vec->add(y, a, b, n);
        vec->scale(z, -3.0f, n);
        for (int64_t i = 0; i < n; i++)
            assert_true(y[i] == a[i] + b[i]);
        uint64_t seed = 16;
        for (int64_t i = 0; i < n; i++)
            assert_true(z[i] == -3.0f * test_uniform(&seed));
        free(a);
        free(b);
        free(y);
        free(z);
    }
}
static void rows(void **state)
{
    (void)state;
    each_row(rows_row);
}

/* Codes and what they become end where nothing may be touched. */
static void check_look_up(const s24i_vec *vec, int64_t numbers, int64_t n)
{
    const guarded table = guard((size_t)numbers * 2, 2, 1), codes = guard((size_t)n, 1, 1);
    const guarded out = guard((size_t)n * 2, 2, 1);
    uint16_t *t = table.data, *y = out.data, most = 0;
    uint8_t *c = codes.data;
    for (int64_t i = 0; i < numbers; i++)
        t[i] = (uint16_t)(40503 * (i + 1));
    for (int64_t i = 0; i < n; i++)
        c[i] = (uint8_t)((i * i + 7 * i + n) % numbers);
    const uint16_t told = vec->look_up(y, t, numbers, c, n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(y[i], t[c[i]]);
        if ((t[c[i]] & 0x7fff) > most) most = t[c[i]] & 0x7fff;
    }
    assert_int_equal(told, most);
    unguard(table);
    unguard(codes);
    unguard(out);
}

static void look_up_row(const s24i_vec *vec)
{
    for (int64_t n = 0; n < 150; n++) {
        check_look_up(vec, 16, n);
        check_look_up(vec, 256, n);
    }
    check_look_up(vec, 256, 4096);
}
static void look_up(void **state)
{
    (void)state;
    each_row(look_up_row);
}

static void find(void **state)
{
    (void)state;
    assert_string_equal(s24i_vec_find(0)->name, "portable");
    assert_string_equal(s24i_vec_find(S24_CPU_BASELINE)->name, "portable");
#if defined(__x86_64__)
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx2"))->name, "avx2");
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx512"))->name, "avx512");
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx512bf16"))->name, "avx512bf16");
    assert_string_equal(s24i_vec_find(s24_cpu_parse("amx"))->name, "amx");
#endif
    assert_null(s24i_vec_row(-1));
    assert_null(s24i_vec_row(100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product),           cmocka_unit_test(softmax),
        cmocka_unit_test(transpose),         cmocka_unit_test(layer_norm),
        cmocka_unit_test(epilogue),          cmocka_unit_test(rows),
        cmocka_unit_test(nan_comes_through), cmocka_unit_test(find),
        cmocka_unit_test(pair_product),      cmocka_unit_test(look_up),
    };
    return cmocka_run_group_tests_name("nn_ops", tests, NULL, NULL);
}
