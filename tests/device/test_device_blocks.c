// SPDX-License-Identifier: Apache-2.0
/*
 * Products with weights in rows of blocks on a device: every dtype, side and way against sums in
 * double, twice to the same bits, with empty rows of blocks, rows of an odd number of them, and
 * poison around what is read and written. Says in a line where there is no GPU.
 */
#include "device_support.h"

#include "sparse24/formats.h"

enum { SIDES = 4, BEYOND = 16 /* elements after a row of x and y, and a row after the last */ };
static const int64_t sides[SIDES] = {16, 32, 64, 128};

typedef struct weight {
    int64_t n, k, block, stored;
    int64_t *starts;
    int32_t *index;
    s24_dtype dtype;
    float *host; /* [n, k] */
    char *values;
} weight;

static int is_narrow(s24_dtype dtype)
{
    return s24_dtype_bytes(dtype) == 1;
}

/* A number of a dtype, and the same as a float: integers up to 127, others up to 1. */
static float put_random(void *to, s24_ctx *ctx, s24_dtype dtype, int64_t i)
{
    char *at = (char *)to + (size_t)i * s24_dtype_bytes(dtype);
    float v = random_float() * (dtype == S24_I8 ? 127 : 1);
    assert_ok(ctx, s24_convert(at, dtype, &v, S24_F32, 1));
    assert_ok(ctx, s24_convert(&v, S24_F32, at, dtype, 1));
    return v;
}

/* A third of the blocks, of the second row none, of the third all: seven. */
static weight weight_make(const gpu *g, s24_dtype dtype, int64_t lines, int64_t across,
                          int64_t block)
{
    weight w = {.n = lines * block, .k = across * block, .block = block, .dtype = dtype};
    const int64_t cells = block * block;
    w.starts = calloc((size_t)lines + 1, sizeof *w.starts);
    w.index = calloc((size_t)(lines * across), sizeof *w.index);
    w.host = calloc((size_t)(w.n * w.k), sizeof *w.host);
    w.values = calloc((size_t)(w.n * w.k), s24_dtype_bytes(dtype));
    for (int64_t l = 0; l < lines; l++) {
        for (int64_t c = 0; c < across; c++) {
            if (l == 1 || (l != 2 && random_float() > -0.33f)) continue;
            for (int64_t i = 0; i < cells; i++)
                w.host[(l * block + i / block) * w.k + c * block + i % block] =
                    put_random(w.values, g->ctx, dtype, w.stored * cells + i);
            w.index[w.stored++] = (int32_t)c;
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

static s24_sparse_parts parts_of(const weight *w)
{
    return (s24_sparse_parts){.format = S24_FORMAT_BSR,
                              .dtype = w->dtype,
                              .rows = w->n,
                              .cols = w->k,
                              .block_rows = w->block,
                              .block_cols = w->block,
                              .stored = w->stored,
                              .starts = w->starts,
                              .index = w->index,
                              .values = w->values};
}

/* Tokens with poison after each and after the last, and scales, which are ones of 16 bits. */
typedef struct tokens {
    int64_t m, ld;
    float *host; /* [m, k] */
    void *there;
    float *scale[2]; /* of tokens and outputs */
    void *scale_there[2];
    double *sum, *size; /* [m, n]: scaled x·wᵀ, and the sum of its terms' magnitudes */
} tokens;

static void sum_up(tokens *x, const weight *w)
{
    x->sum = malloc((size_t)(x->m * w->n) * sizeof *x->sum);
    x->size = malloc((size_t)(x->m * w->n) * sizeof *x->size);
    for (int64_t at = 0; at < x->m * w->n; at++) {
        const int64_t t = at / w->n, o = at % w->n;
        const double scale = (double)x->scale[0][t] * (double)x->scale[1][o];
        double sum = 0, size = 0;
        for (int64_t c = 0; c < w->k; c++) {
            const double term = (double)x->host[t * w->k + c] * (double)w->host[o * w->k + c];
            sum += term;
            size += fabs(term);
        }
        x->sum[at] = scale * sum;
        x->size[at] = scale * size;
    }
}

static tokens tokens_make(gpu *g, const weight *w, int64_t m)
{
    const size_t each = s24_dtype_bytes(w->dtype);
    tokens x = {.m = m, .ld = w->k + BEYOND, .host = malloc((size_t)(m * w->k) * sizeof(float))};
    const size_t bytes = (size_t)((m + 1) * x.ld) * each;
    char *all = malloc(bytes);
    memset(all, 0xff, bytes);
    for (int64_t t = 0; t < m; t++)
        for (int64_t c = 0; c < w->k; c++)
            x.host[t * w->k + c] = put_random(all, g->ctx, w->dtype, t * x.ld + c);
    x.there = upload(g, all, bytes);
    free(all);
    for (int i = 0; i < 2; i++) {
        const int64_t count = i ? w->n : m;
        x.scale[i] = malloc((size_t)count * sizeof(float));
        for (int64_t c = 0; c < count; c++)
            x.scale[i][c] = is_narrow(w->dtype)
                                ? (1.5f + random_float()) * (w->dtype == S24_I8 ? 1 / 127.0f : 1)
                                : 1;
        x.scale_there[i] = upload(g, x.scale[i], (size_t)count * sizeof(float));
    }
    sum_up(&x, w);
    return x;
}

static void tokens_free(gpu *g, tokens *x)
{
    for (int i = 0; i < 2; i++) {
        release(g, x->scale_there[i]);
        free(x->scale[i]);
    }
    release(g, x->there);
    free(x->host);
    free(x->sum);
    free(x->size);
}

/* A product; with a bias there is ReLU, too. */
typedef struct product {
    gpu *g;
    const weight *w;
    const tokens *x;
    const s24_device_blocks *there;
    const array *bias; /* or NULL */
    int way;
} product;

/* Is that what rounding makes of the sum, and sums by themselves? Of 8-bit floats the hardware
   keeps some 13 bits of the largest of what it adds; integers are exact. */
static void expect_sum(const product *p, int64_t t, int64_t o, float got)
{
    const weight *w = p->w;
    const int64_t at = t * w->n + o;
    const double v = p->x->sum[at] + (p->bias ? (double)p->bias->host[o] : 0);
    const double expected = p->bias && v < 0 ? 0 : v;
    const double slack = fabs(expected) / (p->g->dtype == S24_BF16 ? 256 : 2048) +
                         (w->dtype == S24_E4M3 ? 4e-4 : 4e-6) * p->x->size[at] + 2e-4;
    if (!(fabs((double)got - expected) <= slack))
        fail_msg("blocks of %d in %s, %d tokens, way %d: output %d of token %d is %g, expected %g",
                 (int)w->block, s24_dtype_name(w->dtype), (int)p->x->m, p->way, (int)o, (int)t,
                 (double)got, expected);
}

/* Every element, and that nothing was written around them. */
static void expect_all(const product *p, const uint16_t *y)
{
    const int64_t ld = p->w->n + BEYOND;
    for (int64_t i = 0; i < (p->x->m + 1) * ld; i++) {
        const int64_t t = i / ld, o = i % ld;
        float got;
        if (t == p->x->m || o >= p->w->n) {
            assert_int_equal(y[i], 0xffff);
            continue;
        }
        assert_ok(p->g->ctx, s24_convert(&got, S24_F32, y + i, p->g->dtype, 1));
        expect_sum(p, t, o, got);
    }
}

static void run(uint16_t *y, const product *p)
{
    gpu *g = p->g;
    const weight *w = p->w;
    const tokens *x = p->x;
    const int64_t ld = w->n + BEYOND;
    const size_t bytes = (size_t)((x->m + 1) * ld) * sizeof *y;
    void *memory = poisoned(g, bytes);
    const s24_dense to = {memory, g->dtype, x->m, w->n, ld},
                    from = {x->there, w->dtype, x->m, w->k, x->ld};
    const int narrow = is_narrow(w->dtype);
    const s24_device_blocks_args args = {.size = sizeof args,
                                         .y = &to,
                                         .x = &from,
                                         .w = p->there,
                                         .bias = p->bias ? p->bias->there : NULL,
                                         .activation =
                                             p->bias ? S24_ACTIVATION_RELU : S24_ACTIVATION_NONE,
                                         .way = (s24_device_blocks_way)p->way,
                                         .x_scale = narrow ? x->scale_there[0] : NULL,
                                         .w_scale = narrow ? x->scale_there[1] : NULL};
    assert_ok(g->ctx, s24_device_blocks_linear(g->ctx, g->device, &args));
    assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, y, memory, bytes, NULL));
    assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
    release(g, memory);
}

/* Every way that takes so many tokens, twice; every other one with a bias. */
static void check(gpu *g, const weight *w, int64_t m)
{
    const s24_sparse_parts parts = parts_of(w);
    const size_t count = (size_t)((m + 1) * (w->n + BEYOND));
    uint16_t *y[2] = {malloc(count * sizeof **y), malloc(count * sizeof **y)};
    tokens x = tokens_make(g, w, m);
    array bias = array_make(g, w->n, 1);
    s24_device_blocks *there;
    assert_ok(g->ctx, s24_device_blocks_create(&there, g->ctx, g->device, &parts, NULL));
    assert_true(s24_device_blocks_bytes(there) >=
                (size_t)(w->stored * w->block * w->block) * s24_dtype_bytes(w->dtype));
    for (int way = S24_BLOCKS_CHOICE; way <= S24_BLOCKS_MANY; way++) {
        const product p = {g, w, &x, there, (way + m) % 2 ? &bias : NULL, way};
        if (way == S24_BLOCKS_FEW && m > 16) continue;
        for (int turn = 0; turn < 2; turn++)
            run(y[turn], &p);
        expect_all(&p, y[0]);
        assert_memory_equal(y[0], y[1], count * sizeof **y);
    }
    s24_device_blocks_destroy(there);
    array_free(g, &bias);
    tokens_free(g, &x);
    free(y[0]);
    free(y[1]);
}

static void test_products(void **state)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16, S24_I8, S24_E4M3};
    static const int64_t counts[] = {1, 7, 16, 17, 131, 300, 601};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        g.dtype = is_narrow(dtypes[d]) ? S24_BF16 : dtypes[d]; /* of y */
        for (int s = 0; s < SIDES; s++) {
            weight w = weight_make(&g, dtypes[d], 3, 7, sides[s]);
            for (size_t t = 0; t < sizeof counts / sizeof *counts; t++)
                check(&g, &w, counts[t]);
            weight_free(&w);
        }
    }
    gpu_end(&g);
}

/* More rows of blocks than processors: the other number of warps, and many tiles of many stages. */
static void test_long_rows(void **state)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_I8, S24_E4M3};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        g.dtype = S24_BF16;
        weight w = weight_make(&g, dtypes[d], 150, 41, 16);
        check(&g, &w, 5);
        check(&g, &w, 33);
        weight_free(&w);
    }
    gpu_end(&g);
}

/* On every GPU the same numbers as a dense matrix, also of an odd number of small blocks. */
static void test_widening(void **state)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_I8, S24_E4M3};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (int i = 0; i < 3 * SIDES; i++) {
        weight w = weight_make(&g, dtypes[i / SIDES], 3, 7, sides[i % SIDES]);
        const size_t bytes = (size_t)(w.n * w.k) * s24_dtype_bytes(w.dtype);
        const s24_sparse_parts parts = parts_of(&w);
        s24_device_blocks *there;
        char *host = malloc(bytes);
        void *wide = poisoned(&g, bytes);
        const s24_dense to = {wide, w.dtype, w.n, w.k, 0};
        assert_ok(g.ctx, s24_device_blocks_create(&there, g.ctx, g.device, &parts, NULL));
        assert_ok(g.ctx, s24_device_blocks_to_dense(g.ctx, g.device, &to, there, NULL));
        assert_ok(g.ctx, s24_device_copy(g.ctx, g.device, host, wide, bytes, NULL));
        assert_ok(g.ctx, s24_device_wait(g.ctx, g.device, NULL));
        for (int64_t c = 0; c < w.n * w.k; c++) {
            float v;
            assert_ok(g.ctx, s24_convert(&v, S24_F32, host + (size_t)c * s24_dtype_bytes(w.dtype),
                                         w.dtype, 1));
            assert_true(v == w.host[c]);
        }
        s24_device_blocks_destroy(there);
        release(&g, wide);
        free(host);
        weight_free(&w);
    }
    gpu_end(&g);
}

static void test_refusals(void **state)
{
    gpu g = {.dtype = S24_BF16};
    s24_device_blocks *there;
    (void)state;
    if (!gpu_here(&g)) return;
    weight w = weight_make(&g, S24_BF16, 3, 7, 16);
    s24_sparse_parts parts = {.format = S24_FORMAT_BSR,
                              .dtype = S24_BF16,
                              .rows = 16,
                              .cols = 16,
                              .block_rows = 8,
                              .block_cols = 8,
                              .starts = (const int64_t[3]){0}};
    assert_int_equal(s24_device_blocks_create(&there, g.ctx, g.device, &parts, NULL),
                     S24_ERROR_UNSUPPORTED);
    parts = parts_of(&w);
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
    to.cols = w.n;
    args.x_scale = y;
    assert_int_equal(s24_device_blocks_linear(g.ctx, g.device, &args), S24_ERROR_ARGUMENT);
    assert_non_null(strstr(s24_ctx_error(g.ctx), "x_scale is there and w_scale NULL of blocks of "
                                                 "bf16; expected neither"));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_widening), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
