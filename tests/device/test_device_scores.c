// SPDX-License-Identifier: Apache-2.0
/*
 * What scores of attention grow by on a device, products with rows of distances, and rows and
 * columns times factors, against sums in double. Says in a line where there is no GPU.
 */
#include "device/device_train.h"
#include "device_support.h"

/* ---- factors --------------------------------------------------------------------------------- */

static void check_scale(gpu *g, int64_t rows, int64_t width, int which)
{
    array x = array_make(g, rows * width, 2), columns = array_make(g, width, 1);
    float *factors = malloc((size_t)rows * sizeof *factors);
    double *expected = malloc((size_t)(rows * width) * sizeof *expected);
    for (int64_t r = 0; r < rows; r++)
        factors[r] = r % 3 ? random_float() : 0.0f;
    void *there = upload(g, factors, (size_t)rows * sizeof *factors);
    const s24_device_scale_args args = {.size = sizeof args,
                                        .dtype = g->dtype,
                                        .rows = rows,
                                        .width = width,
                                        .x = x.there,
                                        .columns = which & 1 ? columns.there : NULL,
                                        .factors = which & 2 ? there : NULL,
                                        .factor = which & 4 ? 0.25f : 0.0f};
    for (int64_t i = 0; i < rows * width; i++)
        expected[i] = (double)x.host[i] * (which & 1 ? (double)columns.host[i % width] : 1.0) *
                      (which & 2 ? (double)factors[i / width] : 1.0) * (which & 4 ? 0.25 : 1.0);
    assert_ok(g->ctx, s24_device_scale(g->ctx, g->device, &args));
    expect(g, "scaled", x.there, 0, expected, rows * width, 1e-7);
    free(expected);
    free(factors);
    release(g, there);
    array_free(g, &columns);
    array_free(g, &x);
}

static void test_scale(void **state)
{
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (int which = 0; which < 16; which++) {
        g.dtype = which & 8 ? S24_F16 : S24_BF16;
        check_scale(&g, 1, 8, which & 7);
        check_scale(&g, 37, 24, which & 7);
        check_scale(&g, 1000, 768, which & 7);
    }
    gpu_end(&g);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { MOST = 200, TEXT_COUNT = 4 };

typedef struct growing {
    int64_t heads, d, rows; /* rows: of the table of distances; 0: numbers of distances */
    int of_queries, of_keys, masked;
    float scale;
} growing;

/* What attention reads, here and there. */
typedef struct stage {
    const growing *of;
    int64_t tokens, ld, wide, y_ld;
    int32_t at[TEXT_COUNT + 1], columns[2 * MOST - 1];
    float *distances;
    uint8_t mask[512];
    array qkv, keys, queries; /* of distances: [rows, wide] */
    void *offsets_there, *mask_there, *columns_there, *distances_there, *context;
    float *of_queries, *of_keys;
} stage;

static stage stage_make(gpu *g, const growing *of)
{
    static const int lengths[TEXT_COUNT] = {1, 70, 131, MOST};
    stage s = {.of = of, .wide = of->heads * of->d};
    for (int i = 0; i < TEXT_COUNT; i++)
        s.at[i + 1] = s.at[i] + lengths[i];
    s.tokens = s.at[TEXT_COUNT];
    s.ld = 3 * s.wide;
    s.y_ld = (of->rows + 63) / 64 * 64;
    s.qkv = array_make(g, s.tokens * s.ld, 2);
    s.distances = malloc((size_t)of->heads * 2 * MOST * sizeof *s.distances);
    for (int64_t i = 0; i < of->heads * 2 * MOST; i++)
        s.distances[i] = 3 * random_float();
    for (int i = 0; i < 2 * MOST - 1; i++)
        s.columns[i] = of->rows ? i * 7 % (int)of->rows : 0;
    for (int i = 0; i < 512; i++)
        s.mask[i] = i % 5 != 3;
    s.offsets_there = upload(g, s.at, sizeof s.at);
    s.mask_there = upload(g, s.mask, sizeof s.mask);
    s.columns_there = upload(g, s.columns, sizeof s.columns);
    s.distances_there = upload(g, s.distances, (size_t)of->heads * 2 * MOST * sizeof *s.distances);
    s.context = poisoned(g, (size_t)(s.tokens * s.wide) * 2);
    if (!of->rows) return s;
    const size_t bytes = (size_t)(of->heads * s.tokens * s.y_ld) * sizeof(float);
    s.keys = array_make(g, of->rows * s.wide, 1);
    s.queries = array_make(g, of->rows * s.wide, 1);
    s.of_queries = poisoned(g, bytes);
    s.of_keys = poisoned(g, bytes);
    return s;
}

static void stage_free(gpu *g, stage *s)
{
    void *const there[] = {s->offsets_there, s->mask_there, s->columns_there, s->distances_there,
                           s->context};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        release(g, there[i]);
    if (s->of->rows) {
        release(g, s->of_queries);
        release(g, s->of_keys);
        array_free(g, &s->keys);
        array_free(g, &s->queries);
    }
    array_free(g, &s->qkv);
    free(s->distances);
}

static double dot_of(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* y there = products with the table, which are checked where they are of distances that count. */
static void compare_there(gpu *g, const stage *s, float *y, const array *table, int64_t first)
{
    const growing *of = s->of;
    const s24_device_apart_args args = {.size = sizeof args,
                                        .dtype = g->dtype,
                                        .tokens = s->tokens,
                                        .heads = of->heads,
                                        .d = of->d,
                                        .rows = of->rows,
                                        .vectors = (char *)s->qkv.there + 2 * first,
                                        .table = table->there,
                                        .ld = s->ld,
                                        .table_ld = s->wide,
                                        .y = y,
                                        .y_ld = s->y_ld};
    const int64_t count = of->heads * s->tokens * s->y_ld;
    double *expected = calloc((size_t)count, sizeof *expected);
    for (int64_t i = 0; i < count; i++) {
        const int64_t head = i / (s->tokens * s->y_ld), token = i / s->y_ld % s->tokens,
                      row = i % s->y_ld;
        if (row < of->rows)
            expected[i] = dot_of(s->qkv.host + token * s->ld + first + head * of->d,
                                 table->host + row * s->wide + head * of->d, of->d);
    }
    assert_ok(g->ctx, s24_device_apart(g->ctx, g->device, &args));
    expect(g, "products with distances", y, 1, expected, count, 1e-4);
    free(expected);
}

static double score_of(const stage *s, int64_t head, int64_t first, int64_t q, int64_t k)
{
    const growing *of = s->of;
    const float *query = s->qkv.host + (first + q) * s->ld + head * of->d;
    const float *key = s->qkv.host + (first + k) * s->ld + s->wide + head * of->d;
    double score = dot_of(query, key, of->d);
    if (!of->rows) score += (double)s->distances[head * 2 * MOST + MOST - 1 + k - q];
    const int64_t row = of->rows ? s->columns[MOST - 1 + q - k] : 0;
    if (of->of_queries) score += dot_of(query, s->keys.host + row * s->wide + head * of->d, of->d);
    if (of->of_keys) score += dot_of(key, s->queries.host + row * s->wide + head * of->d, of->d);
    score *= of->scale > 0 ? (double)of->scale : 1 / sqrt((double)of->d);
    return score + (of->masked && !s->mask[first + k] ? -1e30 : 0);
}

static void expect_context(const stage *s, double *expected, int text, int64_t q, int64_t head)
{
    const growing *of = s->of;
    const int64_t first = s->at[text], length = s->at[text + 1] - first;
    double p[MOST], most = -HUGE_VAL, sum = 0;
    double *o = expected + (first + q) * s->wide + head * of->d;
    for (int64_t k = 0; k < length; k++)
        most = fmax(most, p[k] = score_of(s, head, first, q, k));
    for (int64_t k = 0; k < length; k++)
        sum += p[k] = exp(p[k] - most);
    for (int64_t k = 0; k < length; k++)
        for (int64_t e = 0; e < of->d; e++)
            o[e] += p[k] / sum *
                    (double)s->qkv.host[(first + k) * s->ld + 2 * s->wide + head * of->d + e];
}

static void check_growing(gpu *g, const growing *of)
{
    stage s = stage_make(g, of);
    double *expected = calloc((size_t)(s.tokens * s.wide), sizeof *expected);
    s24_device_train_attention_args args = {.size = sizeof args,
                                            .dtype = g->dtype,
                                            .tokens = s.tokens,
                                            .texts = TEXT_COUNT,
                                            .longest = MOST,
                                            .heads = of->heads,
                                            .kv_heads = of->heads,
                                            .d = of->d,
                                            .offsets = s.offsets_there,
                                            .mask = of->masked ? s.mask_there : NULL,
                                            .qkv = s.qkv.there,
                                            .context = s.context,
                                            .scale = of->scale,
                                            .zero = MOST - 1};
    if (!of->rows) {
        args.distances = s.distances_there;
        args.distance_head = 2 * MOST;
    } else {
        compare_there(g, &s, s.of_queries, &s.keys, 0);
        compare_there(g, &s, s.of_keys, &s.queries, s.wide);
        args.apart_rows = s.columns_there;
        args.of_queries = of->of_queries ? s.of_queries : NULL;
        args.of_keys = of->of_keys ? s.of_keys : NULL;
        args.apart_ld = s.y_ld;
    }
    for (int text = 0; text < TEXT_COUNT; text++)
        for (int64_t q = 0; q < s.at[text + 1] - s.at[text]; q++)
            for (int64_t head = 0; head < of->heads; head++)
                expect_context(&s, expected, text, q, head);
    assert_ok(g->ctx, s24_device_train_attention(g->ctx, g->device, &args));
    expect(g, "attention that grows", s.context, 0, expected, s.tokens * s.wide,
           g->dtype == S24_BF16 ? 2e-2 : 3e-3);
    free(expected);
    stage_free(g, &s);
}

static void test_growing(void **state)
{
    static const growing cases[] = {{2, 64, 0, 0, 0, 0, 0},      {3, 8, 0, 0, 0, 1, 1.0f},
                                    {1, 24, 0, 0, 0, 0, 0.3f},   {2, 128, 0, 0, 0, 1, 0},
                                    {2, 64, 96, 1, 1, 0, 0.07f}, {3, 8, 31, 1, 0, 1, 0.2f},
                                    {1, 24, 64, 0, 1, 0, 0.15f}, {2, 128, 130, 1, 1, 1, 0.05f}};
    (void)state;
    gpu g = {0};
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check_growing(&g, &cases[i / 2]);
    }
    gpu_end(&g);
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define REFUSED(g, sentence, call)                                                                 \
    do {                                                                                           \
        assert_int_not_equal(call, S24_OK);                                                        \
        assert_non_null(strstr(s24_ctx_error((g)->ctx), sentence));                                \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    gpu g = {0};
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_int_equal(s24_ctx_create(&g.ctx, NULL), S24_OK);
    assert_ok(g.ctx, s24_device_create(&g.device, g.ctx, &opts));
    void *there = upload(&g, "0123456789abcdef", 16);
    s24_device_scale_args scale = {
        .size = sizeof scale, .dtype = S24_F16, .rows = 1, .width = 8, .x = there};
    s24_device_apart_args apart = {.size = sizeof apart,
                                   .dtype = S24_F16,
                                   .tokens = 1,
                                   .heads = 1,
                                   .d = 8,
                                   .rows = 3,
                                   .vectors = there,
                                   .table = there,
                                   .ld = 8,
                                   .table_ld = 8,
                                   .y = there,
                                   .y_ld = 64};
    s24_device_train_attention_args attention = {.size = sizeof attention,
                                                 .dtype = S24_F16,
                                                 .tokens = 2,
                                                 .texts = 1,
                                                 .longest = 2,
                                                 .heads = 1,
                                                 .kv_heads = 1,
                                                 .d = 8,
                                                 .offsets = there,
                                                 .qkv = there,
                                                 .context = there,
                                                 .distances = there};
    assert_ok(g.ctx, s24_device_scale(g.ctx, g.device, &scale));
    scale.factor = NAN;
    REFUSED(&g, "factor is nan; expected a number", s24_device_scale(g.ctx, g.device, &scale));
    scale.x = NULL;
    REFUSED(&g, "x is NULL", s24_device_scale(g.ctx, g.device, &scale));
    assert_ok(g.ctx, s24_device_apart(g.ctx, g.device, &apart));
    apart.y_ld = 32;
    REFUSED(&g, "a multiple of 64 for 3 distances", s24_device_apart(g.ctx, g.device, &apart));
    apart.d = 136;
    REFUSED(&g, "heads have 136 elements", s24_device_apart(g.ctx, g.device, &apart));
    REFUSED(&g, "distance 0 stands at 0; expected at least 1",
            s24_device_train_attention(g.ctx, g.device, &attention));
    attention.zero = 1;
    assert_ok(g.ctx, s24_device_train_attention(g.ctx, g.device, &attention));
    attention.drop.rate = 0.5f;
    assert_ok(g.ctx, s24_device_train_attention(g.ctx, g.device, &attention));
    attention.buckets = attention.apart_rows = there;
    REFUSED(&g, "dtable is NULL", s24_device_train_attention_back(g.ctx, g.device, &attention));
    attention.dtable = there;
    attention.bucket_count = S24_DEVICE_BUCKETS + 1;
    REFUSED(&g, "a table of distances has 129 buckets; a device sums gradients of 1 to 128",
            s24_device_train_attention_back(g.ctx, g.device, &attention));
    attention.buckets = NULL;
    REFUSED(&g, "products with distances, or with a width of values of its own, runs forward alone",
            s24_device_train_attention_back(g.ctx, g.device, &attention));
    s24_device_train_distances_args distances = {.size = sizeof distances,
                                                 .count = 3,
                                                 .heads = 1,
                                                 .ld = 2,
                                                 .to = there,
                                                 .table = there,
                                                 .buckets = there};
    REFUSED(&g, "3 distances of 1 heads, 2 apart",
            s24_device_train_distances(g.ctx, g.device, &distances));
    distances.ld = 3;
    assert_ok(g.ctx, s24_device_train_distances(g.ctx, g.device, &distances));
    distances.factor = NAN;
    REFUSED(&g, "factor is nan", s24_device_train_distances(g.ctx, g.device, &distances));
    attention.scale = -1;
    REFUSED(&g, "scale is -1; expected 0 or more",
            s24_device_train_attention(g.ctx, g.device, &attention));
    release(&g, there);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scale), cmocka_unit_test(test_growing),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
