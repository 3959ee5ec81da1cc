// SPDX-License-Identifier: Apache-2.0
/*
 * Heads of latents on a device: queries, keys and values side by side, turned by positions, filled
 * up with zeros, against the same in double. What is refused is tested without a GPU, on a plugin
 * that is none.
 */
#include "device_support.h"

typedef struct heads {
    int64_t tokens, heads, plain, turned, value, d;
    int halves;
} heads;

/* Element `at` of what a position turns. */
static double turned_at(const heads *h, const float *x, const float *angles, int64_t at)
{
    const int64_t half = h->turned / 2, pair = h->halves ? at % half : at / 2;
    const int first = h->halves ? at < half : at % 2 == 0;
    const double other =
        (double)x[h->halves ? (first ? at + half : at - half) : (first ? at + 1 : at - 1)];
    return (double)x[at] * (double)angles[pair] +
           (first ? -other : other) * (double)angles[half + pair];
}

/* What a row of qkv is, [3, heads, d]. */
static void expect_row(double *to, const heads *h, const float *queries, const float *key,
                       const float *made, const float *angles)
{
    for (int64_t i = 0; i < 3 * h->heads * h->d; i++) {
        const int64_t part = i / h->d / h->heads, head = i / h->d % h->heads, at = i % h->d;
        const float *q = queries + head * (h->plain + h->turned),
                    *m = made + head * (h->plain + h->value);
        to[i] = 0;
        if (part == 2)
            to[i] = at < h->value ? (double)m[h->plain + at] : 0;
        else if (at < h->plain)
            to[i] = (double)(part ? m : q)[at];
        else if (at < h->plain + h->turned)
            to[i] = turned_at(h, part ? key : q + h->plain, angles, at - h->plain);
    }
}

static void check(gpu *g, const heads *h)
{
    enum { POSITIONS = 11 };
    const int64_t wide = 3 * h->heads * h->d, query = h->heads * (h->plain + h->turned),
                  made_wide = h->heads * (h->plain + h->value), ld = 24 + h->turned;
    array queries = array_make(g, h->tokens * query, 1), key = array_make(g, h->tokens * ld, 1),
          made = array_make(g, h->tokens * made_wide, 1);
    float *angles = malloc((size_t)(POSITIONS * h->turned) * sizeof *angles);
    int32_t *position = malloc((size_t)h->tokens * sizeof *position);
    double *expected = malloc((size_t)(h->tokens * wide) * sizeof *expected);
    for (int64_t i = 0; i < POSITIONS * h->turned; i++)
        angles[i] = random_float();
    for (int64_t t = 0; t < h->tokens; t++) {
        position[t] = (int32_t)(t * 7 % POSITIONS);
        expect_row(expected + t * wide, h, queries.host + t * query, key.host + t * ld + 24,
                   made.host + t * made_wide, angles + position[t] * h->turned);
    }
    void *angles_there = upload(g, angles, (size_t)(POSITIONS * h->turned) * sizeof *angles),
         *position_there = upload(g, position, (size_t)h->tokens * sizeof *position),
         *qkv = poisoned(g, (size_t)(h->tokens * wide) * 2);
    const s24_device_latent_args args = {.size = sizeof args,
                                         .dtype = g->dtype,
                                         .tokens = h->tokens,
                                         .heads = h->heads,
                                         .plain = h->plain,
                                         .turned = h->turned,
                                         .value = h->value,
                                         .d = h->d,
                                         .queries = queries.there,
                                         .key = (char *)key.there + 48,
                                         .key_ld = ld,
                                         .made = made.there,
                                         .angles = angles_there,
                                         .position = position_there,
                                         .halves = h->halves,
                                         .qkv = qkv};
    assert_ok(g->ctx, s24_device_latent(g->ctx, g->device, &args));
    expect(g, "heads of latents", qkv, 0, expected, h->tokens * wide, 1e-6);
    release(g, qkv);
    release(g, position_there);
    release(g, angles_there);
    free(expected);
    free(position);
    free(angles);
    array_free(g, &made);
    array_free(g, &key);
    array_free(g, &queries);
}

static void test_heads(void **state)
{
    static const heads all[] = {{1, 1, 8, 8, 8, 16, 0},        {37, 16, 128, 64, 128, 192, 0},
                                {5, 3, 24, 16, 56, 56, 0},     {300, 4, 64, 32, 64, 96, 1},
                                {9, 20, 192, 64, 256, 256, 0}, {13, 5, 16, 8, 40, 40, 1}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * (sizeof all / sizeof *all); i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check(&g, &all[i / 2]);
    }
    gpu_end(&g);
}

static void says(s24_ctx *ctx, s24_status got, s24_status status, const char *part)
{
    if (got != status || !strstr(s24_ctx_error(ctx), part))
        fail_msg("status %d, \"%s\"; expected %d and \"%s\"", (int)got, s24_ctx_error(ctx),
                 (int)status, part);
}

static void test_refused(void **state)
{
    static _Alignas(16) uint8_t memory[1024];
    const s24_device_opts opts = {.size = sizeof opts, .library = S24_FAKE_PLUGIN};
    const float *floats = (const float *)(const void *)memory;
    const int32_t *position = (const int32_t *)(const void *)memory;
    const s24_device_latent_args good = {.size = sizeof good,
                                         .dtype = S24_F16,
                                         .tokens = 1,
                                         .heads = 1,
                                         .plain = 8,
                                         .turned = 8,
                                         .value = 8,
                                         .d = 16,
                                         .queries = memory,
                                         .key = memory,
                                         .key_ld = 8,
                                         .made = memory,
                                         .angles = floats,
                                         .position = position,
                                         .qkv = memory};
    s24_device_latent_args args = good;
    s24_ctx *ctx;
    s24_device *device;
    (void)state;
    assert_int_equal(s24_ctx_create(&ctx, NULL), S24_OK);
    assert_ok(ctx, s24_device_create(&device, ctx, &opts));
    assert_ok(ctx, s24_device_latent(ctx, device, &args));
    args.dtype = S24_F32;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_DTYPE, "latents are f32");
    args = good, args.d = 8;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_SHAPE,
         "heads of 8 and 8 elements of keys, 8 of values, in 8; expected multiples of 8");
    args = good, args.turned = 4;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_SHAPE, "heads of 8 and 4");
    args = good, args.d = 264;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_SHAPE, "in 264");
    args = good, args.made = memory + 8;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_ARGUMENT, "made is at");
    args = good, args.position = NULL;
    says(ctx, s24_device_latent(ctx, device, &args), S24_ERROR_ARGUMENT, "position is at");
    s24_device_destroy(device);
    s24_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
