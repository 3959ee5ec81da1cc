// SPDX-License-Identifier: Apache-2.0
/*
 * Attention over a cache on a device against sums in double: one new token of each text, whose key
 * and value go to the cache, and several, which are there; texts of one piece and of several,
 * windows, sinks, values narrower than keys. Says in a line where there is no GPU.
 */
#include "device_support.h"

typedef struct caching {
    int64_t heads, kv_heads, d, value, window, room;
    int sinks, news; /* news: tokens that each text goes on by */
    int32_t before[3];
} caching;

enum { CACHED = 3 };

typedef struct held {
    const caching *c;
    array qkv, keys, values;
    float sinks[16];
    int32_t offsets[CACHED + 1], places[CACHED];
    double *expected, *p;
} held;

/* Where a text's row of the cache is. */
static int64_t row_of(const caching *c, int64_t place, int64_t kv, int64_t at)
{
    return ((place * c->kv_heads + kv) * c->room + at) * c->d;
}

/* The key or value of a text's token `at`, which may be a new one in qkv. */
static const float *row_at(const held *h, int text, int64_t kv, int64_t at, int is_value)
{
    const caching *c = h->c;
    const int64_t ld = (c->heads + 2 * c->kv_heads) * c->d, fresh = at - c->before[text];
    if (fresh >= 0)
        return h->qkv.host + (h->offsets[text] + fresh) * ld +
               (c->heads + (is_value ? c->kv_heads : 0) + kv) * c->d;
    return (is_value ? h->values : h->keys).host + row_of(c, h->places[text], kv, at);
}

static void expect_query(const held *h, int text, int64_t fresh, int64_t head)
{
    const caching *c = h->c;
    const int64_t ld = (c->heads + 2 * c->kv_heads) * c->d, kv = head * c->kv_heads / c->heads;
    const int64_t token = h->offsets[text] + fresh, last = c->before[text] + fresh;
    const int64_t first = c->window && last >= c->window ? last + 1 - c->window : 0;
    const float *q = h->qkv.host + token * ld + head * c->d;
    double *out = h->expected + (token * c->heads + head) * c->value, most = -HUGE_VAL, sum = 0;
    for (int64_t t = first; t <= last; t++) {
        const float *k = row_at(h, text, kv, t, 0);
        h->p[t] = 0;
        for (int64_t e = 0; e < c->d; e++)
            h->p[t] += (double)q[e] * (double)k[e];
        h->p[t] /= sqrt((double)c->d);
        most = fmax(most, h->p[t]);
    }
    for (int64_t t = first; t <= last; t++)
        sum += h->p[t] = exp(h->p[t] - most);
    if (c->sinks) sum += exp((double)h->sinks[head] - most);
    for (int64_t e = 0; e < c->value; e++) {
        out[e] = 0;
        for (int64_t t = first; t <= last; t++)
            out[e] += h->p[t] / sum * (double)row_at(h, text, kv, t, 1)[e];
    }
}

static void expect_cache(gpu *g, const held *h)
{
    const caching *c = h->c;
    uint16_t *there = malloc((size_t)h->keys.count * 2);
    float *got = malloc((size_t)h->keys.count * sizeof *got);
    for (int is_value = 0; is_value < 2; is_value++) {
        assert_ok(g->ctx, s24_device_copy(g->ctx, g->device, there,
                                          is_value ? h->values.there : h->keys.there,
                                          (size_t)h->keys.count * 2, NULL));
        assert_ok(g->ctx, s24_device_wait(g->ctx, g->device, NULL));
        assert_ok(g->ctx, s24_convert(got, S24_F32, there, g->dtype, h->keys.count));
        for (int b = 0; b < CACHED; b++)
            for (int64_t i = 0; i < c->kv_heads * c->d; i++)
                for (int64_t t = 0; t < c->before[b] + c->news; t++)
                    assert_true(got[row_of(c, h->places[b], i / c->d, t) + i % c->d] ==
                                row_at(h, b, i / c->d, t, is_value)[i % c->d]);
    }
    free(got);
    free(there);
}

static void check(gpu *g, const caching *c)
{
    const int64_t ld = (c->heads + 2 * c->kv_heads) * c->d, tokens = CACHED * c->news;
    const int64_t rows = CACHED * c->kv_heads * c->room;
    held h = {.c = c,
              .qkv = array_make(g, tokens * ld, 2),
              .keys = array_make(g, rows * c->d, 2),
              .values = array_make(g, rows * c->d, 1),
              .places = {2, 0, 1}};
    const size_t work_bytes =
        s24_device_attention_cache_work_bytes(g->device, CACHED, c->heads, c->d);
    h.expected = malloc((size_t)(tokens * c->heads * c->value) * sizeof *h.expected);
    h.p = malloc((size_t)c->room * sizeof *h.p);
    for (int i = 0; i < 16; i++)
        h.sinks[i] = 3 * random_float();
    for (int b = 0; b < CACHED; b++)
        h.offsets[b + 1] = h.offsets[b] + c->news;
    for (int b = 0; b < CACHED; b++)
        for (int64_t i = 0; i < c->news * c->heads; i++)
            expect_query(&h, b, i / c->heads, i % c->heads);
    void *firsts = upload(g, h.offsets, sizeof h.offsets),
         *places = upload(g, h.places, sizeof h.places),
         *before = upload(g, c->before, sizeof c->before),
         *sinks = upload(g, h.sinks, sizeof h.sinks), *work = poisoned(g, work_bytes), *counters;
    unsigned zeros[64] = {0};
    counters = upload(g, zeros, sizeof zeros);
    s24_device_attention_cache_args args = {.size = sizeof args,
                                            .dtype = g->dtype,
                                            .texts = CACHED,
                                            .longest = c->news,
                                            .heads = c->heads,
                                            .kv_heads = c->kv_heads,
                                            .d = c->d,
                                            .room = c->room,
                                            .window = c->window,
                                            .offsets = firsts,
                                            .places = places,
                                            .before = before,
                                            .qkv = h.qkv.there,
                                            .keys = h.keys.there,
                                            .values = h.values.there,
                                            .work = work,
                                            .counters = counters,
                                            .sinks = c->sinks ? sinks : NULL,
                                            .value_d = c->value == c->d ? 0 : c->value};
    if (c->news > 1) assert_ok(g->ctx, s24_device_cache_put(g->ctx, g->device, &args));
    for (int turn = 0; turn < 2; turn++) {
        args.context = poisoned(g, (size_t)(tokens * c->heads * c->value) * 2);
        assert_ok(g->ctx, s24_device_attention_cache(g->ctx, g->device, &args));
        expect(g, "context", args.context, 0, h.expected, tokens * c->heads * c->value,
               g->dtype == S24_BF16 ? 1e-2 : 2e-3);
        release(g, args.context);
    }
    expect_cache(g, &h);
    void *const there[] = {firsts, places, before, sinks, work, counters};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        release(g, there[i]);
    array_free(g, &h.qkv);
    array_free(g, &h.keys);
    array_free(g, &h.values);
    free(h.expected);
    free(h.p);
}

static void test_cache(void **state)
{
    static const caching all[] = {{4, 2, 64, 64, 0, 2100, 0, 1, {0, 700, 2050}},
                                  {8, 1, 64, 64, 0, 2100, 1, 1, {3, 511, 2000}},
                                  {4, 4, 64, 64, 128, 1500, 1, 1, {5, 127, 1400}},
                                  {3, 3, 192, 128, 0, 1200, 0, 1, {0, 40, 1100}},
                                  {6, 2, 96, 64, 0, 300, 1, 5, {0, 17, 250}},
                                  {16, 16, 24, 16, 16, 200, 1, 3, {1, 16, 150}},
                                  {2, 2, 256, 256, 0, 700, 0, 1, {9, 0, 650}}};
    gpu g = {0};
    (void)state;
    if (!gpu_here(&g)) return;
    for (size_t i = 0; i < 2 * (sizeof all / sizeof *all); i++) {
        g.dtype = i % 2 ? S24_F16 : S24_BF16;
        check(&g, &all[i / 2]);
    }
    gpu_end(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
