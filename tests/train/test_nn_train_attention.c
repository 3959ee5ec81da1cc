// SPDX-License-Identifier: Apache-2.0
/* Attention forward and backward against sums in double: texts of one token and of several tiles,
   grouped heads, causal order, masks, on every instruction set. */
#include "support.h"

#include <math.h>

#include "nn_load.h"
#include "run/cpu/attention.h"
#include "train/ops.h"

enum { TEXTS = 3, TOKENS = 1 + 131 + 97, HEADS = 4, KV = 2, D = 6, LD = (HEADS + 2 * KV) * D };

static const int64_t offsets[TEXTS + 1] = {0, 1, 132, TOKENS};

typedef struct data {
    float qkv[TOKENS * LD], dcontext[TOKENS * HEADS * D];
    float context[TOKENS * HEADS * D], dqkv[TOKENS * LD];
    double wanted[TOKENS * HEADS * D], dwanted[TOKENS * LD];
    uint8_t mask[TOKENS];
    double p[TOKENS], dp[TOKENS];
} data;

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query of one head, whose text is first … end − 1. */
static void query(data *x, int64_t first, int64_t end, int64_t t, int64_t head, int masked)
{
    const int64_t k = (HEADS + head / (HEADS / KV)) * D, v = k + KV * D;
    const float *q = x->qkv + t * LD + head * D, *d = x->dcontext + (t * HEADS + head) * D;
    double *out = x->wanted + (t * HEADS + head) * D, sum = 0, mean = 0, scale = 1 / sqrt(D);
    for (int64_t s = first; s < end; s++) {
        x->p[s] = masked && !x->mask[s] ? 0 : exp(scale * dot(q, x->qkv + s * LD + k));
        sum += x->p[s];
    }
    for (int64_t s = first; s < end; s++) {
        x->p[s] /= sum;
        x->dp[s] = dot(d, x->qkv + s * LD + v);
        mean += x->p[s] * x->dp[s];
    }
    for (int64_t s = first; s < end; s++) {
        const double ds = x->p[s] * (x->dp[s] - mean) * scale;
        for (int i = 0; i < D; i++) {
            out[i] += x->p[s] * (double)x->qkv[s * LD + v + i];
            x->dwanted[t * LD + head * D + i] += ds * (double)x->qkv[s * LD + k + i];
            x->dwanted[s * LD + k + i] += ds * (double)q[i];
            x->dwanted[s * LD + v + i] += x->p[s] * (double)d[i];
        }
    }
}

static void fill(data *x, int causal, int masked)
{
    uint64_t state = 7;
    memset(x, 0, sizeof *x);
    for (int64_t i = 0; i < TOKENS * LD; i++)
        x->qkv[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 500.0f;
    for (int64_t i = 0; i < TOKENS * HEADS * D; i++)
        x->dcontext[i] = (float)((int64_t)(test_random(&state) % 2001) - 1000) / 1000.0f;
    for (int64_t t = 0; t < TOKENS; t++)
        x->mask[t] = t % 5 != 3;
    for (int b = 0; b < TEXTS; b++)
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++)
            for (int64_t head = 0; head < HEADS; head++)
                query(x, offsets[b], causal ? t + 1 : offsets[b + 1], t, head, masked);
}

static void near(const double *expected, const float *got, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(expected[i] - (double)got[i]) <= 2e-5 * (1 + fabs(expected[i]))))
            fail_msg("%s at %lld: expected %g, got %g", what, (long long)i, expected[i],
                     (double)got[i]);
}

static void check(data *x, const char *level, int threads, int causal, int masked)
{
    s24_ctx *ctx;
    s24i_machine m;
    int64_t tiles[TEXTS + 1] = {0}, starts[TEXTS + 1];
    const s24_ctx_opts opts = {
        .size = sizeof opts, .threads = threads, .cpu_mask = s24_cpu_parse(level)};
    assert_int_equal(s24_ctx_create(&ctx, &opts), S24_OK);
    OK(ctx, s24i_machine_cpu(&m, ctx, TOKENS, D, LD));
    memcpy(starts, offsets, sizeof starts);
    for (int b = 0; b < TEXTS; b++)
        tiles[b + 1] = tiles[b] + s24i_attention_tiles(offsets[b + 1] - offsets[b]);
    const s24i_train_batch step = {.tokens = TOKENS,
                                   .texts = TEXTS,
                                   .longest = 131,
                                   .offsets = starts,
                                   .tiles = tiles,
                                   .mask = masked ? x->mask : NULL};
    const s24i_heads heads = {
        .step = &step, .heads = HEADS, .kv_heads = KV, .d = D, .causal = causal};
    fill(x, causal, masked);
    m.ops->attention(&m, x->context, x->qkv, &heads);
    near(x->wanted, x->context, TOKENS * HEADS * D, "context");
    m.ops->attention_back(&m, x->dqkv, x->dcontext, x->qkv, &heads);
    near(x->dwanted, x->dqkv, TOKENS * LD, "dqkv");
    assert_int_equal(m.status, S24_OK);
    s24_ctx_free(ctx, m.scratch);
    s24_ctx_destroy(ctx);
}

static void attention(void **state)
{
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    data *x = malloc(sizeof *x);
    (void)state;
    for (int level = 0; level < 3; level++)
        for (int threads = 1; threads <= 3; threads++)
            for (int causal = 0; causal <= 1; causal++)
                check(x, levels[level], threads, causal, !causal && threads > 1);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
