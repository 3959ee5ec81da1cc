// SPDX-License-Identifier: Apache-2.0
/* Tokens of 16 bits times integers on a GPU: every order and kernel against sums in double over odd
   shapes, and refusals. */
#include "device_product.h"

typedef struct integers {
    int bits, sparse;
    int64_t group;
    void *values;
    uint8_t *indices;
    float *scales;
} integers;

static unsigned random_byte(void)
{
    return (unsigned)(int)((random_float() + 1) * 128) & 255u;
}

/* Integers of every value and scales that are powers of two, so that p->w holds them exactly. */
static void fill_integers(problem *p, integers *q)
{
    static const uint8_t codes[] = {0x4, 0x8, 0x9, 0xc, 0xd, 0xe};
    const int64_t stride = q->sparse ? p->k / 2 : p->k, groups = (p->k + q->group - 1) / q->group;
    const int64_t index_bytes = (p->k + 7) / 8;
    uint8_t *values = calloc((size_t)(p->n * stride), 1);
    q->values = values;
    q->indices = calloc((size_t)(p->n * index_bytes), 1);
    q->scales = malloc((size_t)(p->n * groups) * sizeof(float));
    for (int64_t i = 0; i < p->n * groups; i++)
        q->scales[i] = ldexpf(1, -4 - (int)(random_byte() % 4));
    float *row = malloc((size_t)p->k * sizeof *row);
    for (int64_t r = 0; r < p->n; r++) {
        memset(row, 0, (size_t)p->k * sizeof *row);
        for (int64_t g = 0; g < p->k / 4; g++) {
            const unsigned code = q->sparse ? codes[random_byte() % 6] : 0;
            q->indices[r * index_bytes + g / 2] |= (uint8_t)(code << (g % 2 ? 4 : 0));
            for (int i = 0; i < (q->sparse ? 2 : 4); i++) {
                const int column = q->sparse ? (int)(code >> 2 * i & 3) : i;
                const int64_t at = r * stride + g * (q->sparse ? 2 : 4) + i, c = g * 4 + column;
                const unsigned bits = random_byte() >> (8 - q->bits);
                const int value =
                    bits >= 1u << (q->bits - 1) ? (int)bits - (1 << q->bits) : (int)bits;
                values[at * q->bits / 8] |= (uint8_t)(bits << (q->bits == 4 && at % 2 ? 4 : 0));
                row[c] = (float)value * q->scales[r * groups + c / q->group];
            }
        }
        assert_ok(p->ctx, s24_convert((char *)p->w + r * p->k * 2, p->dtype, row, S24_F32, p->k));
    }
    free(row);
}

static s24_quantized quantized_of(const problem *p, const integers *q)
{
    return (s24_quantized){.rows = p->n,
                           .cols = p->k,
                           .bits = q->bits,
                           .group = q->group,
                           .values = q->values,
                           .indices = q->sparse ? q->indices : NULL,
                           .scales = q->scales};
}

static void free_integers(integers *q)
{
    free(q->values);
    free(q->indices);
    free(q->scales);
}

/* Scales are powers of two, so that nothing is rounded; what is not the matrix stays. */
static void check_dense(const problem *p)
{
    const int64_t ld = p->k + 12;
    const size_t bytes = (size_t)(p->n * ld) * 2;
    uint16_t *got = malloc(bytes);
    void *gpu;
    memset(got, 0xff, bytes);
    assert_ok(p->ctx, s24_device_alloc(&gpu, p->ctx, p->device, bytes, NULL));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, gpu, got, bytes, NULL));
    const s24_dense dense = {gpu, p->dtype, p->n, p->k, ld};
    assert_ok(p->ctx, s24_device_integers_to_dense(p->ctx, p->device, &dense, p->integers, NULL));
    assert_ok(p->ctx, s24_device_copy(p->ctx, p->device, got, gpu, bytes, NULL));
    assert_ok(p->ctx, s24_device_wait(p->ctx, p->device, NULL));
    float *row = malloc((size_t)p->k * 2 * sizeof *row);
    for (int64_t r = 0; r < p->n; r++) {
        assert_ok(p->ctx, s24_convert(row, S24_F32, got + r * ld, p->dtype, p->k));
        assert_ok(p->ctx,
                  s24_convert(row + p->k, S24_F32, (char *)p->w + r * p->k * 2, p->dtype, p->k));
        for (int64_t c = 0; c < p->k; c++)
            assert_true(row[c] == row[p->k + c]);
        for (int64_t c = p->k; c < ld; c++)
            assert_int_equal(got[r * ld + c], 0xffff);
    }
    free(row);
    free(got);
    assert_ok(p->ctx, s24_device_free(p->ctx, p->device, gpu, NULL));
}

static void check_product(s24_ctx *ctx, s24_device *device, const int64_t *shape, int turn)
{
    static const s24_dtype dtypes[] = {S24_BF16, S24_F16};
    const int64_t groups[] = {64, 128, shape[2]};
    problem p = {.ctx = ctx,
                 .device = device,
                 .dtype = dtypes[turn % 2],
                 .y_dtype = turn / 2 % 3 ? dtypes[turn % 2] : S24_F32,
                 .m = shape[0],
                 .n = shape[1],
                 .k = shape[2]};
    integers q = {turn / 2 % 2 ? 8 : 4, turn / 4 % 2, groups[turn / 8 % 3], NULL, NULL, NULL};
    make_operands(&p);
    fill_integers(&p, &q);
    const s24_quantized src = quantized_of(&p, &q);
    assert_ok(ctx, s24_device_integers_create(&p.integers, ctx, device, &src, NULL));
    assert_true(s24_device_integers_bytes(p.integers) > 0);
    problem_upload(&p);
    check_dense(&p);
    run_twice(&p, NULL, S24_ACTIVATION_NONE, 0);
    run_twice(&p, NULL, (s24_activation)(turn % 5), turn % 4);
    run_twice(&p, "mma", (s24_activation)(turn / 3 % 5), turn / 5 % 4);
    problem_free(&p);
    free_integers(&q);
}

/* Each of 24 orders and dtypes with each shape; tokens where tiles begin and end, and more tiles
   than a GPU has processors. */
static void test_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 8, 4},       {3, 72, 196},   {8, 130, 1028},   {9, 65, 516},    {16, 200, 772},
        {31, 64, 2052},  {33, 321, 388}, {64, 136, 640},   {65, 260, 1284}, {150, 70, 132},
        {7, 4100, 256},  {5, 96, 9220},  {129, 1100, 260}, {200, 130, 516}, {256, 136, 1028},
        {300, 321, 132}, {777, 66, 260}, {520, 264, 128},  {40, 8712, 132}, {257, 8712, 36}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int turn = 0; device && turn < 24; turn++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check_product(ctx, device, shapes[s], turn);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Layers for which Hopper has two blocks of the weight at a time: 4 bits, 2:4, in both dtypes and
   every group, by tiles of 8 to 32 tokens that one, two and four blocks share; of groups of 128 by
   those of 64 and of 128 outputs. */
static void test_pairs(void **state)
{
    (void)state;
    static const struct {
        int turn;
        int64_t shape[3];
    } products[] = {{12, {8, 1252, 8260}}, {5, {6, 1252, 8260}},   {5, {3, 1100, 4100}},
                    {20, {7, 104, 964}},   {13, {5, 288, 452}},    {12, {16, 8676, 516}},
                    {5, {30, 8676, 516}},  {12, {32, 1100, 4100}}, {21, {17, 104, 964}},
                    {12, {7, 324, 260}},   {13, {3, 200, 132}},    {12, {5, 8508, 516}},
                    {13, {8, 9508, 964}},  {12, {2, 4508, 964}},   {13, {1, 4508, 6148}},
                    {12, {4, 2052, 2052}}, {13, {8, 6660, 2052}}};
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (size_t i = 0; device && i < sizeof products / sizeof *products; i++)
        check_product(ctx, device, products[i].shape, products[i].turn);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

/* Products that start before the one ahead of them is done. */
static void test_in_a_row(void **state)
{
    (void)state;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    s24_device *device = device_here(ctx);
    for (int tokens = 1; device && tokens <= 64; tokens += tokens < 8 ? 7 : tokens) {
        problem p = {.ctx = ctx,
                     .device = device,
                     .dtype = S24_BF16,
                     .y_dtype = S24_BF16,
                     .m = tokens,
                     .n = 1100,
                     .k = 1100};
        integers q = {4, 1, 128, NULL, NULL, NULL};
        make_operands(&p);
        fill_integers(&p, &q);
        const s24_quantized src = quantized_of(&p, &q);
        assert_ok(ctx, s24_device_integers_create(&p.integers, ctx, device, &src, NULL));
        problem_upload(&p);
        for (int i = 0; i < 20; i++)
            run_twice(&p, NULL, S24_ACTIVATION_NONE, 0);
        problem_free(&p);
        free_integers(&q);
    }
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void refused(s24_ctx *ctx, s24_device *device, const s24_quantized *src, s24_status status,
                    const char *what)
{
    s24_device_integers *made = NULL;
    assert_int_equal(s24_device_integers_create(&made, ctx, device, src, NULL), status);
    assert_null(made);
    assert_non_null(strstr(s24_ctx_error(ctx), what));
}

static void test_refusals(void **state)
{
    (void)state;
    static const uint8_t values[64 * 64], good[64 * 16] = {0}, legal = 0x44;
    s24_ctx *ctx;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    s24_device *device;
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    uint8_t codes[64 * 16];
    float scales[64 * 2];
    memset(codes, legal, sizeof codes);
    for (int i = 0; i < 128; i++)
        scales[i] = 1;
    const s24_quantized fine = {64, 128, 4, 64, values, codes, scales};
    s24_quantized src = fine;
    refused(ctx, device, NULL, S24_ERROR_ARGUMENT, "src is NULL");
    src.values = NULL;
    refused(ctx, device, &src, S24_ERROR_ARGUMENT, "values are NULL");
    src = fine;
    src.bits = 5;
    refused(ctx, device, &src, S24_ERROR_DTYPE, "5 bits; expected 8 or 4");
    src = fine;
    src.group = 32;
    refused(ctx, device, &src, S24_ERROR_SHAPE, "32 columns; expected 64, 128 or the whole row");
    src = fine;
    src.cols = 126;
    refused(ctx, device, &src, S24_ERROR_SHAPE, "[64, 126]; expected");
    src = fine;
    src.indices = good; /* zeros, which are no code */
    refused(ctx, device, &src, S24_ERROR_FORMAT, "row 0, column 0");
    scales[3] = -1;
    refused(ctx, device, &fine, S24_ERROR_FORMAT, "row 1, column 64 is -1");
    scales[3] = NAN;
    refused(ctx, device, &fine, S24_ERROR_FORMAT, "row 1, column 64");
    scales[3] = 1;
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

static void test_refused_products(void **state)
{
    (void)state;
    static const uint8_t values[64 * 64];
    static _Alignas(16) uint16_t memory[64 * 128];
    float scales[64];
    s24_ctx *ctx;
    s24_device *device;
    s24_device_integers *w;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    for (int i = 0; i < 64; i++)
        scales[i] = 0.5f;
    const s24_quantized src = {64, 128, 4, 128, values, NULL, scales};
    assert_ok(ctx, s24_device_integers_create(&w, ctx, device, &src, NULL));
    s24_dense x = {memory, S24_BF16, 2, 128, 0}, y = {memory, S24_BF16, 2, 64, 0};
    s24_device_linear_args args = {.size = sizeof args, .x = &x, .y = &y};
    assert_ok(ctx, s24_device_integers_linear(ctx, device, w, &args));
#define REFUSED(field, wrong, right, status, what)                                                 \
    do {                                                                                           \
        field = wrong;                                                                             \
        assert_int_equal(s24_device_integers_linear(ctx, device, w, &args), status);               \
        assert_non_null(strstr(s24_ctx_error(ctx), what));                                         \
        field = right;                                                                             \
    } while (0)
    REFUSED(x.dtype, S24_F32, S24_BF16, S24_ERROR_DTYPE, "x is f32");
    REFUSED(y.dtype, S24_F16, S24_BF16, S24_ERROR_DTYPE, "y is f16 of x in bf16");
    REFUSED(x.cols, 124, 128, S24_ERROR_SHAPE, "x is [2, 124]; expected [2, 128]");
    REFUSED(y.cols, 60, 64, S24_ERROR_SHAPE, "y is [2, 60]");
    REFUSED(args.tile, "64x8", NULL, S24_ERROR_ARGUMENT, "tile named \"64x8\"");
    REFUSED(args.work, memory, NULL, S24_ERROR_UNSUPPORTED, "work of a product with integers");
    REFUSED(args.w_scale, scales, NULL, S24_ERROR_UNSUPPORTED, "w_scale");
    REFUSED(args.alpha, 2, 0, S24_ERROR_UNSUPPORTED, "alpha of a product with integers");
    REFUSED(args.y_scale, 2, 0, S24_ERROR_UNSUPPORTED, "y_scale of a product with integers");
    REFUSED(args.activation, (s24_activation)99, S24_ACTIVATION_NONE, S24_ERROR_ARGUMENT,
            "activation is 99");
#undef REFUSED
    assert_int_equal(s24_device_integers_linear(ctx, device, NULL, &args), S24_ERROR_ARGUMENT);
    s24_dense dense = {memory, S24_BF16, 64, 128, 0};
    assert_ok(ctx, s24_device_integers_to_dense(ctx, device, &dense, w, NULL));
#define REFUSED(field, wrong, right, status, what)                                                 \
    do {                                                                                           \
        dense.field = wrong;                                                                       \
        assert_int_equal(s24_device_integers_to_dense(ctx, device, &dense, w, NULL), status);      \
        assert_non_null(strstr(s24_ctx_error(ctx), what));                                         \
        dense.field = right;                                                                       \
    } while (0)
    REFUSED(dtype, S24_F32, S24_BF16, S24_ERROR_DTYPE, "dst is f32");
    REFUSED(rows, 63, 64, S24_ERROR_SHAPE, "dst is [63, 128]; expected [64, 128]");
    REFUSED(ld, 130, 0, S24_ERROR_ARGUMENT, "leading dimension of 130");
#undef REFUSED
    assert_int_equal(s24_device_integers_to_dense(ctx, device, &dense, NULL, NULL),
                     S24_ERROR_ARGUMENT);
    s24_device_integers_destroy(w);
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_in_a_row), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
