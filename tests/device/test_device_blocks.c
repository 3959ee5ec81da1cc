// SPDX-License-Identifier: Apache-2.0
/*
 * Products with weights in rows of blocks on a device: every side and way against sums in double,
 * twice, with empty rows of blocks and poisoned outputs. Says in a line where there is no GPU.
 */
#include "device_support.h"

#include "sparse24/formats.h"

enum { SIDES = 4 };
static const int64_t sides[SIDES] = {16, 32, 64, 128};

typedef struct weight {
    int64_t n, k, block, stored;
    int64_t *starts;
    int32_t *index;
    float *host; /* [n, k] */
    uint16_t *values;
} weight;

/* A third of the blocks, of the second row none. */
static weight weight_make(const gpu *g, int64_t lines, int64_t across, int64_t block)
{
    weight w = {.n = lines * block, .k = across * block, .block = block};
    const int64_t cells = block * block;
    w.starts = calloc((size_t)lines + 1, sizeof *w.starts);
    w.index = calloc((size_t)(lines * across), sizeof *w.index);
    w.host = calloc((size_t)(w.n * w.k), sizeof *w.host);
    w.values = calloc((size_t)(w.n * w.k), sizeof *w.values);
    for (int64_t l = 0; l < lines; l++) {
        for (int64_t c = 0; c < across; c++) {
            if (l == 1 || random_float() > -0.33f) continue;
            uint16_t *to = w.values + w.stored * cells;
            w.index[w.stored++] = (int32_t)c;
            for (int64_t i = 0; i < cells; i++) {
                float *at = w.host + (l * block + i / block) * w.k + c * block + i % block;
                *at = random_float();
                assert_int_equal(s24_convert(to + i, g->dtype, at, S24_F32, 1), S24_OK);
                assert_int_equal(s24_convert(at, S24_F32, to + i, g->dtype, 1), S24_OK);
            }
        }
        w.starts[l + 1] = w.stored;
    }
    return w;
}

static void weight_free(weight *w)
{
    free(w->starts);
    free(w->index);
    free(w->host);
    free(w->values);
}

static s24_sparse_parts parts_of(const gpu *g, const weight *w)
{
    return (s24_sparse_parts){.format = S24_FORMAT_BSR,
                              .dtype = g->dtype,
                              .rows = w->n,
                              .cols = w->k,
                              .block_rows = w->block,
                              .block_cols = w->block,
                              .stored = w->stored,
                              .starts = w->starts,
                              .index = w->index,
                              .values = w->values};
}

static void sums_of(double *to, const weight *w, const array *x, const array *bias, int64_t m)
{
    for (int64_t t = 0; t < m; t++)
        for (int64_t o = 0; o < w->n; o++) {
            double sum = bias ? (double)bias->host[o] : 0;
            for (int64_t c = 0; c < w->k; c++)
                sum += (double)x->host[t * w->k + c] * (double)w->host[o * w->k + c];
            to[t * w->n + o] = bias && sum < 0 ? 0 : sum;
        }
}

/* With a bias there is ReLU, too. */
static void check(gpu *g, const weight *w, int64_t m, int way, int with_bias)
{
    const s24_sparse_parts parts = parts_of(g, w);
    s24_device_blocks *there;
    array x = array_make(g, m * w->k, 1), bias = array_make(g, w->n, 1);
    double *expected = malloc((size_t)(m * w->n) * sizeof *expected);
    sums_of(expected, w, &x, with_bias ? &bias : NULL, m);
    assert_ok(g->ctx, s24_device_blocks_create(&there, g->ctx, g->device, &parts, NULL));
    assert_true(s24_device_blocks_bytes(there) >= (size_t)(w->stored * w->block * w->block * 2));
    for (int turn = 0; turn < 2; turn++) {
        void *y = poisoned(g, (size_t)(m * w->n) * 2);
        const s24_dense to = {y, g->dtype, m, w->n, 0}, from = {x.there, g->dtype, m, w->k, 0};
        const s24_device_blocks_args args = {.size = sizeof args,
                                             .y = &to,
                                             .x = &from,
                                             .w = there,
                                             .bias = with_bias ? bias.there : NULL,
                                             .activation = with_bias ? S24_ACTIVATION_RELU
                                                                     : S24_ACTIVATION_NONE,
                                             .way = (s24_device_blocks_way)way};
        assert_ok(g->ctx, s24_device_blocks_linear(g->ctx, g->device, &args));
        expect(g, "blocks", y, 0, expected, m * w->n, 1e-3);
        release(g, y);
    }
    s24_device_blocks_destroy(there);
    free(expected);
    array_free(g, &x);
    array_free(g, &bias);
}

static void test_products(void **state)
{
    static const int64_t tokens[] = {1, 7, 16, 17, 130, 300, 600};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int d = 0; d < 2; d++) {
        g.dtype = d ? S24_F16 : S24_BF16;
        for (int s = 0; s < SIDES; s++) {
            weight w = weight_make(&g, 3, 7, sides[s]);
            for (int way = S24_BLOCKS_CHOICE; way <= S24_BLOCKS_MANY; way++)
                for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
                    if (way != S24_BLOCKS_FEW || tokens[t] <= 16)
                        check(&g, &w, tokens[t], way, (int)t % 2);
            weight_free(&w);
        }
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {.dtype = S24_BF16};
    s24_device_blocks *there;
    (void)state;
    if (!gpu_here(&g)) return;
    weight w = weight_make(&g, 3, 7, 16);
    s24_sparse_parts parts = {.format = S24_FORMAT_BSR,
                              .dtype = S24_BF16,
                              .rows = 16,
                              .cols = 16,
                              .block_rows = 8,
                              .block_cols = 8,
                              .starts = (const int64_t[3]){0}};
    assert_int_equal(s24_device_blocks_create(&there, g.ctx, g.device, &parts, NULL),
                     S24_ERROR_UNSUPPORTED);
    parts = parts_of(&g, &w);
    parts.dtype = S24_F32;
    assert_int_equal(s24_device_blocks_create(&there, g.ctx, g.device, &parts, NULL),
                     S24_ERROR_DTYPE);
    parts.dtype = S24_BF16;
    assert_ok(g.ctx, s24_device_blocks_create(&there, g.ctx, g.device, &parts, NULL));
    array x = array_make(&g, 17 * w.k, 1);
    void *y = poisoned(&g, (size_t)(17 * w.n) * 2);
    s24_dense to = {y, S24_BF16, 17, w.n, 0};
    const s24_dense from = {x.there, S24_BF16, 17, w.k, 0};
    s24_device_blocks_args args = {
        .size = sizeof args, .y = &to, .x = &from, .w = there, .way = S24_BLOCKS_FEW};
    assert_int_equal(s24_device_blocks_linear(g.ctx, g.device, &args), S24_ERROR_UNSUPPORTED);
    assert_non_null(strstr(s24_ctx_error(g.ctx), "17 tokens with blocks of 16x16"));
    to.cols = 16;
    assert_int_equal(s24_device_blocks_linear(g.ctx, g.device, &args), S24_ERROR_SHAPE);
    args.y = NULL;
    assert_int_equal(s24_device_blocks_linear(g.ctx, g.device, &args), S24_ERROR_ARGUMENT);
    s24_device_blocks_destroy(there);
    s24_device_blocks_destroy(NULL);
    release(&g, y);
    array_free(&g, &x);
    weight_free(&w);
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
