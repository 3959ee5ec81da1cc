// SPDX-License-Identifier: Apache-2.0
/* Vector operations and attention: every row that this CPU runs against f64 arithmetic. */
#include "support.h"

#include <math.h>

#include "activation.h"
#include "io/file/io.h"
#include "run/cpu/attention.h"
#include "vec/vec.h"

enum { PAD = S24I_VEC_PAD };

static float *floats(int64_t count, uint64_t seed, float scale)
{
    float *x = malloc((size_t)(count + 1) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        x[i] = scale * test_uniform(&seed);
    return x;
}

static void assert_close(double expected, double got, double bound, const char *what, int64_t i)
{
    if (!(fabs(expected - got) <= bound))
        fail_msg("%s at %lld: expected %.9g, got %.9g, bound %.3g", what, (long long)i, expected,
                 got, bound);
}

/* Calls fn for each row of the table that this CPU runs. */
static void each_row(void (*fn)(const s24i_vec *vec))
{
    int count = 0;
    for (int i = 0; s24i_vec_row(i); i++) {
        if (s24i_vec_row(i)->cpu & ~s24_cpu_detect()) continue;
        fn(s24i_vec_row(i));
        count++;
    }
    assert_true(count > 0);
}

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
    assert_true(c[m * ldc - 1] == after); /* nothing behind n rounded up */
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
    for (int activation = 0; activation <= S24_ACTIVATION_SILU; activation++)
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
    for (int activation = S24_ACTIVATION_RELU; activation <= S24_ACTIVATION_SILU; activation++) {
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
    for (int activation = 0; activation <= S24_ACTIVATION_SILU; activation++) {
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

static void find(void **state)
{
    (void)state;
    assert_string_equal(s24i_vec_find(0)->name, "portable");
    assert_string_equal(s24i_vec_find(S24_CPU_BASELINE)->name, "portable");
#if defined(__x86_64__)
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx2"))->name, "avx2");
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx512"))->name, "avx512");
    assert_string_equal(s24i_vec_find(s24_cpu_parse("avx512bf16"))->name, "avx512bf16");
#endif
    assert_null(s24i_vec_row(-1));
    assert_null(s24i_vec_row(100));
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct texts {
    int64_t heads, d;
    const s24_batch *batch;
    const float *qkv;
} texts;

/* One token's output for one head, in f64. */
static void attend(double *out, const texts *t, int64_t text, int64_t token, int64_t head)
{
    const int64_t first = t->batch->offsets[text], end = t->batch->offsets[text + 1];
    const int64_t width = t->heads * t->d;
    const float *q = t->qkv + token * 3 * width + head * t->d;
    double most = -INFINITY, sum = 0, score[256];
    int any = 0;
    for (int64_t j = first; j < end; j++)
        any |= !t->batch->mask || t->batch->mask[j];
    for (int64_t j = first; j < end; j++) {
        double s = 0;
        for (int64_t c = 0; c < t->d; c++)
            s += (double)q[c] * t->qkv[j * 3 * width + width + head * t->d + c];
        const int on = !t->batch->mask || t->batch->mask[j];
        score[j - first] = !any ? 0 : on ? s / sqrt((double)t->d) : -INFINITY;
        most = score[j - first] > most ? score[j - first] : most;
    }
    memset(out, 0, (size_t)t->d * sizeof *out);
    for (int64_t j = first; j < end; j++)
        sum += score[j - first] = exp(score[j - first] - most);
    for (int64_t j = first; j < end; j++)
        for (int64_t c = 0; c < t->d; c++)
            out[c] += score[j - first] / sum * t->qkv[j * 3 * width + 2 * width + head * t->d + c];
}

/* Rounds to bf16 in place and gives the same numbers as bf16. */
static uint16_t *round_bf16(float *x, int64_t count)
{
    uint16_t *narrow = malloc((size_t)(count + 1) * sizeof *narrow);
    assert_int_equal(s24_convert(narrow, S24_BF16, x, S24_F32, count), S24_OK);
    assert_int_equal(s24_convert(x, S24_F32, narrow, S24_BF16, count), S24_OK);
    return narrow;
}

static void check_attention(s24_ctx *ctx, int64_t heads, int64_t d, int masked, s24_dtype dtype)
{
    enum { TEXTS = 5 };
    const int64_t offsets[TEXTS + 1] = {0, 1, 48, 97, 100, 230};
    const int64_t tokens = offsets[TEXTS], width = heads * d;
    int64_t tiles[TEXTS + 1] = {0};
    uint8_t mask[230];
    for (int64_t t = 0; t < tokens; t++)
        mask[t] = t % 4 != 2 && !(t >= 97 && t < 100); /* all of the fourth text */
    for (int b = 0; b < TEXTS; b++)
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(offsets[b + 1] - offsets[b]);
    const s24_batch batch = {.texts = TEXTS, .offsets = offsets, .mask = masked ? mask : NULL};
    const int64_t scratch = s24i_attention_scratch(130, d);
    float *qkv = floats(tokens * 3 * width, 17, 2.0f), *out = floats(tokens * width, 18, 1.0f);
    float *memory = floats(scratch * s24_ctx_threads(ctx), 19, 1.0f);
    uint16_t *qkv16 = round_bf16(qkv, dtype == S24_BF16 ? tokens * 3 * width : 0);
    uint16_t *out16 = round_bf16(out, dtype == S24_BF16 ? tokens * width : 0);
    const size_t step = (size_t)width * s24_dtype_bytes(dtype);
    const char *q = dtype == S24_BF16 ? (const char *)qkv16 : (const char *)qkv;
    /* Behind the rounding to bf16 of the weights, of at most 1, and of the result. */
    const double bound = dtype == S24_BF16 ? 2 * 0x1p-8 : 1e-5;
    const s24i_attention job = {.vec = s24i_vec_find(s24_ctx_cpu(ctx)),
                                .dtype = dtype,
                                .q = q,
                                .k = q + step,
                                .v = q + 2 * step,
                                .ld = 3 * width,
                                .context = dtype == S24_BF16 ? (void *)out16 : (void *)out,
                                .batch = &batch,
                                .tiles = tiles,
                                .heads = heads,
                                .d = d,
                                .scratch = memory,
                                .scratch_elems = scratch};
    s24i_attention_run(ctx, &job);
    if (dtype == S24_BF16)
        assert_int_equal(s24_convert(out, S24_F32, out16, S24_BF16, tokens * width), S24_OK);
    const texts t = {heads, d, &batch, qkv};
    double expected[80];
    for (int b = 0; b < TEXTS; b++)
        for (int64_t i = offsets[b]; i < offsets[b + 1]; i++)
            for (int64_t h = 0; h < heads; h++) {
                attend(expected, &t, b, i, h);
                for (int64_t c = 0; c < d; c++)
                    assert_close(expected[c], out[i * width + h * d + c], bound, "attention", i);
            }
    free(qkv);
    free(qkv16);
    free(out16);
    free(out);
    free(memory);
}

static void attention(void **state)
{
    (void)state;
    const char *levels[] = {"baseline", "avx2", "avx512bf16"};
    const struct {
        int64_t heads, d;
    } shapes[] = {{12, 32}, {3, 64}, {2, 1}, {1, 5}, {3, 24}, {2, 72}};
    for (int threads = 1; threads <= 3; threads++)
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
            const s24_ctx_opts opts = {
                .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(levels[level])};
            s24_ctx *ctx;
            assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                const int masked = (int)i % 2 == threads % 2;
                check_attention(ctx, shapes[i].heads, shapes[i].d, masked, S24_F32);
                if (s24i_attention_takes_bf16(s24i_vec_find(s24_ctx_cpu(ctx)), shapes[i].d))
                    check_attention(ctx, shapes[i].heads, shapes[i].d, masked, S24_BF16);
            }
            s24_ctx_destroy(ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product),           cmocka_unit_test(softmax),
        cmocka_unit_test(transpose),         cmocka_unit_test(layer_norm),
        cmocka_unit_test(epilogue),          cmocka_unit_test(rows),
        cmocka_unit_test(nan_comes_through), cmocka_unit_test(find),
        cmocka_unit_test(attention),
    };
    return cmocka_run_group_tests_name("nn_ops", tests, NULL, NULL);
}
