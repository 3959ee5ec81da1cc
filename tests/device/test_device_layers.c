// SPDX-License-Identifier: Apache-2.0
/*
 * What a transformer needs on a device beside 2:4 products: each against sums in double on odd
 * shapes, with poisoned outputs. Says in a line where there is no GPU.
 */
#include "device_support.h"

/* ---- dense products -------------------------------------------------------------------------- */

static double gelu(double v)
{
    return 0.5 * v * (1 + erf(v / sqrt(2.0)));
}

static void check_dense(gpu *g, int64_t m, int64_t n, int64_t k, int activate, int residual)
{
    array x = array_make(g, m * k, 1), w = array_make(g, n * k, 1), bias = array_make(g, n, 1);
    array r = array_make(g, m * n, 1);
    enum { WORK = 1 << 22 };
    void *work = poisoned(g, WORK), *y = poisoned(g, (size_t)(m * n) * 2);
    const s24_dense views[] = {{y, g->dtype, m, n, 0},
                               {x.there, g->dtype, m, k, 0},
                               {w.there, g->dtype, n, k, 0},
                               {r.there, g->dtype, m, n, 0}};
    const s24_device_dense_args args = {.size = sizeof args,
                                        .y = &views[0],
                                        .x = &views[1],
                                        .w = &views[2],
                                        .bias = bias.there,
                                        .activation =
                                            activate ? S24_ACTIVATION_GELU : S24_ACTIVATION_NONE,
                                        .residual = residual ? &views[3] : NULL,
                                        .work = work,
                                        .work_bytes = WORK};
    double *expected = malloc((size_t)(m * n) * sizeof *expected), seconds = -1;
    for (int64_t i = 0; i < m * n; i++) {
        double sum = (double)bias.host[i % n];
        for (int64_t j = 0; j < k; j++)
            sum += (double)x.host[i / n * k + j] * (double)w.host[i % n * k + j];
        if (activate) sum = gelu(sum);
        if (residual) sum += (double)r.host[i];
        expected[i] = sum;
    }
    assert_ok(g->ctx, s24_device_dense(g->ctx, g->device, &args));
    /* A sum of 50 is rounded before its activation. */
    expect(g, "dense", y, 0, expected, m * n, g->dtype == S24_BF16 ? 0.02 : 2e-3);
    assert_ok(g->ctx, s24_device_dense_search(&seconds, g->ctx, g->device, &args));
    assert_true(seconds > 0);
    assert_ok(g->ctx, s24_device_dense(g->ctx, g->device, &args));
    expect(g, "dense, searched", y, 0, expected, m * n, g->dtype == S24_BF16 ? 0.02 : 2e-3);
    free(expected);
    release(g, y);
    release(g, work);
    array_free(g, &x);
    array_free(g, &w);
    array_free(g, &bias);
    array_free(g, &r);
}

/* Whole numbers with scales: but for the end's rounding the sums are exact. Little memory for sums
   makes several turns. */
static void check_integers(gpu *g, int64_t m, int64_t n, int64_t k, s24_activation activation,
                           size_t work_bytes)
{
    int8_t *x = malloc((size_t)(m * k)), *w = malloc((size_t)(n * k));
    float *scales = malloc((size_t)(m + n) * sizeof *scales);
    double *expected = malloc((size_t)(m * n) * sizeof *expected), seconds = -1;
    array bias = array_make(g, n, 1);
    for (int64_t i = 0; i < m * k; i++)
        x[i] = (int8_t)(i * 37 % 251 - 125);
    for (int64_t i = 0; i < n * k; i++)
        w[i] = (int8_t)(i * 53 % 255 - 127);
    for (int64_t i = 0; i < m + n; i++)
        scales[i] = 1e-3f * (float)(i % 7 + 1);
    for (int64_t i = 0; i < m * n; i++) {
        int64_t sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += (int64_t)x[i / n * k + j] * w[i % n * k + j];
        const double v = (double)sum * (double)scales[i / n] * (double)scales[m + i % n] +
                         (double)bias.host[i % n];
        expected[i] = activation == S24_ACTIVATION_GELU ? gelu(v) : v;
    }
    void *y = poisoned(g, (size_t)(m * n) * 2), *work = poisoned(g, work_bytes);
    void *there[] = {upload(g, x, (size_t)(m * k)), upload(g, w, (size_t)(n * k)),
                     upload(g, scales, (size_t)m * sizeof *scales),
                     upload(g, scales + m, (size_t)n * sizeof *scales)};
    const s24_dense views[] = {
        {y, S24_BF16, m, n, 0}, {there[0], S24_I8, m, k, 0}, {there[1], S24_I8, n, k, 0}};
    s24_device_dense_args args = {.size = sizeof args,
                                  .y = &views[0],
                                  .x = &views[1],
                                  .w = &views[2],
                                  .bias = bias.there,
                                  .activation = activation,
                                  .work = work,
                                  .work_bytes = work_bytes,
                                  .x_scale = there[2],
                                  .w_scale = there[3]};
    assert_ok(g->ctx, s24_device_dense(g->ctx, g->device, &args));
    expect(g, "dense i8", y, 0, expected, m * n, activation ? 2e-3 : 1e-4);
    assert_ok(g->ctx, s24_device_dense_search(&seconds, g->ctx, g->device, &args));
    assert_true(seconds > 0);
    assert_ok(g->ctx, s24_device_dense(g->ctx, g->device, &args));
    expect(g, "dense i8, searched", y, 0, expected, m * n, activation ? 2e-3 : 1e-4);
    args.work_bytes = (size_t)(8 * n + 511);
    assert_refused(g->ctx, S24_ERROR_ARGUMENT, "twice a token's sums",
                   s24_device_dense(g->ctx, g->device, &args));
    for (int i = 0; i < 4; i++)
        release(g, there[i]);
    release(g, work);
    release(g, y);
    array_free(g, &bias);
    free(expected);
    free(scales);
    free(w);
    free(x);
}

static void test_integers(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    g.dtype = S24_BF16;
    check_integers(&g, 1, 16, 16, S24_ACTIVATION_NONE, 1 << 22);
    check_integers(&g, 7, 144, 80, S24_ACTIVATION_GELU, 1 << 22);
    check_integers(&g, 129, 64, 208, S24_ACTIVATION_NONE, 1 << 14); /* 32 tokens a turn */
    check_integers(&g, 5, 32, 48, S24_ACTIVATION_NONE, 1 << 10);    /* 4 */
    gpu_end(&g);
}

static void test_dense(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int d = 0; d < 2; d++) {
        g.dtype = d ? S24_F16 : S24_BF16;
        check_dense(&g, 1, 8, 64, 0, 0);
        check_dense(&g, 7, 136, 72, 1, 0);
        check_dense(&g, 129, 64, 200, 0, 1);
    }
    gpu_end(&g);
}

/* ---- norms and embeddings -------------------------------------------------------------------- */

static void norm_rows(double *rows, int64_t count, int64_t width, const array *gamma,
                      const array *beta)
{
    for (int64_t r = 0; r < count; r++) {
        double *x = rows + r * width, mean = 0, variance = 0;
        for (int64_t i = 0; i < width; i++)
            mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++)
            variance += (x[i] - mean) * (x[i] - mean) / (double)width;
        for (int64_t i = 0; i < width; i++)
            x[i] = (x[i] - mean) / sqrt(variance + 1e-12) * (double)gamma->host[i] +
                   (double)beta->host[i];
    }
}

static void check_norm(gpu *g, int64_t rows, int64_t width)
{
    enum { WORDS = 50, POSITIONS = 9, TYPES = 2 };
    array x = array_make(g, rows * width, 3), gamma = array_make(g, width, 1);
    array beta = array_make(g, width, 1), words = array_make(g, WORDS * width, 1);
    array positions = array_make(g, POSITIONS * width, 1), types = array_make(g, TYPES * width, 1);
    double *expected = malloc((size_t)(rows * width) * sizeof *expected);
    int32_t *ids = malloc((size_t)rows * 3 * sizeof *ids);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(i * 7 % WORDS);
        ids[rows + i] = (int32_t)(i % POSITIONS);
        ids[2 * rows + i] = (int32_t)(i % TYPES);
    }
    int32_t *there = upload(g, ids, (size_t)rows * 3 * sizeof *ids);
    void *y = poisoned(g, (size_t)(rows * width) * 2);
    const s24_dense in = {x.there, g->dtype, rows, width, 0}, out = {y, g->dtype, rows, width, 0};
    s24_device_norm_args args = {.size = sizeof args,
                                 .y = &out,
                                 .x = &in,
                                 .gamma = gamma.there,
                                 .beta = beta.there,
                                 .eps = 1e-12f};
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = (double)x.host[i];
    norm_rows(expected, rows, width, &gamma, &beta);
    assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
    expect(g, "norm", y, 0, expected, rows * width, 1e-5);
    args.y = args.residual = &in; /* in place: x is both */
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = 2 * (double)x.host[i];
    norm_rows(expected, rows, width, &gamma, &beta);
    assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
    expect(g, "norm with residual", x.there, 0, expected, rows * width, 1e-5);
    args.y = &out;
    for (int turn = 0; turn < 3; turn++) { /* with types, with those of type 0, without */
        args.x = NULL;
        args.ids = there;
        args.positions = there + rows;
        args.types = turn == 0 ? there + 2 * rows : NULL;
        args.words = words.there;
        args.position_rows = positions.there;
        args.type_rows = turn < 2 ? types.there : NULL;
        for (int64_t i = 0; i < rows * width; i++) {
            const int64_t r = i / width, c = i % width;
            expected[i] = (double)words.host[ids[r] * width + c] +
                          (double)positions.host[ids[rows + r] * width + c];
            const int64_t type = turn == 0 ? ids[2 * rows + r] : 0;
            if (turn < 2) expected[i] += (double)types.host[type * width + c];
        }
        norm_rows(expected, rows, width, &gamma, &beta);
        assert_ok(g->ctx, s24_device_norm(g->ctx, g->device, &args));
        expect(g, "embeddings", y, 0, expected, rows * width, 1e-5);
    }
    release(g, y);
    release(g, there);
    free(ids);
    free(expected);
    array *const arrays[] = {&x, &gamma, &beta, &words, &positions, &types};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        array_free(g, arrays[i]);
}

static void test_norm(void **state)
{
    (void)state;
    static const int64_t widths[] = {8, 32, 256, 264, 384, 768, 1024, 2048};
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_norm(&g, i % 3 ? 5 : 129, widths[i]);
    }
    gpu_end(&g);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attention_of(double *context, const array *qkv, const uint8_t *mask, int64_t width,
                         int64_t heads)
{
    const int64_t d = width / heads;
    double *scores = malloc(1000 * sizeof *scores);
    for (int64_t text = 0; text < TEXTS; text++)
        for (int64_t i = 0; i < heads * (offsets[text + 1] - offsets[text]); i++) {
            const int64_t head = i % heads, first = offsets[text], end = offsets[text + 1];
            const float *q = qkv->host + (first + i / heads) * 3 * width + head * d;
            double most = -HUGE_VAL, sum = 0;
            for (int64_t t = first; t < end; t++) {
                const float *k = qkv->host + t * 3 * width + width + head * d;
                double s = 0;
                for (int64_t e = 0; e < d; e++)
                    s += (double)q[e] * (double)k[e] / sqrt((double)d);
                scores[t - first] = mask && !mask[t] ? -1e30 : s;
                most = fmax(most, scores[t - first]);
            }
            double *y = context + (first + i / heads) * width + head * d;
            memset(y, 0, (size_t)d * sizeof *y);
            for (int64_t t = first; t < end; t++) {
                const double p = exp(scores[t - first] - most);
                sum += p;
                for (int64_t e = 0; e < d; e++)
                    y[e] += p * (double)qkv->host[t * 3 * width + 2 * width + head * d + e];
            }
            for (int64_t e = 0; e < d; e++)
                y[e] /= sum;
        }
    free(scores);
}

/* The context once more in 8 bits, each within half a step of what it stands for. */
static void check_eight(gpu *g, s24_device_attention_args *args, s24_dtype dtype,
                        const double *expected)
{
    const s24_dense *wide = args->context;
    const size_t count = (size_t)(wide->rows * wide->cols);
    void *there = poisoned(g, count + 1);
    uint8_t *bytes = malloc(count + 1);
    float *got = malloc(count * sizeof *got);
    const s24_dense narrow = {there, dtype, wide->rows, wide->cols, 0};
    const double scale = dtype == S24_I8 ? 0.01 : 0.002, most = dtype == S24_I8 ? 127 : 448;
    args->context = &narrow;
    args->context_scale = (float)scale;
    assert_ok(g->ctx, s24_device_attention(g->ctx, g->device, args));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, bytes, there, count + 1, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    assert_int_equal(bytes[count], 0xff);
    assert_ok(g->ctx, s24_convert(got, S24_F32, bytes, dtype, (int64_t)count));
    for (size_t i = 0; i < count; i++) {
        const double v = fmax(-most - (dtype == S24_I8), fmin(expected[i] / scale, most));
        const double step = dtype == S24_I8 ? 0.5 : fmax(fabs(v) / 16, 0x1p-10);
        /* Weights of softmax are rounded to 16 bits before they are summed. */
        if (!(fabs((double)got[i] - v) <= 1.001 * step + 8e-3 / scale))
            fail_msg("%s, element %zu: %g, expected %g", s24_dtype_name(dtype), i, (double)got[i],
                     v);
    }
    args->context = wide;
    release(g, there);
    free(got);
    free(bytes);
}

static void check_attention(gpu *g, int64_t heads, int64_t d, int64_t asked)
{
    const int64_t tokens = offsets[TEXTS], width = heads * d;
    array qkv = array_make(g, tokens * 3 * width, 2);
    double *expected = malloc((size_t)(tokens * width) * sizeof *expected);
    int32_t tiles[2 * TOKENS];
    int64_t count = 0;
    uint8_t mask[TOKENS];
    mask_fill(mask);
    const int queries = s24_device_attention_queries(g->device, asked, width, heads);
    assert_true(queries > 0);
    for (int32_t b = 0; b < TEXTS; b++)
        for (int32_t q = 0; q < offsets[b + 1] - offsets[b]; q += queries, count++) {
            tiles[2 * count] = b;
            tiles[2 * count + 1] = q;
        }
    void *there[] = {upload(g, offsets, sizeof offsets), upload(g, tiles, (size_t)count * 8),
                     upload(g, mask, sizeof mask), poisoned(g, (size_t)(tokens * width) * 2)};
    const s24_dense in = {qkv.there, g->dtype, tokens, 3 * width, 0};
    const s24_dense out = {there[3], g->dtype, tokens, width, 0};
    s24_device_attention_args args = {.size = sizeof args,
                                      .context = &out,
                                      .qkv = &in,
                                      .heads = heads,
                                      .offsets = there[0],
                                      .tiles = there[1],
                                      .tile_count = count,
                                      .queries = queries};
    for (int masked = 0; masked < 2; masked++) {
        args.mask = masked ? there[2] : NULL;
        attention_of(expected, &qkv, masked ? mask : NULL, width, heads);
        assert_ok(g->ctx, s24_device_attention(g->ctx, g->device, &args));
        expect(g, masked ? "attention, masked" : "attention", there[3], 0, expected, tokens * width,
               g->dtype == S24_BF16 ? 8e-3 : 1e-3);
        check_eight(g, &args, masked ? S24_I8 : S24_E4M3, expected);
    }
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        release(g, there[i]);
    free(expected);
    array_free(g, &qkv);
}

static void test_attention(void **state)
{
    (void)state;
    static const int64_t asked[] = {1, 2000, 20000, 1 << 20}; /* tokens: each chooses its tile */
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 24; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_attention(&g, i % 3 + 1, 16 << i / 2 % 3, asked[i / 6]);
    }
    assert_int_equal(s24_device_attention_queries(g.device, 1, 48, 1), 0);
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {.dtype = S24_F16};
    if (!gpu_here(&g)) return;
    array x = array_make(&g, 64 * 96, 1);
    s24_dense a = {x.there, S24_F16, 8, 96, 0}, b = {x.there, S24_F16, 8, 32, 0};
    int32_t numbers[16] = {0};
    s24_device_norm_args norm = {.size = sizeof norm, .y = &b, .x = &a};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "x is [8, 96]; expected [8, 32]",
                   s24_device_norm(g.ctx, g.device, &norm));
    norm.x = &b;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "gamma is NULL",
                   s24_device_norm(g.ctx, g.device, &norm));
    norm.x = NULL;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "ids is NULL",
                   s24_device_norm(g.ctx, g.device, &norm));
    b.dtype = S24_F32;
    assert_refused(g.ctx, S24_ERROR_DTYPE, "y is f32; expected f16 or bf16",
                   s24_device_norm(g.ctx, g.device, &norm));
    b.dtype = S24_F16;
    s24_device_attention_args attention = {.size = sizeof attention,
                                           .context = &b,
                                           .qkv = &a,
                                           .heads = 4,
                                           .offsets = numbers,
                                           .tiles = numbers,
                                           .tile_count = 1,
                                           .queries = 64};
    assert_refused(g.ctx, S24_ERROR_UNSUPPORTED, "no attention of 8 elements",
                   s24_device_attention(g.ctx, g.device, &attention));
    attention.heads = 5;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "three times the heads, 5",
                   s24_device_attention(g.ctx, g.device, &attention));
    s24_dense narrow = {x.there, S24_I8, 8, 32, 0};
    attention.heads = 2;
    attention.context = &narrow;
    assert_refused(g.ctx, S24_ERROR_ARGUMENT, "context_scale is 0 of a context of i8",
                   s24_device_attention(g.ctx, g.device, &attention));
    narrow.cols = 16;
    assert_refused(g.ctx, S24_ERROR_SHAPE, "expected [8, 32]",
                   s24_device_attention(g.ctx, g.device, &attention));
    s24_device_dense_args dense = {.size = sizeof dense,
                                   .y = &b,
                                   .x = &b,
                                   .w = &a,
                                   .activation = S24_ACTIVATION_GELU,
                                   .residual = &b};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "w is [8, 96]; expected [8, 32]",
                   s24_device_dense(g.ctx, g.device, &dense));
    s24_dense w = {x.there, S24_F16, 32, 32, 0};
    dense.w = &w;
    assert_refused(g.ctx, S24_ERROR_UNSUPPORTED, "not both",
                   s24_device_dense(g.ctx, g.device, &dense));
    s24_device_pool_args pool = {.size = sizeof pool, .y = x.there, .x = &b, .offsets = numbers};
    assert_refused(g.ctx, S24_ERROR_SHAPE, "0 texts", s24_device_pool(g.ctx, g.device, &pool));
    array_free(&g, &x);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),    cmocka_unit_test(test_integers),
        cmocka_unit_test(test_norm),     cmocka_unit_test(test_attention),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
